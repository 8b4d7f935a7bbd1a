//! Event lines through the analyst to the report.

use super::*;
use crate::analysis::{self, Analyst, Closing};
use crate::lines::Reader;

fn report_of(lines: &str, options: analysis::Options) -> Report {
    let ticks_per_ns = if lines.contains('.') { 1_000 } else { 1 };
    let mut reader = Reader::new(lines.as_bytes(), ticks_per_ns);
    let mut analyst = Analyst::new(options);
    for event in &mut reader {
        analyst.take(event.unwrap());
    }
    let observation = analyst.finish(Closing { ticks_per_ns, ..Closing::default() });
    build(&observation, &mut reader.into_labels(), &Options::default()).unwrap()
}

/// A step; times in ns.
fn line(t: &str, tid: &str, op: &str, lock: &str, rest: &str) -> String {
    format!("{{\"t\":{t},\"tid\":{tid},\"op\":\"{op}\",\"lock\":\"{lock}\"{rest}}}\n")
}

/// SyncProf's figure 2: four threads at a barrier.
fn figure_2() -> String {
    let arrivals = [(6, 1), (6, 4), (10, 2), (12, 3)];
    let arrive = |(t, tid): (u32, u32)| {
        let rest = format!(",\"n\":4,\"site\":\"R{tid}\",\"post\":\"S{tid}\"");
        line(&t.to_string(), &tid.to_string(), "barrier", "B", &rest)
    };
    arrivals.into_iter().map(arrive).collect()
}

#[test]
fn a_barrier_has_its_kind_its_participants_and_its_regions() {
    let report = report_of(&figure_2(), analysis::Options::default());
    let barrier = &report.locks[0];
    assert_eq!((barrier.lock.as_str(), barrier.kind.as_str(), barrier.participants), ("B", "barrier", Some(4)));
    assert_eq!((barrier.acquisitions, barrier.contended), (Some(4), 3));
    let ns = |ns| Ns::new(ns);
    assert_eq!((barrier.wait_ns.sum, barrier.wait_ns.max, barrier.aplt_ns), (ns(14), ns(6), ns(14)));
    let apwt: Vec<_> = report.sites.iter().map(|s| (s.site.as_str(), s.instances, s.wait_ns, s.apwt_ns)).collect();
    let expected = [
        ("R2", 1, ns(0), ns(8)),
        ("R3", 1, ns(0), ns(6)),
        ("S1", 1, ns(6), ns(0)),
        ("S4", 1, ns(6), ns(0)),
        ("S2", 1, ns(2), ns(0)),
        ("R1", 1, ns(0), ns(0)),
        ("R4", 1, ns(0), ns(0)),
        ("S3", 1, ns(0), ns(0)),
    ];
    assert_eq!(apwt, expected);
    let waits: Vec<_> = report.threads.iter().map(|t| (t.tid.to_string(), t.wait_ns, t.acquisitions)).collect();
    assert_eq!(waits[0], ("1".to_owned(), ns(6), 0));
    assert!(
        report.verdict[0].starts_with("57 % of all waiting: 3 threads wait at barrier `B` for R2, the last to arrive")
    );
    assert_conserved(&report);
}

#[test]
fn decimals_are_divided_at_the_edge() {
    let lines = [
        line("0.5", "\"T1\"", "attempt", "L", ",\"site\":\"f (a.c:1)\""),
        line("0.5", "\"T1\"", "acquire", "L", ""),
        line("1", "7", "attempt", "L", ",\"site\":\"3\""),
        line("3.25", "\"T1\"", "release", "L", ""),
        line("3.25", "7", "acquire", "L", ""),
        line("4", "7", "release", "L", ""),
    ];
    let options = analysis::Options { detail: true, ..analysis::Options::default() };
    let report = report_of(&lines.concat(), options);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["locks"][0]["wait_ns"]["sum"], &json["sites"][0]["apwt_ns"]), (&2.25.into(), &2.25.into()));
    assert_eq!((&json["sites"][0]["hold_ns"], &json["quality"]["duration_ns"]), (&2.75.into(), &3.5.into()));
    let node = &json["graph"]["nodes"][1];
    assert_eq!((&node["attempt_ns"], &node["acquire_ns"], &node["tid"]), (&1.into(), &3.25.into(), &7.into()));
    assert_eq!((&json["graph"]["edges"][0]["cost_ns"], &json["graph"]["last_thread"]), (&2.25.into(), &7.into()));
    assert_eq!((report.sites[0].cpwt_ns, report.sites[0].site.as_str()), (Some(report.sites[0].apwt_ns), "f (a.c:1)"));
    let expected = "100 % of all waiting is caused by `f` holding `L` at a.c:1; what it did meanwhile is not known.";
    assert_eq!(report.verdict[0], expected);
    let text = text(&report);
    assert!(text.contains("2.25 ns"), "{text}");
}

proptest! {
    /// Whatever the steps are: the parts add up, and the table is rendered.
    #[test]
    fn any_lines_make_a_report(steps in prop::collection::vec((0u8..8, 1u8..5, 0u8..3, 0u8..4), 1..80)) {
        let mut lines = String::new();
        for (t, (op, tid, lock, site)) in steps.into_iter().enumerate() {
            let op = ["attempt", "acquire", "release", "try_fail", "timeout", "attempt", "acquire", "exit"][op as usize];
            let rest = if op == "attempt" { format!(",\"site\":\"{site}\"") } else { String::new() };
            lines += &line(&t.to_string(), &tid.to_string(), op, &format!("L{lock}"), &rest);
        }
        let report = report_of(&lines, analysis::Options { detail: true, ..analysis::Options::default() });
        for lock in &report.locks {
            let blamed: Ns = lock.holders.iter().map(|h| h.wait_ns).sum();
            prop_assert_eq!(blamed + lock.unattributed_ns, lock.recorded_wait_ns);
        }
        let graph = report.graph.as_ref().unwrap();
        let costs: Ns = graph.edges.iter().map(|e| e.cost_ns).sum();
        let left: Ns = graph.unattributed_ns.values().copied().sum();
        prop_assert_eq!(costs, report.totals.recorded_wait_ns - report.totals.unattributed_ns);
        // What an acquisition of a free lock takes is charged to nobody, and is no contention.
        prop_assert!(left >= report.totals.unattributed_ns);
        let apwt: Ns = report.sites.iter().map(|s| s.apwt_ns).sum();
        prop_assert!(apwt <= costs);
        prop_assert!(!text(&report).is_empty() && !dot::render(graph, &report).is_empty());
        let read: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        // Shares may lose their last digit on the way.
        prop_assert_eq!((&read.sites, &read.threads, &read.graph), (&report.sites, &report.threads, &report.graph));
    }
}
