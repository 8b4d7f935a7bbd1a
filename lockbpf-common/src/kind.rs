//! How a critical section went, as numbers shared with the kernel side.

pub use crate::layout::mutex_kind;
pub use crate::via::Via;

/// How a section (or an attempt that never became one) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Outcome {
    /// Acquired and released by an unlock.
    Released = 0,
    /// Acquired, and released by waiting on a condition variable.
    CondReleased = 1,
    /// Acquired, never released: the thread exited.
    ExitedHolding = 2,
    /// Not acquired: a trylock found it held.
    TryFailed = 3,
    /// Not acquired: the deadline passed.
    TimedOut = 4,
    /// Not acquired: the call returned an error (`EDEADLK`, `EINVAL`, …).
    Failed = 5,
    /// Acquired; its release is not seen: a runtime of which only contended acquisitions can be, or a permit of a semaphore that
    /// another thread gives back.
    Unseen = 6,
}

impl Outcome {
    /// The outcome for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Released,
            1 => Self::CondReleased,
            2 => Self::ExitedHolding,
            3 => Self::TryFailed,
            4 => Self::TimedOut,
            5 => Self::Failed,
            6 => Self::Unseen,
            _ => return None,
        })
    }
}

/// Flags of a section record: 8 bits.
pub mod flag {
    /// The thread waited for a holder: the lock was held at the attempt, or the thread slept for it.
    pub const CONTENDED: u16 = 1;
    /// The thread slept in futex wait for the lock.
    pub const SLEPT: u16 = 1 << 1;
    /// At the release the lock word said that somebody (perhaps) waits, or the unlock woke whoever does.
    pub const WAITED_FOR: u16 = 1 << 2;
    /// While holding this lock the thread itself waited for another one.
    pub const OUTER: u16 = 1 << 3;
    /// The lock was re-acquired by its own holder in between (recursive mutex).
    pub const RECURSED: u16 = 1 << 4;
    /// The stack in the record is the holder's at release, not the requester's at the attempt.
    pub const STACK_AT_RELEASE: u16 = 1 << 5;
    /// All flags that exist.
    pub const ALL: u16 = (1 << 6) - 1;
}
