//! Locks of a runtime's whose waiters sleep each on a word of its own.

use super::*;
use crate::event::FutexWait;
use crate::id::StackId;
use crate::observation::OpenWait;
use lockbpf_common::kind::mutex_kind;
use lockbpf_common::parking::{FOR_LOCK, FOR_PYTHON, PARKED};

const SLEEPS: StackId = StackId(1);

/// Thread 1 sleeps at this address in this function until thread 2, which never does, wakes it in `fn9`.
fn sleeper(addr: u64, expected: u32, innermost: u64) -> Run {
    let mut o = observation();
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
        o.events.push(wake(&wait, 5));
        o.events.push(Event::FutexWait(wait));
    }
    o
}

fn slept(addr: u64, expected: u32, innermost: u64) -> Report {
    report(&sleeper(addr, expected, innermost))
}

#[test]
fn a_lock_that_threads_are_parked_for_is_one() {
    let r = slept(0x1000, FOR_LOCK, LOCK_SLOW);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.futexes) };
    assert_eq!((lock.name.as_str(), lock.kind.as_str(), lock.inferred), ("global_1000", "parking_lot::Mutex", true));
    assert_eq!((lock.contended, lock.wait_ns.sum), (2, ms(8)));
    let [holder] = lock.holders.as_slice() else { panic!("{:?}", lock.holders) };
    assert_eq!((holder.place.symbol.as_str(), holder.wait_ns), ("fn9 (work.c:9)", ms(8)));
    assert_eq!(lock.attribution.inferred_ns, ms(0), "each was handed over, and that was seen");
    assert_conserved(&r);
}

/// CPython's locks from 3.13 on: their waiters sleep each in a semaphore.
#[test]
fn a_lock_that_threads_are_parked_for_in_semaphores_is_pythons() {
    let told = |stack: &[u64], expected| {
        let mut o = sleeper(0x1000, expected, SEM_WAIT);
        o.stacks.insert(SLEEPS, stack.to_vec());
        report(&o)
    };
    let r = told(&[SEM_WAIT, PYTHON_ASKS, PYTHON_WAITS], FOR_PYTHON);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.futexes) };
    assert_eq!((lock.kind.as_str(), lock.wait_ns.sum), ("Python lock", ms(8)));
    assert_eq!(lock.holders.first().map(|h| h.place.symbol.as_str()), Some("fn9 (work.c:9)"));
    // Who waits for a condition is idle; where no Python function is known it may be that; a semaphore itself may be anything.
    let waits = told(&[SEM_WAIT, PYTHON_WAITS, PYTHON_ASKS], FOR_PYTHON);
    let unknown = told(&[SEM_WAIT, 0x700], FOR_PYTHON);
    let semaphore = told(&[SEM_WAIT, PYTHON_ASKS], 0);
    for (r, purpose, idle) in
        [(waits, "condition variable", ms(8)), (unknown, "unknown", ms(0)), (semaphore, "semaphore", ms(0))]
    {
        let [word] = r.futexes.as_slice() else { panic!("{:?}", r.locks) };
        assert_eq!((word.purpose.as_str(), word.wait_ns.sum), (purpose, ms(8)));
        assert!(r.culprits.is_empty() && r.locks.is_empty(), "{:?}", r.culprits);
        assert_eq!(r.quality.sleep.map(|sleep| (sleep.conditions_ns, sleep.unknown_ns)), Some((idle, ms(8) - idle)));
    }
}

/// Of threads that are parked for a lock since long, nothing but their wait is known.
#[test]
fn a_lock_of_pythons_that_nobody_gives_back_is_told() {
    let mut o = observation();
    let wait = OpenWait { via: Via::Futex, stack: Some(SLEEPS), ..open_wait(0x1000, 1, 3_000, 0) };
    for (innermost, expected, locks) in
        [(PYTHON_ASKS, FOR_PYTHON, 1), (PYTHON_ASKS, 0, 0), (PYTHON_WAITS, FOR_PYTHON, 0)]
    {
        o.stacks.insert(SLEEPS, vec![SEM_WAIT, innermost, 0x700]);
        o.open_waits = vec![OpenWait { expected: Some(expected), ..wait }];
        let r = report(&o);
        assert_eq!((r.locks.len(), r.futexes.len()), (locks, 1 - locks), "{:?}", r.locks);
        assert!(r.locks.iter().all(|lock| lock.kind == "Python lock" && lock.waiting_now.count == 1));
    }
}

#[test]
fn a_word_that_threads_sleep_at_in_a_mutexs_function_is_a_mutex() {
    // Neither its owner nor who gives it back is known, as where other processes share it.
    let mut o = observation();
    o.stacks.insert(SLEEPS, vec![MUTEX_LOCK, 0x700]);
    o.events.push(Event::FutexWait(FutexWait {
        stack: Some(SLEEPS),
        owner: None,
        waker: None,
        ..futex_wait(0xa000, 1, 2, 0, 700)
    }));
    let r = report(&o);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.futexes) };
    assert_eq!((lock.kind.as_str(), lock.inferred), ("mutex", true));
    assert_eq!((lock.harm_ns, lock.unattributed_ns), (ms(700), ms(700)));
    assert_conserved(&r);
    o.stacks.insert(SLEEPS, vec![0x700]);
    assert_eq!(report(&o).locks.len(), 0);
    // Waits that have not ended tell as much.
    let mut hung = observation();
    hung.stacks.insert(SLEEPS, vec![MUTEX_LOCK, 0x700]);
    hung.open_waits.push(OpenWait { via: Via::Futex, stack: Some(SLEEPS), owner: None, ..open_wait(0xa000, 1, 0, 0) });
    let r = report(&hung);
    assert_eq!((r.locks[0].waiting_now.count, r.locks[0].harm_ns, r.futexes.len()), (1, ms(10_000), 0));
    assert!(verdict(&hung).contains("1 thread waits for it now"), "{}", verdict(&hung));
}

#[test]
fn a_word_of_a_threads_own_tells_no_lock() {
    let r = slept(0x1000, PARKED, LOCK_SLOW);
    assert_eq!((r.locks.len(), r.futexes.len()), (0, 1));
    assert_eq!(r.futexes[0].purpose, "parking_lot::Mutex");
    assert_eq!(r.quality.sleep.unwrap().runtimes_ns, Some(ms(8)));
}

#[test]
fn what_threads_are_parked_for_need_not_be_a_lock() {
    let r = slept(0x1000, FOR_LOCK, 0x700);
    assert_eq!((r.locks.len(), r.futexes.len()), (0, 1));
}

#[test]
fn what_threads_slept_for_a_lock_of_javas_is_not_told_again_as_sleep_for_nothing_known() {
    let mut o = sleeper(0x1000, FOR_LOCK, JAVA_ACQUIRE);
    let idle = sums(&mut o, lock(0x9100), site(PARK), Via::CondWait);
    (idle.acquisitions, idle.mutex_kind) = (3, mutex_kind::IS_CONDVAR);
    [4, 4, 12].into_iter().for_each(|slept| idle.wait.add(Nanos(slept * MS)));
    let r = report(&o);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.futexes) };
    assert_eq!((lock.kind.as_str(), lock.inferred, lock.wait_ns.sum), ("java.util.concurrent", true, ms(8)));
    assert_eq!(lock.holders[0].place.symbol, "fn9 (work.c:9)");
    assert_eq!(lock.attribution.inferred_ns, ms(8), "several readers may have it at once");
    let sleep = r.quality.sleep.unwrap();
    assert_eq!((sleep.locks_ns, sleep.parked_ns, sleep.places[0].slept_ns), (ms(8), ms(12), ms(12)));
}
