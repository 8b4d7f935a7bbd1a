//! What each thread of a recording did by itself: its steps with the time that it needed before each of them, without the
//! waits. What a program can be replayed from with other waits, and what a model of it is made of.

use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, Arrival, LockKind, Op, Released};
use crate::units::{Nanos, Time};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Steps that are kept at most: 1.6 GB.
pub const MAX_STEPS: usize = 100_000_000;
/// A thread that goes on within this part of the time for which it did nothing after another has exited has waited for that.
const JOINED: u64 = 10;

type Map<K, V> = HashMap<K, V, RandomState>;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Asks for a lock.
    Ask {
        /// Its number.
        lock: u32,
        /// The number of the site.
        site: u32,
        /// Whether it only reads.
        shared: bool,
    },
    /// Gives it back.
    Release {
        /// Its number.
        lock: u32,
        /// Whether another thread waits for that ([`What::Await`]).
        told: bool,
    },
    /// Arrives at a barrier for so many threads.
    Barrier {
        /// Its number.
        barrier: u32,
        /// Participants.
        threads: u32,
    },
    /// Goes on when a step of another thread has been done; its own time begins then.
    Await {
        /// The number of the signal.
        signal: u32,
    },
    /// Is idle for a time that is not its own, and that no other step explains; kept as it was.
    Idle,
    /// Ends.
    End,
}

/// A step, and the thread's own time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time that the thread needed for itself since its last step, or since its last wait ended; ns.
    pub after: u64,
    /// What it then does.
    pub what: What,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Who.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// When it began, from the start of the recording.
    pub begin: u64,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// What was seen of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockSeen {
    /// Acquisitions.
    pub acquisitions: u64,
    /// The shared ones of these.
    pub shared: u64,
    /// How many of these waited for a holder.
    pub contended: u64,
    /// Σ wait of those, ns.
    pub wait: u64,
    /// Σ of the time from the last release to the acquisition of those that followed one, ns.
    pub hand_off: u64,
    /// Their number.
    pub hand_offs: u64,
    /// Σ of other threads' holds that a wait met: w of PinCS times the acquisitions.
    pub met: u64,
}

/// All threads of a recording.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The threads.
    pub threads: Vec<Thread>,
    /// Locks and barriers by number.
    pub locks: Vec<Lock>,
    /// What was seen of them.
    pub seen: Vec<LockSeen>,
    /// Sites by number.
    pub sites: Vec<Site>,
    /// For each signal, the thread and the step that give it.
    pub signals: Vec<(u32, u32)>,
    /// The thread that ended the program, if one did: what the others did then, and whether they were done, means nothing.
    pub ends: Option<u32>,
    /// From the first step to the last, ns.
    pub duration: u64,
    /// Units of time per ns.
    pub ticks_per_ns: u64,
    /// When locks were acquired.
    pub pace: Pace,
    /// Condition waits that are kept as they were, since nothing seen explains their end.
    pub unexplained: Waits,
    /// Condition waits taken to end with another thread's release of their mutex.
    pub explained: Waits,
    /// Waits for another thread's exit.
    pub joins: Waits,
    /// Acquisitions of semaphores: those waits are kept as they were.
    pub semaphores: Waits,
    /// Steps that belong to sections begun before the recording.
    pub cut: u64,
}

/// Acquisitions over time, in equal parts of the time so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    width: u64,
    counts: [u64; Self::PARTS],
}

impl Default for Pace {
    fn default() -> Self {
        Self { width: 1 << 10, counts: [0; Self::PARTS] }
    }
}

impl Pace {
    const PARTS: usize = 64;

    fn add(&mut self, time: u64) {
        while time / self.width >= Self::PARTS as u64 {
            for i in 0..Self::PARTS {
                self.counts[i] = if 2 * i < Self::PARTS { self.counts[2 * i] + self.counts[2 * i + 1] } else { 0 };
            }
            self.width = self.width.saturating_mul(2);
        }
        self.counts[(time / self.width) as usize] += 1;
    }

