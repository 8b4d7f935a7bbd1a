//! Why others wait: what a holder does instead of running, the orders of locking, barriers. The events as they come out of
//! the kernel, against the truth.

use crate::harness::capture::{Captured, capture};
use crate::harness::may_observe;
use crate::harness::workload::Truth;
use lockbpf::deadlock::inversions;
use lockbpf::event::{Event, OffCpu};
use lockbpf::id::Tid;
use lockbpf::op::{Action, Arrival, OffReason, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Absences of threads that held a lock.
fn absences(captured: &Captured) -> Vec<OffCpu> {
    let off = |event: &Event| if let Event::OffCpu(off) = event { Some(*off) } else { None };
    captured.events.iter().filter_map(off).collect()
}

/// The holder's absences for one reason: how many, and for how long together.
fn of_holder(captured: &Captured, reason: OffReason) -> (u64, u64) {
    let tid = Tid(captured.truth.fact("holder_tid") as u32);
    let found = absences(captured).into_iter().filter(|off| off.tid == tid && off.reason == reason);
    found.fold((0, 0), |(n, sum), off| (n + 1, sum + off.off.0))
}

/// Demands that the holder is told to have been off the CPU mostly for this reason, for no longer than it was, and nearly
/// as long.
fn assert_off(captured: &Captured, reason: OffReason) {
    let (count, off_ns) = of_holder(captured, reason);
    let total: u64 = [OffReason::Runnable, OffReason::Blocked, OffReason::Sleeping, OffReason::Futex]
        .into_iter()
        .map(|reason| of_holder(captured, reason).1)
        .sum();
    assert!(count > 0 && off_ns * 2 > total, "{reason:?}: {count} times, {off_ns} of {total} ns");
    let truth = captured.truth.fact("off_ns");
    assert!(total * 2 > truth, "{total} ns are told of {truth} ns");
    for off in absences(captured) {
        assert!(off.runnable <= off.off, "{off:?}");
        assert!(off.reason != OffReason::Runnable || off.runnable == off.off, "{off:?}");
    }
    assert_eq!(captured.counted("off_cpu_records"), absences(captured).len() as u64);
}

/// Demands that the stack of every such absence is there.
fn assert_stacks(captured: &Captured, reason: OffReason) {
    for off in absences(captured).iter().filter(|off| off.reason == reason) {
        let stack = off.stack.and_then(|id| captured.harvest.stacks.get(&id));
        assert!(stack.is_some_and(|stack| !stack.is_empty()), "{off:?} has no stack");
    }
}

#[test]
fn a_holder_that_sleeps() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("holder sleep 5", false);
    assert_off(&captured, OffReason::Sleeping);
    assert_stacks(&captured, OffReason::Sleeping);
    // Every sleep, also one of which the kernel did not tell the end.
    let (count, off_ns) = of_holder(&captured, OffReason::Sleeping);
    assert!(count >= captured.truth.fact("switches") && off_ns >= 5 * 5_000_000, "{:?}", absences(&captured));
}

/// A lock call that may fail is believed only later, but its thread sleeps now.
#[test]
fn a_holder_that_sleeps_and_inherits_priority() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("holder inherit 5", false);
    assert_off(&captured, OffReason::Sleeping);
    assert_stacks(&captured, OffReason::Sleeping);
}

#[test]
fn a_holder_that_waits_uninterruptibly() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("holder vfork 5", false);
    assert_off(&captured, OffReason::Blocked);
    assert_stacks(&captured, OffReason::Blocked);
}

#[test]
fn a_holder_that_writes_to_a_disk() {
    let Some(_turn) = may_observe() else { return };
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("holder.dat");
    let captured = capture(&format!("holder io 5 {}", file.display()), false);
    std::fs::remove_file(&file).expect("the workload left no file");
    let (count, _) = of_holder(&captured, OffReason::Blocked);
    // Where files are in memory, fdatasync does not wait.
    assert!(count > 0 || captured.truth.fact("switches") == 0, "{:?}", absences(&captured));
}

#[test]
fn a_holder_that_waits_for_a_condition() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("holder cond 5", false);
    assert_off(&captured, OffReason::Futex);
}

#[test]
fn a_holder_that_is_preempted() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("holder preempted 3", false);
    assert_off(&captured, OffReason::Runnable);
}

