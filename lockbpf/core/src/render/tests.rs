//! Event lines in each format, compared with what the report says of them.

use super::*;
use crate::analysis::{self, Analyst, Closing};
use crate::diff::{self, Thresholds};
use crate::event::Event;
use crate::lines::{Reader, Writer};
use crate::names::Names;
use crate::observation::{Harvest, Observation};
use crate::report::profile::Sample;
use crate::report::schema::Ns;
use crate::report::{self, build_pictures, build_profile, build_timeline};
use crate::untrusted::{cleaned, is_unsafe};
use proptest::prelude::*;
use std::io::Read as _;

/// Two threads wait for `L` while `w` holds it, one of them for `M` before; names that formats must escape.
const LINES: &str = r#"{"t":0,"tid":1,"op":"attempt","lock":"L","site":"writer;of\nall (a.c:1)"}
{"t":0,"tid":1,"op":"acquire","lock":"L"}
{"t":10,"tid":2,"op":"attempt","lock":"L","site":"reader (b.c:2)","stack":["reader (b.c:2)","main (b.c:9)"]}
{"t":15,"tid":3,"op":"attempt","lock":"L","site":"reader (b.c:2)","stack":["reader (b.c:2)","<\"other'>&\u0001\u202e (c.c:3)"]}
{"t":40,"tid":1,"op":"release","lock":"L"}
{"t":40,"tid":2,"op":"acquire","lock":"L"}
{"t":60,"tid":2,"op":"release","lock":"L"}
{"t":60,"tid":3,"op":"acquire","lock":"L"}
{"t":61,"tid":3,"op":"release","lock":"L"}
"#;

fn analysed<T>(lines: &str, build: impl FnOnce(&Observation, &mut dyn Names) -> T) -> T {
    let mut reader = Reader::new(lines.as_bytes(), 1);
    let mut analyst = Analyst::new(analysis::Options { detail: true, ..analysis::Options::default() });
    for event in &mut reader {
        analyst.take(event.unwrap());
    }
    let mut labels = reader.into_labels();
    let harvest = Harvest { stacks: labels.stacks(), ..Harvest::default() };
    build(&analyst.finish(Closing { ticks_per_ns: 1, harvest, ..Closing::default() }), &mut labels)
}

fn profile_of(lines: &str) -> (Report, Profile) {
    analysed(lines, |seen, names| build_profile(seen, names, &report::Options::default()).unwrap())
}

fn timeline_of(lines: &str) -> (Report, Timeline) {
    analysed(lines, |seen, names| build_timeline(seen, names, &report::Options::default()).unwrap())
}

/// What pages are made of.
pub(crate) fn page_of(lines: &str) -> Page {
    let (report, pictures) =
        analysed(lines, |seen, names| build_pictures(seen, names, &report::Options::default()).unwrap());
    Page { report, pictures, ..Page::default() }
}

/// Event lines in a format.
fn written(format: &str, lines: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match FORMATS.iter().find(|f| f.name == format).unwrap().renderer {
        Renderer::Profile(render) | Renderer::Timed(render) => render(&profile_of(lines).1, &mut out).unwrap(),
        Renderer::Timeline(render) => render(&timeline_of(lines).1, &mut out).unwrap(),
        Renderer::Page(render) => render(&page_of(lines), &mut out).unwrap(),
    }
    out
}

fn text(format: &str) -> String {
    String::from_utf8(written(format, LINES)).unwrap()
}

#[test]
fn suffixes_mean_formats() {
    let name = |file| by_suffix(file).map(|format| format.name);
    assert_eq!(name("a.folded"), Some("folded"));
    assert_eq!(name("a.culprits.folded"), Some("folded-culprits"));
    assert_eq!(name("BLOCK.PB.GZ"), Some("pprof-block"));
    assert_eq!(name("mutex.pb.gz"), Some("pprof-mutex"));
    assert_eq!(name("a.gz"), None);
    let mut names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FORMATS.len());
}

#[test]
fn folded_stacks() {
    assert_eq!(text("folded"), "<\"other'>&\\u{1}\\u{202e};reader;[L] 45\nmain;reader;[L] 30\n");
    assert_eq!(text("folded-culprits"), "main;reader;[L] 20\nwriter:of\\u{a}all;[L] 55\n");
}

