use super::*;
use crate::id::{Process, Site};
use lockbpf_common::parking::FOR_LOCK;
use proptest::prelude::*;

const WORD: u64 = 0x10;
const OTHER: u64 = 0x20;

fn lock(addr: u64) -> Lock {
    Lock { process: Process(1), addr }
}

fn site(addr: u64) -> Site {
    Site { process: Process(1), addr }
}

/// A thread gives back a lock at a site of its own.
fn wake(word: u64, tid: u32, time: u64, since: Option<u64>) -> Wake {
    Wake {
        time: Time(time),
        since: since.map(Nanos),
        watched: Nanos(0),
        word: lock(word),
        site: Some(site(u64::from(tid))),
        process: Process(1),
        tid: Tid(tid),
        woken: 1,
        stack: None,
    }
}

fn wait(word: u64, tid: u32, (from, to): (u64, u64), waker: u32) -> FutexWait {
    FutexWait {
        end: Time(to),
        wait: Nanos(to - from),
        word: lock(word),
        site: None,
        tid: Tid(tid),
        expected: 2,
        owner: None,
        waker: (waker != 0).then_some(Tid(waker)),
        stack: None,
        result: FutexResult::Slept,
        weight: Weight::default(),
    }
}

/// Whom the last of these waits is charged to: thread, time, whether nested, handed off, inferred.
fn divided(wakes: &[Wake], waits: &[FutexWait]) -> Vec<(u32, u64, [bool; 3])> {
    let mut releases = Releases::default();
    wakes.iter().for_each(|w| releases.wake(w));
    waits.iter().for_each(|w| releases.wait(w));
    let mut last = Vec::new();
    while let Some((wait, _, pieces)) = releases.next(true) {
        let sum: u64 = pieces.iter().map(|piece| piece.wait().0).sum();
        assert_eq!(sum, wait.wait.0, "{pieces:?}");
        last = pieces;
    }
    let told = |p: &Piece| (p.tid.0, p.wait().0, [p.is_nested(), p.cause == Cause::HandOff, p.inferred]);
    last.iter().map(told).collect()
}

const DIRECT: [bool; 3] = [false; 3];
const NESTED: [bool; 3] = [true, false, false];
const HANDOFF: [bool; 3] = [false, true, false];
const INFERRED: [bool; 3] = [false, false, true];

#[test]
fn each_holder_is_charged_up_to_its_release() {
    let wakes = [wake(WORD, 1, 130, None), wake(WORD, 2, 170, Some(40)), wake(WORD, 3, 400, Some(230))];
    assert_eq!(divided(&wakes, &[wait(WORD, 9, (100, 180), 2)]), [(1, 30, DIRECT), (2, 40, DIRECT), (2, 10, HANDOFF)]);
}

/// Two threads take turns 1,500 times. One holds the lock for 300 ns each time, the other for 100 ns.
#[test]
fn a_wait_of_very_many_releases_is_charged_by_how_long_each_had_the_lock() {
    let wakes: Vec<Wake> = (1..=1_500)
        .flat_map(|n| [wake(WORD, 1, n * 400 - 100, Some(300)), wake(WORD, 2, n * 400, Some(100))])
        .collect();
    let pieces = divided(&wakes, &[wait(WORD, 9, (0, 600_000), 2)]);
    let of = |tid| pieces.iter().filter(|piece| piece.0 == tid).map(|piece| piece.1).sum::<u64>();
    assert_eq!(of(1) + of(2), 600_000, "{pieces:?}");
    assert!((390_000..=510_000).contains(&of(1)), "{pieces:?}");
    assert!(pieces.iter().all(|&(.., [_, _, inferred])| inferred));
}

/// Threads give back other locks of the same numbers in between: who gave this one back last had it handed on.
#[test]
fn a_wait_of_very_many_releases_of_a_numbered_lock() {
    let word = custom::numbered(5, 0);
    let wakes: Vec<Wake> =
        (1..=600).flat_map(|n| [wake(word, 2, n * 100 - 50, None), wake(word, 3, n * 100, None)]).collect();
    let waits = [FutexWait { owner: Some(Tid(7)), ..wait(word, 9, (0, 70_000), 2) }];
    let pieces = divided(&wakes, &waits);
    assert!(pieces.iter().all(|piece| piece.0 == 2), "{pieces:?}");
    assert!(pieces.iter().any(|&(.., [_, is_handed_on, _])| is_handed_on), "{pieces:?}");
}