#[test]
fn a_wait_for_an_inner_lock_is_no_absence() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture("chained 10", false);
    let addr = |name: &str| captured.truth.lock(name).addr.clone();
    let waits = captured.events.iter().filter_map(|event| match event {
        Event::Section(s) if s.wait.0 > 0 && format!("{:#x}", s.lock.addr) == addr("inner_lock") => Some(s),
        _ => None,
    });
    let waits: Vec<_> = waits.collect();
    assert_eq!(waits.len(), 10);
    for off in absences(&captured).iter().filter(|off| off.reason == OffReason::Futex) {
        let told = waits.iter().find(|w| w.tid == off.tid && w.attempt() < off.end && off.end - off.off < w.acquire());
        assert!(told.is_none(), "{off:?} is the wait of {told:?}");
    }
    let [order] = &captured.harvest.orders[..] else { panic!("{:?}", captured.harvest.orders) };
    assert_eq!(format!("{:#x}", order.outer.addr), addr("outer_lock"));
    assert_eq!((format!("{:#x}", order.inner.addr), order.count), (addr("inner_lock"), 10));
}

/// The pairs of locks told, by name.
fn orders(captured: &Captured) -> BTreeMap<(String, String), u64> {
    let names: BTreeMap<String, String> =
        captured.truth.locks.iter().filter_map(|lock| Some((lock.addr.clone(), lock.symbol.clone()?))).collect();
    let name = |addr: u64| names.get(&format!("{addr:#x}")).cloned();
    let orders = captured.harvest.orders.iter();
    orders.filter_map(|o| Some(((name(o.outer.addr)?, name(o.inner.addr)?), o.count))).collect()
}

fn check_orders(plain_uprobes: bool) {
    let captured = capture("orders 10", plain_uprobes);
    let pairs =
        [("lock_a", "lock_b"), ("lock_b", "lock_a"), ("lock_c", "lock_b"), ("own_a", "own_b"), ("own_b", "own_a")];
    let expected = pairs.map(|(outer, inner)| ((outer.to_owned(), inner.to_owned()), 10));
    assert_eq!(orders(&captured), BTreeMap::from(expected));
    let found = inversions(&captured.harvest.orders);
    let [inversion] = &found[..] else { panic!("{found:?}") };
    let locks: BTreeSet<String> = inversion.links.iter().map(|link| format!("{:#x}", link.outer.addr)).collect();
    assert_eq!(locks, ["lock_a", "lock_b"].map(|name| captured.truth.lock(name).addr.clone()).into());
    assert_ne!(inversion.links[0].tid, inversion.links[1].tid);
}

#[test]
fn orders_that_contradict_one_another() {
    let Some(_turn) = may_observe() else { return };
    check_orders(false);
}

#[test]
fn orders_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check_orders(true);
}

/// Arrivals at the workload's barrier, in order of time.
fn arrivals(captured: &Captured, truth: &Truth) -> Vec<(Op, Arrival)> {
    let meeting = truth.fact("meeting");
    let arrival = |event: &Event| match event {
        Event::Step(op) => match op.action {
            Action::Barrier(arrival) if arrival.barrier.addr == meeting => Some((*op, arrival)),
            _ => None,
        },
        _ => None,
    };
    let mut arrivals: Vec<_> = captured.events.iter().filter_map(arrival).collect();
    arrivals.sort_by_key(|(op, _)| op.time);
    arrivals
}

fn check_barrier(plain_uprobes: bool) {
    let captured = capture("late 4 5", plain_uprobes);
    let truth = &captured.truth;
    let arrivals = arrivals(&captured, truth);
    assert_eq!(arrivals.len() as u64, truth.fact("arrivals"));
    let mut late_ns = 0;
    for round in arrivals.chunks(4) {
        assert!(round.iter().all(|(_, arrival)| arrival.participants == 4), "{round:?}");
        let [.., (before, _), (last, _)] = round else { panic!("half a round: {round:?}") };
        assert_eq!(u64::from(last.tid.0), truth.fact("late_tid"));
        late_ns += last.time.since(before.time).0;
    }
    assert!(late_ns >= truth.fact("late_ns"), "{late_ns} ns");
    let sites: BTreeSet<_> = arrivals.iter().map(|(_, arrival)| arrival.site).collect();
    assert_eq!(sites.len(), 2, "the latecomer's site and that of all others: {sites:?}");
    // What the barriers' own futex words do is not told twice; the joins of the threads at the end may be.
    let barrier = |event: &Event| match event {
        Event::Step(Op { action: Action::Barrier(arrival), .. }) => Some(arrival.barrier.addr),
        _ => None,
    };
    let barriers: BTreeSet<u64> = captured.events.iter().filter_map(barrier).collect();
    assert_eq!(barriers.len(), 2);
    let own = |word: u64| barriers.iter().any(|barrier| word.wrapping_sub(*barrier) < 32);
    let waits: Vec<_> =
        captured.events.iter().filter(|e| matches!(e, Event::FutexWait(w) if own(w.word.addr))).collect();
    assert!(waits.is_empty(), "{waits:?}");
}

#[test]
fn a_barrier_with_one_late_thread() {
    let Some(_turn) = may_observe() else { return };
    check_barrier(false);
}

#[test]
fn a_barrier_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check_barrier(true);
}
