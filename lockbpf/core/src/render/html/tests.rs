//! Pages of made-up recordings.

use super::swimlanes::lanes;
use super::*;
use crate::diff::schema::{Finding, LockDiff, SiteDiff};
use crate::diff::{Thresholds, diff};
use crate::report::Report;
use crate::report::pictures::{Pictures, Stretch};
use crate::report::profile::Sample;
use crate::report::schema::{LockEntry, Ns, Place, StackFrame, WaiterEntry};
use crate::report::timeline::{Culprit, Hold, LockName, Stack, Thread, Timeline, Wait};
use serde_json::Value;

fn written(page: &Page) -> (String, Value) {
    let mut out = Vec::new();
    write(page, &mut out).unwrap();
    let html = String::from_utf8(out).unwrap();
    let json = data(&html);
    (html, json)
}

fn data(html: &str) -> Value {
    let json = html.split_once(r#"id="data">"#).unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(json).unwrap()
}

/// Thread 0 holds the lock all the time, by turns of 10 ns; each other thread waits for each turn, longer for later ones.
fn timeline(turns: u64, threads: usize) -> Timeline {
    let mut timeline = Timeline {
        start_ns: Ns::new(1_000),
        end_ns: Ns::new(1_000 + 10 * turns),
        threads: (0..threads).map(|n| Thread { name: format!("worker {n}"), ..Thread::default() }).collect(),
        locks: vec![LockName { name: "L".into(), kind: "mutex".into(), entry: Some(0), run: None }],
        stacks: vec![Stack { place: Place { symbol: "f".into(), ..Place::default() }, ..Stack::default() }],
        places: vec![Place { symbol: "g".into(), ..Place::default() }],
        ..Timeline::default()
    };
    for turn in 0..turns {
        let start_ns = Ns::new(1_000 + 10 * turn);
        timeline.holds.push(Hold { start_ns, end_ns: start_ns + Ns::new(10), ..Hold::default() });
        for thread in 1..threads {
            let wait_ns = Ns::new(1 + 9 * turn / turns);
            let culprits = vec![Culprit { wait_ns, ..Culprit::default() }];
            timeline.waits.push(Wait { thread, start_ns, wait_ns, culprits, ..Wait::default() });
        }
    }
    timeline
}

fn sum(column: &Value) -> u64 {
    column.as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).sum()
}

#[test]
fn short_recordings_are_shown_whole() {
    let path = vec![Stretch { thread: 0, from_ns: Ns::new(1_000), to_ns: Ns::new(1_050) }];
    let pictures = Pictures { timeline: timeline(5, 3), path, ..Pictures::default() };
    let shown = serde_json::to_value(lanes(&pictures, 100)).unwrap();
    assert_eq!((sum(&shown["waits"]["wait_ns"]), sum(&shown["holds"]["hold_ns"])), (2 * (1 + 2 + 4 + 6 + 8), 50));
    assert_eq!(shown["waits"]["start_ns"], serde_json::json!([0, 0, 10, 10, 20, 20, 30, 30, 40, 40]));
    assert_eq!(shown["waits"]["culprits"][0], serde_json::json!([[0, 0, 1, 1, null, false]]));
    assert_eq!((&shown["places"], &shown["path"]), (&serde_json::json!(["f", "g"]), &serde_json::json!([[0, 0, 50]])));
    let left: u64 = ["threads", "waits", "wait_ns", "holds", "stretches"]
        .map(|f| shown["left_out"][f].as_u64().unwrap())
        .iter()
        .sum();
    assert_eq!((left, &shown["threads"][0]["density"]), (0, &Value::from("")));
}

#[test]
fn of_long_ones_the_longest_waits_and_their_holds_are_shown_and_the_rest_is_told() {
    let timeline = timeline(1_000, 60);
    let (waits, all) = (timeline.waits.len() as u64, timeline.waits.iter().map(|w| w.wait_ns).sum::<Ns>().whole());
    let pictures = Pictures { timeline, ..Pictures::default() };
    let shown = serde_json::to_value(lanes(&pictures, 50)).unwrap();
    let left = |field: &str| shown["left_out"][field].as_u64().unwrap();
    let column = shown["waits"]["wait_ns"].as_array().unwrap();
    assert!(column.len() == 50 && column.iter().all(|wait| wait == 9), "{column:?}");
    assert_eq!(
        (left("waits"), left("wait_ns"), left("threads")),
        (waits - 50, all - sum(&shown["waits"]["wait_ns"]), 12)
    );
    assert_eq!((shown["holds"]["hold_ns"].as_array().unwrap().len() as u64, left("holds")), (50, 950));
    let held: Vec<_> = shown["holds"]["start_ns"].as_array().unwrap().iter().collect();
    assert!(shown["waits"]["start_ns"].as_array().unwrap().iter().all(|start| held.contains(&start)));
    // All of each stretch of 20 ns is filled at the end, a tenth at the beginning; whoever only holds does not wait.
    let density = |thread: usize| shown["threads"][thread]["density"].as_str().unwrap();
    assert!(density(1).starts_with("44") && density(1).ends_with("ww"), "{}", density(1));
    assert!(density(0).chars().all(|level| level == '0'));
}

