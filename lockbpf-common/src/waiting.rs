//! Waits in progress: what a thread waits for right now, and since when. This is all that is visible of a program
//! that hangs, since a section is only summed or recorded when it ends.

/// One wait in progress; the map's key is the waiting thread's tid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Waiting {
    /// Attempt (lock) or entry into the system call (futex), ns.
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
    /// Futex: the value of the word that the wait expected.
    pub expected: u32,
    /// Bytes from the lock to the word it sleeps on.
    pub word_offset: u32,
}

const _: () = assert!(size_of::<Waiting>() == 56);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Waiting {}
