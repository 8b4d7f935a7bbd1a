//! Locks of a runtime's whose waiters sleep each on a word of its own.

use super::*;
use crate::event::{FutexWait, Wake};
use crate::id::StackId;
use lockbpf_common::parking::{FOR_LOCK, PARKED};

const SLEEPS: StackId = StackId(1);

/// Thread 1 sleeps at this address until thread 2, which never does, wakes it in `fn9`; through parking_lot's slow path, if that is seen.
fn slept(addr: u64, expected: u32, slow_path: bool) -> Report {
    let mut o = observation();
    let innermost = if slow_path { LOCK_SLOW } else { 0x700 };
    o.stacks.insert(SLEEPS, vec![innermost, 0x700]);
    for end in [1_000, 2_000] {
        let wait = FutexWait {
            end: Time(end * MS),
            expected,
            stack: Some(SLEEPS),
            owner: None,
            waker: Some(Tid(2)),
            ..futex_wait(addr, 1, 0, 2, 4)
        };
        o.events.push(Event::Wake(Wake {
            time: wait.end,
            since: Some(Nanos(5 * MS)),
            watched: Nanos(5 * MS),
            word: wait.word,
            site: Some(site(0x900)),
            process: P,
            tid: Tid(2),
            woken: 1,
            stack: None,
        }));
        o.events.push(Event::FutexWait(wait));
    }
    report(&o)
}

#[test]
fn a_lock_that_threads_are_parked_for_is_one() {
    let r = slept(0x1000, FOR_LOCK, true);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.futexes) };
    assert_eq!((lock.name.as_str(), lock.kind.as_str(), lock.inferred), ("global_1000", "parking_lot::Mutex", true));
    assert_eq!((lock.contended, lock.wait_ns.sum), (2, ms(8)));
    let [holder] = lock.holders.as_slice() else { panic!("{:?}", lock.holders) };
    assert_eq!((holder.place.symbol.as_str(), holder.wait_ns), ("fn9 (work.c:9)", ms(8)));
    assert_eq!(lock.attribution.inferred_ns, ms(0), "each was handed over, and that was seen");
    assert_conserved(&r);
}

#[test]
fn a_word_of_a_threads_own_tells_no_lock() {
    let r = slept(0x1000, PARKED, true);
    assert_eq!((r.locks.len(), r.futexes.len()), (0, 1));
    assert_eq!(r.futexes[0].purpose, "parking_lot::Mutex");
    assert_eq!(r.quality.sleep.unwrap().runtimes_ns, Some(ms(8)));
}

#[test]
fn what_threads_are_parked_for_need_not_be_a_lock() {
    let r = slept(0x1000, FOR_LOCK, false);
    assert_eq!((r.locks.len(), r.futexes.len()), (0, 1));
}
