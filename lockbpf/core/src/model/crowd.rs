//! Closed networks played on fewer CPUs than threads. Threads take turns on them, by time slices: whoever holds a lock, or has its turn for
//! it, may have to wait for a CPU meanwhile, and those that spin use up theirs.
//!
//! | lock | who gets it |
//! |---|---|
//! | slept for | who comes while it is free. Who gives it back wakes the longest sleeper, which tries for it when it has a CPU |
//! | spun for | who comes, or spins on a CPU, while it is free |
//! | … in turn | the one that has waited longest, whether it has a CPU or not |
//! | QD | who comes while it is free, and then executes the others' sections |

use super::agenda::Agenda;
use super::cpus::Cpus;
use super::schema::{Algorithm, Sleep};
use super::simulation::{DELEGATED, Pattern, Setup, Spins, Times};
use super::tally::{Outcome, Tally};
use std::collections::VecDeque;

/// Events after which a play ends as soon as it has told something.
const EVENTS: u32 = 400_000;
/// Time slices at most that a section or the time between two takes, on average: longer ones are played with longer slices.
const SLICES: f64 = 4.0;

/// The CPUs that threads share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// How many.
    pub cpus: u32,
    /// After so long it is another one's turn, ns.
    pub slice_ns: f64,
    /// Whether threads stay on the CPU that they had first, even if another one is idle.
    pub stay: bool,
}

/// What a thread does, or will do when it has a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Works on its own.
    Local,
    /// Executes a section: its own, or one that was left to it.
    Section,
    /// Waits on its CPU.
    Spin,
    /// Is in a call that wakes somebody, or leaves its section to another thread; goes on then.
    Call,
    /// Waits without a CPU.
    Asleep,
    /// Was woken, and tries for its lock.
    Try,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    phase: Phase,
    lock: usize,
    /// CPU time that it needs yet for what it does, ns, since when that runs.
    left: f64,
    since: f64,
    /// Grows with each thing that it begins, and when it loses its CPU: an end that was scheduled before counts no more.
    turn: u64,
    arrived: f64,
    began: f64,
    reads: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A thread has done what it began at this turn.
    Done(usize, u64),
    /// A CPU's time slice is over, if it is still this one.
    Slice(usize, u64),
    /// A thread that was woken wants a CPU.
    Wake(usize),
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Who waits for it, on a CPU or asleep.
    waiting: VecDeque<usize>,
    /// Threads inside: readers, or one.
    inside: u32,
    writing: bool,
    /// Whether somebody who slept has been woken and has not tried yet.
    waking: bool,
    /// Whose section a QD lock's holder executes, where that thread waits for it.
    executed: Option<usize>,
    /// Whose sections it has taken and not begun, where those do not wait, and how many it has taken in all.
    delegated: VecDeque<usize>,
    taken: u32,
}

struct Play<'a> {
    setup: &'a Setup,
    slice: f64,
    random: fastrand::Rng,
    agenda: Agenda<What>,
    locks: Vec<State>,
    threads: Vec<Thread>,
    cpus: Cpus,
    slices: Vec<u64>,
    tally: Tally,
}

/// Plays it. Locks that nobody comes to have zeros.
#[must_use]
pub fn run(setup: &Setup, shared: Shared) -> Outcome {
    let (cpus, threads) = (shared.cpus.max(1) as usize, setup.threads.len());
    let new =
        Thread { phase: Phase::Local, lock: 0, left: 0.0, since: 0.0, turn: 0, arrived: 0.0, began: 0.0, reads: false };
    let mut play = Play {
        setup,
        slice: shared.slice_ns.max(shortest(setup)),
        random: fastrand::Rng::with_seed(setup.seed),
        agenda: Agenda::new(),
        locks: vec![State::default(); setup.locks.len()],
        threads: vec![new; threads],
        cpus: Cpus::new(cpus, threads, shared.stay),
        slices: vec![0; cpus],
        tally: Tally::new(setup.locks.len(), threads, setup.operations),
    };
    for thread in 0..threads {
        play.threads[thread].lock = play.random.usize(..setup.locks.len().max(1));
        play.go_on(thread);
        play.ready(thread);
    }
    let mut events = 0_u32;
    while let Some(what) = play.agenda.next() {
        match what {
            What::Done(thread, turn) if play.threads[thread].turn == turn => play.done(thread),
            What::Slice(cpu, slice) if play.slices[cpu] == slice => play.slice_over(cpu),
            What::Wake(thread) => play.ready(thread),
            What::Done(..) | What::Slice(..) => {}
        }
        events += 1;
        if play.tally.is_over(play.agenda.now) || events > EVENTS && play.tally.has_some() {
            break;
        }
    }
    play.tally.outcome(play.agenda.now)
}

/// The shortest time slices that a play has time for.
fn shortest(setup: &Setup) -> f64 {
    let times = |pattern: &Pattern| {
        let all = pattern.hold.iter().chain(pattern.local.iter().flatten());
        all.map(Times::mean).fold(0.0, f64::max)
    };
    (setup.patterns.iter().map(times).fold(0.0, f64::max) / SLICES).max(1_000.0)
}

