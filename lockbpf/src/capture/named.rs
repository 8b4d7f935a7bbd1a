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

/// Finds them.
#[derive(Debug, Default)]
pub struct Named {
    owners: Owners,
    /// By process and number; `None`: no thread's, when it was looked at last.
    known: HashMap<(Process, Tid), Result<Tid, Instant>>,
}

impl Named {
    /// The thread of a process that has this number there; `None` if there is none.
    pub fn find(&mut self, process: Process, pid: u32, number: Tid) -> Option<Tid> {
        match self.known.get(&(process, number)) {
            Some(&Ok(tid)) => return Some(tid),
            Some(Err(looked)) if looked.elapsed() < AGAIN => return None,
            // The process may have started threads since.
            Some(Err(_)) => self.owners.forget(),
            None => {}
        }
        let tid = self.owners.thread(pid, number.0);
        if self.known.len() < MAX {
            self.known.insert((process, number), tid.ok_or_else(Instant::now));
        }
        tid
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
    }
}
