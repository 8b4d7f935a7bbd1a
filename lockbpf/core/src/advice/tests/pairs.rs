//! Patterns and suggestions, at their bounds and in odd graphs.

use super::super::{Kind, Pattern};
use super::{advice, edge, section, told};
use serde_json::{Value, json};

/// Executions of two sites by two threads in turns: of so many adjacent ones, the first few conflict.
fn turns(adjacent: u32, conflicting: u32) -> Vec<Value> {
    let mut lines: Vec<Value> = (0..=adjacent)
        .map(|seq| {
            let (tid, site) = [("A", "a"), ("B", "b")][seq as usize % 2];
            // An execution conflicts with the one before it if both write `x`.
            let places: &[&str] = if seq <= conflicting { &["x"] } else { &["y"] };
            let own = [format!("{tid}-own")];
            if places[0] == "x" {
                section(0, seq, tid, site, &[], places)
            } else {
                section(0, seq, tid, site, &[&own[0]], &[])
            }
        })
        .collect();
    lines.push(edge(0, 0, 1));
    lines
}

#[test]
fn rare_conflicts_are_those_beyond_the_bound() {
    let pattern = |adjacent, conflicting| {
        let found = advice(&turns(adjacent, conflicting));
        found.patterns.first().map(|entry| (entry.pattern, entry.value, entry.adjacent))
    };
    assert_eq!(pattern(100, 20), None, "exactly 80 % have no conflict: not more");
    assert_eq!(pattern(100, 19), Some((Pattern::LowDegreeConflict, 0.81, 100)));
    assert_eq!(pattern(10, 10), None);
    let found = advice(&turns(100, 5));
    let [item] = &found.advice[..] else { panic!("{:?}", found.advice) };
    assert_eq!(item.kind, Kind::RareConflicts);
    assert!(item.evidence.iter().any(|line| line.contains("95 % of 100 pairs of adjacent executions")), "{item:?}");
}

#[test]
fn adjacent_executions_are_those_of_the_pair() {
    // Between a and b comes c, on another thread and elsewhere; then a comes twice.
    let lines = [
        section(0, 0, "A", "a", &[], &["x"]),
        section(0, 1, "C", "c", &[], &["z"]),
        section(0, 2, "B", "b", &[], &["x"]),
        section(0, 3, "A", "a", &[], &["x"]),
        section(0, 4, "A", "a", &[], &["y"]),
        section(0, 5, "B", "b", &["y"], &[]),
        // On one thread nothing is adjacent.
        section(0, 6, "B", "a", &["y"], &[]),
        // Another run begins anew.
        section(1, 0, "B", "b", &[], &["x"]),
        edge(0, 0, 2),
    ];
    let found =
        super::super::patterns(&super::records(&lines), &super::super::Usydg::new(&super::records(&lines), &[].into()));
    let pair = found.pairs.values().next().unwrap();
    assert_eq!((pair.adjacent.pairs, pair.adjacent.apart), (3, 0));
}

/// A section of so many accesses, of which only those in a range touch what is shared.
fn long(seq: u32, tid: &str, accesses: usize, shared: std::ops::Range<usize>) -> Value {
    let own = format!("{tid}-own");
    let at: Vec<Value> = (0..accesses)
        .map(|i| match i {
            i if shared.contains(&i) => json!("s"),
            0 => Value::Null,
            _ => json!(own),
        })
        .collect();
    json!({"run": 0, "seq": seq, "tid": tid, "lock": "L", "site": "f", "reads": [own], "writes": ["s"],
           "accesses": "w".repeat(accesses), "at": at})
}

#[test]
fn long_sections_are_those_beyond_the_bound() {
    let found = |shared: std::ops::Range<usize>| {
        let mut lines = vec![long(0, "A", 100, shared.clone()), long(1, "B", 100, shared)];
        lines.push(edge(0, 0, 1));
        told(&lines)
    };
    // The paper's: of 100 accesses only the last 20 conflict.
    let last = found(80..100);
    let shorten = &last["suggestions"]["shorten"][0];
    assert_eq!((&shorten["from"], &shorten["to"], &shorten["saved_share"]), (&json!(80), &json!(99), &json!(0.8)));
    assert_eq!(last["patterns"][0]["value"], 0.8);
    let both = found(30..60);
    let shorten = &both["suggestions"]["shorten"][0];
    assert_eq!((&shorten["from"], &shorten["to"], &shorten["saved_share"]), (&json!(30), &json!(59), &json!(0.7)));
    // Exactly 20 % outside is not more than that.
    assert_eq!(found(10..90)["suggestions"]["shorten"], json!([]));
    assert_eq!(found(10..90)["patterns"], json!([]));
    assert_eq!(found(11..90)["suggestions"]["shorten"][0]["saved_share"], 0.21);
}

#[test]
fn a_section_that_shares_nothing_needs_no_lock() {
    let lines = [section(0, 0, "A", "f", &["a"], &["a"]), section(0, 1, "B", "f", &["b"], &["b"]), edge(0, 0, 1)];
    let found = told(&lines);
    assert_eq!(found["suggestions"]["remove"], json!(["f"]));
    assert_eq!(found["suggestions"]["unsafe_split"], json!([]));
    assert_eq!(found["patterns"][0]["pattern"], "null-shared");
    assert_eq!(found["usydg"]["removed_edges"], json!([["A:f", "B:f"]]));
    let item = &found["advice"][0];
    assert_eq!(item["kind"], "remove");
    assert!(item["advice"].as_str().unwrap().starts_with("Remove `L`"), "{item}");
    // A third thread that writes what A reads, but never waited for it, makes that unsafe.
    let mut more = lines.to_vec();
    more.push(section(0, 2, "C", "f", &[], &["a"]));
    let found = told(&more);
    assert_eq!(found["suggestions"]["unsafe_split"], json!([["f", "f"]]));
    assert_eq!(found["suggestions"]["unsafe_remove"], json!(["f"]));
    assert!(found["advice"][0]["advice"].as_str().unwrap().starts_with("Do not remove"), "{found}");
}

