//! Locks that programs make of condition variables.

use super::*;
use crate::event::FutexWait;
use crate::id::StackId;
use crate::report::schema::LockEntry;
use lockbpf_common::kind::mutex_kind;

const ROUNDS: u64 = 20;
const THREADS: u64 = 3;

/// Three threads take turns in `fn7`, for 100 ms each: each sleeps on a word of a condition variable of its own until the one before lets it go on in `fn9`.
/// `fn11` calls `fn7` in all of them. With `third`, `fn13` calls it in the third one, whose waits last that long, in ms.
fn turns(third: Option<u64>) -> Run {
    let mut o = observation();
    o.stacks.insert(StackId(1), vec![0x700, 0xb00]);
    o.stacks.insert(StackId(2), vec![0x700, 0xd00]);
    let (word, turn) = (|thread: u64| 0x9000 + 0x100 * thread + 8, 100);
    for thread in 1..=THREADS {
        let condition = sums(&mut o, lock(word(thread) - 8), site(0x700), Via::CondWait);
        condition.mutex_kind = mutex_kind::IS_CONDVAR;
        // Most of it was outside of windows.
        (0..4).for_each(|_| condition.wait.add(Nanos(200 * MS)));
        condition.acquisitions = 4;
        let kernel = sums(&mut o, lock(word(thread)), site(0), Via::Futex);
        kernel.mutex_kind = mutex_kind::IS_FUTEX;
        (0..ROUNDS).for_each(|_| kernel.wait.add(Nanos(200 * MS)));
        kernel.acquisitions = ROUNDS;
    }
    for n in 0..THREADS * ROUNDS {
        let [waker, woken] = [n, n + 1].map(|n| n % THREADS + 1);
        let (stack, waits) = third.filter(|_| woken == 3).map_or((1, 200), |waits| (2, waits));
        let wait = FutexWait {
            end: Time((2_000 + n * turn) * MS),
            stack: Some(StackId(stack)),
            owner: None,
            waker: Some(Tid(waker as u32)),
            ..futex_wait(word(woken), woken as u32, 0, 0, waits)
        };
        let Event::Wake(wake) = wake(&wait, waits) else { unreachable!() };
        o.events.push(Event::Wake(crate::event::Wake { tid: Tid(waker as u32), ..wake }));
        o.events.push(Event::FutexWait(wait));
    }
    o
}

fn of_conditions(r: &Report) -> Option<&LockEntry> {
    r.locks.iter().find(|lock| lock.kind == "lock of conditions")
}

#[test]
fn a_place_where_threads_take_turns_is_a_lock() {
    let o = turns(None);
    let r = report(&o);
    let lock = of_conditions(&r).unwrap_or_else(|| panic!("{:?}", r.verdict));
    let all = ms(THREADS * ROUNDS * 200);
    assert_eq!((lock.name.as_str(), lock.inferred, lock.contended), ("lock in fn7 (work.c:7)", true, THREADS * ROUNDS));
    assert_eq!((lock.wait_ns.sum, lock.harm_ns, lock.waiting_threads), (all, all, THREADS));
    assert!(lock.in_turn.is_some_and(|part| part > 0.9), "{:?}", lock.in_turn);
    assert_eq!((lock.holders[0].place.symbol.as_str(), lock.holders[0].wait_ns), ("fn9 (work.c:9)", all));
    assert_eq!(lock.attribution.inferred_ns, all);
    // Its conditions are told by the kernel's count, and not as idle time.
    assert_eq!(
        r.conditions.iter().map(|c| (c.purpose.as_str(), c.slept_ns)).collect::<Vec<_>>(),
        [("lock of conditions", ms(ROUNDS * 200)); THREADS as usize]
    );
    let sleep = r.quality.sleep.as_ref().unwrap();
    assert_eq!((sleep.locks_ns, sleep.conditions_ns, sleep.unknown_ns, r.futexes.len()), (all, ms(0), ms(0), 0));
    let verdict = verdict(&o);
    assert!(
        verdict.contains("Most waited for is `lock in fn7 (work.c:7)`") && !verdict.contains("holds server back"),
        "{verdict}"
    );
    assert!(
        verdict.contains("in condition variables: 9") || verdict.contains("in condition variables: >9"),
        "{verdict}"
    );
    assert!(!render(&r, &Layout::default()).contains("Condition variables"));
    assert_conserved(&r);
}

#[test]
fn what_different_functions_wait_for_in_one_need_not_be_a_lock() {
    let r = report(&turns(Some(200)));
    assert!(of_conditions(&r).is_none(), "{:?}", r.verdict);
    let sleep = r.quality.sleep.unwrap();
    assert_eq!(
        (sleep.locks_ns, sleep.conditions_ns),
        (ms(0), ms(THREADS * ROUNDS * 200)),
        "by the kernel's count alone"
    );
    assert!(r.conditions.iter().all(|c| c.purpose == "condition"));
}

/// Its threads are parked there for monitors and for all else.
#[test]
fn where_java_parks_its_threads_is_no_lock() {
    let mut o = turns(None);
    for stack in o.stacks.values_mut() {
        stack.insert(0, PARK);
    }
    assert!(of_conditions(&report(&o)).is_none());
}

/// Who asks waits for the answer, and who answers only until it is asked again.
#[test]
fn what_another_function_waits_for_in_it_counts_however_short_that_is() {
    let r = report(&turns(Some(5)));
    assert!(of_conditions(&r).is_none(), "{:?}", r.verdict);
}

/// Their waits that have not ended are for it, too.
#[test]
fn whoever_waits_at_the_end_waits_for_the_lock() {
    let mut o = turns(None);
    let waits =
        crate::observation::OpenWait { site: Some(site(0x700)), via: Via::CondWait, ..open_wait(0x9100, 1, 9_000, 0) };
    o.open_waits.push(waits);
    let r = report(&o);
    let lock = of_conditions(&r).unwrap();
    assert_eq!((lock.waiting_now.count, lock.waiting_now.sum_ns), (1, ms(1_000)));
    assert_eq!(lock.harm_ns, lock.wait_ns.sum + ms(1_000));
    assert_eq!(r.quality.sleep.unwrap().conditions_ns, ms(0));
}
