//! The worked examples of SyncProf (figures 4a, 4b and 2) as event lines through the command line, number by number.

use crate::harness::observer::run;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/integration/examples").join(name)
}

/// `lockbpf report --from FILE --format json OPTIONS…`, which must succeed.
fn report(name: &str, options: &[&str]) -> Value {
    let file = example(name);
    let file = file.to_str().expect("a path in UTF-8");
    let outcome = run(&[&["report", "--from", file, "--format", "json"], options].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
    assert_eq!(report["schema"], "lockbpf.report/1");
    report
}

/// One field of every entry, by what identifies it.
fn column(entries: &Value, id: &str, field: &str) -> BTreeMap<String, Option<u64>> {
    let entries = entries.as_array().expect("an array").iter();
    entries.map(|e| (e[id].as_str().expect("an identity").to_owned(), e[field].as_u64())).collect()
}

fn expected(values: &[(&str, u64)]) -> BTreeMap<String, Option<u64>> {
    values.iter().map(|&(id, value)| (id.to_owned(), Some(value))).collect()
}

/// `from→to cost kind` of every edge; none of them may be inferred.
fn edges(report: &Value) -> BTreeSet<String> {
    let edges = report["graph"]["edges"].as_array().expect("edges").iter();
    edges
        .map(|e| {
            assert_eq!(e["inferred"], false, "{e}");
            let text = |field: &str| e[field].as_str().expect("text").to_owned();
            format!("{}→{} {} {}", text("from"), text("to"), e["cost_ns"], text("kind"))
        })
        .collect()
}

fn nodes(report: &Value) -> Vec<[String; 7]> {
    let nodes = report["graph"]["nodes"].as_array().expect("nodes").iter();
    nodes
        .map(|n| {
            ["id", "site", "tid", "lock", "attempt_ns", "acquire_ns", "release_ns"]
                .map(|field| n[field].as_str().map_or_else(|| n[field].to_string(), str::to_owned))
        })
        .collect()
}

fn strings<const N: usize>(rows: &[[&str; N]]) -> Vec<[String; N]> {
    rows.iter().map(|row| row.map(str::to_owned)).collect()
}

/// Σ cost into each node that was obtained, and its unattributed wait, are its wait.
fn assert_conserving(report: &Value) {
    let graph = &report["graph"];
    for node in graph["nodes"].as_array().expect("nodes") {
        let (Some(attempt), Some(acquire)) = (node["attempt_ns"].as_u64(), node["acquire_ns"].as_u64()) else {
            continue;
        };
        let into = graph["edges"].as_array().expect("edges").iter().filter(|e| e["to"] == node["id"]);
        let blamed: u64 = into.map(|e| e["cost_ns"].as_u64().expect("a cost")).sum();
        let id = node["id"].as_str().expect("an id");
        let unattributed = graph["unattributed_ns"][id].as_u64().unwrap_or(0);
        assert_eq!(blamed + unattributed, acquire - attempt, "{node}");
    }
}

#[test]
fn figure_4a() {
    let report = report("figure_4a.jsonl", &["--graph"]);
    assert_eq!(
        nodes(&report),
        strings(&[
            ["d1", "CS1", "T1", "L1", "4", "4", "14"],
            ["d2", "CS2", "T2", "L2", "6", "6", "12"],
            ["d3", "CS3", "T3", "L1", "10", "14", "18"],
            ["d4", "CS4", "T5", "L2", "10", "12", "14"],
            ["d5", "CS1", "T6", "L1", "10", "18", "19"],
            ["d6", "CS6", "T7", "L2", "10", "14", "16"],
            ["d7", "CS5", "T4", "L2", "10", "16", "30"],
        ])
    );
    let wanted = [
        "d1→d3 4 direct",
        "d2→d4 2 direct",
        "d1→d5 4 direct",
        "d3→d5 4 indirect",
        "d2→d6 2 direct",
        "d4→d6 2 indirect",
        "d2→d7 2 direct",
        "d4→d7 2 indirect",
        "d6→d7 2 indirect",
    ];
    assert_eq!(edges(&report), wanted.map(str::to_owned).into());
    assert_conserving(&report);
    let apwt = expected(&[("CS1", 8), ("CS2", 6), ("CS3", 4), ("CS4", 4), ("CS5", 0), ("CS6", 2)]);
    assert_eq!(column(&report["sites"], "site", "apwt_ns"), apwt);
    assert_eq!(column(&report["locks"], "lock", "aplt_ns"), expected(&[("L1", 12), ("L2", 12)]));
    let mut cpwt = expected(&[("CS2", 6), ("CS4", 4), ("CS6", 2), ("CS5", 0)]);
    cpwt.extend([("CS1".to_owned(), None), ("CS3".to_owned(), None)]);
    assert_eq!(column(&report["sites"], "site", "cpwt_ns"), cpwt);
    assert_eq!(report["graph"]["critical_components"], serde_json::json!([["d2", "d4", "d6", "d7"]]));
    assert_eq!(report["graph"]["last_thread"], "T4");
    assert_eq!(report["sites"][0]["site"], "CS1", "the ranking is by APWT");
    assert_eq!(report["sites"][0]["rank"], 1);
    let locks = column(&report["locks"], "lock", "contended");
    assert_eq!(locks, expected(&[("L1", 2), ("L2", 3)]));
    let waits: BTreeMap<_, _> =
        report["locks"].as_array().expect("locks").iter().map(|l| (l["lock"].as_str(), &l["wait_ns"]["sum"])).collect();
    assert_eq!((waits[&Some("L1")], waits[&Some("L2")]), (&Value::from(12), &Value::from(12)));
}

#[test]
fn figure_4b() {
    let report = report("figure_4b.jsonl", &["--graph"]);
    let wanted = ["d1→d3 2 direct", "d1→d5 2 nested", "d2→d5 2 direct"];
    assert_eq!(edges(&report), wanted.map(str::to_owned).into());
    assert_conserving(&report);
    let apwt = expected(&[("CS1", 4), ("CS2", 2), ("CS3", 0), ("CS4", 0), ("CS5", 0)]);
    assert_eq!(column(&report["sites"], "site", "apwt_ns"), apwt);
    let ranked: Vec<_> = report["sites"].as_array().expect("sites").iter().map(|s| s["site"].as_str()).collect();
    assert_eq!(ranked[..2], [Some("CS1"), Some("CS2")], "the root cause comes first");
    let of = |site: &str| {
        report["sites"].as_array().expect("sites").iter().find(|s| s["site"] == site).expect("a site").clone()
    };
    assert_eq!((&of("CS5")["wait_ns"], &of("CS2")["hold_ns"]), (&Value::from(4), &Value::from(7)));
    assert_eq!(column(&report["locks"], "lock", "aplt_ns"), expected(&[("L1", 4), ("L2", 2), ("L3", 0)]));
}

#[test]
fn figure_2_overlapping() {
    let report = report("figure_2.jsonl", &["--graph", "--barrier-cost", "overlapping"]);
    let wanted = ["d5→d2 4 barrier", "d5→d4 4 barrier", "d7→d2 6 barrier", "d7→d4 6 barrier", "d7→d6 2 barrier"];
    assert_eq!(edges(&report), wanted.map(str::to_owned).into());
    assert_eq!(column(&report["sites"], "site", "apwt_ns")["region3"], Some(14));
}

#[test]
fn figure_2_exclusive() {
    let wanted = ["d5→d2 4 barrier", "d5→d4 4 barrier", "d7→d2 2 barrier", "d7→d4 2 barrier", "d7→d6 2 barrier"];
    for options in [&["--graph"][..], &["--graph", "--barrier-cost", "exclusive"]] {
        let report = report("figure_2.jsonl", options);
        assert_eq!(edges(&report), wanted.map(str::to_owned).into());
        let apwt = column(&report["sites"], "site", "apwt_ns");
        assert_eq!((apwt["region2"], apwt["region3"]), (Some(8), Some(6)));
        assert!(apwt.iter().all(|(site, &sum)| matches!(site.as_str(), "region2" | "region3") || sum == Some(0)));
        assert_conserving(&report);
        let sites: BTreeSet<_> = nodes(&report).into_iter().map(|[id, site, ..]| format!("{id} {site}")).collect();
        let wanted_sites = [
            "d1 region1",
            "d2 region1:after",
            "d3 region4",
            "d4 region4:after",
            "d5 region2",
            "d6 region2:after",
            "d7 region3",
            "d8 last",
        ];
        assert_eq!(sites, wanted_sites.map(str::to_owned).into());
    }
}

#[test]
fn the_graph_comes_only_when_asked_for() {
    let report = report("figure_4a.jsonl", &[]);
    assert_eq!(report.get("graph"), None);
}

#[test]
fn the_table_names_the_root_cause() {
    let file = example("figure_4b.jsonl");
    let outcome = run(&["report", "--from", file.to_str().expect("a path in UTF-8")]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let verdict = outcome.stdout.split("\n\n").next().unwrap_or_default();
    assert!(verdict.contains("CS1") && verdict.contains("L1"), "{}", outcome.stdout);
}

#[test]
fn several_runs_are_combined() {
    let file = example("figure_4a.jsonl");
    let file = file.to_str().expect("a path in UTF-8");
    for arguments in [&["--from", file, file][..], &["--from", file, "--from", file]] {
        let outcome = run(&[&["report", "--format", "json"], arguments].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let report: Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
        // The mean of two equal runs is each of them.
        assert_eq!(column(&report["sites"], "site", "apwt_ns")["CS1"], Some(8));
        assert!(!report["runs"].is_null(), "{}", outcome.stdout);
    }
}
