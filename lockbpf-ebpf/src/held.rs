//! The locks that a thread holds.

use crate::thread::{Pending, Thread, stored, task};
use lockbpf_common::config::MAX_HELD;

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

impl Thread {
    /// A section that begins now without a wait.
    #[inline(always)]
    pub fn begun(&self, lock: u64, site: u64, via: u32, acquire_ns: u64) -> Held {
        Held {
            lock,
            site,
            acquire_ns,
            wait_ns: 0,
            owner: 0,
            waker: 0,
            stack: -1,
            via,
            flags: 0,
            recursion: 0,
            kind: 0,
            hits: self.hits,
        }
    }

    /// The section that the attempt in progress leads to.
    #[inline(always)]
    pub fn attempted(&self, acquire_ns: u64, wait_ns: u64) -> Held {
        let Pending { lock, site, owner, waker, stack, via, flags, kind, .. } = self.pending;
        Held { wait_ns, owner, waker, stack, flags, kind, ..self.begun(lock, site, via, acquire_ns) }
    }

    /// Probe hits since it acquired held lock `i`, beyond the one of the release itself.
    #[inline(always)]
    pub fn inner_hits(&self, i: usize) -> u64 {
        u64::from(self.hits.wrapping_sub(self.held[i & (MAX_HELD - 1)].hits).saturating_sub(1))
    }

    /// Index of a lock that the thread, the current one, holds, most recent first.
    #[inline(always)]
    pub fn find(&self, lock: u64) -> Option<usize> {
        let depth = self.depth as usize;
        if depth == 0 {
            return None;
        }
        let top = (depth - 1) & (MAX_HELD - 1);
        if self.held[top].lock == lock {
            return Some(top);
        }
        if depth == 1 {
            return None;
        }
        let i = find_below(lock) as usize;
        (i < MAX_HELD).then_some(i)
    }
}

/// Index of a lock that the current thread holds and did not take last; `MAX_HELD` if there is none. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_below(lock: u64) -> u32 {
    let Some(t) = stored(task()) else { return MAX_HELD as u32 };
    let depth = t.depth as usize;
    let mut back = 2;
    while back <= MAX_HELD {
        if back > depth {
            break;
        }
        let i = (depth - back) & (MAX_HELD - 1);
        if t.held[i].lock == lock {
            return i as u32;
        }
        back += 1;
    }
    MAX_HELD as u32
}