    /// Acquisitions in the two halves of so much time.
    #[must_use]
    pub fn halves(&self, duration: u64) -> [f64; 2] {
        let mut halves = [0.0; 2];
        for (i, &count) in (0_u64..).zip(&self.counts) {
            let (from, middle) = ((i * self.width) as f64, duration as f64 / 2.0);
            let before = ((middle - from) / self.width as f64).clamp(0.0, 1.0);
            halves[0] += count as f64 * before;
            halves[1] += count as f64 * (1.0 - before);
        }
        halves
    }
}

/// Waits of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// For how long in all.
    pub time: u64,
}

impl Waits {
    fn add(&mut self, time: u64) {
        self.count += 1;
        self.time = self.time.saturating_add(time);
    }
}

/// The recording has more steps than can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording has more than {MAX_STEPS} steps: record for a shorter time")]
pub struct TooLong;

#[derive(Clone, Copy, Debug)]
struct Asked {
    lock: u32,
    at: Time,
    /// The end of the thread's last step.
    last: Time,
    free: bool,
    taken_before: u64,
    holders: u64,
}

#[derive(Debug)]
struct Open {
    last: Time,
    asked: Option<Asked>,
    /// Locks held, and how often each was taken again by their holder.
    held: Vec<(u32, u32)>,
    /// A lock that it holds and asks for once more.
    recursing: Option<u32>,
    /// The condition it waits for: since when, and the mutex it gave back for that.
    idle: Option<(Time, Option<u32>)>,
    released: Option<u32>,
    exited: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct LockNow {
    holders: u64,
    taken: u64,
    released: Option<(Time, u32, u32)>,
    semaphore: bool,
}

/// Makes a script of steps in order of time.
#[derive(Debug, Default)]
pub struct Builder {
    script: Script,
    open: Vec<Open>,
    now: Vec<LockNow>,
    by_tid: Map<Tid, u32>,
    by_lock: Map<Lock, u32>,
    by_site: Map<Site, u32>,
    rounds: Map<u32, Vec<u32>>,
    exits: Map<Process, (Time, u32)>,
    /// Signals that a thread's end gives, which was not seen yet.
    awaited: Map<u32, Vec<u32>>,
    /// Threads that have exited, by their numbers.
    exited: Map<Tid, u32>,
    ended: Option<(Process, u32, Time)>,
    last_process: Option<Process>,
    steps: usize,
    start: Option<Time>,
    end: Time,
}

impl Builder {
    /// Takes one step.
    ///
    /// # Errors
    /// When there are too many.
    pub fn op(&mut self, op: &Op) -> Result<(), TooLong> {
        let start = *self.start.get_or_insert(op.time);
        self.end = self.end.max(op.time);
        self.last_process = Some(op.process);
        let fresh = !self.by_tid.contains_key(&op.tid);
        let thread = self.thread(op.tid, op.process, op.time, start);
        if fresh && let Action::Join { wait, .. } = op.action {
            // It was there when it began to wait.
            let since = Time(op.time.0.saturating_sub(wait.0)).max(start);
            self.open[thread as usize].last = since;
            self.script.threads[thread as usize].begin = since.since(start).0;
        } else if fresh && op.action == (Action::Exit { ends: true }) {
            // The first thread need not have done anything but to wait for the others.
            self.open[thread as usize].last = start;
            self.script.threads[thread as usize].begin = 0;
            self.join(thread, op);
        } else if !matches!(op.action, Action::Join { .. }) {
            self.join(thread, op);
        }
        match op.action {
            Action::Attempt(attempt) => {
                let (lock, site) = (self.lock(attempt.lock), self.site(attempt.site));
                self.give_up(thread);
                if self.open[thread as usize].held.iter().any(|&(held, _)| held == lock) {
                    if attempt.contended.is_none() {
                        self.open[thread as usize].recursing = Some(lock);
                        return Ok(());
                    }
                    // Live sources fold recursion themselves: a release is missing.
                    self.script.cut += 1;
                    self.release(thread, attempt.lock, op.time, Released::Unlock);
                }
                let now = &mut self.now[lock as usize];
                now.semaphore |= attempt.kind == LockKind::Semaphore;
                let (holders, taken_before) = (now.holders, now.taken);
                let last = self.open[thread as usize].last;
                self.push(thread, op.time, What::Ask { lock, site, shared: attempt.shared });
                let free = attempt.contended.map_or(holders == 0, |contended| !contended);
                self.open[thread as usize].asked = Some(Asked { lock, at: op.time, last, free, taken_before, holders });
            }
            Action::Acquire { lock, .. } => self.acquire(thread, lock, op.time),
            Action::Release { lock, how } => self.release(thread, lock, op.time, how),
            Action::Fail { .. } => self.give_up(thread),
            Action::Barrier(arrival) => self.arrive(thread, &arrival, op.time),
            Action::CondWait { .. } => {
                let open = &mut self.open[thread as usize];
                open.idle = Some((op.time, open.released));
            }
            Action::CondWake { .. } => self.wake(thread, op.time),
            Action::Off { .. } | Action::On | Action::Holds(_) => {}
            Action::Join { thread: of, wait } => self.joined(thread, of, op, wait.0),
            Action::Exit { ends } => {
                self.give_up(thread);
                self.push(thread, op.time, What::End);
                let step = self.script.threads[thread as usize].steps.len() as u32 - 1;
                for signal in self.awaited.remove(&thread).unwrap_or_default() {
                    self.script.signals[signal as usize] = (thread, step);
                }
                if ends {
                    self.ended = Some((op.process, thread, op.time));
                }
                let open = &mut self.open[thread as usize];
                open.exited = true;
                for (lock, _) in std::mem::take(&mut open.held) {
                    self.now[lock as usize].holders = self.now[lock as usize].holders.saturating_sub(1);
                }
                self.exits.insert(op.process, (op.time, thread));
                self.by_tid.remove(&op.tid);
                self.exited.insert(op.tid, thread);
            }
        }
        if self.steps > MAX_STEPS { Err(TooLong) } else { Ok(()) }
    }

