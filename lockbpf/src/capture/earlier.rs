//! Waits for locks that were in progress before the observation began, while they go on: no probe saw them begin.

use super::inflight::{self, Blocked, Snapshot};
use super::owner::Owners;
use crate::event::Via;
use crate::id::{Lock, Process, Tid};
use crate::observation::OpenWait;
use crate::units::Time;
use lockbpf_common::layout::CONTENDED_VALUE;

/// Waits looked at, at most.
const MAX_WAITS: usize = 1_024;

/// The waits that were there.
#[derive(Debug, Default)]
pub struct Earlier {
    start: Time,
    sleeps: Vec<(u32, Tid, Blocked)>,
}

impl Earlier {
    /// Those of a moment before `start` that expect the value of a contended lock, of the threads that are wanted.
    #[must_use]
    pub fn new(before: &Snapshot, start: Time, wanted: impl Fn(Tid) -> bool) -> Self {
        let all = before.sleeps().map(|((pid, tid), sleep)| (pid, tid, sleep));
        let mut sleeps: Vec<_> =
            all.filter(|(_, tid, sleep)| sleep.expected == CONTENDED_VALUE && wanted(*tid)).take(MAX_WAITS).collect();
        sleeps.sort_unstable_by_key(|(_, tid, _)| *tid);
        Self { start, sleeps }
    }

    /// Those that still go on and are not among the waits that were `seen` to begin. What is over is forgotten.
    pub fn look(&mut self, seen: &[OpenWait], number: impl Fn(u32) -> Option<Process>) -> Vec<OpenWait> {
        self.sleeps.retain(|&(pid, tid, sleep)| {
            // Who has gone on does not come back to the same wait.
            seen.iter().all(|wait| wait.tid != tid) && inflight::sleep(pid, tid) == Some(sleep)
        });
        let mut owners = Owners::default();
        let wait = |&(pid, tid, sleep): &(u32, Tid, Blocked)| {
            let owner = owners.of_word(pid, sleep.word).map(|owner| owner.tid).filter(|&owner| owner != tid);
            Some(OpenWait {
                tid,
                lock: Lock { process: number(pid)?, addr: sleep.word },
                site: None,
                since: self.start,
                owner,
                stack: None,
                via: Via::Futex,
                expected: Some(sleep.expected),
                before_start: true,
            })
        };
        self.sleeps.iter().filter_map(wait).collect()
    }
}
