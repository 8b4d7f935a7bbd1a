//! Who is to blame for waits that only futex calls show. A thread that gives back a lock for which others sleep has to wake one of
//! them; so whoever wakes at a word has held its lock since somebody was woken there before. A wait is divided among those who
//! gave the lock back while it lasted, each charged up to that moment, and the last also for the time until the waiter runs.
//!
//! If the one to blame slept itself meanwhile, for another word, that time is passed on to whoever that wait is blamed on.
//!
//! * **Order**: a wake may be recorded after the wait that it ends, so waits are divided a while after their end.
//! * **Time**: a wait costs the wakes at its word while it lasted.
//! * **Memory**: the last million wakes, the last waits of 16,384 threads, and waits that are held back.

use super::findings::{Cause, Link, Who};
use super::futex::plausible_owner;
use super::log::{Log, Timed};
use super::meanwhile::Absences;
use crate::event::{FutexResult, FutexWait, OffCpu, Outcome, Section, Wake, Weight, flag};
use crate::id::{Lock, StackId, Tid};
use crate::units::{Nanos, Time};
use lockbpf_common::parking::FOR_LOCK;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How much later than a wait's end the wake that ended it may be recorded.
const HELD_BACK: Nanos = Nanos(1_000_000_000);
/// The same for the wakes of one lock, of whose waiters some have still to be known: half of that.
const LINKED_AFTER: Nanos = Nanos(HELD_BACK.0 / 2);
/// Waits held back.
const MAX_HELD_BACK: usize = 65_536;
/// Releases that are remembered, and of these the last at one word: as many as there can be while waits are held back.
const MAX_RELEASES: usize = 1 << 20;
const MAX_OF_WORD: usize = 1 << 16;
/// The same of wakes by thread.
const MAX_WAKES: usize = 1 << 19;
const MAX_OF_THREAD: usize = 1 << 14;
/// How many of them are looked at for where a thread gives a lock back.
const MAX_LOOKED_AT: usize = 256;
/// Threads whose waits are remembered, how many of each, and how many pieces of one.
const MAX_THREADS: usize = 16_384;
const MAX_WAITS: usize = 16;
const MAX_PIECES: usize = 64;
/// Words that blame is passed on through.
const MAX_LINKS: usize = 16;

/// A lock was given back.
#[derive(Clone, Copy, Debug)]
struct Release {
    time: Time,
    /// Since when it may have been held, at the earliest.
    from: Time,
    /// Since when it is known what the thread did.
    told: Time,
    tid: Tid,
    who: Who,
    stack: Option<StackId>,
}

/// A part of a wait, and whom it is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    from: Time,
    to: Time,
    /// `None` if nobody is known.
    pub(super) who: Option<Who>,
    pub(super) tid: Tid,
    pub(super) cause: Cause,
    pub(super) inferred: bool,
    pub(super) stack: Option<StackId>,
    /// With which stack the one to blame had left the CPU.
    pub(super) off: Option<StackId>,
    /// From the word that is waited for to that of the one to blame.
    pub(super) links: Vec<Link>,
}

impl Piece {
    pub(super) fn wait(&self) -> Nanos {
        self.to.since(self.from)
    }

    pub(super) fn is_nested(&self) -> bool {
        self.links.len() > 1
    }

    /// Whether the other one goes on where this one ends, with the same to blame in the same way.
    fn goes_on(&self, other: &Self) -> bool {
        let same = |p: &Self| (p.who, p.tid, p.cause, p.inferred, p.stack, p.off);
        self.to == other.from && same(self) == same(other) && self.links == other.links
    }
}

/// A wait that was divided.
#[derive(Clone, Debug)]
struct Divided {
    word: Lock,
    from: Time,
    to: Time,
    pieces: Vec<Piece>,
}

/// A wait that is held back, and what it was for.
#[derive(Clone, Copy, Debug)]
struct Pending {
    wait: FutexWait,
    of: Of,
}

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A futex word: whoever gives it back wakes at that word.
    Word,
    /// A lock of a runtime's own, whose threads may sleep on words of their own: who woke the waiter is known.
    Runtime,
}

impl Timed for Release {
    fn time(&self) -> Time {
        self.time
    }
}

