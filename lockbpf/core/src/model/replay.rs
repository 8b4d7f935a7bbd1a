//! A script played with its waits decided anew: who gets which lock when follows from when threads ask for it now.

use super::script::{Script, Step, What};
use super::shadow::Light;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is played differently.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// By site: what the own time inside of its sections is multiplied with; empty for no change.
    pub shorten: Vec<f64>,
    /// Whether what sections take less is done right after them instead of not at all.
    pub moved: bool,
    /// By lock: what becomes of it; empty for no change.
    pub locks: Vec<Fate>,
    /// By site: what its sections ask for instead of a lock that is [`Fate::BySite`].
    pub sites: Vec<Ask>,
}

/// What becomes of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fate {
    /// Nothing.
    #[default]
    Stays,
    /// Nobody asks for it any more.
    Removed,
    /// Each section asks for one of so many instead.
    Split(u32),
    /// A share of the sections only reads, and readers let each other in.
    Rwlock(f64),
    /// Split into so many, of which each section asks for what its site says.
    BySite(u32),
}

/// What sections ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// This part of the lock.
    Part(u32),
    /// The first part, to read only.
    Reading,
    /// Nothing at all.
    Nothing,
}

impl Default for Ask {
    fn default() -> Self {
        Self::Part(0)
    }
}

/// Who gets a lock that is given back while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// The one that has waited longest, for whom it is kept until it runs.
    Fair,
    /// Whoever asks until the one that has waited longest runs.
    Barging,
}

/// How to play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct How {
    /// Who gets a lock.
    pub hand_off: HandOff,
    /// Where random numbers begin (which part of a split lock, which sections read).
    pub seed: u64,
    /// What is taken out of the steps' times; `None` for nothing.
    pub light: Option<Light>,
}

impl How {
    /// The time before a step.
    fn own(&self, step: &Step, last: Option<What>) -> u64 {
        self.light.map_or(step.after, |light| light.own(step, last))
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// When the last thread ended, ns from the start.
    pub duration: u64,
    /// By lock: number of waits and their sum.
    pub waits: Vec<(u64, u64)>,
    /// Steps played.
    pub steps: u64,
    /// Σ own time of all threads, ns.
    pub own: u64,
    /// Threads that waited for ever: what they waited for came from elsewhere, or was changed away.
    pub stuck: u32,
}

#[derive(Clone, Debug, Default)]
struct LockState {
    /// Holders: readers, or one.
    inside: u32,
    writing: bool,
    queue: VecDeque<u32>,
    /// Whether the first in the queue has been woken and will try.
    waking: bool,
}

#[derive(Clone, Debug)]
struct ThreadState {
    at: usize,
    /// Locks held: which one, as which, and what its site multiplies times with.
    held: Vec<(u32, u32, f64)>,
    scale: f64,
    /// Time that was taken out of sections, and is still to be spent.
    owed: u64,
    asked: u64,
    shared: bool,
    wants: u32,
    site: u32,
}

/// What happens to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Does its next step.
    Step,
    /// Was woken and tries to get the lock.
    Try,
    /// Has got it.
    Got,
}

struct Play<'a> {
    script: &'a Script,
    change: &'a Change,
    how: How,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, u32, Next)>>,
    number: u64,
    threads: Vec<ThreadState>,
    locks: Vec<LockState>,
    /// The first of its parts, of each lock that is split.
    parts: Vec<u32>,
    hand_off: Vec<u64>,
    rounds: Vec<Vec<u32>>,
    /// By signal: when it was given, and who waits for it.
    given: Vec<Option<u64>>,
    waiting: Vec<Option<u32>>,
    /// Each thread's signals by step.
    gives: Vec<Vec<(u32, u32)>>,
    /// Whether the program has ended.
    over: bool,
    played: Played,
}

