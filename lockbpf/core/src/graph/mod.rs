//! The synchronization dependence graph: each nanosecond of waiting charged to the critical section that caused it
//! (SyncProf §3.2).
//!
//! The graph is built online, from steps in order of time, and is exact: a lock's time is charged to its present culprits
//! whenever they or its waiters change, and a wait's costs are the differences between its beginning and its end.
//!
//! * **Time**: a step costs O(1), and besides: a contended attempt or the end of its wait, the distinct culprits of its lock
//!   since it is waited for without a break (sites × causes, at most 1,024), never the length of the queue; a change of a
//!   lock's holder, the locks whose holders wait for it; a piece with several readers, the readers. With
//!   [`Options::detail`] each piece costs as much as there are waiters.
//! * **Memory**: live threads, locks and sections; 32,768 locks with at most 128 waiting sites, 128 + 64 holders, 256 chains,
//!   256 threads whose turns are counted each; 131,072 threads that take permits of semaphores; sites; a million waits for the critical path. Components are folded when no live section can extend them.
//! * **Inner trylocks**: an attempt that a trylock fails makes no edges; but as long as it lasts, the waiters of locks that
//!   its thread holds blame whom it waits for.
#![forbid(unsafe_code)]

mod barrier;
mod blame;
mod component;
mod detail;
mod engine;
pub mod findings;
mod follow;
mod futex;
mod given;
mod log;
mod meanwhile;
mod merge;
mod path;
mod permits;
mod placed;
mod places;
mod released;
mod shares;
mod split;
mod spread;
mod tape;
#[cfg(test)]
mod tests;
pub(crate) mod turns;
mod wait;

pub use futex::{FutexSite, FutexWaits, WaitsAtPlace, plausible_owner};
pub use given::{Given, Threads};
pub use permits::{Permits, is_permit};
pub use turns::{Turn, Turns};

use crate::deadlock::{Deadlock, LockOrder};
use crate::event::{Event, FutexWait, Section, flag};
use crate::id::{Lock, Tid};
use crate::op::Op;
use crate::options::Options;
use crate::state::{Observer, State};
use crate::tally::Tally;
use crate::units::Time;
use detail::Keeper;
use engine::Engine;
use findings::{Findings, SiteBlame, Told};
use released::{Of, Piece, Releases};
use rustc_hash::FxHashMap;
use shares::LockShares;
use std::sync::Arc;

/// Waits for exits that are followed from the end of the program.
const MAX_JOINS: usize = 64;
/// Futex words that are followed.
const MAX_WORDS: usize = 32_768;
/// Threads that take permits, of all semaphores: 4 MB.
const MAX_TAKERS: usize = 131_072;

/// The machines and the graph built from them.
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    state: State,
    engine: Engine,
    start: Option<Time>,
    words: FxHashMap<Lock, Word>,
    /// By place, as if it were a lock.
    places: FxHashMap<Lock, Place>,
    /// Locks of runtimes, whose holders are known by whom they woke.
    runtimes: FxHashMap<Lock, LockShares>,
    /// By semaphore.
    permits: FxHashMap<Lock, Permits>,
    /// How many takers all of these keep.
    takers: usize,
    releases: Releases,
    beyond: Tally,
}

/// The waits for one futex word.
#[derive(Clone, Debug)]
struct Word {
    waits: FutexWaits,
    shares: LockShares,
}

impl Word {
    fn finish(self, scheduling_known: bool) -> FutexWaits {
        FutexWaits { shares: Arc::unwrap_or_clone(self.shares.finish(scheduling_known).2), ..self.waits }
    }
}

/// The waits at one place.
#[derive(Clone, Debug)]
struct Place {
    waits: WaitsAtPlace,
    shares: LockShares,
}

impl Place {
    fn finish(self, scheduling_known: bool) -> WaitsAtPlace {
        let word = Word { waits: self.waits.waits, shares: self.shares };
        WaitsAtPlace { waits: word.finish(scheduling_known), ..self.waits }
    }
}