    /// The script; `ticks_per_ns` as the recording says.
    #[must_use]
    pub fn finish(mut self, ticks_per_ns: u64) -> Script {
        for thread in 0..self.open.len() as u32 {
            if !self.open[thread as usize].exited {
                self.give_up(thread);
                let last = self.open[thread as usize].last;
                self.push(thread, last, What::End);
            }
        }
        // Another process may have gone on.
        let whole = self.ended.filter(|&(process, ..)| self.last_process == Some(process));
        self.script.ends = whole.map(|(_, thread, _)| thread);
        let end = whole.map_or(self.end, |(.., at)| at);
        self.script.duration = end.since(self.start.unwrap_or_default()).0;
        self.script.ticks_per_ns = ticks_per_ns.max(1);
        self.script
    }

    fn thread(&mut self, tid: Tid, process: Process, time: Time, start: Time) -> u32 {
        if let Some(&thread) = self.by_tid.get(&tid) {
            return thread;
        }
        let thread = self.open.len() as u32;
        self.script.threads.push(Thread { tid, process, begin: time.since(start).0, steps: Vec::new() });
        let (asked, idle, released) = (None, None, None);
        let (held, recursing, exited) = (Vec::new(), None, false);
        self.open.push(Open { last: time, asked, held, recursing, idle, released, exited });
        self.by_tid.insert(tid, thread);
        thread
    }

    fn lock(&mut self, lock: Lock) -> u32 {
        *self.by_lock.entry(lock).or_insert_with(|| {
            self.script.locks.push(lock);
            self.script.seen.push(LockSeen::default());
            self.now.push(LockNow::default());
            (self.now.len() - 1) as u32
        })
    }

    fn site(&mut self, site: Site) -> u32 {
        *self.by_site.entry(site).or_insert_with(|| {
            self.script.sites.push(site);
            (self.script.sites.len() - 1) as u32
        })
    }

