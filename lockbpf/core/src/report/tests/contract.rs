//! The JSON that other programs read: names, types and identities.

use super::*;
use crate::graph::findings::{Detail, Edge, EdgeKind, Node, Shares};
use crate::names::{Frame, Names};
use crate::op::LockKind;
use crate::tally::Tally;
use serde_json::Value;

/// Event lines: `T1`, thread 2, lock `L`, site `CS 1`, a kind of their own.
struct Lines;

impl Names for Lines {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        vec![Frame { addr, ..Frame::default() }]
    }

    fn global(&mut self, _: Lock) -> Option<String> {
        None
    }

    fn call_stack(&mut self, _: Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }

    fn lock_id(&mut self, _: Lock) -> Option<String> {
        Some("L".to_owned())
    }

    fn site_id(&mut self, site: Site) -> Option<String> {
        Some(format!("CS {}", site.addr >> 8))
    }

    fn thread_id(&mut self, tid: Tid) -> Option<String> {
        (tid == Tid(11)).then(|| "T1".to_owned())
    }

    fn kind(&mut self, _: Lock) -> Option<String> {
        Some("ticket".to_owned())
    }
}

/// Two sections of one lock, and their graph, in thousandths of a ns.
fn lines() -> Run {
    let mut o = observation();
    o.processes.clear();
    o.ticks_per_ns = 1_000;
    feed(&mut o, &section(0x1000, 11, 0x100, [0, 0, 15]), false);
    feed(&mut o, &section(0x1000, 12, 0x200, [5, 15, 20]), false);
    o.sums.iter_mut().for_each(|s| s.kind = LockKind::Other);
    o.threads = server().threads.clone();
    let node = |number, tid, at, times: [u64; 3]| {
        let [attempt, acquire, release] = times.map(|t| Some(Time(t)));
        let (site, wait, waker, stack) = (Some(site(at)), Nanos(0), None, None);
        Node { number, site, tid: Tid(tid), lock: lock(0x1000), attempt, acquire, release, wait, waker, stack }
    };
    let edge = |cost| Edge { from: 1, to: 2, kind: EdgeKind::Direct, cost: Nanos(cost), inferred: false };
    o.findings.sites.entry(site(0x100)).or_default().apwt = Nanos(1_250);
    let waits = Tally { count: 1, time: Nanos(1_500) };
    let shares = Shares { waits, unattributed: waits.time, ..Shares::default() };
    o.findings.locks.insert(lock(0x1000), shares.into());
    o.findings.last_thread = Some(Tid(12));
    o.findings.detail = Some(Detail {
        nodes: vec![node(1, 11, 0x100, [0, 0, 1_500]), node(2, 12, 0x200, [500, 2_000, 3_000])],
        edges: vec![edge(1_250), edge(0)],
        unattributed: [(2, Nanos(250))].into(),
        critical_components: vec![vec![1, 2]],
        divided: Vec::new(),
    });
    o
}

fn json(report: &Report) -> Value {
    let text = serde_json::to_string(report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), *report);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_agreed_name_is_there() {
    let json = json(&build(&found(&lines()), &mut Lines, &Options::default()).unwrap());
    let durations: &[&str] = &["sum", "mean", "max", "p50", "p99"];
    let agreed: [(&str, &[&str]); 10] = [
        ("", &["schema", "locks", "sites", "threads", "graph", "quality"]),
        (
            "/locks/0",
            &["lock", "name", "kind", "acquisitions", "contended", "try_failures", "wait_ns", "hold_ns", "aplt_ns"],
        ),
        ("/locks/0/wait_ns", durations),
        ("/locks/0/hold_ns", durations),
        ("/sites/0", &["site", "lock", "symbol", "instances", "wait_ns", "hold_ns", "apwt_ns", "cpwt_ns", "rank"]),
        ("/threads/0", &["tid", "comm", "wait_ns", "held_union_ns", "held_sum_ns", "acquisitions"]),
        ("/graph", &["nodes", "edges", "unattributed_ns", "critical_components", "last_thread"]),
        ("/graph/nodes/0", &["id", "site", "tid", "lock", "attempt_ns", "acquire_ns", "release_ns"]),
        ("/graph/edges/0", &["from", "to", "kind", "cost_ns", "inferred"]),
        ("/quality", &["events", "lost", "late", "impossible", "open_at_end"]),
    ];
    for (path, names) in agreed {
        let object = json.pointer(path).unwrap();
        names.iter().for_each(|name| assert!(object.get(name).is_some(), "{path} {name}"));
    }
    assert_eq!(json["schema"], "lockbpf.report/1");
    assert!(json["sites"][0]["cpwt_ns"].is_null());
}

