//! A thread waits for one lock at a time, also where a signal handler waits for one in the middle of an attempt on another.

use crate::thread::Thread;

impl Thread {
    /// Takes note of a record of a section or attempt that ended at `end_ns`. In a handler that interrupts a wait no record is made.
    #[inline(always)]
    pub fn tells(&mut self, end_ns: u64) {
        if self.wait_handler == 0 {
            self.told_ns = self.told_ns.max(end_ns);
        }
    }

    /// How long a call has waited by `now` that began at `attempt_ns`. A handler may have interrupted it before it was known to wait; the
    /// handler's own records then end after the attempt, and the wait counts from the last of them on.
    #[inline(always)]
    pub fn waited_ns(&self, attempt_ns: u64, now: u64) -> u64 {
        now.saturating_sub(attempt_ns.max(self.told_ns))
    }

    /// What a wait for a lock adds to this thread's: nothing if a handler waited that interrupts a wait, which goes on meanwhile.
    #[inline(always)]
    pub fn own_wait(&self, wait_ns: u64) -> u64 {
        if self.wait_handler == 0 { wait_ns } else { 0 }
    }
}