impl Play<'_> {
    /// A thread wants a CPU.
    fn ready(&mut self, thread: usize) {
        if let Some(cpu) = self.cpus.ready(thread) {
            // CPUs do not take turns at the same time.
            let part = if self.slices[cpu] == 0 { self.random.f64() } else { 1.0 };
            self.begin_slice(cpu, part);
            self.resume(thread);
        }
    }

    fn begin_slice(&mut self, cpu: usize, part: f64) {
        self.slices[cpu] += 1;
        self.agenda.schedule(self.slice * part, What::Slice(cpu, self.slices[cpu]));
    }

    fn slice_over(&mut self, cpu: usize) {
        if self.cpus.is_idle(cpu) {
            return;
        }
        let turn = self.cpus.turn(cpu);
        self.begin_slice(cpu, 1.0);
        if let Some((thread, next)) = turn {
            self.suspend(thread);
            self.resume(next);
        }
    }

    /// A thread goes on with what it does, now that it has a CPU.
    fn resume(&mut self, thread: usize) {
        match self.threads[thread].phase {
            Phase::Spin => self.look(thread),
            Phase::Try => {
                self.locks[self.threads[thread].lock].waking = false;
                self.ask(thread);
            }
            _ => self.work(thread),
        }
    }

    /// A thread has lost its CPU in the midst of something.
    fn suspend(&mut self, thread: usize) {
        let now = self.agenda.now;
        let state = &mut self.threads[thread];
        if matches!(state.phase, Phase::Local | Phase::Section | Phase::Call) {
            state.left = (state.left - (now - state.since)).max(0.0);
        }
        state.turn += 1;
    }

    /// A thread begins something that needs so much CPU time, at once if it has a CPU.
    fn begin(&mut self, thread: usize, phase: Phase, takes: f64) {
        let state = &mut self.threads[thread];
        (state.phase, state.left) = (phase, takes);
        state.turn += 1;
        if self.cpus.has(thread) {
            self.work(thread);
        }
    }

    fn work(&mut self, thread: usize) {
        let now = self.agenda.now;
        let state = &mut self.threads[thread];
        state.since = now;
        let (left, turn) = (state.left, state.turn);
        self.agenda.schedule(left, What::Done(thread, turn));
    }

    fn sleep(&mut self, thread: usize) {
        self.threads[thread].phase = Phase::Asleep;
        if let Some((cpu, next)) = self.cpus.leave(thread) {
            self.begin_slice(cpu, 1.0);
            self.resume(next);
        }
    }

    /// A thread leaves its lock for the next.
    fn go_on(&mut self, thread: usize) {
        let pattern = &self.setup.patterns[self.setup.threads[thread]];
        let from = self.threads[thread].lock;
        let (next, takes) = pattern.next(from, &mut self.random);
        self.threads[thread].lock = next;
        self.begin(thread, Phase::Local, takes);
    }

    /// A thread is through with what it did.
    fn done(&mut self, thread: usize) {
        let lock = self.threads[thread].lock;
        match self.threads[thread].phase {
            Phase::Local => {
                let share = self.setup.locks[lock].read_share;
                let reads = self.setup.locks[lock].algorithm == Algorithm::Rwlock && self.random.f64() < share;
                let state = &mut self.threads[thread];
                (state.arrived, state.reads) = (self.agenda.now, reads);
                self.ask(thread);
            }
            Phase::Section => match self.setup.locks[lock].algorithm {
                Algorithm::Qd | Algorithm::QdWait => self.help(thread),
                _ => self.release(thread),
            },
            Phase::Call => self.go_on(thread),
            Phase::Spin | Phase::Asleep | Phase::Try => {}
        }
    }

    fn is_free(&self, lock: usize, reads: bool) -> bool {
        let state = &self.locks[lock];
        state.inside == 0 || reads && !state.writing
    }

    /// A thread on a CPU gets its lock if that is free, leaves its section to whoever has it if that does so, or else waits.
    fn ask(&mut self, thread: usize) {
        let Thread { lock, reads, .. } = self.threads[thread];
        let of = &self.setup.locks[lock];
        if self.is_free(lock, reads) {
            self.enter(thread, of.overhead);
        } else if of.algorithm == Algorithm::Qd && self.locks[lock].taken < DELEGATED {
            let state = &mut self.locks[lock];
            state.taken += 1;
            state.delegated.push_back(thread);
            self.threads[thread].began = self.agenda.now;
            self.leave(thread, of.detached);
        } else {
            self.locks[lock].waiting.push_back(thread);
            if of.spins.is_some() {
                self.threads[thread].phase = Phase::Spin;
            } else {
                self.sleep(thread);
            }
        }
    }

    /// A thread that spins has a CPU again: it sees whether its lock is free.
    fn look(&mut self, thread: usize) {
        let Thread { lock, .. } = self.threads[thread];
        let of = &self.setup.locks[lock];
        let leaves = of.algorithm == Algorithm::Qd && self.locks[lock].taken < DELEGATED;
        if of.spins == Some(Spins::InTurn) || !leaves && !self.is_free(lock, false) {
            return;
        }
        self.locks[lock].waiting.retain(|&other| other != thread);
        self.ask(thread);
    }

    fn enter(&mut self, thread: usize, overhead: f64) {
        let Thread { lock, reads, .. } = self.threads[thread];
        self.threads[thread].began = self.agenda.now;
        let state = &mut self.locks[lock];
        if state.inside == 0 {
            self.tally.held(lock, self.agenda.now);
        }
        state.inside += 1;
        state.writing = !reads;
        state.taken = 0;
        let hold = self.hold(thread, lock);
        self.begin(thread, Phase::Section, hold + overhead);
    }

    fn hold(&mut self, thread: usize, lock: usize) -> f64 {
        self.setup.patterns[self.setup.threads[thread]].hold[lock].draw(&mut self.random)
    }

    /// A thread gives its lock back.
    fn release(&mut self, thread: usize) {
        let lock = self.threads[thread].lock;
        let of = &self.setup.locks[lock];
        let state = &mut self.locks[lock];
        state.inside -= 1;
        if state.inside > 0 {
            self.leave(thread, 0.0);
            return;
        }
        self.tally.free(lock, self.agenda.now);
        let after = |waiters: usize| of.contended.get(waiters).or(of.contended.last()).copied().unwrap_or(of.overhead);
        match of.spins {
            Some(Spins::InTurn) => {
                let next = state.waiting.pop_front();
                self.leave(thread, 0.0);
                if let Some(next) = next {
                    let waiters = self.locks[lock].waiting.len() + 1;
                    self.enter(next, after(waiters));
                }
            }
            Some(Spins::Barging) => {
                let on = state.waiting.iter().position(|&other| self.cpus.has(other));
                let next = on.and_then(|at| state.waiting.remove(at));
                self.leave(thread, 0.0);
                if let Some(next) = next {
                    self.enter(next, after(1));
                }
            }
            None => {
                let woken = self.wake(lock, of.sleep.unwrap_or_default(), of.overhead);
                self.leave(thread, woken);
            }
        }
    }

    /// Wakes the one that has slept longest for a lock, unless somebody is being woken already, or gives it to the readers that sleep for it. What that
    /// takes: nothing to speak of where no CPU has to be woken for it.
    fn wake(&mut self, lock: usize, sleep: Sleep, overhead: f64) -> f64 {
        let state = &mut self.locks[lock];
        let readers: Vec<usize> = state.waiting.iter().copied().filter(|&other| self.threads[other].reads).collect();
        if readers.is_empty() && (state.waking || state.waiting.is_empty()) {
            return 0.0;
        }
        let idle = self.cpus.any_idle();
        let [wake_ns, call_ns] = if idle { [sleep.wake_ns, sleep.call_ns] } else { [0.0; 2] };
        if readers.is_empty() {
            if let Some(first) = state.waiting.pop_front() {
                state.waking = true;
                self.threads[first].phase = Phase::Try;
                self.agenda.schedule(wake_ns, What::Wake(first));
            }
        } else {
            state.waiting.retain(|other| !readers.contains(other));
            for reader in readers {
                self.enter(reader, overhead);
                self.agenda.schedule(wake_ns, What::Wake(reader));
            }
        }
        call_ns
    }

    /// The holder of a QD lock has executed a section; it executes those that others have left to it, then gives the lock back.
    fn help(&mut self, helper: usize) {
        let lock = self.threads[helper].lock;
        let of = &self.setup.locks[lock];
        if let Some(waits) = self.locks[lock].executed.take() {
            self.leave(waits, 0.0);
        }
        let state = &mut self.locks[lock];
        let next = if of.algorithm == Algorithm::Qd {
            state.delegated.pop_front().map(|next| (next, of.detached))
        } else {
            let k = state.waiting.len() as f64;
            state.executed = state.waiting.pop_front();
            state.executed.map(|next| (next, super::qd::delegation(&of.delegation, k)))
        };
        if let Some((next, overhead)) = next {
            if of.algorithm == Algorithm::QdWait {
                self.threads[next].began = self.agenda.now;
            }
            let hold = self.hold(next, lock);
            self.begin(helper, Phase::Section, hold + overhead);
            return;
        }
        state.inside = 0;
        self.tally.free(lock, self.agenda.now);
        self.leave(helper, 0.0);
        // Who found no place tries again.
        let waiting: Vec<usize> =
            self.locks[lock].waiting.iter().copied().filter(|&thread| self.cpus.has(thread)).collect();
        waiting.into_iter().for_each(|thread| self.look(thread));
    }

    /// A thread is through with its lock, but for a call that takes it so long.
    fn leave(&mut self, thread: usize, call: f64) {
        let Thread { lock, arrived, began, .. } = self.threads[thread];
        self.tally.visit(lock, arrived, began, self.agenda.now);
        if call > 0.0 {
            self.begin(thread, Phase::Call, call);
        } else {
            self.go_on(thread);
        }
    }
}
