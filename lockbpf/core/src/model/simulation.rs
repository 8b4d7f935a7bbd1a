//! Closed networks played event by event: what needs no assumption on the distribution of times, and the truth that the
//! formulas are tested against.

use super::agenda::Agenda;
use super::schema::{Algorithm, Sleep};
use super::tally::{Outcome, Tally};
use std::collections::VecDeque;

/// Sections that the holder of a QD lock takes before it gives the lock back, where nobody waits for them: the queue's length in the published
/// implementation.
pub(super) const DELEGATED: u32 = 128;

/// A distribution of times, ns.
#[derive(Clone, Debug, PartialEq)]
pub enum Times {
    /// Exponential with this mean.
    Exponential(f64),
    /// Always the same.
    Constant(f64),
    /// One of these at random; not empty.
    Measured(Vec<f64>),
    /// With a mean and a coefficient of variation.
    Varying {
        /// The mean.
        mean: f64,
        /// The coefficient of variation.
        cv: f64,
    },
}

impl Times {
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> f64 {
        match self {
            Self::Exponential(mean) => -mean * (1.0 - random.f64()).ln(),
            Self::Constant(time) => *time,
            Self::Measured(times) => random.choice(times).copied().unwrap_or(0.0),
            // A constant and an exponential part.
            Self::Varying { mean, cv } if *cv <= 1.0 => mean * (1.0 - cv) + Self::Exponential(mean * cv).draw(random),
            Self::Varying { mean, cv } => {
                // Two exponentials of which each makes half of the time, a short one often and a long one seldom.
                let short = (1.0 + ((cv * cv - 1.0) / (cv * cv + 1.0)).sqrt()) / 2.0;
                let share = if random.f64() < short { short } else { 1.0 - short };
                Self::Exponential(mean / 2.0 / share).draw(random)
            }
        }
    }

    /// Their mean, ns.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Exponential(mean) | Self::Constant(mean) | Self::Varying { mean, .. } => *mean,
            Self::Measured(times) => times.iter().sum::<f64>() / times.len().max(1) as f64,
        }
    }
}

/// A lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// How it works.
    pub algorithm: Algorithm,
    /// The share of sections that only read; for a rwlock.
    pub read_share: f64,
    /// What taking it adds to the section: a QD lock's LO, ns.
    pub overhead: f64,
    /// DO(0), DO(1), … of a QD lock, ns.
    pub delegation: Vec<f64>,
    /// What a section that nobody waits for takes beside its own length: whoever delegates it, and whoever executes it, ns.
    pub detached: f64,
    /// What sleeping for a mutex or rwlock costs.
    pub sleep: Option<Sleep>,
    /// Whether threads wait for it on their CPUs, and then in turn or not. Only where there are fewer CPUs than threads it matters.
    pub spins: Option<Spins>,
    /// What taking it adds to the section where so many waited for it, ns; only there, too. Empty: as much as without.
    pub contended: Vec<f64>,
}

/// How a lock is waited for on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spins {
    /// Whoever sees first that it is free takes it.
    Barging,
    /// It is that one's turn that has waited longest.
    InTurn,
}

impl Lock {
    /// A mutex without overhead.
    #[must_use]
    pub fn mutex() -> Self {
        let algorithm = Algorithm::Mutex;
        Self {
            algorithm,
            read_share: 0.0,
            overhead: 0.0,
            delegation: Vec::new(),
            detached: 0.0,
            sleep: None,
            spins: None,
            contended: Vec::new(),
        }
    }
}

/// How a thread goes from lock to lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// r.
    pub routing: Vec<Vec<f64>>,
    /// z.
    pub local: Vec<Vec<Times>>,
    /// How long it holds each lock.
    pub hold: Vec<Times>,
}

impl Pattern {
    /// The lock after this one, and how long its thread works on its own before it comes there, ns.
    pub(super) fn next(&self, from: usize, random: &mut fastrand::Rng) -> (usize, f64) {
        let row = &self.routing[from];
        let mut left = random.f64();
        let next = row.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        // Rounding may leave a bit over.
        let next = next.or_else(|| row.iter().rposition(|&share| share > 0.0)).unwrap_or(from);
        (next, self.local[from][next].draw(random))
    }
}

/// What is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The locks.
    pub locks: Vec<Lock>,
    /// Patterns of threads.
    pub patterns: Vec<Pattern>,
    /// Each thread's pattern.
    pub threads: Vec<usize>,
    /// Lock operations that count; a fifth as many go before.
    pub operations: u64,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What happens to a thread.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Comes to its lock.
    Arrive,
    /// Its section is over.
    Done,
    /// Was woken, and tries to get its lock.
    Try,
}