impl Timed for Wake {
    fn time(&self) -> Time {
        self.time
    }
}

/// Remembers who gave back what, and who waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Releases {
    words: Log<Lock, Release, MAX_RELEASES, MAX_OF_WORD>,
    threads: Arc<FxHashMap<Tid, VecDeque<Arc<Divided>>>>,
    absences: Absences,
    /// Where waiters sleep on words of their own, the thread that woke one had the lock.
    pub(super) wakes: Log<Tid, Wake, MAX_WAKES, MAX_OF_THREAD>,
    /// By their ends, and a number.
    pending: BTreeMap<(Time, u64), Pending>,
    /// Waits for runtimes' locks, until the wakes that ended them can be known; likewise.
    unlinked: BTreeMap<(Time, u64), FutexWait>,
    number: u64,
    newest: Time,
    /// Whether some waits, and so wakes, were not recorded.
    thinned: bool,
}

impl Releases {
    /// Takes note of a wake.
    pub(super) fn wake(&mut self, w: &Wake) {
        self.wakes.add(w.tid, *w);
        self.give_back(w);
    }

    fn give_back(&mut self, w: &Wake) {
        let who = w.site.map_or(Who::Thread(w.tid), |site| Who::Released { lock: w.word, site, stack: w.stack });
        let from = w.since.map_or(Time(0), |since| w.time - since);
        let told = w.time - w.watched;
        self.release(w.word, Release { time: w.time, from, told, tid: w.tid, who, stack: w.stack });
    }

    /// Takes note of what a thread did instead of running.
    pub(super) fn absent(&mut self, off: &OffCpu) {
        self.absences.add(off);
    }

    /// Takes note of a section whose lock others waited for: no wake tells of it.
    pub(super) fn section(&mut self, s: &Section) {
        if s.has(flag::WAITED_FOR) && matches!(s.outcome, Outcome::Released | Outcome::CondReleased) {
            let who = Who::Section { lock: s.lock, site: s.site };
            let acquire = s.acquire();
            let release = Release { time: s.end, from: acquire, told: acquire, tid: s.tid, who, stack: s.stack };
            self.release(s.lock, release);
        }
    }

    fn release(&mut self, word: Lock, release: Release) {
        self.newest = self.newest.max(release.time);
        self.words.add(word, release);
    }

    /// Takes a wait, which is divided later.
    pub(super) fn wait(&mut self, w: &FutexWait) {
        let key = self.key(w.end);
        self.thinned |= w.weight != Weight::default();
        if w.expected == FOR_LOCK {
            self.unlinked.insert(key, *w);
        }
        self.pending.insert(key, Pending { wait: *w, of: Of::Word });
    }

    /// Takes a wait for a lock of a runtime's own.
    pub(super) fn runtime_wait(&mut self, s: &Section) {
        let wait = FutexWait {
            end: s.acquire(),
            wait: s.wait,
            word: s.lock,
            site: Some(s.site),
            tid: s.tid,
            expected: 0,
            owner: None,
            waker: s.waker,
            stack: s.stack,
            result: if s.acquired() { FutexResult::Slept } else { FutexResult::TimedOut },
            weight: Weight::default(),
        };
        let key = self.key(wait.end);
        self.unlinked.insert(key, wait);
        self.pending.insert(key, Pending { wait, of: Of::Runtime });
    }

    fn key(&mut self, end: Time) -> (Time, u64) {
        self.newest = self.newest.max(end);
        self.number += 1;
        (end, self.number)
    }

    /// A wait that can be divided now; with `all`, whether or not more is to come.
    pub(super) fn next(&mut self, all: bool) -> Option<(FutexWait, Of, Vec<Piece>)> {
        self.link(all);
        let entry = self.pending.first_entry()?;
        if !all && entry.key().0 + HELD_BACK > self.newest && self.pending.len() <= MAX_HELD_BACK {
            return None;
        }
        let Pending { wait, of } = self.pending.pop_first()?.1;
        let pieces = self.divide(&wait);
        self.remember(&wait, &pieces);
        Some((wait, of, pieces))
    }

