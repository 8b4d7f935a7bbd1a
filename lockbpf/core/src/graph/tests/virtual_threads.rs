//! Waits of Java's virtual threads for locks of which a field names the one that has it.

use super::*;
use crate::event::{Event, FutexResult, FutexWait, OffCpu, Weight};
use crate::graph::findings::{Cause, Holder};
use lockbpf_common::parking::FOR_LOCK;
use lockbpf_common::task::of_virtual;

const LOCK: u64 = 0x1000;

/// A thread waits for 20 µs for a lock that `owner` has, which sleeps for 18 of these.
fn waited(waiter: Tid, owner: Tid) -> Option<Holder> {
    let off = OffCpu {
        end: Time(20_000),
        off: Nanos(18_000),
        runnable: Nanos(0),
        process: Process(0),
        tid: owner,
        reason: OffReason::Sleeping,
        stack: None,
    };
    let wait = FutexWait {
        end: Time(21_000),
        wait: Nanos(20_000),
        word: lock(LOCK),
        site: Some(site(0x700)),
        tid: waiter,
        expected: FOR_LOCK,
        owner: Some(owner),
        waker: None,
        stack: None,
        result: FutexResult::Slept,
        weight: Weight::default(),
    };
    let mut graph = WaitGraph::default();
    graph.event(&Event::OffCpu(off));
    graph.event(&Event::FutexWait(wait));
    let waits = graph.finish(Time(30_000), &mut ()).words.remove(&lock(LOCK)).expect("it waited");
    waits.shares.holders.first().cloned()
}

#[test]
fn whoever_has_the_lock_is_charged_by_what_it_did() {
    let owner = Tid(of_virtual(9));
    let holder = waited(Tid(of_virtual(7)), owner).expect("somebody is charged");
    assert_eq!((holder.who, holder.wait, holder.inferred), (Who::Thread(owner), Nanos(20_000), Nanos(20_000)));
    assert_eq!((holder.causes.of(Cause::Sleeping), holder.causes.of(Cause::Unknown)), (Nanos(18_000), Nanos(2_000)));
}

/// What stands beside a word of theirs means nothing, and nobody waits for themself.
#[test]
fn threads_of_the_system_do_not_wait_for_virtual_ones() {
    let of_virtual = |id| Tid(of_virtual(id));
    for (waiter, owner) in [(Tid(7), of_virtual(9)), (of_virtual(7), Tid(9)), (of_virtual(9), of_virtual(9))] {
        let charged = waited(waiter, owner);
        assert!(charged.is_none_or(|holder| holder.who != Who::Thread(owner)), "{waiter:?}");
    }
}