#[derive(Clone, Debug, Default)]
struct LockState {
    queue: VecDeque<usize>,
    /// Threads inside: readers, or one.
    inside: u32,
    writing: bool,
    /// Whether somebody who slept has been woken and has not tried yet.
    waking: bool,
    /// A QD lock's helper.
    helper: Option<usize>,
    /// Whose sections the helper has taken and not begun, where those do not wait.
    delegated: VecDeque<usize>,
    /// How many it has taken.
    taken: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadState {
    lock: usize,
    arrived: f64,
    began: f64,
    reads: bool,
}

struct Play<'a> {
    setup: &'a Setup,
    random: fastrand::Rng,
    agenda: Agenda<(usize, What)>,
    locks: Vec<LockState>,
    threads: Vec<ThreadState>,
    tally: Tally,
}

/// Plays it. Locks that nobody comes to have zeros.
#[must_use]
pub fn run(setup: &Setup) -> Outcome {
    let mut play = Play {
        setup,
        random: fastrand::Rng::with_seed(setup.seed),
        agenda: Agenda::new(),
        locks: vec![LockState::default(); setup.locks.len()],
        threads: vec![ThreadState::default(); setup.threads.len()],
        tally: Tally::new(setup.locks.len(), setup.threads.len(), setup.operations),
    };
    for thread in 0..setup.threads.len() {
        let lock = play.random.usize(..setup.locks.len().max(1));
        play.threads[thread].lock = lock;
        play.go_on(thread, 0.0);
    }
    play.play()
}

