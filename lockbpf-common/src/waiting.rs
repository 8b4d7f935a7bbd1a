//! Waits in progress: what a thread waits for right now, and since when. This is all that is visible of a program
//! that hangs, since a section is only summed or recorded when it ends.

/// What a thread waits for; each has a place of its own, of a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Waiting {
    /// Attempt (lock) or entry into the system call (futex), ns; 0 while it does not wait. Written last.
    pub since_ns: u64,
    /// Address of the lock or futex word.
    pub lock: u64,
    /// Return address of the requesting call; 0 if unknown.
    pub site: u64,
    /// Frame pointer of the waiting thread, by which its stack can be read while it waits.
    pub frame: u64,
    /// Process number.
    pub process: u32,
    /// Owner word at the attempt; 0 if unknown.
    pub owner: u32,
    /// [`crate::kind::Via`] as a number.
    pub via: u32,
    /// glibc's mutex kind, or [`crate::kind::mutex_kind::IS_FUTEX`].
    pub kind: u32,
    /// Futex: the value of the word that the wait expected. [`crate::kind::Via::CustomWait`]: the lower half of the stack pointer where it began.
    pub expected: u32,
    /// Bytes from the lock to the word it sleeps on.
    pub word_offset: u32,
    /// The waiting thread.
    pub tid: u32,
    /// The lower half of `since_ns`, written before all else: who reads while another wait takes the place finds that they differ.
    pub check: u32,
}

impl Waiting {
    /// Whether this is a wait, all of the same.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.since_ns != 0 && self.check == self.since_ns as u32
    }
}

const _: () = assert!(size_of::<Waiting>() == 64);

/// A futex call in which a thread slept when the observation began, as user space found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Asleep {
    /// Address of the word.
    pub word: u64,
    /// Since when it counts, ns.
    pub since_ns: u64,
    /// The thread's stack pointer: while that stays, it is the same call.
    pub stack_pointer: u64,
    /// The value that it expected in the word.
    pub expected: u64,
}

// SAFETY: repr(C), integers only, no padding: any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Asleep {}

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_wait_is_none() {
        let whole = Waiting {
            since_ns: 7 << 32 | 5,
            lock: 1,
            site: 0,
            frame: 0,
            process: 1,
            owner: 0,
            via: 0,
            kind: 0,
            expected: 0,
            word_offset: 0,
            tid: 9,
            check: 5,
        };
        assert!(whole.is_whole());
        assert!(!Waiting { since_ns: 0, ..whole }.is_whole(), "it has ended");
        assert!(!Waiting { since_ns: 7 << 32 | 6, ..whole }.is_whole(), "of two waits");
    }
}
