//! The waits in progress of those that are no threads: goroutines, tasks of tokio's, virtual threads of Java's. Their stacks are not known, unless
//! they were taken before: they are not those of threads.

use super::Session;
use crate::capture::CaptureError;
use crate::capture::owner;
use crate::capture::stack_copies::Numbered;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::observation::OpenWait;
use crate::proc;
use crate::units::Time;
use aya::maps::HashMap as BpfHashMap;
use lockbpf_common::goroutine::{GoroutineKey, GoroutineWait};
use lockbpf_common::kind::Via;
use lockbpf_common::process::ProcessEntry;
use lockbpf_common::task::{self, FutureKey, TaskWait};
use lockbpf_common::virtual_thread::{VirtualKey, VirtualWait};
use std::collections::HashMap;

impl Session {
    /// Those of processes that are there.
    pub(super) fn waits_of_no_threads(&self) -> Result<Vec<OpenWait>, CaptureError> {
        let pids = self.pids()?;
        let mut open = self.waits_of_goroutines(&pids)?;
        open.extend(self.waits_of_tasks(&pids)?);
        open.extend(self.waits_of_virtual_threads(&pids)?);
        Ok(open)
    }

    /// Whether gates open and close: of a wait that began at an earlier opening it is not known whether it has ended.
    fn is_interrupted(&self) -> bool {
        self.governed || self.lease().last_over().is_some()
    }

    /// Those of goroutines, unless gates open and close.
    fn waits_of_goroutines(&self, known: &HashMap<u64, u32>) -> Result<Vec<OpenWait>, CaptureError> {
        if self.is_interrupted() {
            return Ok(Vec::new());
        }
        let waits: BpfHashMap<_, GoroutineKey, GoroutineWait> = self.map("GO_CALLS")?.try_into()?;
        let open = waits.iter().filter_map(Result::ok).filter(|(key, _)| known.contains_key(&key.process));
        let open = open.filter_map(|(key, wait)| {
            let process = Process(u32::try_from(key.process).ok()?);
            let at = (wait.lock, wait.site, Time(wait.attempt_ns));
            open_wait(process, Tid(wait.tid), at, wait.via)
        });
        Ok(open.collect())
    }

    /// Those of virtual threads for monitors, where what tells of these was there all the time.
    fn waits_of_virtual_threads(&self, known: &HashMap<u64, u32>) -> Result<Vec<OpenWait>, CaptureError> {
        let Some(sheds) = self.sheds().filter(|_| self.lease().last_over().is_none()) else { return Ok(Vec::new()) };
        let waits: BpfHashMap<_, VirtualKey, VirtualWait> = self.map("VIRTUAL_WAITS")?.try_into()?;
        // Others wait for something else, and nothing tells whether that is a lock.
        let for_monitor = |(key, wait): &(VirtualKey, VirtualWait)| {
            wait.lock != 0 && known.get(&key.process).is_some_and(|&pid| sheds.knows_monitors(pid))
        };
        let open = waits.iter().filter_map(Result::ok).filter(for_monitor);
        let open = open.filter_map(|(key, wait)| {
            let process = Process(u32::try_from(key.process).ok()?);
            let at = (wait.lock, wait.site, Time(wait.attempt_ns));
            let stack = StackId::from_raw(wait.stack).and_then(|id| match self.numbered(id) {
                Numbered::Known(id) => id,
                Numbered::NotYet => None,
            });
            Some(OpenWait { stack, ..open_wait(process, Tid(wait.tid), at, Via::VirtualMonitor as u32)? })
        });
        Ok(open.collect())
    }

    /// Those of tasks whose future still says that it waits. Its memory may have been freed, and the kernel side not told of it.
    fn waits_of_tasks(&self, known: &HashMap<u64, u32>) -> Result<Vec<OpenWait>, CaptureError> {
        let waits: BpfHashMap<_, FutureKey, TaskWait> = self.map("TASK_WAITS")?.try_into()?;
        let open = waits.iter().filter_map(Result::ok).filter_map(|(key, wait)| {
            let process = Process(u32::try_from(key.process).ok()?);
            let tid = waiter(&owner::read(*known.get(&key.process)?, key.future)?, wait.lock)?;
            open_wait(process, tid, (wait.lock, wait.site, Time(wait.attempt_ns)), wait.via)
        });
        Ok(open.collect())
    }

    /// The pids of observed processes that are there, by the numbers that they go by.
    fn pids(&self) -> Result<HashMap<u64, u32>, CaptureError> {
        let processes: BpfHashMap<_, u32, ProcessEntry> = self.map("PROCESSES")?.try_into()?;
        let there = |pid: u32| proc::is_there(format!("/proc/{pid}"));
        let known = processes.iter().filter_map(Result::ok);
        Ok(known.filter(|&(pid, _)| there(pid)).map(|(pid, entry)| (entry.process, pid)).collect())
    }
}

/// Bytes of tokio's `batch_semaphore::Acquire`.
const ACQUIRE: usize = 64;

/// The task that waits for a lock by such a future, as it is in memory; `None` if none does.
fn waiter(future: &[u8; ACQUIRE], lock: u64) -> Option<Tid> {
    let (words, _) = future.as_chunks::<8>();
    let word = |n: usize| words.get(n).map(|word| u64::from_ne_bytes(*word));
    let waits = word(0)?.checked_add(task::TOKIO_PERMITS)? == lock && word(5)? > 0 && word(7)? & 0xff == 1;
    waits.then(|| Some(Tid(task::of_waker(word(2)?))))?
}

fn open_wait(process: Process, tid: Tid, (lock, site, since): (u64, u64, Time), via: u32) -> Option<OpenWait> {
    Some(OpenWait {
        tid,
        lock: Lock { process, addr: lock },
        site: Some(Site { process, addr: site }),
        since,
        owner: None,
        stack: None,
        via: Via::from_u8(u8::try_from(via).ok()?)?,
        expected: None,
        before_start: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_tells_whether_its_task_waits() {
        let future = |words: [u64; 8]| -> [u8; ACQUIRE] {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.try_into().unwrap()
        };
        let (lock, waker) = (0x5000 + task::TOKIO_PERMITS, 0x7f00_0000_1280);
        let waits = [0x5000, 0x4000, waker, 0, 0, 1, 1, 0xff01];
        assert_eq!(waiter(&future(waits), lock), Some(Tid(task::of_waker(waker))));
        // Another lock, nothing missing any more, not asked for yet.
        for (n, word) in [(0, 0x6000), (5, 0), (7, 0)] {
            let mut other = waits;
            other[n] = word;
            assert_eq!(waiter(&future(other), lock), None, "{n}");
        }
        assert_eq!(waiter(&future([u64::MAX; 8]), lock), None);
    }
}