    /// Has whoever ended waits for runtimes' locks give these back.
    fn link(&mut self, all: bool) {
        while let Some((&key, &wait)) = self.unlinked.first_key_value() {
            if !all && key.0 + LINKED_AFTER > self.newest && self.unlinked.len() <= MAX_HELD_BACK {
                return;
            }
            self.unlinked.remove(&key);
            let begin = wait.end - wait.wait;
            let Some(waker) = wait.waker else { continue };
            // The wake is known if its record names the lock. Then it is that one, though the same thread may have woken others since.
            let is_told = |wake: &Wake| wake.time <= wait.end && wake.word == wait.word;
            let is_known = self.wakes.after(waker, begin).any(is_told);
            let Some(wake) = self.wakes.last(waker, begin, wait.end).filter(|_| !is_known) else { continue };
            // Since it is not the word, whoever was woken there last may have waited for another lock.
            let wake = Wake { word: wait.word, since: None, ..*wake };
            let known = self.words.latest_first(wait.word);
            if !known.take_while(|r| r.time >= wake.time).any(|r| r.time == wake.time && r.tid == wake.tid) {
                self.give_back(&wake);
            }
        }
    }

    fn divide(&self, w: &FutexWait) -> Vec<Piece> {
        let (begin, end) = (w.end - w.wait, w.end);
        let mut pieces = Vec::new();
        let mut reached = begin;
        let mut last: Option<&Release> = None;
        let meanwhile = self.words.after(w.word, begin).take_while(|release| release.time <= end);
        for release in meanwhile.filter(|release| release.tid != w.tid) {
            let from = release.from.clamp(reached, release.time);
            match last {
                // All who woke somebody are recorded, so the waiter had been woken: it was only to run.
                Some(last) if !self.thinned => {
                    let piece =
                        Piece { cause: Cause::HandOff, inferred: true, ..direct(w.word, last, (reached, from)) };
                    push(&mut pieces, piece);
                }
                // Somebody had it before, of whom it was not recorded that it was given back.
                _ => self.unseen(w, (reached, from), None, &mut pieces),
            }
            self.held(w, release, (from, release.time), &mut pieces);
            (reached, last) = (release.time, Some(release));
        }
        let waker = w.waker.filter(|_| w.result == FutexResult::Slept);
        match last {
            Some(last) if waker.is_some_and(|waker| waker == last.tid) => {
                let piece = direct(w.word, last, (reached, end));
                push(&mut pieces, Piece { cause: Cause::HandOff, ..piece });
            }
            _ => self.unseen(w, (reached, end), waker, &mut pieces),
        }
        pieces
    }

    /// Charges a time to one who held the lock, and what of that it slept for other words to those who are to blame for that.
    fn held(&self, w: &FutexWait, release: &Release, (from, to): (Time, Time), pieces: &mut Vec<Piece>) {
        let (word, mut reached) = (w.word, from);
        let slept = self.threads.get(&release.tid).into_iter().flatten();
        for wait in slept.filter(|wait| wait.word != word && wait.to > from && wait.from < to) {
            // Nobody waits for themself.
            let told = |inner: &&Piece| inner.who.is_some() && inner.tid != w.tid && inner.links.len() < MAX_LINKS;
            for inner in wait.pieces.iter().filter(told) {
                let (begin, end) = (inner.from.max(reached), inner.to.min(to));
                if begin >= end {
                    continue;
                }
                self.alone(word, release, (reached, begin), pieces);
                let links = std::iter::once(link(word, release)).chain(inner.links.iter().copied()).collect();
                push(pieces, Piece { from: begin, to: end, links, ..inner.clone() });
                reached = end;
            }
        }
        self.alone(word, release, (reached, to), pieces);
    }

    /// Charges a time to one who held the lock and slept for no other word, by what it did.
    fn alone(&self, word: Lock, release: &Release, (from, to): (Time, Time), pieces: &mut Vec<Piece>) {
        if from >= to {
            return;
        }
        for (from, to, cause, off) in self.absences.divide(release.tid, (from, to), release.told) {
            push(pieces, Piece { cause, off, ..direct(word, release, (from, to)) });
        }
    }

