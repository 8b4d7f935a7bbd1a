//! Domain events: what live capture, trace files and synthetic input all deliver, and the analysis consumes.

use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Action, OffReason, Op};
use crate::units::{Nanos, Time};
use lockbpf_common::kernel;
pub use lockbpf_common::kind::{Outcome, Via, flag};
pub use lockbpf_common::record::FutexResult;
pub use lockbpf_common::thin::Weight;

/// One event. Events arrive in the order of [`Event::time`] within each CPU and nearly so across CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A critical section ended, or an attempt failed.
    Section(Section),
    /// A futex wait that no probed lock call explains.
    FutexWait(FutexWait),
    /// A futex call that woke somebody, which no probed lock call explains.
    Wake(Wake),
    /// A process was seen for the first time.
    Process(ProcessSeen),
    /// A thread that held a lock was off the CPU.
    OffCpu(OffCpu),
    /// A thread exited.
    ThreadExit(ThreadTotals),
    /// One step as live capture tells it, in order with nothing else: an arrival at a barrier.
    Step(Op),
    /// One step of a lock operation: what event lines consist of, already in order.
    Op(Op),
}

impl Event {
    /// When it was known: the end of what it describes.
    #[must_use]
    pub fn time(&self) -> Time {
        match self {
            Self::Section(s) => s.end,
            Self::FutexWait(w) => w.end,
            Self::Wake(w) => w.time,
            Self::Process(p) => p.time,
            Self::OffCpu(o) => o.end,
            Self::ThreadExit(t) => t.time,
            Self::Step(op) | Self::Op(op) => op.time,
        }
    }

    /// Has what it tells of begin at time 0 at the earliest, whatever a file says.
    #[must_use]
    pub fn from_time_0(mut self) -> Self {
        let end = Nanos(self.time().0);
        match &mut self {
            Self::Section(s) => {
                s.hold = s.hold.min(end);
                s.wait = s.wait.min(end - s.hold);
            }
            Self::FutexWait(w) => w.wait = w.wait.min(end),
            Self::OffCpu(o) => {
                o.off = o.off.min(end);
                o.runnable = o.runnable.min(o.off);
            }
            Self::Wake(_) | Self::Process(_) | Self::ThreadExit(_) | Self::Step(_) | Self::Op(_) => {}
        }
        self
    }

    /// When what it tells of began.
    #[must_use]
    pub fn began(&self) -> Time {
        match self {
            Self::Section(s) => s.attempt(),
            Self::FutexWait(w) => w.end - w.wait,
            Self::OffCpu(o) => o.end - o.off,
            Self::Wake(_) | Self::Process(_) | Self::ThreadExit(_) | Self::Step(_) | Self::Op(_) => self.time(),
        }
    }
}

impl Event {
    /// Gives the lock that it is about another identity.
    pub fn rename_lock(&mut self, of: impl FnOnce(Lock) -> Lock) {
        let lock = match self {
            Self::Section(section) => &mut section.lock,
            Self::FutexWait(wait) => &mut wait.word,
            Self::Wake(wake) => &mut wake.word,
            Self::Step(Op { action: Action::Barrier(arrival), .. }) => &mut arrival.barrier,
            Self::Process(_) | Self::OffCpu(_) | Self::ThreadExit(_) | Self::Step(_) | Self::Op(_) => return,
        };
        *lock = of(*lock);
    }
}

/// One attempt–acquire–release of one thread, complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Release, or the failure of the attempt, or the exit of the thread.
    pub end: Time,
    /// acquire − attempt; for a failed attempt, end − attempt.
    pub wait: Nanos,
    /// release − acquire; zero for a failed attempt.
    pub hold: Nanos,
    /// The lock.
    pub lock: Lock,
    /// Where it was requested.
    pub site: Site,
    /// Who requested it.
    pub tid: Tid,
    /// The process of the thread: that of the lock, unless it is the kernel's.
    pub process: Process,
    /// Owner word of the lock at the attempt, a tid in the target's own pid namespace.
    pub owner: Option<Tid>,
    /// Who woke this thread last while it waited.
    pub waker: Option<Tid>,
    /// Stack at the attempt (at the release with [`flag::STACK_AT_RELEASE`]).
    pub stack: Option<StackId>,
    /// [`flag`] bits.
    pub flags: u16,
    /// By which call.
    pub via: Via,
    /// How it ended.
    pub outcome: Outcome,
    /// Low byte of glibc's mutex kind ([`lockbpf_common::kind::mutex_kind`]); of a kernel lock,
    /// [`lockbpf_common::kernel::flag`]s.
    pub mutex_kind: u8,
}

