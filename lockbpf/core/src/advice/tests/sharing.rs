//! False sharing.

use super::{section, told};
use serde_json::{Value, json};

fn lines(of: &[(&str, &[&str], &[&str])]) -> Vec<Value> {
    (0..).zip(of).map(|(seq, (tid, reads, writes))| section(0, seq, tid, "f", reads, writes)).collect()
}

#[test]
fn neighbours_on_a_line_are_told() {
    let found = told(&lines(&[("A", &[], &["0x1000"]), ("B", &[], &["0x1008"]), ("A", &["0x1000"], &["0x1000"])]));
    let line = &found["false_sharing"][0];
    assert_eq!((&line["line"], &line["instances"]), (&json!("0x1000"), &json!(3)));
    let written: Vec<_> =
        line["locations"].as_array().unwrap().iter().map(|at| (&at["location"], &at["written_by"])).collect();
    assert_eq!(written, [(&json!("0x1000"), &json!(["A"])), (&json!("0x1008"), &json!(["B"]))]);
    assert_eq!((&found["sections"][0]["p_c"], &found["sections"][0]["p_c_line"]), (&json!(0.0), &json!(0.5)));
    let item = found["advice"].as_array().unwrap().iter().find(|item| item["kind"] == "false-sharing").unwrap();
    assert!(item["evidence"].to_string().contains("`0x1008` by thread B"), "{item}");
}

#[test]
fn what_is_shared_in_truth_or_lies_apart_is_not_false() {
    for of in [
        // On two lines.
        &[("A", &[][..], &["0x103c"][..]), ("B", &[], &["0x1040"])][..],
        // Both write both.
        &[("A", &[], &["0x1000", "0x1008"]), ("B", &[], &["0x1000", "0x1008"])],
        // The one reads what the other writes.
        &[("A", &["0x1008"], &["0x1000"]), ("B", &[], &["0x1008"])],
        // Only read.
        &[("A", &["0x1000"], &[]), ("B", &["0x1008"], &[])],
        // One thread.
        &[("A", &[], &["0x1000"]), ("A", &[], &["0x1008"])],
        // Nothing is known of where they lie.
        &[("A", &[], &["a"]), ("B", &[], &["b"])],
    ] {
        assert_eq!(told(&lines(of))["false_sharing"], json!([]), "{of:?}");
    }
}