    fn push(&mut self, thread: u32, time: Time, what: What) {
        let open = &mut self.open[thread as usize];
        let after = time.since(open.last).0;
        open.last = open.last.max(time);
        self.script.threads[thread as usize].steps.push(Step { after, what });
        self.steps += 1;
    }

    /// A thread that did nothing until shortly after another one exited has waited for that.
    fn join(&mut self, thread: u32, op: &Op) {
        let open = &self.open[thread as usize];
        let Some(&(exit, exited)) = self.exits.get(&op.process) else { return };
        let (gap, lag) = (op.time.since(open.last).0, op.time.since(exit).0);
        let quiet = open.held.is_empty() && open.asked.is_none() && open.idle.is_none();
        if !quiet || exit <= open.last || lag.saturating_mul(JOINED) > gap {
            return;
        }
        self.script.joins.add(gap - lag);
        let step = self.script.threads[exited as usize].steps.len().saturating_sub(1) as u32;
        self.wait_for(thread, exited, step, exit);
    }

    /// A thread has waited for another one's exit, if there is such a thread.
    fn joined(&mut self, thread: u32, of: Tid, op: &Op, wait: u64) {
        let other = self.by_tid.get(&of).or_else(|| self.exited.get(&of)).copied();
        let Some(other) = other.filter(|&other| self.script.threads[other as usize].process == op.process) else {
            return;
        };
        let since = Time(op.time.0.saturating_sub(wait)).max(self.open[thread as usize].last);
        self.script.joins.add(op.time.since(since).0);
        let step = self.script.threads[other as usize].steps.len().saturating_sub(1) as u32;
        let signal = self.script.signals.len() as u32;
        if !self.open[other as usize].exited {
            self.awaited.entry(other).or_default().push(signal);
        }
        self.wait_for_after(thread, since, other, step, op.time);
    }

    /// From now on, at a time that has passed, the thread's own time begins when another has done a step.
    fn wait_for(&mut self, thread: u32, other: u32, step: u32, at: Time) {
        let signal = self.script.signals.len() as u32;
        self.script.signals.push((other, step));
        let last = self.open[thread as usize].last;
        self.push(thread, last, What::Await { signal });
        self.open[thread as usize].last = at;
    }

    fn give_up(&mut self, thread: u32) {
        self.open[thread as usize].recursing = None;
        if let Some(asked) = self.open[thread as usize].asked.take() {
            // What it did meanwhile counts as its own.
            self.script.threads[thread as usize].steps.pop();
            self.steps -= 1;
            self.open[thread as usize].last = asked.last;
        }
    }

    fn acquire(&mut self, thread: u32, lock: Lock, time: Time) {
        let lock = self.lock(lock);
        if self.open[thread as usize].recursing.take_if(|recursing| *recursing == lock).is_some() {
            let held = self.open[thread as usize].held.iter_mut().rev().find(|(held, _)| *held == lock);
            held.into_iter().for_each(|(_, depth)| *depth += 1);
            return;
        }
        let Some(asked) = self.open[thread as usize].asked.take_if(|asked| asked.lock == lock) else {
            self.script.cut += 1;
            return;
        };
        let shared = matches!(
            self.script.threads[thread as usize].steps.last(),
            Some(Step { what: What::Ask { shared: true, .. }, .. })
        );
        let now = &mut self.now[lock as usize];
        if now.semaphore {
            // Permits are nobody's: the wait is kept.
            let steps = &mut self.script.threads[thread as usize].steps;
            steps.pop();
            self.steps -= 1;
            self.script.semaphores.add(time.since(asked.at).0);
            let open = &mut self.open[thread as usize];
            open.last = asked.last;
            let idle = time.since(asked.last).0;
            open.last = time;
            self.script.threads[thread as usize].steps.push(Step { after: idle, what: What::Idle });
            self.steps += 1;
            return;
        }
        let overtaken = now.taken - asked.taken_before;
        let (seen, wait) = (&mut self.script.seen[lock as usize], time.since(asked.at).0);
        seen.acquisitions += 1;
        self.script.pace.add(time.since(self.start.unwrap_or_default()).0);
        seen.shared += u64::from(shared);
        let waited = wait > 0 && (!asked.free || overtaken > 0);
        if waited {
            seen.contended += 1;
            seen.wait += wait;
            seen.met += asked.holders.max(u64::from(!asked.free)) + overtaken;
            if let Some((released, ..)) = now.released
                && released >= asked.at
            {
                seen.hand_off += time.since(released).0;
                seen.hand_offs += 1;
            }
        }
        now.holders += 1;
        now.taken += 1;
        let open = &mut self.open[thread as usize];
        // A wait for nobody is what the call itself takes.
        open.last = if waited { time } else { asked.at };
        open.held.push((lock, 0));
    }