impl Section {
    /// When the lock was acquired; for a failed attempt, when it failed.
    #[must_use]
    pub fn acquire(&self) -> Time {
        self.end - self.hold
    }

    /// When the lock was requested.
    #[must_use]
    pub fn attempt(&self) -> Time {
        self.acquire() - self.wait
    }

    /// Whether the lock was obtained at all.
    #[must_use]
    pub fn acquired(&self) -> bool {
        !matches!(self.outcome, Outcome::TryFailed | Outcome::TimedOut | Outcome::Failed)
    }

    /// Whether others may hold the lock at the same time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        match self.via {
            Via::Kernel => u32::from(self.mutex_kind) & kernel::flag::READ != 0,
            via => via.is_shared(),
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A futex wait outside any probed lock call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// When the system call returned.
    pub end: Time,
    /// Time inside the system call.
    pub wait: Nanos,
    /// The futex word.
    pub word: Lock,
    /// A caller's return address found on the stack, if any.
    pub site: Option<Site>,
    /// Who waited.
    pub tid: Tid,
    /// The value that the wait expected in the word; 2 for glibc's contended locks.
    pub expected: u32,
    /// What stands where glibc's mutex has its owner, a tid in the target's own pid namespace if the word is a mutex.
    pub owner: Option<Tid>,
    /// Who woke it last.
    pub waker: Option<Tid>,
    /// Stack at the system call.
    pub stack: Option<StackId>,
    /// How it ended.
    pub result: FutexResult,
    /// For how many such waits it stands: others were not recorded, lest that cost too much.
    pub weight: Weight,
}

impl FutexWait {
    /// Whether the thread slept for the word.
    #[must_use]
    pub fn took_time(&self) -> bool {
        !matches!(self.result, FutexResult::Again | FutexResult::Failed)
    }
}

/// A futex call that woke somebody: a thread has given back a lock, if the word is one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When it was called.
    pub time: Time,
    /// How long before that somebody was woken at this word last; `None` if that is not known. Whoever is woken has waited for the
    /// caller since then at most.
    pub since: Option<Nanos>,
    /// How long before that the thread's absences from the CPU are all told ([`OffCpu`]).
    pub watched: Nanos,
    /// The futex word.
    pub word: Lock,
    /// A caller's return address found on the stack, if any.
    pub site: Option<Site>,
    /// The process of the thread.
    pub process: Process,
    /// Who called.
    pub tid: Tid,
    /// How many threads were woken, or moved to another word.
    pub woken: u32,
    /// Stack at the system call.
    pub stack: Option<StackId>,
}

/// A thread that held a lock, or may have held one, left the CPU and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// When it was on the CPU again.
    pub end: Time,
    /// How long it was off.
    pub off: Nanos,
    /// The last part of `off`, in which it could have run but waited for a CPU; all of it if it was preempted.
    pub runnable: Nanos,
    /// Its process.
    pub process: Process,
    /// The thread.
    pub tid: Tid,
    /// Why it left.
    pub reason: OffReason,
    /// Its stack when it left.
    pub stack: Option<StackId>,
}

/// A process image got its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSeen {
    /// When.
    pub time: Time,
    /// The number.
    pub process: Process,
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Start of the process since boot.
    pub start: Time,
    /// Name of the first thread seen.
    pub comm: String,
}

/// What one thread did, over all its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTotals {
    /// When this was read, or the thread exited.
    pub time: Time,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// Its name.
    pub comm: String,
    /// Sections completed.
    pub acquisitions: u64,
    /// Σ wait of contended acquisitions and timed-out attempts.
    pub wait: Nanos,
    /// Σ wait for kernel locks, if those are observed; what was part of another wait is not in it.
    pub kernel_wait: Nanos,
    /// Σ hold over locks (nesting counts twice).
    pub held_sum: Nanos,
    /// Time with at least one lock held.
    pub held_union: Nanos,
    /// Whether its exit was that of the process: it called `exit`, or returned from `main`.
    pub ends_process: bool,
}
