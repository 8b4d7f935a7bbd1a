//! The worked examples of SyncProf, and what PinCS's program would leave.

use super::super::{Kind, Options, advise};
use super::{advice, edge, records, section, told};
use serde_json::{Value, json};

/// Figure 7: two runs. All access one variable; 5 and 6 write it.
fn figure_7() -> Vec<Value> {
    let x = ["x"];
    vec![
        section(0, 1, "T1", "1", &x, &[]),
        section(0, 2, "T2", "1", &x, &[]),
        section(0, 3, "T3", "3", &x, &x),
        section(0, 4, "T4", "5", &[], &x),
        edge(0, 1, 2),
        edge(0, 1, 3),
        edge(0, 3, 4),
        section(1, 1, "T1", "1", &x, &[]),
        section(1, 2, "T2", "2", &x, &[]),
        section(1, 3, "T3", "4", &x, &[]),
        section(1, 4, "T4", "5", &[], &x),
        section(1, 5, "T5", "6", &[], &x),
        edge(1, 1, 2),
        edge(1, 1, 3),
        edge(1, 1, 4),
        edge(1, 3, 5),
    ]
}

#[test]
fn figure_7_comes_out() {
    let found = told(&figure_7());
    let graph = &found["usydg"];
    let ids: Vec<&str> = graph["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["T1:1", "T2:1", "T2:2", "T3:3", "T3:4", "T4:5", "T5:6"]);
    assert_eq!(graph["removed_edges"], json!([["T1:1", "T2:2"], ["T1:1", "T3:4"]]));
    let suggestions = &found["suggestions"];
    assert_eq!(suggestions["remove"], json!(["2"]));
    let split = json!({"1": ["L1"], "3": ["L1"], "5": ["L1"], "4": ["L2"], "6": ["L2"]});
    assert_eq!(suggestions["split"], split);
    assert_eq!(suggestions["splits"], json!({"L": ["L1", "L2"]}));
    assert_eq!(suggestions["readers_of"], json!({"3": ["1"], "5": ["1"], "6": ["4"]}));
    // What the paper does not say: 3, 5 and 6 write what 4 and 1 and 2 read, but share no lock with these.
    let pairs = json!([["1", "6"], ["2", "3"], ["2", "5"], ["2", "6"], ["3", "4"], ["3", "6"], ["4", "5"], ["5", "6"]]);
    assert_eq!(suggestions["unsafe_split"], pairs);
    assert_eq!(suggestions["unsafe_remove"], json!(["2"]));
    let patterns = found["patterns"].as_array().unwrap();
    let of = |a: &str, b: &str| patterns.iter().find(|p| p["pair"] == json!([a, b])).map(|p| p["pattern"].clone());
    assert_eq!(of("1", "2"), Some(json!("read-read")));
    assert_eq!(of("1", "4"), Some(json!("read-read")));
    assert_eq!(of("1", "1"), Some(json!("read-read")), "equal sites match, but keep their edge");
    assert_eq!(of("1", "3"), None, "they conflict always");
}

#[test]
fn what_is_unsafe_is_never_suggested_without_saying_so() {
    let found = advice(&figure_7());
    let text = super::super::render(&found, 120);
    assert!(text.contains("Do not remove `L` at `2`") && text.contains("UNSAFE"), "{text}");
    assert!(text.contains("Do not split `L`"), "{text}");
    assert!(!found.advice.iter().any(|item| item.advice.starts_with("Split")), "{text}");
}

/// Figure 8: a section with two ways through it; both read the shared variable at node 3, one writes it at node 5.
#[test]
fn figure_8_comes_out() {
    let way = |seq: u32, tid: &str, accesses: &str, at: &[&str], code: &[&str]| {
        let writes: &[&str] = if at.contains(&"s") && accesses.contains('w') { &["s"] } else { &[] };
        json!({"run": 0, "seq": seq, "tid": tid, "lock": "L", "site": "f", "reads": ["s", "p", "q"], "writes": writes,
               "accesses": accesses, "at": at, "code": code})
    };
    let long: (&str, &[&str], &[&str]) =
        ("rrrrwrr", &["p", "p", "s", "p", "s", "q", "q"], &["1", "2", "3", "4", "5", "6", "7"]);
    let short: (&str, &[&str], &[&str]) = ("rrrrr", &["p", "p", "s", "q", "q"], &["1", "2", "3", "6", "7"]);
    let mut lines = Vec::new();
    for i in 0..10_u32 {
        let (tid, (accesses, at, code)) = (["T1", "T2"][i as usize % 2], if i % 4 < 2 { long } else { short });
        lines.push(way(i, tid, accesses, at, code));
    }
    lines.push(edge(0, 0, 1));
    let found = told(&lines);
    let shorten = &found["suggestions"]["shorten"][0];
    assert_eq!((&shorten["site"], &shorten["from"], &shorten["to"]), (&json!("f"), &json!(2), &json!(4)));
    assert_eq!((&shorten["from_code"], &shorten["to_code"]), (&json!("3"), &json!("5")));
    // 6 executions of 7 accesses with 4 outside, and 4 of 5 with 4.
    let saved = shorten["saved_share"].as_f64().unwrap();
    assert!((saved - 40.0 / 62.0).abs() < 1e-12, "{saved}");
    assert_eq!(found["sections"][0]["paths"], 2);
    let pattern = &found["patterns"][0];
    assert_eq!((&pattern["pair"], &pattern["pattern"]), (&json!(["f", "f"]), &json!("long-critical-section")));
    assert!((pattern["value"].as_f64().unwrap() - saved).abs() < 1e-12);
    let found = advice(&lines);
    let item = found.advice.iter().find(|item| item.kind == Kind::Shorten).unwrap();
    assert!(item.advice.contains("at 3 (`s`)") && item.advice.contains("at 5 (`s`)"), "{item:?}");
}

#[test]
fn branches_of_which_one_side_was_seen_are_told() {
    let execution = |seq: u32, taken: u32, line: u32| {
        let branch = |at: &str, taken: u32, not_taken: u32| json!({"at": at, "code": format!("f (a.c:{line})"), "taken": taken, "not_taken": not_taken});
        json!({"run": 0, "seq": seq, "tid": seq % 2, "lock": "L", "site": "f", "reads": ["s"], "writes": ["s"],
               "branches": [branch("a+0x1", taken, 1 - taken), branch("a+0x2", 63, 1), branch("a+0x3", 0, 2)]})
    };
    let cautions = |lines: &[Value]| {
        let found = advice(lines);
        found.advice.iter().flat_map(|item| item.cautions.clone()).collect::<Vec<_>>().join("\n")
    };
    let lines = [execution(0, 1, 7), execution(1, 1, 7), edge(0, 0, 1)];
    let found = told(&lines);
    assert_eq!(
        (&found["sections"][0]["branches"], &found["sections"][0]["branches_one_sided"]),
        (&json!(3), &json!(2))
    );
    let text = cautions(&lines);
    assert!(text.contains("`f` (3) 2 went one way only") && text.contains("`f (a.c:7)`"), "{text}");
    // What one execution did not do another one did.
    let lines = [execution(0, 1, 7), execution(1, 0, 7), edge(0, 0, 1)];
    assert!(cautions(&lines).contains("(3) 1 went one way only"), "{}", cautions(&lines));
    let plain = [section(0, 0, "1", "f", &["s"], &["s"]), section(0, 1, "2", "f", &["s"], &["s"])];
    assert_eq!(told(&plain)["sections"][0]["branches"], Value::Null);
    assert!(!cautions(&plain).contains("branch"));
}

/// PinCS's figure 1: each of three threads increments its own element of an array, and every other time a shared variable.
#[test]
fn the_program_of_pincs() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut lines = Vec::new();
    for seq in 0..9_000_u32 {
        let thread = random.u32(0..3);
        let own = format!("shared_array+{:#x}", 4 * thread);
        let all = if random.bool() { vec![own.as_str(), "shared"] } else { vec![own.as_str()] };
        lines.push(section(0, seq, &thread.to_string(), "xwork", &all, &all));
    }
    let records = records(&lines);
    let w = [(records.sites.find("xwork").unwrap(), 1.626667)].into();
    let found = advise(&records, &Options { w, ..Options::default() });
    let [xwork] = &found.sections[..] else { panic!("{:?}", found.sections) };
    // The paper measured 0.187379 with 3,000 coins of its own.
    assert!((xwork.p_conflict.unwrap() - 0.187379).abs() < 0.02, "{xwork:?}");
    assert!((xwork.reads - 1.49).abs() < 0.02 && (xwork.writes - 1.49).abs() < 0.02, "{xwork:?}");
    // The elements are on one line: there the other one always conflicts.
    assert!((xwork.p_c_line - 0.5).abs() < 1e-3, "{xwork:?}");
    assert_eq!(xwork.conflicting[0].location, "shared");
    assert!((xwork.conflicting[0].share - 0.5).abs() < 0.03);
    let [line] = &found.false_sharing[..] else { panic!("{:?}", found.false_sharing) };
    assert_eq!((line.line.as_str(), line.locations.len()), ("shared_array", 3));
}
