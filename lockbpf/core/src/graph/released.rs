//! Who is to blame for waits that only futex calls show. A thread that gives back a lock for which others sleep has to wake one of
//! them; so whoever wakes at a word has held its lock since somebody was woken there before. A wait is divided among those who
//! gave the lock back while it lasted, each charged up to that moment, and the last also for the time until the waiter runs.
//!
//! If the one to blame slept itself meanwhile, for another word, that time is passed on to whoever that wait is blamed on.
//!
//! * **Order**: a wake may be recorded after the wait that it ends, so waits are divided a while after their end.
//! * **Time**: a wait costs the wakes at its word while it lasted, up to 512; of one with more some moments are looked at.
//! * **Memory**: the last million wakes, the last waits of 16,384 threads, and waits that are held back.

mod sample;

use super::findings::{Cause, Link, Who};
use super::futex::plausible_owner;
use super::log::{Log, Timed};
use super::meanwhile::Absences;
use super::places::Places;
use crate::event::{FutexResult, FutexWait, OffCpu, Outcome, Section, Via, Wake, Weight, flag};
use crate::id::{Lock, StackId, Tid};
use crate::units::{Nanos, Time};
use lockbpf_common::custom;
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::parking::is_for_lock;
use lockbpf_common::task::is_task;
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
/// With more releases at its place than these, a wait there is charged to whoever ended it: threads may wait for a long time while others come
/// and go.
const MAX_AT_PLACE: usize = 4_096;
/// With more releases than these, a wait is sampled.
const MAX_DIVIDED: usize = 512;
/// A thread gives back all that it has within this time.
const AT_ONCE: Nanos = Nanos(1_000_000);
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
    /// Whether where it was given back is taken from another time.
    inferred: bool,
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
    /// Where it was made, if that may be a lock's.
    place: Option<Lock>,
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
    /// Whatever threads wait for at one place, each perhaps on a word of its own, as if that were one lock.
    Place {
        /// The word that this one slept on.
        word: Lock,
        /// Whether whoever ended it had waited there, too, and had woken nobody there since.
        in_turn: bool,
    },
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
    places: Places,
    /// Where waiters sleep on words of their own, the thread that woke one had the lock.
    pub(super) wakes: Log<Tid, Wake, MAX_WAKES, MAX_OF_THREAD>,
    /// By their ends, and a number.
    pending: BTreeMap<(Time, u64), Pending>,
    /// Waits that are not told by the word slept on, until the wakes that ended them can be known; likewise.
    unlinked: BTreeMap<(Time, u64), Pending>,
    number: u64,
    newest: Time,
    /// Whether some waits, and so wakes, were not recorded.
    thinned: bool,
}

impl Releases {
    /// Takes note of a wake.
    pub(super) fn wake(&mut self, w: &Wake) {
        self.wakes.add(w.tid, *w);
        self.give_back(&self.with_stack(w));
    }

    /// The wake with the stack of the call that it is part of. One call may wake all who wait, each by itself, and the stack is taken where somebody may have
    /// waited for long.
    fn with_stack(&self, w: &Wake) -> Wake {
        let is_part = |before: &&Wake| {
            before.stack.is_some() && before.time <= w.time && (before.word, before.site) == (w.word, w.site)
        };
        let known = w.stack.is_some() || w.site.is_none();
        let before = (!known).then(|| self.wakes.latest_first(w.tid)).into_iter().flatten();
        let before = before.take_while(|before| before.time + AT_ONCE >= w.time).take(MAX_LOOKED_AT).find(is_part);
        Wake { stack: w.stack.or(before.and_then(|before| before.stack)), ..*w }
    }

    fn give_back(&mut self, w: &Wake) {
        let who = w.site.map_or(Who::Thread(w.tid), |site| Who::Released { lock: w.word, site, stack: w.stack });
        // What its thread has given back before was another one of the same numbers.
        let since = w.since.filter(|_| !is_numbered(w.word));
        let from = since.map_or(Time(0), |since| w.time - since);
        let told = w.time - w.watched;
        let (tid, stack) = (w.tid, w.stack);
        self.release(w.word, Release { time: w.time, from, told, tid, who, stack, inferred: false });
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
            let (tid, stack) = (s.tid, s.stack);
            let release = Release { time: s.end, from: acquire, told: acquire, tid, who, stack, inferred: false };
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
        let pending = Pending { wait: *w, of: Of::Word };
        if is_for_lock(w.expected) {
            self.unlinked.insert(key, pending);
        }
        self.pending.insert(key, pending);
        if let Some((w, place)) = self.places.place(w) {
            let key = self.key(w.end);
            let of = Of::Place { word: w.word, in_turn: false };
            let pending = Pending { wait: FutexWait { word: place, ..w }, of };
            self.unlinked.insert(key, pending);
            self.pending.insert(key, pending);
        }
    }