impl WaitGraph {
    /// An empty graph.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options), ..Self::default() }
    }

    /// Takes one step. Steps come in order of time.
    pub fn op(&mut self, op: &Op, observer: &mut impl Observer) {
        self.start.get_or_insert(op.time);
        self.state.op(op, &mut self.engine, observer);
    }

    /// Takes in what no step tells: futex calls that no lock call explains, and who made others wait for a lock.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::FutexWait(wait) => self.releases.wait(wait),
            Event::Wake(wake) => self.releases.wake(wake),
            Event::OffCpu(off) => return self.releases.absent(off),
            Event::Section(section) if section.via.is_inline() && section.has(flag::CONTENDED) => {
                self.releases.runtime_wait(section);
            }
            Event::Section(section) => {
                self.permit(section);
                return self.releases.section(section);
            }
            _ => return,
        }
        self.divide(false);
    }

    fn permit(&mut self, section: &Section) {
        let known = self.permits.len();
        if !is_permit(section.via) || known >= MAX_WORDS && !self.permits.contains_key(&section.lock) {
            return;
        }
        let permits = self.permits.entry(section.lock).or_default();
        let before = permits.takers();
        permits.add(section, self.takers < MAX_TAKERS);
        self.takers += permits.takers() - before;
    }

    fn divide(&mut self, all: bool) {
        while let Some((wait, of, pieces)) = self.releases.next(all) {
            match of {
                Of::Word => self.futex_wait(&wait, &pieces),
                Of::Runtime => self.runtime_wait(&wait, &pieces),
                Of::Place { word, in_turn } => self.wait_at_place(&wait, word, in_turn, &pieces),
            }
        }
    }

    /// The engine knows such a wait, too, but not where the one to blame gave the lock back.
    fn runtime_wait(&mut self, w: &FutexWait, pieces: &[Piece]) {
        if self.runtimes.len() < MAX_WORDS || self.runtimes.contains_key(&w.word) {
            if let Some(keeper) = &mut self.engine.keeper {
                keeper.divided(w, true, pieces);
            }
            self.runtimes.entry(w.word).or_insert_with(|| LockShares::new(w.word)).divided(w, pieces);
        }
    }

    fn futex_wait(&mut self, w: &FutexWait, pieces: &[Piece]) {
        if self.words.len() >= MAX_WORDS && !self.words.contains_key(&w.word) {
            return self.beyond.add(w.wait);
        }
        let none = || Word { waits: FutexWaits::default(), shares: LockShares::new(w.word) };
        let word = self.words.entry(w.word).or_insert_with(none);
        word.waits.add(w);
        if w.took_time() {
            word.shares.divided(w, pieces);
            if let Some(keeper) = &mut self.engine.keeper {
                keeper.divided(w, false, pieces);
            }
        }
    }

    /// Takes a wait that its word has, too. The report tells it once, as what all waits of the place turn out to be.
    fn wait_at_place(&mut self, w: &FutexWait, word: Lock, in_turn: bool, pieces: &[Piece]) {
        if self.places.len() < MAX_WORDS || self.places.contains_key(&w.word) {
            if let Some(keeper) = &mut self.engine.keeper {
                keeper.divided(w, false, pieces);
            }
            let none = || Place { waits: WaitsAtPlace::default(), shares: LockShares::new(w.word) };
            let place = self.places.entry(w.word).or_insert_with(none);
            place.waits.add(w, word, in_turn);
            place.shares.divided(w, pieces);
        }
    }

    /// What has come to be complete since the last call, if that is to be given out.
    pub fn told(&mut self) -> Vec<Told> {
        self.engine.keeper.as_mut().map(Keeper::take_told).unwrap_or_default()
    }

    /// Threads that wait for one another in a circle, as of the last step.
    #[must_use]
    pub fn deadlocks(&self) -> &[Deadlock] {
        self.state.deadlocks()
    }

    /// Which locks were taken while which were held.
    #[must_use]
    pub fn orders(&self) -> Vec<LockOrder> {
        self.state.orders()
    }

    /// The machines.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Ends the recording, at the last step or at `end` if that is later.
    pub fn finish(mut self, end: Time, observer: &mut impl Observer) -> Findings {
        let ended = self.state.program_end();
        let last_thread = ended.map(|end| end.tid).or(self.state.last_thread());
        let path_end = ended.map_or(self.state.now(), |end| end.time);
        let ends = if ended.is_none() { Some(self.state.last_steps().collect()) } else { None };
        let scheduling_known = self.state.scheduling_known();
        self.state.finish(end, &mut self.engine, observer);
        self.divide(true);
        let mut engine = self.engine;
        for lock in 0..engine.locks.len() as u32 {
            engine.drop_past(lock);
            engine.drop_round(lock);
        }
        // Who only waited for others' ends finished with the last of them.
        let mut finished = last_thread;
        for _ in 0..MAX_JOINS {
            let only_joined = |&tid: &Tid| ended.is_some() && !engine.comps.has(tid);
            let Some(of) = finished.filter(only_joined).and_then(|tid| engine.hops.joined(tid)) else { break };
            finished = Some(of);
        }
        let mut critical = finished.map(|tid| engine.comps.of_thread(tid)).unwrap_or_default();
        let mut findings = Findings {
            last_thread,
            path: engine.hops.path(last_thread, self.start.unwrap_or_default(), path_end, ends, engine.options.detail),
            told: engine.keeper.as_mut().map(Keeper::take_told).unwrap_or_default(),
            detail: engine
                .keeper
                .filter(|_| engine.options.detail)
                .map(|keeper| keeper.finish(std::mem::take(&mut critical.members))),
            runtimes: self.runtimes.keys().copied().collect(),
            impossible: self.state.impossible().clone(),
            cut: self.state.cut().clone(),
            words: self.words.into_iter().map(|(word, known)| (word, known.finish(scheduling_known))).collect(),
            places: self.places.into_iter().map(|(at, known)| (at, known.finish(scheduling_known))).collect(),
            permits: self.permits,
            beyond: engine.beyond,
            scheduling_known,
            overlapping: engine.options.overlapping_barriers,
            ..Findings::default()
        };
        findings.beyond += self.beyond;
        for &(site, apwt) in &engine.sites.list {
            findings.sites.insert(site, SiteBlame { apwt, cpwt: None });
        }
        for (site, cost) in critical.costs().iter() {
            if let Some(&(site, _)) = engine.sites.list.get(site as usize)
                && let Some(blame) = findings.sites.get_mut(&site)
            {
                blame.cpwt = Some(crate::units::Nanos(cost));
            }
        }
        for store in engine.stores {
            let (lock, aplt, shares) = store.finish(scheduling_known);
            findings.aplt.insert(lock, aplt);
            // Locks that were waited for; the others only gave their name to a section that was blamed.
            if shares.waits.count > 0 {
                findings.locks.insert(lock, shares);
            }
        }
        for (lock, shares) in self.runtimes {
            let mut shares = Arc::unwrap_or_clone(shares.finish(scheduling_known).2);
            if let Some(known) = findings.locks.remove(&lock) {
                shares.add_open(&known);
                findings.aplt.remove(&lock);
            }
            findings.adopt(lock, &shares, None);
            findings.locks.insert(lock, Arc::new(shares));
        }
        // Not earlier: what was known of runtimes' locks has just been replaced.
        placed::place(&mut findings, &self.releases);
        findings
    }
}