#[test]
fn a_picture_has_names_as_text_only() {
    let svg = text("svg");
    // `w` made others wait for 55 of 75 ns, the first waiter for 20.
    assert!(svg.contains(r#"<g data-ns="55"><title>[L]: 55 ns, 73 % of the waiting</title>"#), "{svg}");
    assert!(svg.contains("&lt;&quot;other&#39;&gt;&amp;\\u{1}\\u{202e}"), "{svg}");
    assert_eq!(svg.matches("<title>").count(), svg.matches("</title>").count());
    assert!(!svg.contains("<script") && !svg.contains("href") && !svg.contains("<\"other"), "{svg}");
}

#[test]
fn samples_have_the_times_of_their_waits() {
    let (_, profile) = profile_of(LINES);
    let told = |samples: &[Sample]| -> Vec<(u64, Vec<(u64, u64)>)> {
        let moments = |s: &Sample| s.moments.iter().map(|m| (m.since_start_ns.whole(), m.wait_ns.whole())).collect();
        samples.iter().map(|sample| (sample.wait_ns.whole(), moments(sample))).collect()
    };
    assert_eq!(told(&profile.waiters), [(45, vec![(15, 45)]), (30, vec![(10, 30)])]);
    assert_eq!(told(&profile.culprits), [(55, vec![(10, 30), (15, 25)]), (20, vec![(15, 20)])]);
    // Sums of several recordings have no time.
    let mut both = profile.clone();
    both.add(profile);
    assert!(both.waiters.iter().chain(&both.culprits).all(|sample| sample.moments.is_empty()));
}

/// Lines in which every name is `name`, all of which an output could show.
fn lines_of(name: &str) -> String {
    let name = serde_json::Value::from(name);
    let kind = serde_json::Value::from(format!("x{}", name.as_str().unwrap()));
    let mut lines = String::new();
    for (t, tid, op) in [
        (0, 1, "attempt"),
        (1, 1, "acquire"),
        (10, 2, "attempt"),
        (40, 1, "release"),
        (40, 2, "acquire"),
        (60, 2, "release"),
    ] {
        let rest = serde_json::json!({"t": t, "tid": format!("{}{tid}", name.as_str().unwrap()), "op": op, "lock": name, "pid": 7,
            "comm": name, "kind": kind, "name": name, "site": name, "symbol": name, "stack": [name, name]});
        lines += &format!("{rest}\n");
    }
    lines
}

/// What a terminal obeys, what turns the direction of writing, and what ends a line: told here anew, since a gap in `is_unsafe` is a fault.
fn is_obeyed(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name that marks in all its bytes what is to be an escape: no reader of binary formats is needed to find it.
fn marked(name: &str) -> String {
    name.chars().map(|c| if is_unsafe(c) { format!("{MARK}{c}") } else { c.to_string() }).collect()
}

const MARK: &str = "mArK";

/// All outputs that recordings have: of reports, of two of them, of what viewers read, of events themselves.
fn outputs(lines: &str) -> Vec<(&'static str, Vec<u8>)> {
    let report = analysed(lines, |seen, names| report::build(seen, names, &report::Options::default()).unwrap());
    // Before anybody waited.
    let begun: String = lines.split_inclusive('\n').take(3).collect();
    let all = Thresholds { deviations: 0.0, ..Thresholds::default() };
    let diff = diff::diff(&profile_of(&begun).0, &report, all).unwrap();
    let texts = [
        ("table", report::table::render(&report, &report::table::Layout::default())),
        ("dot", report::dot::render(report.graph.as_ref().unwrap(), &report)),
        ("json", serde_json::to_string_pretty(&report).unwrap()),
        ("diff", diff::table::render(&diff, 10, 2_000)),
        ("diff, json", serde_json::to_string(&diff).unwrap()),
        ("diff, markdown", diff::markdown::render(&diff, 10)),
        ("annotations", diff::markdown::annotations(&diff)),
        ("comparison", comparison(&diff, &report, &report).unwrap()),
    ];
    let mut all: Vec<_> = texts.into_iter().map(|(what, text)| (what, text.into_bytes())).collect();
    all.extend(FORMATS.iter().map(|format| (format.name, unpacked(written(format.name, lines)))));
    all.push(("request", otlp_request(&profile_of(lines).1, &[])));
    all.push(("event lines", again(lines)));
    all
}

/// Event lines, read and written anew.
fn again(lines: &str) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), 1);
    let mut reader = Reader::new(lines.as_bytes(), 1);
    let events: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    let stacks = reader.labels().stacks();
    for event in &events {
        match event {
            Event::Process(seen) => writer.process(seen),
            Event::Op(op) => writer.op(op, reader.labels(), &stacks).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    writer.finish().unwrap()
}

fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).unwrap();
    plain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever names are: no output holds a character that a terminal obeys, or that turns the direction of writing; and each output is, to the
    /// byte, that of names in which these are escapes already, so that none makes a line of its own.
    #[test]
    fn names_cannot_write_on_the_terminal(
        name in prop::collection::vec(prop_oneof![any::<char>(), prop::char::ranges(vec!['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}', '\u{61c}'..='\u{61c}'].into())], 1..12),
    ) {
        let name = marked(&name.into_iter().collect::<String>());
        let outputs = [name.clone(), cleaned(name.clone())].map(|name| outputs(&lines_of(&name)));
        for ((format, bytes), (_, plain)) in outputs[0].iter().zip(&outputs[1]) {
            let text = String::from_utf8_lossy(bytes);
            prop_assert!(bytes == plain, "{}: {}", format, text);
            let found = if is_binary(format) {
                text.split(MARK).skip(1).find_map(|after| after.chars().next().filter(|&c| is_unsafe(c)))
            } else {
                text.chars().find(|&c| c != '\n' && is_obeyed(c))
            };
            prop_assert_eq!(found, None, "{}: {:?}", format, text);
            prop_assert_eq!(text.contains(MARK), name.contains(MARK), "{}: {:?}", format, text);
        }
    }
}