    /// Takes a wait for a lock of a runtime's own.
    pub(super) fn runtime_wait(&mut self, s: &Section) {
        let is_described = s.via == Via::CustomWait;
        let wait = FutexWait {
            end: s.acquire(),
            wait: s.wait,
            word: s.lock,
            site: Some(s.site),
            tid: s.tid,
            // What lets an owner be believed.
            expected: if is_described { CONTENDED_VALUE } else { 0 },
            // Others have something else there.
            owner: s.owner.filter(|_| is_described),
            waker: s.waker,
            stack: s.stack,
            result: if s.acquired() { FutexResult::Slept } else { FutexResult::TimedOut },
            weight: Weight::default(),
        };
        let key = self.key(wait.end);
        let pending = Pending { wait, of: Of::Runtime };
        self.unlinked.insert(key, pending);
        self.pending.insert(key, pending);
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
        let Pending { wait, mut of } = self.pending.pop_first()?.1;
        let pieces = match &mut of {
            Of::Place { .. } if self.meanwhile(&wait).nth(MAX_AT_PLACE).is_some() => vec![undivided(&wait)],
            Of::Place { in_turn, .. } => {
                *in_turn = self.is_in_turn(&wait);
                self.divide(&wait)
            }
            Of::Word | Of::Runtime => self.divide(&wait),
        };
        match of {
            Of::Word => {
                let place = self.places.place(&wait).map(|(_, place)| place);
                self.remember(&wait, place, &pieces);
            }
            Of::Runtime => self.remember(&wait, None, &pieces),
            // It is remembered by its word.
            Of::Place { .. } => {}
        }
        Some((wait, of, pieces))
    }

    /// Has whoever ended waits give these locks back.
    fn link(&mut self, all: bool) {
        while let Some((&key, &Pending { wait, of })) = self.unlinked.first_key_value() {
            if !all && key.0 + LINKED_AFTER > self.newest && self.unlinked.len() <= MAX_HELD_BACK {
                return;
            }
            self.unlinked.remove(&key);
            let begin = wait.end - wait.wait;
            let Some(waker) = wait.waker else { continue };
            let word = if let Of::Place { word, .. } = of { word } else { wait.word };
            let is_told = |wake: &&Wake| wake.time <= wait.end && wake.word == word;
            let told = self.wakes.after(waker, begin).filter(is_told).last();
            let is_known = told.is_some() && word == wait.word;
            if is_known {
                // Its record names the lock. Then it is that one, though the same thread may have woken others since.
                continue;
            }
            let Some(wake) = told.or_else(|| self.wakes.last(waker, begin, wait.end)) else { continue };
            // Since it is not the word, whoever was woken there last may have waited for another lock.
            let wake = Wake { word: wait.word, since: None, ..self.with_stack(wake) };
            let known = self.words.latest_first(wait.word);
            if !known.take_while(|r| r.time >= wake.time).any(|r| r.time == wake.time && r.tid == wake.tid) {
                self.give_back(&wake);
            }
        }
    }

    /// When what a wait was for was given back while it lasted.
    fn meanwhile<'a>(&'a self, w: &'a FutexWait) -> impl Iterator<Item = &'a Release> {
        let meanwhile = self.words.after(w.word, w.end - w.wait).take_while(|release| release.time <= w.end);
        meanwhile.filter(|release| is_own(w, release))
    }

    fn divide(&self, w: &FutexWait) -> Vec<Piece> {
        if self.meanwhile(w).nth(MAX_DIVIDED).is_some() {
            return self.sample(w);
        }
        let mut pieces = Vec::new();
        let mut reached = w.end - w.wait;
        let mut last: Option<Release> = None;
        let mut known = FxHashMap::default();
        let others = self.meanwhile(w).filter(|release| release.tid != w.tid);
        for release in others.map(|release| self.placed(w.word, release, &mut known)) {
            self.until(w, &release, last.as_ref(), reached, &mut pieces);
            (reached, last) = (release.time, Some(release));
        }
        self.until_it_ran(w, last.as_ref(), reached, &mut pieces);
        pieces
    }

    /// Charges the time up to a release, from the one before it on, if there was one.
    fn until(&self, w: &FutexWait, next: &Release, last: Option<&Release>, reached: Time, pieces: &mut Vec<Piece>) {
        let from = next.from.clamp(reached, next.time);
        match last {
            // All who woke somebody are recorded, so the waiter had been woken: it was only to run.
            Some(last) if !self.thinned => {
                let piece = Piece { cause: Cause::HandOff, inferred: true, ..direct(w.word, last, (reached, from)) };
                push(pieces, piece);
            }
            // Somebody had it before, of whom it was not recorded that it was given back.
            _ => self.unseen(w, (reached, from), None, pieces),
        }
        self.held(w, next, (from, next.time), pieces);
    }

    /// Charges the time from the last release on.
    fn until_it_ran(&self, w: &FutexWait, last: Option<&Release>, reached: Time, pieces: &mut Vec<Piece>) {
        let waker = w.waker.filter(|_| w.result == FutexResult::Slept);
        match last {
            Some(last) if waker.is_some_and(|waker| waker == last.tid) => {
                let piece = direct(w.word, last, (reached, w.end));
                push(pieces, Piece { cause: Cause::HandOff, ..piece });
            }
            _ => self.unseen(w, (reached, w.end), waker, pieces),
        }
    }