impl Play<'_> {
    fn play(mut self) -> Outcome {
        while let Some((thread, what)) = self.agenda.next() {
            match what {
                What::Arrive => self.arrive(thread),
                What::Done => self.finish(thread),
                What::Try => self.retry(thread),
            }
            if self.tally.is_over(self.agenda.now) {
                break;
            }
        }
        self.tally.outcome(self.agenda.now)
    }

    /// A thread leaves its lock for the next, after so much more.
    fn go_on(&mut self, thread: usize, call: f64) {
        let pattern = &self.setup.patterns[self.setup.threads[thread]];
        let from = self.threads[thread].lock;
        let (next, local) = pattern.next(from, &mut self.random);
        self.threads[thread].lock = next;
        self.agenda.schedule(call + local, (thread, What::Arrive));
    }

    fn arrive(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.arrived = self.agenda.now;
        let of = &self.setup.locks[state.lock];
        state.reads = of.algorithm == Algorithm::Rwlock && self.random.f64() < of.read_share;
        self.ask(thread);
    }

    /// A thread gets its lock if that is free, leaves its section to whoever has it if that does so, or else waits.
    fn ask(&mut self, thread: usize) {
        let lock = self.threads[thread].lock;
        let of = &self.setup.locks[lock];
        let free = match self.locks[lock].inside {
            0 => true,
            _ => self.threads[thread].reads && !self.locks[lock].writing,
        };
        if free {
            if matches!(of.algorithm, Algorithm::Qd | Algorithm::QdWait) {
                (self.locks[lock].helper, self.locks[lock].taken) = (Some(thread), 0);
            }
            self.enter(thread, of.overhead);
        } else if of.algorithm == Algorithm::Qd && self.locks[lock].taken < DELEGATED {
            self.delegate(thread, of.detached);
        } else {
            self.locks[lock].queue.push_back(thread);
        }
    }

    fn enter(&mut self, thread: usize, overhead: f64) {
        let ThreadState { lock, reads, .. } = self.threads[thread];
        self.threads[thread].began = self.agenda.now;
        let state = &mut self.locks[lock];
        if state.inside == 0 {
            self.tally.held(lock, self.agenda.now);
        }
        state.inside += 1;
        state.writing = !reads;
        let hold = self.setup.patterns[self.setup.threads[thread]].hold[lock].draw(&mut self.random);
        self.agenda.schedule(hold + overhead, (thread, What::Done));
    }

    /// A thread leaves its section to the helper, and goes on.
    fn delegate(&mut self, thread: usize, takes: f64) {
        let lock = self.threads[thread].lock;
        self.locks[lock].delegated.push_back(thread);
        self.locks[lock].taken += 1;
        self.threads[thread].began = self.agenda.now;
        self.leave(thread, takes);
    }

    /// The helper executes what was left to it. When nothing is left it gives the lock back, and those who found it taken and no place try
    /// again: the first one is the next helper.
    fn help(&mut self, helper: usize, detached: f64) {
        let lock = self.threads[helper].lock;
        if let Some(of) = self.locks[lock].delegated.pop_front() {
            self.locks[lock].inside = 1;
            self.tally.held(lock, self.agenda.now);
            let hold = self.setup.patterns[self.setup.threads[of]].hold[lock].draw(&mut self.random);
            self.agenda.schedule(hold + detached, (helper, What::Done));
            return;
        }
        self.locks[lock].helper = None;
        self.leave(helper, 0.0);
        for thread in std::mem::take(&mut self.locks[lock].queue) {
            self.ask(thread);
        }
    }

    fn finish(&mut self, thread: usize) {
        let lock = self.threads[thread].lock;
        let of = &self.setup.locks[lock];
        let state = &mut self.locks[lock];
        state.inside -= 1;
        if state.inside == 0 {
            self.tally.free(lock, self.agenda.now);
        }
        if of.algorithm == Algorithm::Qd {
            self.help(thread, of.detached);
            return;
        }
        if of.algorithm == Algorithm::QdWait {
            if state.helper != Some(thread) {
                self.leave(thread, 0.0);
            }
            // The helper goes on when nothing is left to be done.
            let queue = &mut self.locks[lock].queue;
            let k = queue.len() as f64;
            match queue.pop_front() {
                Some(next) => self.enter(next, super::qd::delegation(&of.delegation, k)),
                None => {
                    if let Some(helper) = self.locks[lock].helper.take() {
                        self.leave(helper, 0.0);
                    }
                }
            }
            return;
        }
        if let Some(sleep) = of.sleep {
            let woken = match of.algorithm {
                Algorithm::Rwlock if self.locks[lock].inside > 0 => false,
                Algorithm::Rwlock => self.wake_readers_or_writer(lock, sleep, of.overhead),
                _ => self.wake(lock, sleep),
            };
            self.leave(thread, if woken { sleep.call_ns } else { 0.0 });
            return;
        }
        self.leave(thread, 0.0);
        if self.locks[lock].inside > 0 {
            return;
        }
        if of.algorithm == Algorithm::Rwlock {
            let readers = self.take_readers(lock);
            if !readers.is_empty() {
                readers.into_iter().for_each(|reader| self.enter(reader, of.overhead));
                return;
            }
        }
        if let Some(next) = self.locks[lock].queue.pop_front() {
            self.enter(next, of.overhead);
        }
    }

    /// Wakes the one that has slept longest for a lock, unless somebody is being woken already. So there are at most as many tries as
    /// sections, and the play ends.
    fn wake(&mut self, lock: usize, sleep: Sleep) -> bool {
        let state = &mut self.locks[lock];
        if state.waking {
            return false;
        }
        let Some(first) = state.queue.pop_front() else { return false };
        state.waking = true;
        self.agenda.schedule(sleep.wake_ns, (first, What::Try));
        true
    }

    /// Takes the readers out of those who wait for a lock.
    fn take_readers(&mut self, lock: usize) -> Vec<usize> {
        let waiting = std::mem::take(&mut self.locks[lock].queue);
        let (readers, writers): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|&t| self.threads[t].reads);
        self.locks[lock].queue = writers.into();
        readers
    }

    /// Gives a rwlock to all readers that sleep for it: it is theirs while they wake up. Without any, wakes a writer.
    fn wake_readers_or_writer(&mut self, lock: usize, sleep: Sleep, overhead: f64) -> bool {
        let readers = self.take_readers(lock);
        if readers.is_empty() {
            return self.wake(lock, sleep);
        }
        for reader in readers {
            self.enter(reader, overhead + sleep.wake_ns);
            self.threads[reader].began += sleep.wake_ns;
        }
        true
    }

    /// Who was woken gets its lock, or sleeps again behind all others.
    fn retry(&mut self, thread: usize) {
        let lock = self.threads[thread].lock;
        self.locks[lock].waking = false;
        if self.locks[lock].inside == 0 {
            self.enter(thread, self.setup.locks[lock].overhead);
        } else {
            self.locks[lock].queue.push_back(thread);
        }
    }

    /// A thread is through with its lock, but for a call that takes it so long.
    fn leave(&mut self, thread: usize, call: f64) {
        let ThreadState { lock, arrived, began, .. } = self.threads[thread];
        self.tally.visit(lock, arrived, began, self.agenda.now);
        self.go_on(thread, call);
    }
}
