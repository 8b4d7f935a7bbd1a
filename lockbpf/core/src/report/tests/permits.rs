//! Semaphores that are locks, and those whose permits stand for work.

use super::*;
use crate::op::LockKind;
use crate::sums::Measure;

/// Eight rounds on the semaphore 0x1000: `takers` threads from 2 on take permits at 0x200 after 100 ms, which thread `giver` gives. `seen`: the
/// records are there, too.
fn queue(takers: u32, giver: impl Fn(u32) -> u32, seen: bool) -> Report {
    report(&rounds(takers, giver, seen))
}

fn rounds(takers: u32, giver: impl Fn(u32) -> u32, seen: bool) -> Run {
    let mut o = observation();
    for round in 0..8_u64 {
        let tid = 2 + round as u32 % takers;
        let at = 1_000 * (round + 1);
        let taken = Section {
            via: Via::SemWait,
            outcome: Outcome::Unseen,
            waker: Some(Tid(giver(tid))),
            ..section(0x1000, tid, 0x200, [at, at + 100, at + 100])
        };
        feed(&mut o, &taken, seen);
    }
    let sums = sums(&mut o, lock(0x1000), site(0x200), Via::SemWait);
    (sums.kind, sums.unseen, sums.hold) = (LockKind::Semaphore, sums.acquisitions, Measure::default());
    o
}

#[test]
fn who_waits_for_permits_that_others_hand_out_is_idle() {
    {
        let r = queue(2, |_| 1, true);
        let [queue] = r.conditions.as_slice() else { panic!("{:?}", r.locks) };
        assert_eq!(
            (queue.kind.as_str(), queue.purpose.as_str(), queue.name.as_str()),
            ("semaphore", "semaphore", "global_1000")
        );
        assert_eq!((queue.waits, queue.idle_ns.sum, queue.blocked_again), (8, ms(800), 0));
        assert!(r.locks.is_empty() && r.culprits.is_empty() && r.sites.is_empty(), "{:?}", r.locks);
        assert_eq!((r.totals.harm_ns, r.totals.recorded_wait_ns), (ms(0), ms(0)));
        assert!(r.threads.iter().all(|thread| thread.wait_ns == ms(0)), "{:?}", r.threads);
        let verdict = r.verdict.join(" ");
        assert!(verdict.contains("threads only waited for semaphores: idle time"), "{verdict}");
        let table = text(&r);
        assert!(table.contains("Semaphores for work (idle time, unless locks are made of them)"), "{table}");
        assert_conserved(&r);
    }
}

#[test]
fn who_waits_for_permits_that_are_given_back_waits_for_a_lock() {
    // Of each the last permit is all that the kernel side remembers, so it may not have seen who gave it back.
    let r = queue(2, |tid| 5 - tid, true);
    let [lock] = r.locks.as_slice() else { panic!("{:?}", r.conditions) };
    assert_eq!((lock.kind.as_str(), lock.contended, lock.wait_ns.sum), ("semaphore", 8, ms(800)));
    assert_conserved(&r);
}

/// In windows a thread that holds a lock for longer than they are is not seen to take it.
#[test]
fn who_gives_back_what_another_one_gave_waits_for_a_lock() {
    let mut o = rounds(2, |_| 1, true);
    o.sums[0].unseen = 1;
    assert_eq!(report(&o).locks.len(), 1);
    o.sums[0].unseen = 2;
    assert_eq!(report(&o).conditions.len(), 1);
}

/// A thread with a semaphore of its own may be parked there for a lock of the program's, as a server's processes are.
#[test]
fn who_alone_takes_permits_may_be_parked() {
    let r = queue(1, |_| 1, true);
    let [parked] = r.conditions.as_slice() else { panic!("{:?}", r.locks) };
    assert_eq!((parked.kind.as_str(), parked.purpose.as_str()), ("semaphore", "parking"));
    assert_eq!(r.quality.sleep.map(|sleep| (sleep.conditions_ns, sleep.parked_ns)), Some((ms(0), ms(800))));
    // Of permits that nobody was seen to give it is not known what they stand for.
    let r = queue(2, |_| 1, false);
    assert_eq!((r.locks.len(), r.conditions.len()), (1, 0));
}
