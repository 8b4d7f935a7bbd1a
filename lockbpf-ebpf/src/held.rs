//! A lock that a thread holds.

/// A lock held.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Held {
    /// The lock.
    pub lock: u64,
    /// Return address of the call that got it.
    pub site: u64,
    /// When it was acquired.
    pub acquire_ns: u64,
    /// acquire − attempt.
    pub wait_ns: u64,
    /// Owner word at the attempt.
    pub owner: u32,
    /// Who woke this thread.
    pub waker: u32,
    /// Stack at the attempt, if contended.
    pub stack: i32,
    /// `Via`.
    pub via: u32,
    /// Section flags.
    pub flags: u32,
    /// Re-acquisitions by this thread that are still to be released.
    pub recursion: u32,
    /// glibc's mutex kind at the attempt.
    pub kind: u32,
    /// The thread's probe hits when it was acquired.
    pub hits: u32,
}
