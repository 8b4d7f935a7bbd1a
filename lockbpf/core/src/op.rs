//! The steps of lock operations, in order of time: what every source of events comes down to before it is analysed.
//!
//! Event lines are such steps already. Live capture and binary traces deliver whole sections at their end
//! ([`crate::event::Section`]), which [`crate::order`] takes apart and puts in order.

use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::units::{Nanos, Time};
use lockbpf_common::barrier::round;
use lockbpf_common::kernel;
pub use lockbpf_common::kernel::Doing;
use lockbpf_common::kind::Via;

/// One step of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// When. Steps of equal time count in the order in which they come.
    pub time: Time,
    /// Who.
    pub tid: Tid,
    /// The process of the thread.
    pub process: Process,
    /// What.
    pub action: Action,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Asks for a lock.
    Attempt(Attempt),
    /// Gets it.
    Acquire {
        /// The lock.
        lock: Lock,
        /// Who woke this thread last while it waited.
        waker: Option<Tid>,
    },
    /// Gives it back.
    Release {
        /// The lock.
        lock: Lock,
        /// By unlocking, by waiting for a condition, or by exiting.
        how: Released,
    },
    /// The attempt failed.
    Fail {
        /// The lock.
        lock: Lock,
        /// Why.
        how: Failure,
    },
    /// Arrives at a barrier.
    Barrier(Arrival),
    /// Begins to wait for a condition: idle, not contended.
    CondWait {
        /// The condition variable.
        condition: Lock,
        /// Where.
        site: Site,
    },
    /// The wait for the condition ended; what follows is an ordinary attempt on the mutex.
    CondWake {
        /// The condition variable.
        condition: Lock,
    },
    /// Left the CPU.
    Off {
        /// Why.
        reason: OffReason,
        /// Its stack then.
        stack: Option<StackId>,
    },
    /// Is on the CPU again.
    On,
    /// Has waited for another thread's exit.
    Join {
        /// The other.
        thread: Tid,
        /// For how long.
        wait: Nanos,
    },
    /// Sees who holds a kernel lock.
    Holds(Hold),
    /// Exited.
    Exit {
        /// Whether it ended its process by that, and all other threads with it.
        ends: bool,
    },
}

/// A request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The lock.
    pub lock: Lock,
    /// Where: the static critical section.
    pub site: Site,
    /// Whether a shared (read) acquisition is asked for.
    pub shared: bool,
    /// What sort of lock it is.
    pub kind: LockKind,
    /// Owner word of the lock at the attempt, a tid in the target's own pid namespace.
    pub owner: Option<Tid>,
    /// Stack at the attempt.
    pub stack: Option<StackId>,
    /// Whether the source itself says that the thread waited for a holder; `None` where that follows from the steps.
    pub contended: Option<bool>,
}

/// A look at who holds a kernel lock, whose acquisitions and releases are not seen unless others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The lock.
    pub lock: Lock,
    /// The thread that holds it.
    pub holder: Tid,
    /// Where its program called the kernel; `None` if that is not known.
    pub site: Option<Site>,
    /// The stack there.
    pub stack: Option<StackId>,
    /// What it did at that moment.
    pub doing: Doing,
}

/// An arrival at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The barrier.
    pub barrier: Lock,
    /// Number of participants.
    pub participants: u32,
    /// To which round it belongs, as far as the barrier's memory says.
    pub round: Round,
    /// Static region that the arrival ends.
    pub site: Site,
    /// Static region that it begins.
    pub post: Site,
}

/// What is known of the round to which an arrival belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Round {
    /// Nothing: rounds are counted.
    #[default]
    Unknown,
    /// Its number, which begins anew after fifteen.
    Number(u8),
    /// Nobody had arrived before.
    First,
    /// Somebody had.
    Later,
}

impl Round {
    /// As records and traces have it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => round::UNKNOWN as u8,
            Self::Number(number) => round::numbered(number.into()) as u8,
            Self::First => round::FIRST as u8,
            Self::Later => round::LATER as u8,
        }
    }

    /// The inverse; what stands for nothing is unknown.
    #[must_use]
    pub fn of_code(code: u32) -> Self {
        match code {
            round::FIRST => Self::First,
            round::LATER => Self::Later,
            1..=round::NUMBERS => Self::Number((code - 1) as u8),
            _ => Self::Unknown,
        }
    }
}

/// Sorts of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// One holder.
    #[default]
    Mutex,
    /// One writer or many readers.
    Rwlock,
    /// One holder; its waiters stay on the CPU.
    Spin,
    /// Permits; may be given back by another thread.
    Semaphore,
    /// All wait for the last.
    Barrier,
    /// A futex word without an owner.
    Futex,
    /// An initialiser that one thread runs while others wait.
    Once,
    /// An interpreter's lock: one thread runs at a time.
    Gil,
    /// A lock of another kind, treated like a mutex; [`crate::names::Names::kind`] has its name. A thread that
    /// waits for one may take other locks meanwhile, if its source says that it waits.
    Other,
}

impl LockKind {
    /// What is asked for by such a call.
    #[must_use]
    pub fn of(via: Via) -> Self {
        match via {
            Via::Futex => Self::Futex,
            Via::Once => Self::Once,
            Via::Gil => Self::Gil,
            Via::CustomWait => Self::Other,
            via if via.is_rwlock() => Self::Rwlock,
            via if via.is_semaphore() => Self::Semaphore,
            via if via.is_spin() => Self::Spin,
            _ => Self::Mutex,
        }
    }

    /// What a kernel lock with these [`lockbpf_common::kernel::flag`]s is.
    #[must_use]
    pub fn of_kernel(flags: u32) -> Self {
        match flags {
            f if f & kernel::flag::MUTEX != 0 => Self::Mutex,
            f if f & (kernel::flag::READ | kernel::flag::WRITE) != 0 => Self::Rwlock,
            f if f & kernel::flag::SPIN != 0 => Self::Spin,
            _ => Self::Mutex,
        }
    }

    /// Its name in event lines and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Rwlock => "rwlock",
            Self::Spin => "spin",
            Self::Semaphore => "semaphore",
            Self::Barrier => "barrier",
            Self::Futex => "futex",
            Self::Once => "once",
            Self::Gil => "gil",
            Self::Other => "other",
        }
    }
}

/// How a held lock was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// By an unlock.
    Unlock,
    /// By waiting on a condition variable.
    CondWait,
    /// Not at all: its holder exited.
    ExitedHolding,
    /// Nobody saw it: it may have been held for any time.
    Unseen,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// A trylock found the lock held.
    TryFailed,
    /// The deadline passed.
    TimedOut,
    /// The call returned an error.
    Error,
}

/// Why a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffReason {
    /// Could have run, but another thread did.
    Runnable,
    /// Waited for I/O or otherwise uninterruptibly.
    Blocked,
    /// Slept: a timer, a socket, a pipe.
    Sleeping,
    /// Slept in a futex call: another lock, a condition.
    Futex,
}
