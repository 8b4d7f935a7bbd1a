//! What a person reads first, on programs whose culprit is known by construction.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{observe, observe_as};
use crate::harness::report::{Culprit, Report};
use crate::unwind::unwound;

/// The first culprit, and the verdict's first sentence, which must name it.
fn culprit<'a>(report: &'a Report, function: &str, lock: &str) -> (&'a Culprit, &'a str) {
    let first = report.verdict.first().expect("a report without a verdict");
    let culprit = report.culprits.first().unwrap_or_else(|| panic!("nobody is blamed: {first}"));
    assert_eq!((culprit.function.as_deref(), culprit.name.as_str()), (Some(function), lock), "{first}");
    assert!(first.contains(function) && first.contains(lock), "{first}");
    (culprit, first)
}

/// Demands that the culprit was mostly doing this.
fn assert_cause(culprit: &Culprit, cause: &str) {
    let causes = culprit.causes.as_ref().unwrap_or_else(|| panic!("no causes: {culprit:?}"));
    let of = |name: &str| causes.get(name).copied().unwrap_or_default();
    let all: f64 = causes.values().sum();
    assert!(of(cause) * 2.0 > all, "{causes:?}");
}

#[test]
fn the_inner_lock_is_to_blame_for_waits_for_the_outer_one() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("chained 10");
    let (culprit, first) = culprit(&report, "root_cause", "inner_lock");
    // The rest is how long the scheduler takes to wake threads at the barriers between the rounds.
    assert!(culprit.share > 0.5, "{culprit:?}");
    assert!(report.verdict.iter().any(|s| s.contains("outer_lock") && s.contains("middle_man")), "{first}");
}

/// One function locks for all: the stacks of those who held the lock tell which caller held it for long.
#[test]
fn the_caller_of_a_function_that_locks_for_all() {
    let Some(_turn) = may_observe() else { return };
    assert_vacuum_dominates("callers 10");
}

/// The same where no function that gives the lock back is on the stack, since each has jumped on.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_caller_of_a_function_that_locks_for_all_and_is_left_by_a_jump() {
    let Some(_turn) = may_observe() else { return };
    assert_vacuum_dominates("callers 10 jump");
}

/// Where no stack is taken, the words at its top tell who called the function that gives the lock back.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_caller_of_a_function_that_unlocks_for_all_is_known_without_stacks() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("callers 10", Variant::Plain, &["--futex-only", "--stack-wait", "10s"]);
    let (culprit, first) = culprit(&report, "db_unlock", "db_mutex");
    let callers = culprit.callers.as_ref().unwrap_or_else(|| panic!("no callers: {first}"));
    let [vacuum, ..] = &callers.most[..] else { panic!("no caller is known: {first}") };
    assert_eq!(vacuum.function.as_deref(), Some("vacuum"), "{callers:?}");
    assert!(vacuum.share > 0.5 && first.contains("called by `vacuum` (callers.c:"), "{first} {callers:?}");
}

fn assert_vacuum_dominates(line: &str) {
    let (_, report) = observe(line);
    let (culprit, first) = culprit(&report, "db_lock", "db_mutex");
    let callers = culprit.callers.as_ref().unwrap_or_else(|| panic!("no callers: {first}"));
    let [vacuum, others @ ..] = &callers.most[..] else { panic!("no caller is known: {first}") };
    assert_eq!(vacuum.function.as_deref(), Some("vacuum"), "{callers:?}");
    assert!(vacuum.share > 0.5 && first.contains("called by `vacuum` (callers.c:"), "{first} {callers:?}");
    // `put_row` waits, and holds the lock for no time at all.
    assert!(others.iter().any(|c| c.function.as_deref() == Some("get_row")) && callers.functions == 3, "{callers:?}");
}

/// A section that one function calls has nobody else to name.
#[test]
fn a_section_with_one_caller_has_no_other_name() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("culprit 5");
    let (culprit, first) = culprit(&report, "slow_holder", "cache_lock");
    assert!(culprit.callers.is_none() && !first.contains("called by"), "{first} {culprit:?}");
}

/// Without a probe in the program: whoever wakes a waiter has just given the lock back.
#[test]
fn the_futex_tier_names_the_place() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("culprit 10", Variant::Plain, &["--futex-only"]);
    let (culprit, first) = culprit(&report, "slow_holder", "cache_lock");
    assert!(culprit.share > 0.5 && first.contains("given back at culprit.c:"), "{first} {culprit:?}");
}

