//! Keeps a thread and the one that follows it on one CPU while it is followed: a switch between them is then half as dear. What the
//! thread was allowed before is restored, by the guardian if this process dies meanwhile.

use super::guardian::Guardian;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// A thread that is kept on one CPU until this is dropped.
pub(super) struct Pinned<'a> {
    tid: i32,
    before: CpuSet,
    guardian: &'a Guardian,
}

impl<'a> Pinned<'a> {
    /// Keeps a stopped thread, and the calling one, where the calling one is. `None` if the thread may not run there, or the kernel
    /// refuses: it can be followed nonetheless.
    pub(super) fn to_here(tid: i32, guardian: &'a Guardian) -> Option<Self> {
        let thread = Pid::from_raw(tid);
        let before = sched_getaffinity(thread).ok()?;
        let cpu = sched_getcpu().ok()?;
        if !before.is_set(cpu).ok()? {
            return None;
        }
        let mut here = CpuSet::new();
        here.set(cpu).ok()?;
        // Without anybody to restore it, it is better left alone.
        guardian.remember(tid, &before)?;
        let pinned = Self { tid, before, guardian };
        sched_setaffinity(Pid::from_raw(0), &here).ok()?;
        sched_setaffinity(thread, &here).ok()?;
        Some(pinned)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // A thread that is gone needs it no more.
        let _ = sched_setaffinity(Pid::from_raw(self.tid), &self.before);
        self.guardian.forget();
    }
}