#[test]
fn identities_and_decimals_are_those_of_the_input() {
    let json = json(&build(&found(&lines()), &mut Lines, &Options::default()).unwrap());
    let lock = &json["locks"][0];
    assert_eq!((&lock["lock"], &lock["name"], &lock["kind"]), (&"L".into(), &"L".into(), &"ticket".into()));
    assert!(lock.get("mutex_type").is_none());
    let sites: Vec<_> = json["sites"].as_array().unwrap().iter().map(|s| (&s["site"], &s["lock"])).collect();
    assert_eq!(sites, [(&"CS 1".into(), &"L".into()), (&"CS 2".into(), &"L".into())]);
    let mut tids: Vec<_> = json["threads"].as_array().unwrap().iter().map(|t| t["tid"].clone()).collect();
    tids.sort_by_key(Value::to_string);
    assert_eq!(tids, [Value::from("T1"), 12.into(), 13.into()]);
    let graph = &json["graph"];
    let node = |n: usize| graph["nodes"][n].to_string();
    assert_eq!(
        node(0),
        r#"{"acquire_ns":0,"attempt_ns":0,"id":"d1","lock":"L","release_ns":1.5,"site":"CS 1","tid":"T1"}"#
    );
    assert_eq!(
        node(1),
        r#"{"acquire_ns":2,"attempt_ns":0.5,"id":"d2","lock":"L","release_ns":3,"site":"CS 2","tid":12}"#
    );
    assert_eq!(
        graph["edges"].to_string(),
        r#"[{"cost_ns":1.25,"from":"d1","inferred":false,"kind":"direct","to":"d2"}]"#
    );
    assert_eq!(graph["unattributed_ns"].to_string(), r#"{"d2":0.25}"#);
    assert_eq!(graph["critical_components"].to_string(), r#"[["d1","d2"]]"#);
    assert_eq!(graph["last_thread"], 12);
    assert_eq!((&lock["wait_ns"]["sum"], &json["sites"][0]["apwt_ns"]), (&10_000.into(), &1.25.into()));
}

#[test]
fn the_graph_is_there_only_if_it_was_asked_for() {
    let json = json(&report(&observation()));
    assert!(json.get("graph").is_none() && json.get("runs").is_none() && json.get("selection").is_none());
    assert!(json["critical_path"].is_null());
    let empty = ["deadlocks", "inversions"].map(|name| json[name].as_array().map(Vec::len));
    assert_eq!(empty, [Some(0), Some(0)]);
}

#[test]
fn what_the_analysis_counted_is_in_the_quality() {
    let mut o = found(&server());
    o.findings.impossible.insert("release_without_hold", 2);
    o.findings.cut.insert("held_at_start", 3);
    o.findings.cut.insert("held_at_end", 0);
    o.quality.counters.insert("exited_holding", 1);
    o.quality.counters.insert("kernel_in_interrupts", 5);
    let report = build(&o, &mut FakeNames, &Options::default()).unwrap();
    assert!(text(&report).contains("; 5 waits for kernel locks in interrupts left out; "), "{}", text(&report));
    let q = report.quality;
    assert_eq!(q.impossible, [("release_without_hold".to_owned(), 2)].into());
    assert_eq!(q.kernel_in_interrupts, 5);
    assert_eq!(q.edges.get("held_at_start"), Some(&3));
    assert!(!q.edges.contains_key("held_at_end") && !q.incomplete);
}