/// The kernel's own locks, too: who has one is in its word, and who gives it back hands it over.
#[test]
fn the_futex_tier_names_the_place_of_mutexes_with_priority_inheritance() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("handoff 3 2 20000 200", Variant::Plain, &["--futex-only"]);
    let (culprit, first) = culprit(&report, "handed_section", "handed_lock");
    assert!(culprit.share > 0.9 && first.contains("given back at handoff.c:"), "{first} {culprit:?}");
}

/// The same, where the one who gives the outer lock back has slept for the inner one meanwhile.
#[test]
fn the_futex_tier_passes_blame_on() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("chained 10", Variant::Plain, &["--futex-only"]);
    let (culprit, first) = culprit(&report, "root_cause", "inner_lock");
    assert!(culprit.share > 0.5, "{culprit:?}");
    assert!(report.verdict.iter().any(|s| s.contains("outer_lock") && s.contains("middle_man")), "{first}");
}

/// A semaphore of one permit is a lock if whoever posts has waited for it, too; permits that stand for work are none.
#[test]
fn the_futex_tier_knows_semaphores_that_are_locks() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("permits 40", Variant::Plain, &["--futex-only"]);
    let (culprit, first) = culprit(&report, "long_task", "permit_lock");
    assert!(culprit.share > 0.5 && first.contains("(inferred)"), "{first} {culprit:?}");
    let [lock] = &report.locks[..] else { panic!("{:?}", report.locks) };
    assert_eq!((lock.kind.as_str(), lock.inferred), ("semaphore", true));
    let jobs = report.futexes.iter().find(|word| word["name"] == "jobs");
    assert_eq!(jobs.expect("the permits for work were not waited for")["purpose"], "semaphore");
}

/// Threads that are preempted while they give a permit back tell of it late, when others have had it since: the culprit is known all
/// the same, since who has the only permit is who took it last.
#[test]
fn a_semaphore_that_is_a_lock_names_its_holder() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("permits 60 3");
    // The short tasks are so many that observing them takes most of their time: the verdict says that instead.
    let culprit = report.culprits.first().expect("nobody is blamed");
    assert_eq!((culprit.function.as_deref(), culprit.name.as_str()), (Some("long_task"), "permit_lock"), "{culprit:?}");
    let lock = report.locks.iter().find(|l| l.name == "permit_lock").expect("permit_lock is not reported");
    assert!(lock.unattributed_ns < 0.15 * lock.contended_wait_ns.sum, "{lock:?}");
}

#[test]
fn a_holder_that_sleeps() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("holder sleep 10");
    let (culprit, first) = culprit(&report, "holder", "held_lock");
    assert_cause(culprit, "sleeping");
    assert!(first.contains("asleep in") && first.contains("nanosleep"), "{first}");
}

#[test]
fn a_holder_that_is_blocked() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("holder vfork 10");
    let (culprit, first) = culprit(&report, "holder", "held_lock");
    assert_cause(culprit, "blocked");
    assert!(first.contains("blocked in"), "{first}");
}

/// As where it has been swapped out: the page that the stack pointer is on is not there, those of the callers are.
#[test]
fn a_holder_that_waits_for_a_page_of_its_stack() {
    let Some(_turn) = may_observe() else { return };
    for options in [&["--budget", "off"][..], &["--futex-only"]] {
        let (_, report) = observe_as("holder page 10", Variant::Plain, options);
        let (_, first) = culprit(&report, "holder", "held_lock");
        assert!(first.contains("goes_deep"), "{first}");
        assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
        let (all, whole) = unwound(&report).expect("stacks are unwound");
        assert!(all > 0 && whole == all, "{whole} of {all} to the start: {:?}", report.quality.notes);
    }
}

#[test]
fn a_holder_that_is_preempted() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("holder preempted 5");
    let (culprit, first) = culprit(&report, "holder", "held_lock");
    assert_cause(culprit, "runnable");
    assert!(first.contains("preempted"), "{first}");
}

#[test]
fn the_last_to_arrive_at_a_barrier() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("late 4 10");
    let (_, first) = culprit(&report, "latecomer", "meeting");
    assert!(first.contains("barrier `meeting`"), "{first}");
}

#[test]
fn orders_of_locking_that_could_deadlock() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("orders 10");
    let [inversion] = &report.inversions[..] else { panic!("{:?}", report.inversions) };
    let text = inversion.to_string();
    assert!(text.contains("lock_a") && text.contains("lock_b") && !text.contains("own_a"), "{text}");
    assert!(report.deadlocks.is_empty(), "{:?}", report.deadlocks);
}