    /// Charges a time for which nobody is recorded to have given the lock back: to the thread that the word named when the wait
    /// began, or to the one that woke the waiter; where that one gives this lock back is taken from another time.
    fn unseen(&self, w: &FutexWait, (from, to): (Time, Time), waker: Option<Tid>, pieces: &mut Vec<Piece>) {
        let owner = plausible_owner(w.expected, w.owner, w.tid).filter(|_| pieces.is_empty());
        let tid = owner.or(waker).filter(|&tid| tid != w.tid);
        let known = tid.and_then(|tid| self.last_of(tid, w.word));
        let piece = match (tid, known) {
            (Some(_), Some(known)) => direct(w.word, known, (from, to)),
            (tid, _) => Piece {
                who: tid.map(Who::Thread),
                tid: tid.unwrap_or_default(),
                links: vec![Link { lock: w.word, site: None, tid: tid.unwrap_or_default(), released: false }],
                ..nobody(from, to)
            },
        };
        push(pieces, Piece { inferred: true, ..piece });
    }

    /// When a thread gave this lock back last, as far as that is remembered.
    fn last_of(&self, tid: Tid, word: Lock) -> Option<&Release> {
        self.words.latest_first(word).take(MAX_LOOKED_AT).find(|release| release.tid == tid)
    }

    fn remember(&mut self, w: &FutexWait, pieces: &[Piece]) {
        let threads = Arc::make_mut(&mut self.threads);
        if threads.len() >= MAX_THREADS && !threads.contains_key(&w.tid) {
            let stale = self.newest - HELD_BACK;
            threads.retain(|_, waits| waits.back().is_some_and(|last| last.to >= stale));
            if threads.len() >= MAX_THREADS {
                return;
            }
        }
        let waits = threads.entry(w.tid).or_default();
        let pieces = pieces.iter().take(MAX_PIECES).cloned().collect();
        waits.push_back(Arc::new(Divided { word: w.word, from: w.end - w.wait, to: w.end, pieces }));
        if waits.len() > MAX_WAITS {
            waits.pop_front();
        }
    }
}

/// A time charged to whoever gave the lock back.
fn direct(word: Lock, release: &Release, (from, to): (Time, Time)) -> Piece {
    Piece {
        who: Some(release.who),
        tid: release.tid,
        inferred: false,
        stack: release.stack,
        links: vec![link(word, release)],
        ..nobody(from, to)
    }
}

fn link(word: Lock, release: &Release) -> Link {
    Link { lock: word, site: release.who.site(), tid: release.tid, released: false }
}

fn nobody(from: Time, to: Time) -> Piece {
    let (who, tid, cause, stack, off, links) = (None, Tid::default(), Cause::Unknown, None, None, Vec::new());
    Piece { from, to, who, tid, cause, inferred: true, stack, off, links }
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if piece.from >= piece.to {
        return;
    }
    match pieces.last_mut() {
        Some(last) if last.goes_on(&piece) => last.to = piece.to,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Process, Site};
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
        assert_eq!(
            divided(&wakes, &[wait(WORD, 9, (100, 180), 2)]),
            [(1, 30, DIRECT), (2, 40, DIRECT), (2, 10, HANDOFF)]
        );
    }

    #[test]
    fn who_wakes_at_a_word_of_the_waiters_own_gives_back_the_lock_that_it_waited_for() {
        let parked =
            |wakes: &[Wake]| divided(wakes, &[FutexWait { expected: FOR_LOCK, ..wait(WORD, 9, (100, 180), 2) }]);
        assert_eq!(parked(&[wake(OTHER, 2, 170, None)]), [(2, 70, DIRECT), (2, 10, HANDOFF)]);
        assert_eq!(parked(&[wake(WORD, 2, 170, None)]), [(2, 70, DIRECT), (2, 10, HANDOFF)]);
        // The same thread has woken somebody else before the waiter ran.
        assert_eq!(parked(&[wake(WORD, 2, 160, None), wake(OTHER, 2, 170, None)]), [(2, 60, DIRECT), (2, 20, HANDOFF)]);
        // Nobody was woken by that one while the wait lasted.
        assert_eq!(parked(&[wake(OTHER, 2, 90, None)]), [(2, 80, INFERRED)]);
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
}
