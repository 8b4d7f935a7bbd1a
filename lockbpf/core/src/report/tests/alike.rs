//! Many locks that are held in one function in turn.

use super::*;
use crate::event::{FutexWait, Weight};

/// Each of `locks` locks at `site` is held by thread 11 for as long as `ms` says, while thread 12 waits for it.
fn shards(o: &mut Run, locks: std::ops::Range<u64>, site: u64, ms: u64) {
    for lock in locks {
        let t = lock * 20;
        feed(o, &section(0x9000 + lock * 0x40, 11, site, [t, t, t + ms]), true);
        feed(o, &section(0x9000 + lock * 0x40, 12, 0x500, [t, t + ms, t + ms]), true);
    }
}

#[test]
fn locks_of_which_none_stands_out_have_one_culprit() {
    let mut o = observation();
    shards(&mut o, 0..100, 0x300, 2);
    shards(&mut o, 100..101, 0x700, 10);
    let r = report(&o);
    let [first, second] = r.culprits.as_slice() else { panic!("{:?}", r.culprits) };
    assert_eq!((first.place.symbol.as_str(), first.locks, first.wait_ns), ("fn3 (work.c:3)", 100, ms(200)));
    assert_eq!((second.place.symbol.as_str(), second.locks, second.wait_ns), ("fn7 (work.c:7)", 1, ms(10)));
    // None of them is waited for noticeably.
    let expected = "95 % of all waiting is caused by `fn3` holding `lock in fn3 (work.c:3)` or one of 99 others at work.c:3; what it did \
                    meanwhile is not known. Most waited for is `lock in fn5 (work.c:5)` (mutex): 1 thread waited 10.0 ms for it in 10.0 s, of \
                    210 ms for all locks.";
    assert_eq!(r.verdict.join(" "), expected);
    assert_conserved(&r);
}

#[test]
fn locks_of_other_names_have_culprits_of_their_own() {
    let mut o = observation();
    for (lock, at) in [(0x1000, 0), (0x1008, 500)] {
        feed(&mut o, &section(lock, 11, 0x300, [at, at, at + 300]), true);
        feed(&mut o, &section(lock, 12, 0x500, [at, at + 300, at + 300]), true);
    }
    // These are `global_1000` and `global_1008`.
    assert_eq!(report(&o).culprits.iter().map(|culprit| culprit.locks).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_lock_that_stands_out_is_told_alone() {
    let mut o = observation();
    shards(&mut o, 0..4, 0x300, 1);
    shards(&mut o, 5..6, 0x300, 900);
    let r = report(&o);
    assert_eq!((r.culprits[0].locks, r.culprits[0].wait_ns), (1, ms(900)));
    assert!(r.verdict[1].starts_with("`lock in fn3 (work.c:3) #5` (mutex) holds server back: "), "{:?}", r.verdict);
}

/// Threads slept 80 ms for each of `locks` futex words in `fn7`, of which a record tells of a wait for half of the locks. It stands for 16
/// waits of 4 ms. All of them end with a wake in `fn9`.
fn thinned(locks: u64) -> Run {
    let mut o = observation();
    for at in 0..locks {
        let word = 0xa000 + at * 0x40;
        let counted = sums(&mut o, lock(word), site(0), Via::Futex);
        (counted.acquisitions, counted.mutex_kind) = (20, mutex_kind::IS_FUTEX);
        counted.wait.add(Nanos(80 * MS));
        let heavy = at % 2 == 0;
        let waits = if heavy { 4 } else { 0 };
        let wait = FutexWait {
            end: Time(5_000 * MS + at),
            weight: Weight { waits, stacks: 0 },
            ..futex_wait(word, 1, 2, 2, 4)
        };
        o.events.push(wake(&wait, 4));
        o.events.push(Event::FutexWait(wait));
    }
    o
}

#[test]
fn few_records_of_each_tell_of_all() {
    let r = report(&thinned(40));
    let [culprit] = r.culprits.as_slice() else { panic!("{:?}", r.culprits) };
    assert_eq!((culprit.place.symbol.as_str(), culprit.locks), ("fn9 (work.c:9)", 40));
    assert!(culprit.share_of_all > 0.99, "{culprit:?}");
    // Records stand for 64 ms of half of the locks and 4 ms of the others.
    let told = r.totals.attribution;
    assert_eq!(r.totals.harm_ns, ms(40 * 80));
    let lacking = ms(20 * (16 + 76));
    assert!(told.inferred_ns.as_f64() / lacking.as_f64() > 0.99 && told.inferred_ns <= lacking, "{told:?}");
    assert!(r.locks.iter().all(|lock| lock.recorded_wait_ns <= ms(80)), "{:?}", r.locks);
    assert_conserved(&r);
}

#[test]
fn too_few_records_tell_of_no_other_lock() {
    let r = report(&thinned(10));
    assert_eq!(r.totals.attribution.inferred_ns, ms(0));
    assert_eq!(r.totals.attribution.unknown_ns, ms(5 * (16 + 76)));
}