fn is_binary(format: &str) -> bool {
    ["pprof-block", "pprof-mutex", "perfetto", "otlp", "request"].contains(&format)
}

fn sums(samples: &[Sample]) -> Ns {
    samples.iter().map(|sample| sample.wait_ns).sum()
}

proptest! {
    /// Whatever the steps are: both sides add up to what the report tells, and no sample is without a frame.
    #[test]
    fn both_sides_add_up_to_the_report(steps in prop::collection::vec((0u8..8, 1u8..5, 0u8..3, 0u8..4), 1..80)) {
        let mut lines = String::new();
        for (t, (op, tid, lock, site)) in steps.into_iter().enumerate() {
            let op = ["attempt", "acquire", "release", "try_fail", "timeout", "attempt", "acquire", "exit"][op as usize];
            let rest = if op == "attempt" { format!(",\"site\":\"{site}\"") } else { String::new() };
            lines += &format!("{{\"t\":{t},\"tid\":{tid},\"op\":\"{op}\",\"lock\":\"L{lock}\"{rest}}}\n");
        }
        let (report, profile) = profile_of(&lines);
        prop_assert_eq!(profile.wait_ns, report.totals.harm_ns.max(report.totals.recorded_wait_ns));
        prop_assert_eq!(sums(&profile.waiters), profile.wait_ns);
        prop_assert_eq!(sums(&profile.culprits), profile.wait_ns);
        let (_, timeline) = timeline_of(&lines);
        let waits: Ns = timeline.waits.iter().map(|wait| wait.wait_ns).sum();
        prop_assert_eq!(waits, report.totals.recorded_wait_ns);
        prop_assert_eq!(waits + timeline.not_shown_ns, profile.wait_ns);
        let blamed: Ns = timeline.waits.iter().flat_map(|wait| &wait.culprits).map(|culprit| culprit.wait_ns).sum();
        prop_assert_eq!(blamed + report.totals.unattributed_ns, waits);
        let all = || profile.waiters.iter().chain(&profile.culprits);
        let timed = |samples: &[Sample]| -> Ns { samples.iter().flat_map(|s| &s.moments).map(|m| m.wait_ns).sum() };
        prop_assert_eq!(timed(&profile.waiters), waits);
        prop_assert!(timed(&profile.culprits) <= waits);
        prop_assert!(all().all(|sample| !sample.frames.is_empty() && sample.wait_ns > Ns::default()));
        for format in FORMATS {
            prop_assert!(format.name.starts_with("folded") || !written(format.name, &lines).is_empty());
        }
    }
}