/// Plays a script.
#[must_use]
pub fn play(script: &Script, change: &Change, how: How) -> Played {
    let locks = script.locks.len();
    let mut states = vec![LockState::default(); locks];
    let mut parts = vec![0; locks];
    for (i, fate) in change.locks.iter().enumerate() {
        if let Fate::Split(k) | Fate::BySite(k) = fate {
            parts[i] = states.len() as u32;
            states.resize(states.len() + (*k).max(1) as usize, LockState::default());
        }
    }
    let mut gives = vec![Vec::new(); script.threads.len()];
    for (signal, &(thread, step)) in (0_u32..).zip(&script.signals) {
        gives[thread as usize].push((step, signal));
    }
    gives.iter_mut().for_each(|gives: &mut Vec<(u32, u32)>| gives.sort_unstable());
    let fresh =
        ThreadState { at: 0, held: Vec::new(), scale: 1.0, owed: 0, asked: 0, shared: false, wants: 0, site: 0 };
    let mut play = Play {
        script,
        change,
        how,
        random: fastrand::Rng::with_seed(how.seed),
        events: BinaryHeap::with_capacity(script.threads.len()),
        number: 0,
        threads: vec![fresh; script.threads.len()],
        locks: states,
        parts,
        hand_off: script.seen.iter().map(|seen| seen.hand_off / seen.hand_offs.max(1)).collect(),
        rounds: vec![Vec::new(); locks],
        given: vec![None; script.signals.len()],
        waiting: vec![None; script.signals.len()],
        gives,
        over: false,
        played: Played { waits: vec![(0, 0); locks], ..Played::default() },
    };
    for (thread, of) in (0_u32..).zip(&script.threads) {
        let first = of.steps.first().map_or(0, |step| how.own(step, None));
        play.schedule(of.begin + first, thread, Next::Step);
    }
    while !play.over
        && let Some(Reverse((now, _, thread, next))) = play.events.pop()
    {
        match next {
            Next::Step => play.run(now, thread),
            Next::Try => play.retry(now, thread),
            Next::Got => play.go_on(now, thread),
        }
    }
    let unfinished = |(state, of): (&ThreadState, &super::script::Thread)| state.at < of.steps.len();
    if play.over {
        return play.played;
    }
    play.played.stuck = play.threads.iter().zip(&script.threads).filter(|&pair| unfinished(pair)).count() as u32;
    play.played
}