/// Each wait of a crowd lasts for all releases before its own: their number is the square of the crowd's.
#[test]
fn a_crowd_that_queues() {
    let wakes: Vec<Wake> = (1..=2_000).map(|n| wake(WORD, n, u64::from(n) * 100, Some(100))).collect();
    let waits: Vec<_> = (2..=2_000).map(|n| wait(WORD, n, (1, u64::from(n) * 100 - 99), n - 1)).collect();
    let last = divided(&wakes, &waits);
    assert!((32..=64).contains(&last.len()), "{last:?}");
}

/// Threads give back other locks of the same numbers while one waits.
#[test]
fn of_a_numbered_lock_its_owner_and_its_waker_had_it() {
    let word = custom::numbered(5, 0);
    let wakes =
        [wake(word, 1, 120, None), wake(word, 2, 140, None), wake(word, 3, 170, None), wake(word, 4, 175, None)];
    let named = |owner: u32, waker| {
        let wait = FutexWait { owner: Some(Tid(owner)), ..wait(word, 9, (100, 180), waker) };
        divided(&wakes, &[wait])
    };
    assert_eq!(named(3, 3), [(3, 70, DIRECT), (3, 10, HANDOFF)]);
    assert_eq!(named(1, 3), [(1, 20, DIRECT), (3, 50, DIRECT), (3, 10, HANDOFF)]);
    // Nobody was seen to give it back.
    assert_eq!(named(8, 0), [(8, 80, INFERRED)]);
    // Who had the one waited, for another of the same number.
    let outer = FutexWait { owner: Some(Tid(3)), ..wait(word, 9, (100, 180), 3) };
    let inner = FutexWait { owner: Some(Tid(2)), ..wait(word, 3, (90, 145), 2) };
    let told = divided(&wakes, &[inner, outer]);
    assert_eq!(told.iter().map(|&(tid, time, _)| (tid, time)).collect::<Vec<_>>(), [(2, 40), (2, 5), (3, 25), (3, 10)]);
}

#[test]
fn who_wakes_at_a_word_of_the_waiters_own_gives_back_the_lock_that_it_waited_for() {
    let parked = |wakes: &[Wake]| divided(wakes, &[FutexWait { expected: FOR_LOCK, ..wait(WORD, 9, (100, 180), 2) }]);
    assert_eq!(parked(&[wake(OTHER, 2, 170, None)]), [(2, 70, DIRECT), (2, 10, HANDOFF)]);
    assert_eq!(parked(&[wake(WORD, 2, 170, None)]), [(2, 70, DIRECT), (2, 10, HANDOFF)]);
    // The same thread has woken somebody else before the waiter ran.
    assert_eq!(parked(&[wake(WORD, 2, 160, None), wake(OTHER, 2, 170, None)]), [(2, 60, DIRECT), (2, 20, HANDOFF)]);
    // Nobody was woken by that one while the wait lasted.
    assert_eq!(parked(&[wake(OTHER, 2, 90, None)]), [(2, 80, INFERRED)]);
}

/// Where the lock was given back at the end of the pieces of a wait, and whether that is inferred.
fn places(wakes: &[Wake], waits: &[FutexWait]) -> Vec<(Option<Who>, bool)> {
    let mut releases = Releases::default();
    wakes.iter().for_each(|w| releases.wake(w));
    waits.iter().for_each(|w| releases.wait(w));
    let mut last = Vec::new();
    while let Some((_, _, pieces)) = releases.next(true) {
        last = pieces;
    }
    last.iter().map(|piece| (piece.who, piece.inferred)).collect()
}

fn at(tid: u32, stack: u32) -> Option<Who> {
    let stack = (stack != 0).then_some(StackId(stack));
    Some(Who::Released { lock: lock(WORD), site: site(u64::from(tid)), stack })
}