#[test]
fn no_recording_is_too_much_for_a_page() {
    let name = |what: &str, n: usize| format!("{what}_{n}_{}", "<long>".repeat(100));
    let waiter = |n: usize| WaiterEntry {
        place: Place { symbol: name("wait", n), ..Place::default() },
        stack: vec![StackFrame { function: Some(name("call", n)), ..StackFrame::default() }; 50],
        ..WaiterEntry::default()
    };
    let lock =
        |n: usize| LockEntry { label: name("lock", n), waiters: (0..40).map(waiter).collect(), ..LockEntry::default() };
    let sample = |n: usize| Sample {
        frames: (0..30)
            .map(|f| StackFrame { function: Some(name("call", n * 30 + f)), ..StackFrame::default() })
            .collect(),
        lock: name("lock", n),
        wait_ns: Ns::new(10_000 - n as u64),
        ..Sample::default()
    };
    let mut page = Page::default();
    page.report.locks = (0..300).map(lock).collect();
    page.pictures.histograms = vec![crate::report::histograms::Histograms::default(); 300];
    page.pictures.profile.waiters = (0..2_000).map(sample).collect();
    page.pictures.timeline = timeline(4_000, 50);
    let (html, json) = written(&page);
    assert!(html.len() <= MAX_BYTES, "{}", html.len());
    let shown = json["report"]["locks"].as_array().unwrap().len() as u64;
    assert!(shown > 0 && json["report"]["totals"]["locks_omitted"] == 300 - shown);
    assert_eq!(json["histograms"].as_array().unwrap().len() as u64, shown);
    assert!(json["waiters"]["left_out"].as_u64() > Some(50_000));
    assert!(json["lanes"]["left_out"]["waits"].as_u64() > Some(100_000));
}

/// One thing that every page shows is too large: nothing is left out to help.
#[test]
fn a_page_that_stays_too_large_is_refused() {
    let mut page = Page::default();
    page.report.quality.target = "x".repeat(MAX_BYTES);
    let mut out = Vec::new();
    let refused = write(&page, &mut out).unwrap_err().to_string();
    assert!(refused.contains("2000000 at most") && refused.contains("JSON or text"), "{refused}");
    assert!(out.is_empty());
}

#[test]
fn no_two_recordings_differ_too_much_for_a_page() {
    let name = |what: &str, n: usize| format!("{what}_{n}_{}", "<long>".repeat(3_000));
    let mut run = Report::default();
    (run.quality.duration_ns, run.quality.observed_share) = (Ns::new(1_000), 1.0);
    let mut diff = diff(&run, &run, Thresholds::default()).unwrap();
    diff.findings = (0..300).map(|n| Finding { text: name("change", n), ..Finding::default() }).collect();
    diff.locks = (0..500).map(|n| LockDiff { name: name("lock", n), ..LockDiff::default() }).collect();
    diff.sites = (0..500).map(|n| SiteDiff { symbol: name("site", n), ..SiteDiff::default() }).collect();
    let html = comparison(&diff, &run, &run).unwrap();
    assert!(html.len() <= MAX_BYTES, "{}", html.len());
    let shown = data(&html);
    for (list, more, all) in
        [("findings", "more_findings", 300), ("locks", "more_locks", 500), ("sites", "more_sites", 500)]
    {
        let listed = shown["diff"][list].as_array().unwrap().len() as u64;
        assert!(listed > 0 && shown[more] == all - listed, "{list}: {listed}, and {} more", shown[more]);
    }
    diff.a.target = "x".repeat(MAX_BYTES);
    let refused = comparison(&diff, &run, &run).unwrap_err().to_string();
    assert!(refused.contains("2000000 at most"), "{refused}");
}
