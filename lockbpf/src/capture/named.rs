//! Threads that locks' own words name as their holders: found among the threads of the lock's process while it lives. A word names
//! them by their number in the process's pid namespace, everything else by that in the initial one.

use super::owner::Owners;
use crate::id::{Process, Tid};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A number that was no thread's may be one's after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Numbers remembered; further ones are looked up each time.
const MAX: usize = 65_536;

/// By process and number: the thread, or when it was no thread's.
type Known = HashMap<(Process, Tid), Result<Tid, Instant>>;

/// Finds them.
#[derive(Debug, Default)]
pub struct Named {
    owners: Owners,
    /// Threads of the processes themselves.
    known: Known,
    /// Other processes, by their main threads.
    processes: Known,
}

/// What is known of a number. If that is nothing, `look` tells; its argument says whether somebody has looked before.
fn look_up(known: &mut Known, of: (Process, Tid), look: impl FnOnce(bool) -> Option<Tid>) -> Option<Tid> {
    let before = known.get(&of);
    match before {
        Some(&Ok(tid)) => return Some(tid),
        Some(Err(looked)) if looked.elapsed() < AGAIN => return None,
        Some(Err(_)) | None => {}
    }
    let tid = look(before.is_some());
    if known.len() < MAX {
        known.insert(of, tid.ok_or_else(Instant::now));
    }
    tid
}

impl Named {
    /// The thread of a process that has this number there; `None` if there is none.
    pub fn find(&mut self, process: Process, pid: u32, number: Tid) -> Option<Tid> {
        let owners = &mut self.owners;
        look_up(&mut self.known, (process, number), |is_again| {
            // The process may have started threads since.
            if is_again {
                owners.forget();
            }
            owners.thread(pid, number.0)
        })
    }

    /// The process that has this number among those in the pid namespace of a process, by its main thread; `None` if there is none.
    pub fn find_process(&mut self, process: Process, pid: u32, number: Tid) -> Option<Tid> {
        look_up(&mut self.processes, (process, number), |_| self.owners.process(pid, number.0))
    }

    /// Every thread that was found.
    pub fn found(&self) -> impl Iterator<Item = (Process, Tid)> + '_ {
        self.known.iter().filter_map(|(&(process, _), &found)| Some((process, found.ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_process_only() {
        let mut named = Named::default();
        let pid = std::process::id();
        let own = Tid(nix::unistd::gettid().as_raw().cast_unsigned());
        if std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains(&format!("NSpid:\t{pid}\n"))) {
            assert_eq!(named.find(Process(1), pid, own), Some(own));
        }
        for stranger in [1, u32::MAX, 0] {
            assert_eq!(named.find(Process(1), pid, Tid(stranger)), None, "{stranger}");
        }
        assert!(named.found().all(|(_, tid)| tid == own));
        let parent = Tid(nix::unistd::getppid().as_raw().cast_unsigned());
        assert_eq!(named.find_process(Process(1), pid, parent), Some(parent));
        assert_eq!(named.find_process(Process(1), pid, Tid(u32::MAX)), None);
    }
}
