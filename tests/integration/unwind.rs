//! Call stacks by unwind information: workloads without frame pointers, whose chains of calls are known.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as};
use crate::harness::report::{Party, Report};
use crate::harness::workload::Workload;
use serde_json::Value;

/// The calls of `deep`'s victim, from where it asks for the lock; one of `FORKS` is between the two parts.
const INNER: [&str; 4] = ["deep_section", "chain_d", "chain_c", "chain_b"];
const FORKS: [&str; 3] = ["left", "right", "varying"];
const OUTER: [&str; 2] = ["victim_round", "victim"];

/// The functions of a stack.
pub(crate) fn functions(stack: &[Value]) -> Vec<&str> {
    stack.iter().map(|frame| frame["function"].as_str().unwrap_or("?")).collect()
}

/// The functions on the stack of a lock's worst waiter, or holder.
fn stack_of(parties: &[Party]) -> Vec<&str> {
    functions(&parties.first().expect("the lock is waited for").stack)
}

#[track_caller]
fn assert_victims_chain(stack: &[&str]) {
    assert!(stack.starts_with(&INNER), "{stack:?}");
    assert!(FORKS.contains(&stack[INNER.len()]), "{stack:?}");
    assert!(stack[INNER.len() + 1..].starts_with(&OUTER), "{stack:?}");
}

/// How many stacks were unwound, and how many of these to the start of their thread, as the report says it.
pub(crate) fn unwound(report: &Report) -> Option<(u64, u64)> {
    let note = report.quality.notes.iter().find(|note| note.starts_with("Stacks by unwind information"))?;
    let (before, after) = note.split_once(" unwound, ")?;
    let all = before.rsplit(' ').nth(1)?.parse().ok()?;
    Some((all, after.split(' ').next()?.parse().ok()?))
}

fn check_whole(variant: Variant, method: &str) {
    let (_, report) = observe_as("deep 6", variant, &["--unwind", method]);
    let lock = report.named("deep_lock");
    let stack = stack_of(&lock.waiters);
    assert_victims_chain(&stack);
    assert!(stack.len() > INNER.len() + 1 + OUTER.len(), "what calls the thread's function is missing: {stack:?}");
    let stack = stack_of(&lock.holders);
    assert!(stack.starts_with(&["holder_section", "holder_chain", "main"]), "{variant:?}, {method}: {stack:?}");
    let (all, whole) = unwound(&report).unwrap_or_else(|| panic!("nothing unwound: {:?}", report.quality.notes));
    assert!(all > 0 && all == whole, "{variant:?}, {method}: {:?}", report.quality.notes);
}

#[test]
fn the_whole_chain_by_unwind_information() {
    let Some(_turn) = may_observe() else { return };
    check_whole(Variant::Plain, "dwarf");
    check_whole(Variant::Plain, "auto");
}

#[test]
fn the_whole_chain_by_debug_frames() {
    let Some(_turn) = may_observe() else { return };
    check_whole(Variant::DebugFrame, "auto");
}

#[test]
fn the_whole_chain_where_there_are_frame_pointers() {
    let Some(_turn) = may_observe() else { return };
    check_whole(Variant::FramePointers, "auto");
    let (_, report) = observe_as("deep 6", Variant::FramePointers, &["--unwind", "fp"]);
    assert_victims_chain(&stack_of(&report.named("deep_lock").waiters));
    assert_eq!(unwound(&report), None, "{:?}", report.quality.notes);
}

#[test]
fn frame_pointers_that_are_none_are_told() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("deep 6", Variant::Plain, &["--unwind", "fp"]);
    assert_eq!(stack_of(&report.named("deep_lock").waiters).first(), Some(&"deep_section"));
    assert!(!stack_of(&report.named("deep_lock").waiters).contains(&"left"));
    let told = |note: &String| note.contains("end before the start of their thread") && note.contains("--unwind dwarf");
    assert!(report.quality.notes.iter().any(told), "{:?}", report.quality.notes);
}

/// The victim's chains come by turns, and two of them leave the same picture but for one return address: the kernel side,
/// which recognises stacks that it has copied before, must not take one for the other.
#[test]
fn every_wait_has_its_own_chain() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let to = dir.path().join("deep.jsonl");
    let to = to.to_str().expect("a path of ours");
    let mut workload = Workload::start("deep 40");
    let pid = workload.pid().to_string();
    let observer = Observer::start(&["export", "--pid", &pid, "--to", to, "--unwind", "dwarf", "--min-wait", "100us"]);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = std::fs::read_to_string(to).expect("the recording is there");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let asked = lines.filter(|line| line["op"] == "attempt" && line["contended"] == true);
    let stacks: Vec<Option<Vec<String>>> = asked
        .map(|line| {
            let names = line.get("stack")?.as_array()?.iter();
            Some(names.filter_map(|f| Some(f.as_str()?.split(' ').next()?.to_owned())).collect())
        })
        .collect();
    assert_eq!(stacks.len(), 120, "each is a wait of the victim");
    let mut seen = [0; 3];
    for (n, stack) in stacks.iter().enumerate() {
        // Those that came before lockbpf knew them all, and too many at once, have none.
        let Some(stack) = stack else { continue };
        let stack: Vec<&str> = stack.iter().map(String::as_str).collect();
        assert_victims_chain(&stack);
        assert_eq!(stack[INNER.len()], FORKS[n % 3], "wait {n}");
        seen[n % 3] += 1;
    }
    assert!(seen.iter().all(|&n| n > 10), "{seen:?} of 40 each have stacks");
}

#[test]
fn the_whole_chain_in_cpp() {
    let Some(_turn) = may_observe() else { return };
    for method in ["dwarf", "auto"] {
        let (_, report) = observe_as("deep_cpp 10", Variant::Plain, &["--unwind", method]);
        let stack = stack_of(&report.named("cpp_lock").waiters);
        let mut rest = stack.iter();
        for function in ["cpp_section", "Square::area", "guarded", "called_back", "victim_chain"] {
            assert!(rest.any(|&name| name == function), "no {function}, or not in its place: {stack:?}");
        }
        assert!(rest.len() > 1, "{stack:?}");
        let (all, whole) = unwound(&report).expect("stacks were unwound");
        assert_eq!(all, whole, "{:?}", report.quality.notes);
    }
}