    fn release(&mut self, thread: u32, lock: Lock, time: Time, how: Released) {
        let lock = self.lock(lock);
        let open = &mut self.open[thread as usize];
        let Some(at) = open.held.iter().rposition(|&(held, _)| held == lock) else {
            self.script.cut += u64::from(!self.now[lock as usize].semaphore);
            return;
        };
        if open.held[at].1 > 0 {
            open.held[at].1 -= 1;
            return;
        }
        open.held.remove(at);
        // Of a section whose end was not seen the hold is not known: it is taken to be as short as possible.
        let time = if how == Released::Unseen { open.last } else { time };
        open.released = Some(lock);
        self.push(thread, time, What::Release { lock, told: false });
        let step = self.script.threads[thread as usize].steps.len() as u32 - 1;
        let now = &mut self.now[lock as usize];
        now.holders = now.holders.saturating_sub(1);
        now.released = Some((time, thread, step));
    }

    fn arrive(&mut self, thread: u32, arrival: &Arrival, time: Time) {
        let barrier = self.lock(arrival.barrier);
        self.give_up(thread);
        self.push(thread, time, What::Barrier { barrier, threads: arrival.participants });
        let round = self.rounds.entry(barrier).or_default();
        round.push(thread);
        if round.len() >= arrival.participants as usize {
            for thread in std::mem::take(round) {
                self.open[thread as usize].last = time;
            }
        }
    }

    fn wake(&mut self, thread: u32, time: Time) {
        let Some((since, mutex)) = self.open[thread as usize].idle.take() else { return };
        let idle = time.since(since).0;
        // Who signals a condition usually holds its mutex, or has just held it.
        let released = mutex.and_then(|mutex| self.now[mutex as usize].released);
        if let Some((at, other, step)) = released
            && other != thread
            && at >= since
        {
            self.script.explained.add(idle);
            if let Some(Step { what: What::Release { told, .. }, .. }) =
                self.script.threads[other as usize].steps.get_mut(step as usize)
            {
                *told = true;
            }
            // Its own time up to the wait is over when it began.
            self.wait_for_after(thread, since, other, step, at);
        } else {
            self.script.unexplained.add(idle);
            let before = since.since(self.open[thread as usize].last).0;
            self.script.threads[thread as usize].steps.push(Step { after: before + idle, what: What::Idle });
            self.steps += 1;
            self.open[thread as usize].last = time;
        }
    }

    fn wait_for_after(&mut self, thread: u32, since: Time, other: u32, step: u32, at: Time) {
        let signal = self.script.signals.len() as u32;
        self.script.signals.push((other, step));
        self.push(thread, since, What::Await { signal });
        self.open[thread as usize].last = at;
    }
}

impl Script {
    /// Time of all threads on their own, ns.
    #[must_use]
    pub fn own_time(&self) -> Nanos {
        let steps = self.threads.iter().flat_map(|thread| &thread.steps);
        Nanos(steps.filter(|step| step.what != What::Idle).fold(0, |sum, step| sum.saturating_add(step.after)))
    }

    /// Acquisitions in all.
    #[must_use]
    pub fn acquisitions(&self) -> u64 {
        self.seen.iter().map(|seen| seen.acquisitions).sum()
    }
}