impl Play<'_> {
    fn schedule(&mut self, at: u64, thread: u32, next: Next) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, thread, next)));
    }

    /// Whether something else happens before this time.
    fn others_first(&self, at: u64) -> bool {
        self.events.peek().is_some_and(|Reverse((time, ..))| *time <= at)
    }

    /// The thread's step is done: on to the next one, at once if nothing happens before it.
    fn go_on(&mut self, now: u64, thread: u32) {
        if let Some(at) = self.next(now, thread) {
            if self.others_first(at) {
                self.schedule(at, thread, Next::Step);
            } else {
                self.run(at, thread);
            }
        }
    }

    /// When the thread's next step is due.
    fn next(&mut self, now: u64, thread: u32) -> Option<u64> {
        let state = &mut self.threads[thread as usize];
        let steps = &self.script.threads[thread as usize].steps;
        let last = steps.get(state.at).map(|step| step.what);
        state.at += 1;
        let step = steps.get(state.at)?;
        let own = self.how.own(step, last);
        let after = if state.scale == 1.0 {
            own + std::mem::take(&mut state.owed)
        } else {
            let after = (own as f64 * state.scale) as u64;
            state.owed += if self.change.moved { own.saturating_sub(after) } else { 0 };
            after
        };
        if step.what != What::Idle {
            self.played.own += after;
        }
        Some(now + after)
    }

    /// Does steps of a thread for as long as nothing else happens in between.
    fn run(&mut self, mut now: u64, thread: u32) {
        loop {
            let at = self.threads[thread as usize].at;
            let Some(&Step { what, .. }) = self.script.threads[thread as usize].steps.get(at) else { return };
            self.played.steps += 1;
            let goes_on = match what {
                What::Ask { lock, site, shared } => self.ask(now, thread, lock, site, shared),
                What::Release { lock, told } => {
                    self.release(now, thread, lock);
                    if told {
                        self.give(now, thread, at);
                    }
                    true
                }
                What::Barrier { barrier, threads } => self.arrive(now, thread, barrier, threads),
                What::Await { signal } => match self.given[signal as usize] {
                    Some(_) => true,
                    None => {
                        self.waiting[signal as usize] = Some(thread);
                        false
                    }
                },
                What::Idle => true,
                What::End => {
                    while let Some(&(lock, ..)) = self.threads[thread as usize].held.last() {
                        self.release(now, thread, lock);
                    }
                    self.played.duration = self.played.duration.max(now);
                    self.give(now, thread, at);
                    if self.script.ends == Some(thread) {
                        // The others end with it, wherever they are.
                        self.played.duration = now;
                        self.over = true;
                        return;
                    }
                    true
                }
            };
            if !goes_on {
                return;
            }
            let Some(next) = self.next(now, thread) else { return };
            if self.others_first(next) {
                return self.schedule(next, thread, Next::Step);
            }
            now = next;
        }
    }

    /// Asks for a lock; whether the thread has it.
    fn ask(&mut self, now: u64, thread: u32, lock: u32, site: u32, shared: bool) -> bool {
        let fate = self.change.locks.get(lock as usize).copied().unwrap_or_default();
        let (actual, shared) = match fate {
            Fate::Stays => (lock, shared),
            Fate::Removed => {
                self.enter(thread, lock, u32::MAX, site);
                return true;
            }
            Fate::Split(k) => (self.parts[lock as usize] + self.random.u32(..k.max(1)), shared),
            Fate::Rwlock(share) => (lock, self.random.f64() < share),
            Fate::BySite(k) => match self.change.sites.get(site as usize).copied().unwrap_or_default() {
                Ask::Part(part) => (self.parts[lock as usize] + part.min(k.saturating_sub(1)), shared),
                Ask::Reading => (self.parts[lock as usize], true),
                Ask::Nothing => {
                    self.enter(thread, lock, u32::MAX, site);
                    return true;
                }
            },
        };
        let state = &mut self.threads[thread as usize];
        (state.asked, state.shared, state.wants, state.site) = (now, shared, actual, site);
        if self.take(thread, actual) {
            self.enter(thread, lock, actual, site);
            return true;
        }
        self.locks[actual as usize].queue.push_back(thread);
        false
    }

    /// Takes a lock if it is free for this thread.
    fn take(&mut self, thread: u32, actual: u32) -> bool {
        let shared = self.threads[thread as usize].shared;
        let lock = &mut self.locks[actual as usize];
        if lock.inside > 0 && (lock.writing || !shared) {
            return false;
        }
        lock.inside += 1;
        lock.writing = !shared;
        true
    }

    fn enter(&mut self, thread: u32, lock: u32, actual: u32, site: u32) {
        let factor = self.change.shorten.get(site as usize).copied().unwrap_or(1.0);
        let state = &mut self.threads[thread as usize];
        state.held.push((lock, actual, factor));
        state.scale *= factor;
    }

    /// Its wait is over.
    fn waited(&mut self, now: u64, thread: u32) {
        let state = &self.threads[thread as usize];
        let at = state.at;
        let Some(&Step { what: What::Ask { lock, site, .. }, .. }) = self.script.threads[thread as usize].steps.get(at)
        else {
            return;
        };
        let (actual, wait) = (state.wants, now - state.asked);
        let waits = &mut self.played.waits[lock as usize];
        (waits.0, waits.1) = (waits.0 + 1, waits.1 + wait);
        self.enter(thread, lock, actual, site);
    }

    fn release(&mut self, now: u64, thread: u32, lock: u32) {
        let state = &mut self.threads[thread as usize];
        let Some(at) = state.held.iter().rposition(|&(held, ..)| held == lock) else { return };
        let (_, actual, _) = state.held.remove(at);
        // Not divided by: a factor may be 0.
        state.scale = state.held.iter().map(|&(.., factor)| factor).product();
        if actual == u32::MAX {
            return;
        }
        let released = &mut self.locks[actual as usize];
        released.inside -= 1;
        if released.inside > 0 || released.queue.is_empty() {
            return;
        }
        let gap = self.hand_off[lock as usize];
        match self.how.hand_off {
            HandOff::Barging => self.wake(now + gap, actual),
            HandOff::Fair => {
                // All readers at the head go together.
                while let Some(&next) = self.locks[actual as usize].queue.front() {
                    if !self.take(next, actual) {
                        break;
                    }
                    self.locks[actual as usize].queue.pop_front();
                    self.waited(now + gap, next);
                    self.schedule(now + gap, next, Next::Got);
                }
            }
        }
    }

    /// Wakes the first in a lock's queue, unless somebody is being woken already.
    fn wake(&mut self, at: u64, actual: u32) {
        let lock = &mut self.locks[actual as usize];
        if let Some(&first) = lock.queue.front()
            && !lock.waking
        {
            lock.waking = true;
            self.schedule(at, first, Next::Try);
        }
    }

    /// A woken thread tries; if somebody else was faster, it waits on.
    fn retry(&mut self, now: u64, thread: u32) {
        let actual = self.threads[thread as usize].wants;
        self.locks[actual as usize].waking = false;
        if !self.take(thread, actual) {
            return;
        }
        let lock = &mut self.locks[actual as usize];
        // Who is woken is the first in the queue, and nobody else leaves it.
        lock.queue.pop_front();
        let readers = !lock.writing;
        self.waited(now, thread);
        if readers {
            self.wake(now, actual);
        }
        self.go_on(now, thread);
    }

    fn arrive(&mut self, now: u64, thread: u32, barrier: u32, threads: u32) -> bool {
        let round = &mut self.rounds[barrier as usize];
        round.push(thread);
        if round.len() < threads as usize {
            return false;
        }
        for other in std::mem::take(round) {
            if other != thread {
                self.schedule(now, other, Next::Got);
            }
        }
        true
    }

    /// A step is done that others wait for.
    fn give(&mut self, now: u64, thread: u32, step: usize) {
        let gives = &self.gives[thread as usize];
        let from = gives.partition_point(|&(at, _)| (at as usize) < step);
        let signals: Vec<u32> =
            gives[from..].iter().take_while(|&&(at, _)| at as usize == step).map(|&(_, signal)| signal).collect();
        for signal in signals {
            self.given[signal as usize] = Some(now);
            if let Some(waiter) = self.waiting[signal as usize].take() {
                self.schedule(now, waiter, Next::Got);
            }
        }
    }
}