#[test]
fn disjoint_fields_come_apart() {
    let mut lines = Vec::new();
    for seq in 0..80_u32 {
        let (tid, half) = (["A", "B"][seq as usize % 2], seq / 2 % 2);
        let (site, field) = [("put", "queue.head"), ("count", "stats.hits")][half as usize];
        lines.push(section(0, seq, tid, site, &[field], &[field]));
    }
    lines.extend([edge(0, 0, 1), edge(0, 1, 4), edge(0, 2, 3), edge(0, 3, 6), edge(0, 1, 2), edge(0, 3, 4)]);
    let found = told(&lines);
    let suggestions = &found["suggestions"];
    assert_eq!(suggestions["split"], json!({"count": ["L1"], "put": ["L2"]}));
    assert_eq!((&suggestions["unsafe_split"], &suggestions["remove"]), (&json!([]), &json!([])));
    assert_eq!(suggestions["independent"], json!([{"lock": "L", "groups": [["count"], ["put"]], "free": []}]));
    let item = found["advice"].as_array().unwrap().iter().find(|item| item["kind"] == "split").unwrap();
    assert!(item["advice"].as_str().unwrap().contains("one lock for `put`"), "{item}");
    assert!(item["evidence"].to_string().contains("`stats.hits`"), "{item}");
}

#[test]
fn circles_get_one_lock() {
    let x = ["x"];
    let circle = |extra: &[Value]| {
        let mut lines = vec![
            section(0, 0, "A", "a", &[], &x),
            section(0, 1, "B", "b", &[], &x),
            section(0, 2, "C", "c", &[], &x),
            section(0, 3, "D", "d", &[], &["y"]),
            section(0, 4, "E", "e", &[], &["y"]),
            edge(0, 0, 1),
            edge(0, 1, 0),
            edge(0, 1, 2),
            edge(0, 3, 4),
        ];
        lines.extend_from_slice(extra);
        told(&lines)["suggestions"]["split"].clone()
    };
    assert_eq!(circle(&[]), json!({"a": ["L2"], "b": ["L2"], "c": ["L2"], "d": ["L1"], "e": ["L1"]}));
    // Two circles, of which one leads into the other.
    let more = circle(&[section(0, 5, "F", "f", &[], &x), edge(0, 5, 2), edge(0, 2, 5)]);
    assert_eq!((&more["c"], &more["f"], &more["a"]), (&json!(["L2"]), &json!(["L2"]), &json!(["L2"])));
    // Who follows two sources takes the locks of both.
    let both = circle(&[section(0, 5, "F", "f", &[], &["x", "y"]), edge(0, 5, 4), edge(0, 5, 2)]);
    assert_eq!((&both["e"], &both["c"], &both["f"]), (&json!(["L1", "L2"]), &json!(["L2", "L3"]), &json!(["L2"])));
}

#[test]
fn without_waits_the_order_stands_for_them() {
    // A shared counter of which no wait is told.
    let lines: Vec<Value> =
        (0..40).map(|seq| section(0, seq, ["A", "B"][seq as usize % 2], "inc", &["n"], &["n"])).collect();
    let found = told(&lines);
    assert_eq!(found["suggestions"]["remove"], json!([]));
    assert_eq!(found["usydg"]["edges"], json!([["A:inc", "B:inc"], ["B:inc", "A:inc"]]));
    assert_eq!(found["usydg"]["edges_from"], json!({"L": "order"}));
    assert_eq!(found["advice"][0]["kind"], "conflicting");
    assert_eq!(found["sections"][0]["p_c"], 0.5);
    // One thread alone says nothing.
    let alone: Vec<Value> = (0..40).map(|seq| section(0, seq, "A", "inc", &["n"], &["n"])).collect();
    let found = told(&alone);
    assert_eq!((&found["advice"], &found["suggestions"]["remove"]), (&json!([]), &json!([])));
    assert!(found["cautions"].to_string().contains("Only one thread was seen at `L`"), "{found}");
}

#[test]
fn readers_never_write_what_is_shared() {
    let mut lines = vec![
        section(0, 0, "A", "find", &["map"], &[]),
        section(0, 1, "B", "insert", &["map"], &["map"]),
        section(0, 2, "C", "find", &["map"], &["C-own"]),
        section(0, 3, "A", "touch", &["map"], &["map"]),
        edge(0, 0, 1),
        edge(0, 1, 2),
        edge(0, 1, 3),
    ];
    assert_eq!(told(&lines)["suggestions"]["readers_of"], json!({"insert": ["find"]}));
    let found = advice(&lines);
    assert!(found.advice.iter().any(|item| item.kind == Kind::ReaderWriter), "{:?}", found.advice);
    // On one thread, `find` writes what others read: it is no reader then.
    lines.push(section(0, 4, "D", "find", &["map"], &["map"]));
    assert_eq!(told(&lines)["suggestions"]["readers_of"], json!({}));
}
