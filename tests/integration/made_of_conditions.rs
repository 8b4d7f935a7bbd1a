//! Locks that programs make of condition variables, and what else they make of them.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::{Lock, Report};

const KIND: &str = "lock of conditions";

fn of_conditions(report: &Report) -> Option<&Lock> {
    report.locks.iter().find(|lock| lock.kind == KIND)
}

/// Whoever waits has a condition of its own, or all have one: threads take turns at one place.
#[test]
fn threads_that_take_turns_wait_for_a_lock() {
    let Some(_turn) = may_observe() else { return };
    for (line, place) in [("conditions rows 100", "wait_for_own"), ("conditions herd 100", "wait_for_all")] {
        for options in [&["--budget", "off"][..], &["--budget", "3%"], &["--futex-only"]] {
            let (truth, report) = observe_as(line, Variant::Plain, options);
            let verdict = report.verdict.join(" ");
            let lock = of_conditions(&report).unwrap_or_else(|| panic!("{line} {options:?}: {verdict}"));
            assert!(lock.inferred && lock.name.contains(place), "{options:?}: {lock:?}");
            let fact = |name| truth.fact(name) as f64;
            let (long, short) = (fact("long_ns"), fact("short_ns"));
            let waited = lock.wait_ns.sum;
            // Whoever shares a condition sleeps again when another one was meant.
            assert!(
                (0.9 * (long + short)..=fact("waited_ns")).contains(&waited),
                "{line} {options:?}: {waited} of {truth:?}"
            );
            let culprit = report.culprits.first().expect("nobody is blamed");
            assert_eq!(culprit.function.as_deref(), Some("unlock_row"), "{verdict}");
            assert!(culprit.name == lock.name && culprit.share > 0.8, "{culprit:?}");
            if options == ["--budget", "off"] {
                let callers = culprit.callers.as_ref().unwrap_or_else(|| panic!("no callers: {verdict}"));
                let by_long = callers.most.iter().find(|caller| caller.function.as_deref() == Some("long_update"));
                let by_long = by_long.unwrap_or_else(|| panic!("{callers:?}")).share;
                assert!((by_long - long / (long + short)).abs() < 0.15, "{by_long} of {truth:?}");
            }
            let hedge = "in condition variables:";
            assert!(verdict.contains("Most waited for is") && verdict.contains(hedge), "{line} {options:?}: {verdict}");
        }
    }
}

#[test]
fn threads_that_hand_out_work_wait_for_no_lock() {
    let Some(_turn) = may_observe() else { return };
    for line in ["conditions tasks 1500", "conditions service 500"] {
        for options in [&["--budget", "off"][..], &["--budget", "3%"], &["--futex-only"]] {
            let (_, report) = observe_as(line, Variant::Plain, options);
            let told = of_conditions(&report);
            assert!(told.is_none(), "{line} {options:?}: {told:?}");
            assert!(report.locks.iter().all(|lock| lock.harm_ns < 1e9), "{line} {options:?}: {:?}", report.verdict);
        }
    }
}

/// The main thread waits for the ends of the others, on a word that nobody had waited for when it was chosen what to record. On a busy machine
/// everything is recorded, since it is not much.
#[test]
fn a_long_wait_is_recorded_whatever_the_focus() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("conditions service 2000", Variant::Plain, &["--budget", "off"]);
    let joins = report.futexes.iter().filter(|word| word["purpose"] == "thread join");
    let waited: f64 = joins.filter_map(|word| word["wait_ns"]["sum"].as_f64()).sum();
    assert!(waited > 1e9, "{waited}: {:?}", report.verdict);
}