    /// Charges a time to one who held the lock, and what of that it slept for other words to those who are to blame for that.
    fn held(&self, w: &FutexWait, release: &Release, (from, to): (Time, Time), pieces: &mut Vec<Piece>) {
        let (word, mut reached) = (w.word, from);
        let slept = self.threads.get(&release.tid).into_iter().flatten();
        let is_other = |wait: &&Arc<Divided>| (wait.word != word || is_numbered(word)) && wait.place != Some(word);
        for wait in slept.filter(is_other).filter(|wait| wait.to > from && wait.from < to) {
            // Nobody waits for themself.
            let told = |inner: &&Piece| inner.who.is_some() && inner.tid != w.tid && inner.links.len() < MAX_LINKS;
            for inner in wait.pieces.iter().filter(told) {
                let (begin, end) = (inner.from.max(reached), inner.to.min(to));
                if begin >= end {
                    continue;
                }
                self.alone(word, release, (reached, begin), pieces);
                let links = std::iter::once(link(word, release)).chain(inner.links.iter().copied()).collect();
                let inferred = inner.inferred || release.inferred;
                push(pieces, Piece { from: begin, to: end, links, inferred, ..inner.clone() });
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
        let owner = plausible_owner(w.expected, w.owner, w.tid).filter(|_| from == w.end - w.wait);
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
        let parts = match tid.filter(|tid| known.is_none() && is_task(tid.0)) {
            // What it did is known in part.
            Some(tid) => self.absences.divide(tid, (from, to), to),
            None => vec![(from, to, piece.cause, piece.off)],
        };
        for (from, to, cause, off) in parts {
            push(pieces, Piece { from, to, cause, off, inferred: true, ..piece.clone() });
        }
    }

    /// When a thread gave this lock back last at a place that is known; if there is none, when it did so at all.
    fn last_of(&self, tid: Tid, word: Lock) -> Option<&Release> {
        let own = || self.words.latest_first(word).take(MAX_LOOKED_AT).filter(|release| release.tid == tid);
        own().find(|release| release.who.site().is_some()).or_else(|| own().next())
    }

    /// The release; if it is not known where it was, with the place where its thread gave this lock back another time. That of each thread is looked for
    /// once.
    fn placed(&self, word: Lock, release: &Release, known: &mut FxHashMap<Tid, Option<Release>>) -> Release {
        if release.who.site().is_some() {
            return *release;
        }
        let is_placed = |other: &&Release| other.who.site().is_some();
        let other =
            *known.entry(release.tid).or_insert_with_key(|&tid| self.last_of(tid, word).filter(is_placed).copied());
        other.map_or(*release, |other| Release { who: other.who, stack: other.stack, inferred: true, ..*release })
    }

    /// Whether whoever ended a wait had waited at its place, too, and had woken nobody there since.
    fn is_in_turn(&self, w: &FutexWait) -> bool {
        let Some(waker) = w.waker else { return false };
        let own = |release: &&Release| release.tid == waker;
        let Some(ended) = self.meanwhile(w).filter(own).last() else { return false };
        let waits = self.threads.get(&waker).into_iter().flatten().rev();
        let mut let_go = waits.filter(|wait| wait.place == Some(w.word)).map(|wait| wait.to);
        let Some(since) = let_go.find(|&to| to <= ended.time) else { return false };
        self.words.after(w.word, since).find(own).is_some_and(|first| ended.time.since(first.time) <= AT_ONCE)
    }

    fn remember(&mut self, w: &FutexWait, place: Option<Lock>, pieces: &[Piece]) {
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
        waits.push_back(Arc::new(Divided { word: w.word, place, from: w.end - w.wait, to: w.end, pieces }));
        if waits.len() > MAX_WAITS {
            waits.pop_front();
        }
    }
}

/// Whether what was given back is what was waited for. Several locks may have the same numbers at a time: threads that have the others give
/// them back meanwhile.
fn is_own(w: &FutexWait, release: &Release) -> bool {
    !is_numbered(w.word) || [w.owner, w.waker].contains(&Some(release.tid))
}

/// Whether a lock is known by numbers that others may have, too.
fn is_numbered(lock: Lock) -> bool {
    custom::numbers(lock.addr).is_some()
}

/// A time charged to whoever gave the lock back.
fn direct(word: Lock, release: &Release, (from, to): (Time, Time)) -> Piece {
    Piece {
        who: Some(release.who),
        tid: release.tid,
        inferred: release.inferred,
        stack: release.stack,
        links: vec![link(word, release)],
        ..nobody(from, to)
    }
}

fn link(word: Lock, release: &Release) -> Link {
    Link { lock: word, site: release.who.site(), tid: release.tid, released: false }
}

/// A wait that is charged to whoever ended it.
fn undivided(w: &FutexWait) -> Piece {
    Piece { who: w.waker.map(Who::Thread), tid: w.waker.unwrap_or_default(), ..nobody(w.end - w.wait, w.end) }
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
mod tests;