#[test]
fn speedscope() {
    let json: serde_json::Value = serde_json::from_str(&text("speedscope")).unwrap();
    let frames: Vec<_> =
        json["shared"]["frames"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(frames, ["<\"other'>&\\u{1}\\u{202e}", "reader", "[L]", "main", "writer;of\\u{a}all"]);
    let profiles = [&json["profiles"][0], &json["profiles"][1]];
    let samples = profiles.map(|profile| (profile["samples"].to_string(), profile["weights"].to_string()));
    let expected = [("[[0,1,2],[3,1,2]]", "[45,30]"), ("[[4,2],[3,1,2]]", "[55,20]")];
    assert_eq!(samples, expected.map(|(samples, weights)| (samples.to_owned(), weights.to_owned())));
    assert!(profiles.iter().all(|p| p["type"] == "sampled" && p["unit"] == "nanoseconds" && p["endValue"] == 75));
}

#[test]
fn a_timeline_tells_each_wait_and_hold() {
    let (_, timeline) = timeline_of(LINES);
    let waits: Vec<_> = timeline
        .waits
        .iter()
        .map(|w| {
            let by =
                w.culprits.iter().map(|c| (timeline.threads[c.thread].number, c.wait_ns.whole())).collect::<Vec<_>>();
            (timeline.threads[w.thread].number, w.start_ns.whole(), w.wait_ns.whole(), by)
        })
        .collect();
    assert_eq!(waits, [(2, 10, 30, vec![(1, 30)]), (3, 15, 45, vec![(1, 25), (2, 20)])]);
    let holds =
        timeline.holds.iter().map(|h| (timeline.threads[h.thread].number, h.start_ns.whole(), h.end_ns.whole()));
    assert_eq!(holds.collect::<Vec<_>>(), [(1, 0, 40), (2, 40, 60), (3, 60, 61)]);
}

#[test]
fn firefox_profiles_have_a_marker_for_each_wait_and_hold() {
    let json: serde_json::Value = serde_json::from_str(&text("firefox")).unwrap();
    let mut told = Vec::new();
    for thread in json["threads"].as_array().unwrap() {
        let string =
            |index: &serde_json::Value| thread["stringArray"][index.as_u64().unwrap() as usize].as_str().unwrap();
        let markers = &thread["markers"];
        for row in 0..markers["length"].as_u64().unwrap() as usize {
            let data = &markers["data"][row];
            let ns = |column: &str| (markers[column][row].as_f64().unwrap() * 1e6).round() as u64;
            let holder = data.get("holder").map(string).unwrap_or_default();
            let mut stack = data["cause"]["stack"].as_u64();
            let mut calls = Vec::new();
            while let Some(at) = stack {
                let frame = thread["stackTable"]["frame"][at as usize].as_u64().unwrap() as usize;
                let function = thread["frameTable"]["func"][frame].as_u64().unwrap() as usize;
                calls.push(string(&thread["funcTable"]["name"][function]));
                stack = thread["stackTable"]["prefix"][at as usize].as_u64();
            }
            let what = (string(&markers["name"][row]), string(&data["lock"]), holder.to_owned());
            told.push(format!("{} {what:?} {}..{} {calls:?}", thread["tid"], ns("startTime"), ns("endTime")));
        }
    }
    let expected = [
        r#""2" ("Lock wait", "L", "1") 10..40 ["reader", "main"]"#,
        r#""2" ("Lock hold", "L", "") 40..60 ["reader", "main"]"#,
        r#""1" ("Lock hold", "L", "") 0..40 ["writer;of\\u{a}all"]"#,
        r#""3" ("Lock wait", "L", "1") 15..60 ["reader", "<\"other'>&\\u{1}\\u{202e}"]"#,
        r#""3" ("Lock hold", "L", "") 60..61 ["reader", "<\"other'>&\\u{1}\\u{202e}"]"#,
    ];
    told.sort_unstable();
    let mut expected: Vec<_> = expected.map(str::to_owned).into();
    expected.sort_unstable();
    assert_eq!(told, expected);
    let waiting: i64 =
        json["counters"][0]["samples"]["count"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).sum();
    assert_eq!(waiting, 0);
}
