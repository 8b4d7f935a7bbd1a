//! A recording that is read once more, section by section, tells the waits and holds that its whole graph tells.

use crate::analysis::{Analyst, Closing, Options};
use crate::event::Event;
use crate::lines::Reader;
use crate::names::Names;
use crate::observation::Harvest;
use crate::report::timeline::Timeline;
use crate::report::{self, build_rows, build_timeline};
use proptest::prelude::*;

/// Writes each wait and hold of a timeline as a line, with names in place of numbers.
fn told(timeline: &Timeline) -> Vec<String> {
    let stack = |at: usize| format!("{:?}", timeline.stacks[at]);
    let mut rows = Vec::new();
    for wait in &timeline.waits {
        let mut blamed: Vec<_> = wait.culprits.iter().map(|c| (timeline.blamed(c), c.wait_ns)).collect();
        blamed.sort_unstable();
        let (who, lock) = (&timeline.threads[wait.thread].tid, &timeline.locks[wait.lock].name);
        rows.push(format!("wait {who:?} {lock} {} {} {} {blamed:?}", wait.start_ns, wait.wait_ns, stack(wait.stack)));
    }
    for hold in &timeline.holds {
        let (who, lock) = (&timeline.threads[hold.thread].tid, &timeline.locks[hold.lock].name);
        rows.push(format!("hold {who:?} {lock} {} {} {}", hold.start_ns, hold.end_ns, stack(hold.stack)));
    }
    rows.sort_unstable();
    rows
}

fn analyst(events: &[Event], how: Options) -> Analyst {
    let mut analyst = Analyst::new(how);
    events.iter().for_each(|event| analyst.take(event.clone()));
    analyst
}

/// Both ways of telling a recording's rows, and what of its waiting each does not tell.
fn both_ways(events: &[Event], names: &mut dyn Names, closing: &Closing) -> [(Vec<String>, String); 2] {
    let how = report::Options::default();
    let kept = analyst(events, Options { detail: true, ..Options::default() }).finish(closing.clone());
    let (_, timeline) = build_timeline(&kept, names, &how).unwrap();
    let summed = analyst(events, Options::default()).finish(closing.clone());
    let read = |_: &report::Report, mut rows: report::Rows<'_, '_>| {
        let mut again = Analyst::new(Options { told: true, ..Options::default() });
        let mut parts = Vec::new();
        for event in events {
            again.take(event.clone());
            again.told().into_iter().for_each(|told| rows.take(told));
            if rows.len().0 > 2 || rows.len().1 > 2 {
                parts.extend(told(rows.timeline()));
                rows.forget_waits();
                rows.forget_holds();
            }
        }
        again.finish(closing.clone()).findings.told.into_iter().for_each(|told| rows.take(told));
        parts.extend(told(rows.timeline()));
        parts.sort_unstable();
        (parts, rows.not_shown_ns().to_string())
    };
    let (_, streamed) = build_rows(&summed, names, &how, read).unwrap();
    [(told(&timeline), timeline.not_shown_ns.to_string()), streamed]
}

proptest! {
    #[test]
    fn rows_are_those_of_the_whole_graph(steps in prop::collection::vec((0u8..9, 1u8..6, 0u8..3, 0u8..4), 1..120)) {
        let mut lines = String::new();
        for (t, (op, tid, lock, site)) in steps.into_iter().enumerate() {
            let op = ["attempt", "acquire", "release", "try_fail", "timeout", "attempt", "acquire", "exit", "release"][op as usize];
            let rest = match op {
                "attempt" if site == 3 => format!(",\"owner\":\"{}\"", (tid + 1) % 6),
                "attempt" => format!(",\"site\":\"{site}\",\"stack\":[\"{site}\",\"main\"]"),
                _ => String::new(),
            };
            lines += &format!("{{\"t\":{t},\"tid\":{tid},\"op\":\"{op}\",\"lock\":\"L{lock}\"{rest}}}\n");
        }
        let mut reader = Reader::new(lines.as_bytes(), 1);
        let events: Vec<Event> = reader.by_ref().map_while(Result::ok).collect();
        let mut labels = reader.into_labels();
        let harvest = Harvest { stacks: labels.stacks(), ..Harvest::default() };
        let closing = Closing { ticks_per_ns: 1, harvest, ..Closing::default() };
        let [kept, streamed] = both_ways(&events, &mut labels, &closing);
        prop_assert_eq!(kept, streamed);
    }
}

/// Recordings of real programs, with locks of most kinds.
#[test]
fn rows_of_real_recordings_are_those_of_the_whole_graph() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/recordings");
    let mut rows = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "bin") {
            continue;
        }
        let mut reader = crate::trace::Reader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let events: Vec<Event> = reader.by_ref().map(Result::unwrap).collect();
        let read = reader.into_closing().unwrap();
        let period = Some((crate::units::Time(read.header.start), read.end));
        let closing = Closing { period, ticks_per_ns: 1, harvest: read.harvest, ..Closing::default() };
        let mut names = read.names;
        let [kept, streamed] = both_ways(&events, &mut names, &closing);
        assert_eq!(kept, streamed, "{}", path.display());
        rows += kept.0.len();
    }
    assert!(rows > 500, "{rows}");
}
