//! Whole events taken apart into steps.

use crate::event::{Event, FutexResult, FutexWait, OffCpu, Outcome, Section, Via, flag};
use crate::id::{Process, Tid};
use crate::op::{Action, Attempt, Failure, LockKind, OffReason, Op, Released};
use crate::units::Time;

/// Least value of a word that is taken for a thread's id: lower ones are states of locks.
const FIRST_TID: u32 = 3;
/// Largest tid that a kernel gives (`PID_MAX_LIMIT`).
const MAX_TID: u32 = 1 << 22;

/// The step that an event consists of at least, and that comes last.
pub(super) const LAST: u8 = 2;

/// Times of an event's steps; they are in order, and the last one is there.
pub(super) type Times = [Option<Time>; LAST as usize + 1];

/// An event that consists of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Attempt (0), acquire (1), release or failure (2); of a condition wait, its begin (0) and end (2).
    Section(Section),
    /// Off the CPU (0), runnable again (1), on it (2).
    Off(OffCpu),
    /// Exit (2).
    Exit { time: Time, process: Process, tid: Tid, ends: bool },
    /// A step that came as such (2).
    Step(Op),
}

impl Item {
    /// What has steps of an event that is not a step itself.
    pub(super) fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Section(section) => Some(Self::Section(*section)),
            Event::OffCpu(off) => Some(Self::Off(*off)),
            Event::ThreadExit(totals) => {
                let (time, process, tid) = (totals.time, totals.process, totals.tid);
                Some(Self::Exit { time, process, tid, ends: totals.ends_process })
            }
            Event::Step(op) => Some(Self::Step(*op)),
            Event::FutexWait(wait) => join(wait).map(Self::Step),
            Event::Wake(_) | Event::Process(_) | Event::Op(_) => None,
        }
    }

    pub(super) fn times(&self) -> Times {
        match self {
            Self::Section(s) if s.acquired() && s.via != Via::CondWait => {
                [Some(s.attempt()), Some(s.acquire()), Some(s.end)]
            }
            Self::Section(s) => [Some(s.attempt()), None, Some(s.end)],
            Self::Off(o) => {
                let runnable = o.runnable.min(o.off);
                // All of it runnable: it was preempted, and never anything else.
                let tail = (runnable.0 > 0 && runnable < o.off).then(|| o.end - runnable);
                [Some(o.end - o.off), tail, Some(o.end)]
            }
            Self::Exit { time, .. } | Self::Step(Op { time, .. }) => [None, None, Some(*time)],
        }
    }

    pub(super) fn thread(&self) -> (Process, Tid) {
        match self {
            Self::Section(s) => (s.process, s.tid),
            Self::Off(o) => (o.process, o.tid),
            Self::Exit { process, tid, .. } | Self::Step(Op { process, tid, .. }) => (*process, *tid),
        }
    }

    /// Whether the last step gives back a lock, other than as part of a failed attempt.
    pub(super) fn releases(&self) -> bool {
        matches!(self, Self::Section(s) if s.acquired() && s.via != Via::CondWait)
    }

    /// One of its steps, which is now said to have been at `time`.
    pub(super) fn step(&self, step: u8, time: Time) -> Op {
        let (process, tid) = self.thread();
        let action = match self {
            Self::Section(s) => section_step(s, step),
            Self::Off(o) => off_step(o, step),
            Self::Exit { ends, .. } => Action::Exit { ends: *ends },
            Self::Step(op) => op.action,
        };
        Op { time, tid, process, action }
    }
}

/// What a futex wait may be that ends with another thread's exit: the kernel wakes whoever waits for that, so nobody is known to
/// have, and the word holds the thread's id until then (glibc's and musl's `pthread_join`). Whether there is such a thread is for
/// others to know.
fn join(wait: &FutexWait) -> Option<Op> {
    let may_be = wait.result == FutexResult::Slept
        && wait.waker.is_none()
        && wait.expected != wait.tid.0
        && (FIRST_TID..=MAX_TID).contains(&wait.expected);
    may_be.then_some(Op {
        time: wait.end,
        tid: wait.tid,
        process: wait.word.process,
        action: Action::Join { thread: Tid(wait.expected), wait: wait.wait },
    })
}

fn section_step(s: &Section, step: u8) -> Action {
    let lock = s.lock;
    match (step, s.via) {
        (0, Via::CondWait) => Action::CondWait { condition: lock, site: s.site },
        (_, Via::CondWait) => Action::CondWake { condition: lock },
        (0, via) => Action::Attempt(Attempt {
            lock,
            site: s.site,
            shared: s.is_shared(),
            kind: match via {
                Via::Kernel => LockKind::of_kernel(s.mutex_kind.into()),
                via => LockKind::of(via),
            },
            owner: s.owner,
            stack: s.stack,
            contended: Some(s.has(flag::CONTENDED)),
        }),
        (1, _) => Action::Acquire { lock, waker: s.waker },
        (_, _) => match s.outcome {
            Outcome::Released => Action::Release { lock, how: Released::Unlock },
            Outcome::CondReleased => Action::Release { lock, how: Released::CondWait },
            Outcome::ExitedHolding => Action::Release { lock, how: Released::ExitedHolding },
            Outcome::Unseen => Action::Release { lock, how: Released::Unseen },
            Outcome::TryFailed => Action::Fail { lock, how: Failure::TryFailed },
            Outcome::TimedOut => Action::Fail { lock, how: Failure::TimedOut },
            Outcome::Failed => Action::Fail { lock, how: Failure::Error },
        },
    }
}

fn off_step(o: &OffCpu, step: u8) -> Action {
    match step {
        0 if o.runnable >= o.off => Action::Off { reason: OffReason::Runnable, stack: o.stack },
        0 => Action::Off { reason: o.reason, stack: o.stack },
        1 => Action::Off { reason: OffReason::Runnable, stack: o.stack },
        _ => Action::On,
    }
}
