//! Flame graphs as a picture: SVG without scripts, that opens in a browser. Those to blame above, those who waited below; the outermost call
//! on top, as on the page. Whatever has no room for its name tells it when pointed at.

use super::flame::{Call, Flame};
use super::markup::escaped;
use super::{Format, Renderer};
use crate::report::profile::Profile;
use crate::report::schema::Ns;
use crate::report::text::{clip, counted, percent};
use std::io::{self, Write};

/// The format.
pub(super) const SVG: Format = Format {
    name: "svg",
    suffixes: &[".svg"],
    about: "SVG: flame graphs of those to blame and of those who waited, as a picture",
    leaves_out: "flame graphs show sums by stack: how many waits there were, causes, lines and times are left out",
    renderer: Renderer::Profile(write),
};

/// Calls in each flame graph: those with most waiting.
const CALLS: usize = 2_000;
/// Pixels, where one unit is one.
const WIDTH: f64 = 1_200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
const LINE: f64 = 22.0;
/// Width of a letter: the font is `monospace` of 12 pixels.
const LETTER: f64 = 7.25;
/// Colours of calls.
const COLOURS: u32 = 4;

const STYLE: &str = "\
text { font: 12px 'DejaVu Sans Mono', monospace; fill: #1b1f24; white-space: pre }
.head { font: 15px system-ui, sans-serif } .told { font: 13px system-ui, sans-serif }
.ground { fill: #fff } .c0 { fill: #f6c28b } .c1 { fill: #f3a683 } .c2 { fill: #f9d98c } .c3 { fill: #eab39b } .lock { fill: #9ecae1 }
@media (prefers-color-scheme: dark) { .ground { fill: #14171b } .head, .told { fill: #e8eaed } }
";

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let sides = [
        ("culprits", "To blame: where those were who made others wait", Flame::of(&profile.culprits, CALLS)),
        ("waiters", "Waiting: where threads waited", Flame::of(&profile.waiters, CALLS)),
    ];
    let rows: f64 = sides.iter().map(|(.., flame)| flame.depth as f64 * ROW + 2.0 * LINE).sum();
    let height = 2.0 * MARGIN + LINE + rows;
    let title = format!("Waiting for locks: {} in {}", profile.wait_ns, profile.target);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="group">"#
    )?;
    writeln!(out, "<title>{}</title>\n<style>\n{STYLE}</style>", escaped(&title))?;
    writeln!(out, r#"<rect class="ground" width="100%" height="100%"/>"#)?;
    let mut y = MARGIN + ROW;
    writeln!(out, r#"<text class="head" x="{MARGIN}" y="{y}">{}</text>"#, escaped(&clip(&title, 140)))?;
    for (id, heading, flame) in sides {
        y += LINE;
        writeln!(out, r#"<g id="{id}">"#)?;
        writeln!(out, r#"<text class="told" x="{MARGIN}" y="{y}">{heading}. {}</text>"#, left_out(&flame))?;
        y += LINE - ROW;
        for (at, call) in flame.nodes.iter().enumerate() {
            let calls_others = flame.nodes.get(at + 1).is_some_and(|next| next.depth > call.depth);
            cell(call, flame.wait_ns, y, !calls_others, out)?;
        }
        writeln!(out, "</g>")?;
        y += flame.depth as f64 * ROW + ROW;
    }
    writeln!(out, "</svg>")
}

fn left_out(flame: &Flame) -> String {
    match flame.left_out {
        (0, _) => String::new(),
        (calls, wait_ns) => {
            format!("{} with {wait_ns} of waiting are not shown.", counted(calls as u64, "smaller call"))
        }
    }
}

/// A call: a rectangle as wide as its waiting, with its name as far as there is room.
fn cell(call: &Call, all: Ns, top: f64, is_leaf: bool, out: &mut dyn Write) -> io::Result<()> {
    let part = |ns: Ns| ns.as_f64() / all.as_f64().max(1.0);
    let pixels = |ns: Ns| part(ns) * (WIDTH - 2.0 * MARGIN);
    let (x, y, width) = (MARGIN + pixels(call.before_ns), top + call.depth as f64 * ROW, pixels(call.wait_ns));
    let class =
        if is_leaf && call.name.starts_with('[') { "lock".to_owned() } else { format!("c{}", colour(&call.name)) };
    let told = format!("{}: {}, {} of the waiting", call.name, call.wait_ns, percent(part(call.wait_ns)));
    write!(out, r#"<g data-ns="{}"><title>{}</title>"#, call.wait_ns.whole(), escaped(&told))?;
    let (shown, high) = ((width - 0.5).max(0.2), ROW - 1.0);
    write!(out, r#"<rect class="{class}" x="{x:.2}" y="{y}" width="{shown:.2}" height="{high}"/>"#)?;
    let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
    if letters > 2 {
        let name = escaped(&clip(&call.name, letters));
        write!(out, r#"<text x="{:.2}" y="{}">{name}</text>"#, x + 3.0, y + ROW - 5.0)?;
    }
    writeln!(out, "</g>")
}

/// One of the colours, always the same for a name.
fn colour(name: &str) -> u32 {
    name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % COLOURS
}
