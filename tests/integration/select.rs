//! Selection of workload sizes: a program that its locks hold back, and one that the CPUs do.

use crate::harness::build::{Variant, compile};
use crate::harness::observer::{Outcome, lockbpf, run, run_command};
use crate::harness::privilege::unprivileged;
use crate::harness::{may_observe, turn};
use serde_json::Value;

/// `lockbpf select OPTIONS… -- COMMAND`, where the command is a workload with `{size}` in it.
fn select(options: &[&str], line: &str) -> Outcome {
    let (name, arguments) = line.split_once(' ').expect("a workload has arguments");
    let mut command = lockbpf();
    command.env("GO", "1").arg("select").args(options).arg("--").arg(compile(name, Variant::Plain));
    run_command(command.args(arguments.split(' ')))
}

fn selected(outcome: &Outcome) -> (Value, Vec<String>) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let selection: Value = serde_json::from_str(&outcome.stdout).expect("the selection is JSON");
    assert_eq!(selection["schema"], "lockbpf.selection/1");
    let sizes = selection["selected"].as_array().expect("sizes").iter();
    let sizes = sizes.map(|size| size.as_str().expect("a size").to_owned()).collect();
    (selection, sizes)
}

#[test]
fn a_program_that_waits_for_a_lock() {
    let _turn = turn();
    // One thread sleeps for 20 ms a round while it holds the lock that the other waits for.
    let options = ["--sizes", "1,20", "--runs", "5", "--observe-runs", "0", "--format", "json"];
    let (selection, sizes) = selected(&select(&options, "hold {size} 1 20000"));
    assert_eq!(sizes, ["20"], "{selection}");
    let [first, second] = &selection["sizes"].as_array().expect("sizes")[..] else { panic!("{selection}") };
    assert_eq!(first.get("longer_p"), None, "there is none before the first");
    assert_eq!(second["longer_p"].as_f64(), Some(1.0 / 252.0), "each of five is longer than each of five others");
    assert_eq!((&second["longer"], &second["cpu_larger"]), (&Value::from(true), &Value::from(false)));
    assert_eq!(second["wall_ns"]["values"].as_array().map(Vec::len), Some(5));
    assert!(second["wall_ns"]["median"].as_f64() >= Some(20.0 * 20e6), "{second}");
}

#[test]
fn a_program_that_computes() {
    let _turn = turn();
    // It computes all the time; how much of the CPUs it gets for that depends on who else wants them.
    let options = ["--sizes", "20,4000", "--runs", "5", "--max-cpu", "1%", "--format", "json"];
    let (selection, sizes) = selected(&select(&options, "taskqueues 2 {size} 100 0 split"));
    assert!(sizes.is_empty(), "{selection}");
    let larger = &selection["sizes"][1];
    assert_eq!((&larger["longer"], &larger["cpu_idle"]), (&Value::from(true), &Value::from(false)), "{larger}");
}

#[test]
fn the_selected_sizes_are_ranked() {
    let Some(_turn) = may_observe() else { return };
    let options = ["--sizes", "1,20", "--runs", "4", "--observe-runs", "2", "--format", "json"];
    let (selection, sizes) = selected(&select(&options, "hold {size} 1 20000"));
    assert_eq!(sizes, ["20"], "{selection}");
    assert_eq!(selection.get("no_ranking"), None, "{selection}");
    let ranking = &selection["ranking"];
    assert_eq!(ranking["schema"], "lockbpf.report/1");
    assert_eq!(ranking["runs"]["count"], 2, "{ranking}");
    let symbol = ranking["sites"][0]["symbol"].as_str().unwrap_or_default();
    assert!(symbol.starts_with("slow_holder"), "{ranking}");
    let lock = &ranking["locks"][0];
    // Only runs of the selected size were observed: 20 rounds each.
    assert_eq!((&lock["name"], lock["acquisitions"].as_u64()), (&Value::from("cache_lock"), Some(40)), "{lock}");
}

#[test]
fn programs_that_the_command_starts_are_ranked_too() {
    let Some(_turn) = may_observe() else { return };
    let mut command = lockbpf();
    let options = ["--sizes", "1,20", "--runs", "4", "--observe-runs", "1", "--format", "json"];
    command.env("GO", "1").env("PROGRAM", compile("hold", Variant::Plain)).arg("select").args(options);
    let (selection, sizes) =
        selected(&run_command(command.args(["--", "sh", "-c", "\"$PROGRAM\" {size} 1 20000; true"])));
    assert_eq!(sizes, ["20"], "{selection}");
    let lock = &selection["ranking"]["locks"][0];
    assert_eq!(lock["name"], "cache_lock", "{selection}");
}

#[test]
fn without_rights_there_is_a_selection_but_no_ranking() {
    let _turn = turn();
    let Some((_dir, mut command)) = unprivileged() else { return };
    let arguments = ["select", "--sizes", "0.01,0.5", "--runs", "4", "--", "sleep", "{size}"];
    let outcome = run_command(command.args(arguments));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("exposes a synchronization bottleneck at size 0.5"), "{}", outcome.stdout);
    assert!(
        outcome.stdout.contains("No ranking of locks: ") && outcome.stdout.contains("CAP_BPF"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn the_table_tells_why() {
    let _turn = turn();
    let options = ["--sizes", "20,4000", "--runs", "3", "--max-cpu", "1%"];
    let outcome = select(&options, "taskqueues 2 {size} 100 0 split");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("No size of `"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("CPU use not below 1.0 %"), "{}", outcome.stdout);
}

#[test]
fn a_run_that_fails_is_an_error() {
    let _turn = turn();
    let failing = ["select", "--sizes", "1,2", "--runs", "3"];
    let command = ["--", "sh", "-c", "test {size} = 1"];
    run(&[&failing[..], &command].concat()).assert_error(&["`sh -c test 2 = 1` failed", "exit status: 1"]);
    let outcome = run(&[&failing[..], &["--allow-failures", "--format", "json"], &command].concat());
    let (selection, _) = selected(&outcome);
    let failed = |i: usize| selection["sizes"][i]["failed_runs"].as_u64();
    assert_eq!((failed(0), failed(1)), (Some(0), Some(3)));
    run(&["select", "--sizes", "1,2", "--", "/no/such/command", "{size}"]).assert_error(&["/no/such/command"]);
}

#[test]
fn sizes_that_make_no_sense() {
    for (arguments, named) in [
        (&["--sizes", "1", "--", "true", "{size}"][..], "two sizes"),
        (&["--sizes", "1,4,2", "--", "true", "{size}"], "must grow"),
        (&["--sizes", "a,b,a", "--", "true", "{size}"], "twice"),
        (&["--sizes", "1,2", "--", "true"], "{size}"),
        (&["--sizes", "1,2", "--max-cpu", "200%", "--", "true", "{size}"], "200%"),
        (&["--sizes", "1,2", "--runs", "2", "--", "true", "{size}"], "2"),
        (&["--sizes", "1,2"], "CMD"),
        (&["--", "true", "{size}"], "--sizes"),
    ] {
        run(&[&["select"], arguments].concat()).assert_error(&[named]);
    }
}
