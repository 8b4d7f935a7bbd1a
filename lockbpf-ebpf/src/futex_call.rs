//! A futex call that a thread is in.

/// It is over.
pub const NONE: u32 = 0;
/// A wait (or a lock of the kernel's own, with priority inheritance).
pub const WAIT: u32 = 1;
/// Others are woken.
pub const WAKE: u32 = 2;
/// A wait that a signal ended: restarted at once, unless the signal kills the thread.
pub const INTERRUPTED: u32 = 3;
/// A lock of the kernel's own is given to whoever waits for it (priority inheritance).
pub const HAND_OVER: u32 = 4;

/// A futex call in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FutexCall {
    /// The word.
    pub word: u64,
    /// The lock that it is a word of; the word itself if that is not known.
    pub lock: u64,
    /// When it was entered.
    pub enter_ns: u64,
    /// What it does: [`NONE`], [`WAIT`], [`WAKE`], …
    pub role: u32,
    /// The value that a wait expects.
    pub expected: u32,
    /// The owner word at the entry, if it is a wait outside any probed call.
    pub owner: u32,
    /// Not 0 if it is a wake and the record of a section tells of it.
    pub told: u32,
    /// When the word's waiters were woken before, if it is a wake and there were any, ns; 0 if that is not known.
    pub earlier_ns: u64,
    /// When somebody was woken there before, if it is a wake, ns; 0 if that is not known.
    pub earlier_woke_ns: u64,
    /// Who did that; 0 if it is not known.
    pub earlier_tid: u32,
    /// How many waits are [followed](crate::follow) at the word, if it is a wake.
    pub followers: u32,
    /// What decides whether a wait is recorded, where waits are thinned; else 0.
    pub random: u32,
    /// Not 0 if it is a wait that is [followed](crate::follow).
    pub followed: u32,
}

impl FutexCall {
    /// One of which no more is known yet.
    #[inline(always)]
    pub fn new(word: u64, enter_ns: u64, role: u32, expected: u32) -> Self {
        Self {
            word,
            lock: word,
            enter_ns,
            role,
            expected,
            owner: 0,
            told: 0,
            earlier_ns: 0,
            earlier_woke_ns: 0,
            earlier_tid: 0,
            followers: 0,
            random: 0,
            followed: 0,
        }
    }
}
