//! A check that people who do not see all colours can tell the colours of categories apart.

use std::collections::BTreeMap;

const BASE: &str = include_str!("page/style/base.css");
const PARTS: &str = include_str!("page/style/parts.css");
/// What those to blame were doing: each has a colour of a bar and of its legend.
const CAUSES: [&str; 8] = ["running", "runnable", "blocked", "sleeping", "lock", "kernel_lock", "handoff", "unknown"];
/// What is drawn over each other in the swimlanes.
const LANES: [&str; 3] = ["wait", "hold", "path"];
/// Differences in CIELAB: a just noticeable one is 2.3 (Mahy and others, 1994); small areas side by side take several times that.
const APART: f64 = 15.0;

/// What red, green and blue look like, in linear light, without one kind of cones (Machado, Oliveira and Fernandes, 2009, table 1, severity 1).
const SEEN: [(&str, [[f64; 3]; 3]); 4] = [
    ("by most", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "with protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "with deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "with tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

type Colours = BTreeMap<String, [f64; 3]>;

/// The properties of a style sheet that are colours, in linear light.
fn colours(css: &str) -> Colours {
    let properties = css.split(';').filter_map(|text| text.rsplit_once("--")?.1.split_once(": #"));
    properties.map(|(name, digits)| (name.to_owned(), linear(digits))).collect()
}

fn linear(digits: &str) -> [f64; 3] {
    [0, 2, 4].map(|at| {
        let of_one = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
        if of_one <= 0.04045 { of_one / 12.92 } else { ((of_one + 0.055) / 1.055).powf(2.4) }
    })
}

fn schemes() -> [(&'static str, Colours); 2] {
    let (light, rest) = BASE.split_once("@media screen and (prefers-color-scheme: dark)").unwrap();
    let (dark, _) = rest.split_once("\n}").unwrap();
    let mut both = colours(light);
    both.extend(colours(dark));
    [("light", colours(light)), ("dark", both)]
}

fn product(matrix: [[f64; 3]; 3], of: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(of).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0))
}

/// CIELAB under daylight (D65).
fn lab(rgb: [f64; 3]) -> [f64; 3] {
    let to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
    let [x, y, z] = product(to_xyz, rgb);
    let root = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let [x, y, z] = [root(x / 0.95047), root(y), root((z / 1.08883).min(1.0))];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(a: [f64; 3], b: [f64; 3], seen: [[f64; 3]; 3]) -> f64 {
    let [a, b] = [a, b].map(|colour| lab(product(seen, colour)));
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn black_and_white_are_a_hundred_apart() {
    for (how, seen) in SEEN {
        let apart = distance(linear("000000"), linear("ffffff"), seen);
        assert!((apart - 100.0).abs() < 1.0, "{how}: {apart}");
    }
    // Red and green of one lightness: what the tables are for.
    let [most, _, deuteranopia, _] = SEEN.map(|(_, seen)| distance(linear("d55e00"), linear("888b00"), seen));
    assert!(most > 50.0 && deuteranopia < 10.0, "{most} {deuteranopia}");
}

#[test]
fn categories_are_told_apart_without_one_kind_of_cones() {
    let mut too_near = Vec::new();
    for (scheme, colours) in schemes() {
        for names in [&CAUSES[..], &LANES] {
            let pairs = names.iter().enumerate().flat_map(|(at, a)| names[at + 1..].iter().map(move |b| (a, b)));
            for ((a, b), (how, seen)) in pairs.flat_map(|pair| SEEN.map(|seen| (pair, seen))) {
                let apart = distance(colours[*a], colours[*b], seen);
                if apart < APART {
                    too_near.push(format!("{a} and {b} {how} in the {scheme} scheme: {apart:.1}"));
                }
            }
        }
    }
    assert!(too_near.is_empty(), "{too_near:#?}");
}

/// Text on a canvas, which no browser's tools look at: WCAG 2.2 wants a ratio of 4.5 (level AA, 1.4.3).
#[test]
fn names_and_times_beside_swimlanes_stand_out() {
    let luminance = |[r, g, b]: [f64; 3]| 0.2126 * r + 0.7152 * g + 0.0722 * b;
    for (scheme, colours) in schemes() {
        for (ink, ground) in [("text", "ground"), ("text", "raised"), ("quiet", "ground")] {
            let [ink_light, ground_light] = [ink, ground].map(|name| luminance(colours[name]) + 0.05);
            let ratio = ink_light.max(ground_light) / ink_light.min(ground_light);
            assert!(ratio >= 4.5, "{ink} on {ground} in the {scheme} scheme: {ratio:.1}");
        }
    }
}

/// Calls of a flame graph have any of four colours, which mean nothing. What was found has a frame, and locks have brackets.
#[test]
fn what_a_search_finds_has_a_frame() {
    let (_, found) = PARTS.split_once(".flame .found {").unwrap();
    assert!(found.split_once('}').unwrap().0.contains("stroke: #1b1f24"), "{found}");
}