#[test]
fn who_wakes_all_that_wait_one_by_one_gives_the_lock_back_once() {
    let first = Wake { stack: Some(StackId(7)), ..wake(WORD, 1, 130, None) };
    let then = |tid, time| wake(WORD, tid, time, Some(2));
    let waited = wait(WORD, 9, (100, 140), 1);
    let of_first = vec![(at(1, 7), false); 2];
    assert_eq!(places(&[first, then(1, 132), then(1, 134)], &[waited]), of_first);
    // Another thread does so by a call of its own, and so does the same one later or elsewhere.
    assert_eq!(places(&[first, then(2, 132)], &[wait(WORD, 9, (131, 140), 2)]).last().unwrap().0, at(2, 0));
    let late = 131 + AT_ONCE.0;
    assert_eq!(places(&[first, then(1, late)], &[wait(WORD, 9, (131, late), 1)]).last().unwrap().0, at(1, 0));
    // Whoever waits for a lock of a runtime's own sleeps on another word.
    let parked = FutexWait { expected: FOR_LOCK, ..waited };
    let of_other = |wake: Wake| Wake { word: lock(OTHER), ..wake };
    assert_eq!(places(&[of_other(first), of_other(then(1, 134))], &[parked]), of_first);
    // Nor is it known to be one call where nothing tells where it is; and one that goes on for ever is none.
    let nowhere = |wake| Wake { site: None, ..wake };
    let unplaced = places(&[nowhere(first), nowhere(then(1, 132))], &[wait(WORD, 9, (131, 140), 1)]);
    assert_eq!(unplaced.last().unwrap().0, Some(Who::Thread(Tid(1))));
    let many: Vec<_> = (0..4).map(|n| then(1, 130 + n * AT_ONCE.0 / 2)).collect();
    let last = wait(WORD, 9, (131 + AT_ONCE.0, 140 + 2 * AT_ONCE.0), 1);
    assert_eq!(places(&[&[first][..], &many].concat(), &[last]).last().unwrap().0, at(1, 0));
    let elsewhere = Wake { site: Some(site(4)), ..then(1, 132) };
    assert_eq!(places(&[first, elsewhere], &[wait(WORD, 9, (131, 140), 1)]).last().unwrap().0, at(4, 0));
}

#[test]
fn where_a_thread_gave_a_lock_back_is_taken_from_another_time_if_it_is_not_known() {
    let placed = Wake { stack: Some(StackId(7)), ..wake(WORD, 1, 90, None) };
    let unplaced = |tid, time| Wake { site: None, ..wake(WORD, tid, time, Some(40)) };
    let waited = wait(WORD, 9, (100, 130), 1);
    assert_eq!(places(&[placed, unplaced(1, 130)], &[waited]), [(at(1, 7), true)]);
    // Later, too; but not from another thread's.
    assert_eq!(places(&[unplaced(1, 130), Wake { time: Time(190), ..placed }], &[waited]), [(at(1, 7), true)]);
    assert_eq!(places(&[placed, unplaced(2, 130)], &[wait(WORD, 9, (100, 130), 2)])[0].0, Some(Who::Thread(Tid(2))));
    assert_eq!(places(&[unplaced(1, 110), unplaced(1, 130)], &[waited])[0].0, Some(Who::Thread(Tid(1))));
}

#[test]
fn a_hand_over_that_was_not_recorded_is_nobodys() {
    // Somebody was woken at 150, but by whom is not known.
    let wakes = [wake(WORD, 2, 170, Some(20))];
    assert_eq!(
        divided(&wakes, &[wait(WORD, 9, (100, 180), 2)]),
        [(0, 50, INFERRED), (2, 20, DIRECT), (2, 10, HANDOFF)]
    );
    let owned = FutexWait { owner: Some(Tid(7)), ..wait(WORD, 9, (100, 180), 2) };
    assert_eq!(divided(&wakes, &[owned])[0], (7, 50, INFERRED));
}

#[test]
fn who_was_woken_before_somebody_woke_nobody_was_only_to_run() {
    // 1 woke the waiter at 130. Somebody called wake at 150 and found nobody, 2 at 170 somebody else.
    let wakes = [wake(WORD, 1, 130, None), wake(WORD, 2, 170, Some(20))];
    let late = [false, true, true];
    let expected = [(1, 30, DIRECT), (1, 20, late), (2, 20, DIRECT), (2, 10, HANDOFF)];
    assert_eq!(divided(&wakes, &[wait(WORD, 9, (100, 180), 2)]), expected);
    // Where waits are thinned it may have been another's.
    let thinned = FutexWait { weight: Weight { waits: 1, stacks: 0 }, ..wait(WORD, 9, (100, 180), 2) };
    assert_eq!(divided(&wakes, &[thinned])[1], (0, 20, INFERRED));
}

#[test]
fn the_waker_is_all_that_is_known_without_wakes() {
    assert_eq!(divided(&[], &[wait(WORD, 9, (100, 180), 2)]), [(2, 80, INFERRED)]);
    assert_eq!(divided(&[], &[wait(WORD, 9, (100, 180), 0)]), [(0, 80, INFERRED)]);
    let timed_out = FutexWait { result: FutexResult::TimedOut, ..wait(WORD, 9, (100, 180), 2) };
    assert_eq!(divided(&[], &[timed_out]), [(0, 80, INFERRED)]);
}

#[test]
fn where_a_thread_gives_the_lock_back_is_known_from_another_time() {
    let mut releases = Releases::default();
    releases.wake(&wake(WORD, 2, 50, Some(5)));
    releases.wait(&wait(WORD, 9, (100, 180), 2));
    let (_, _, pieces) = releases.next(true).unwrap();
    assert_eq!(pieces[0].who, Some(Who::Released { lock: lock(WORD), site: site(2), stack: None }));
    assert!(pieces[0].inferred && pieces.len() == 1);
}

#[test]
fn blame_is_passed_on_while_the_holder_sleeps() {
    // 2 holds the word from 100 to 200, and waits from 120 to 180 for another, which 3 has.
    let wakes = [wake(OTHER, 3, 170, None), wake(WORD, 2, 200, Some(500))];
    let waits = [wait(OTHER, 2, (120, 180), 3), wait(WORD, 9, (100, 210), 2)];
    assert_eq!(
        divided(&wakes, &waits),
        [(2, 20, DIRECT), (3, 50, NESTED), (3, 10, [true, true, false]), (2, 20, DIRECT), (2, 10, HANDOFF)]
    );
}

#[test]
fn what_the_holder_did_is_told_since_it_is_watched() {
    let mut releases = Releases::default();
    releases.wake(&Wake { watched: Nanos(80), ..wake(WORD, 2, 200, Some(150)) });
    let stack = Some(crate::id::StackId(7));
    let reason = crate::op::OffReason::Blocked;
    let (end, off, runnable) = (Time(180), Nanos(50), Nanos(10));
    releases.absent(&OffCpu { end, off, runnable, process: Process(1), tid: Tid(2), reason, stack });
    releases.wait(&wait(WORD, 9, (100, 210), 2));
    let (_, _, pieces) = releases.next(true).unwrap();
    let told: Vec<_> = pieces.iter().map(|p| (p.cause, p.wait().0, p.off.is_some())).collect();
    let expected = [
        (Cause::Unknown, 20, false),
        (Cause::Running, 10, false),
        (Cause::Blocked, 40, true),
        (Cause::Runnable, 10, false),
        (Cause::Running, 20, false),
        (Cause::HandOff, 10, false),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_wait_is_divided_once_its_wake_can_be_known() {
    let mut releases = Releases::default();
    releases.wait(&wait(WORD, 9, (100, 180), 2));
    assert!(releases.next(false).is_none());
    // The wake comes after the wait that it ended.
    releases.wake(&wake(WORD, 2, 170, None));
    assert!(releases.next(false).is_none());
    releases.wake(&wake(OTHER, 2, 180 + HELD_BACK.0, None));
    let (_, _, pieces) = releases.next(false).unwrap();
    assert_eq!(pieces.iter().map(|p| p.tid.0).collect::<Vec<_>>(), [2, 2]);
}

proptest! {
    #[test]
    fn pieces_are_the_wait_and_do_not_depend_on_the_order_of_records(
        wakes in proptest::collection::vec((0..2u64, 1..5u32, 0..400u64, proptest::option::of(0..200u64)), 0..20),
        waits in proptest::collection::vec((0..2u64, 1..5u32, 0..300u64, 1..100u64, 0..5u32), 1..10),
        seed in any::<u64>(),
    ) {
        let wakes: Vec<Wake> = wakes.iter().map(|&(w, tid, time, since)| wake(WORD + w, tid, time, since)).collect();
        let waits: Vec<FutexWait> = waits
            .iter()
            .enumerate()
            // No two end at the same time.
            .map(|(i, &(w, tid, from, len, by))| wait(WORD + w, tid, (from * 16, (from + len) * 16 + i as u64), by))
            .collect();
        let all = |backwards: bool| {
            let mut releases = Releases::default();
            let mut wakes = wakes.clone();
            // Wakes of one word at the same time have no order of their own.
            wakes.sort_by_key(|w| (w.word, w.time, w.tid, w.since));
            wakes.dedup_by_key(|w| (w.word, w.time));
            if backwards {
                let by = seed as usize % wakes.len().max(1);
                wakes.rotate_left(by);
            }
            wakes.iter().for_each(|w| releases.wake(w));
            if backwards { waits.iter().rev().for_each(|w| releases.wait(w)) } else { waits.iter().for_each(|w| releases.wait(w)) }
            let mut told = Vec::new();
            while let Some((wait, _, pieces)) = releases.next(true) {
                prop_assert_eq!(pieces.iter().map(|p| p.wait().0).sum::<u64>(), wait.wait.0);
                prop_assert!(pieces.iter().all(|p| p.tid != wait.tid));
                told.push((wait, pieces));
            }
            Ok(told)
        };
        prop_assert_eq!(all(false)?, all(true)?);
    }
}
