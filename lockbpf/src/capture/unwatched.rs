//! Locks that no probe watches: of files (`flock`, `fcntl`), and the semaphores of System V. Whoever waits for one sleeps in a system call of its
//! own, in which a look at the threads now and then finds it. That tells how many wait, and neither for which lock nor for whom.

use crate::quality::Unwatched;
use procfs::FromRead;
use procfs::process::Syscall;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often threads are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// Threads looked at each time. Of a process with more, so many stand for all.
const MAX_THREADS: usize = 64;
/// Processes remembered.
const MAX_PROCESSES: usize = 65_536;

/// Commands of `fcntl` that wait for a lock.
const WAITING_COMMANDS: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];

/// What was found of observed processes so far.
#[derive(Debug)]
pub struct Looks {
    next: Instant,
    /// The process that was looked at last.
    last: u32,
    found: HashMap<u32, Found>,
}

/// What was found of one process.
#[derive(Debug, Default)]
struct Found {
    looks: u64,
    /// Σ threads over the looks, by call.
    threads: HashMap<&'static str, f64>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { next: Instant::now(), last: 0, found: HashMap::new() }
    }
}

impl Looks {
    /// Looks at the next ones of these processes, if it is time.
    pub fn look(&mut self, pids: impl FnOnce() -> Vec<u32>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let mut pids = pids();
        pids.sort_unstable();
        let seen = pids.partition_point(|&pid| pid <= self.last);
        pids.rotate_left(seen);
        let mut left = MAX_THREADS;
        for pid in pids {
            let Some(looked) = self.look_at(pid) else { continue };
            self.last = pid;
            left = left.saturating_sub(looked);
            if left == 0 {
                break;
            }
        }
    }

    /// Looks at the threads of a process; `None` if it is not there, else how many it looked at.
    fn look_at(&mut self, pid: u32) -> Option<usize> {
        let all: Vec<_> = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().map(|task| task.path()).collect();
        if self.found.len() >= MAX_PROCESSES && !self.found.contains_key(&pid) {
            return None;
        }
        let found = self.found.entry(pid).or_default();
        // Others each time.
        let step = all.len().div_ceil(MAX_THREADS).max(1);
        let looked: Vec<&PathBuf> = all.iter().skip(found.looks as usize % step).step_by(step).collect();
        let each = all.len() as f64 / looked.len().max(1) as f64;
        found.looks += 1;
        for call in looked.iter().filter_map(|task| waits_in(&Syscall::from_file(task.join("syscall")).ok()?)) {
            *found.threads.entry(call).or_default() += each;
        }
        Some(looked.len())
    }

    /// Calls in which threads were found.
    #[must_use]
    pub fn found(&self) -> Vec<Unwatched> {
        let mut all: Vec<Unwatched> = self
            .found
            .iter()
            .flat_map(|(&pid, Found { looks, threads })| {
                let looks = *looks;
                threads.iter().map(move |(&call, &threads)| Unwatched {
                    pid,
                    call: call.to_owned(),
                    looks,
                    threads: threads.round() as u64,
                })
            })
            .collect();
        all.sort_by(|a, b| (a.pid, &a.call).cmp(&(b.pid, &b.call)));
        all
    }
}

/// The call in which a thread waits for such a lock, if it does.
fn waits_in(at: &Syscall) -> Option<&'static str> {
    let Syscall::Blocked { syscall_number, argument_registers: [_, second, ..], .. } = *at else { return None };
    match syscall_number {
        libc::SYS_flock => Some("flock"),
        // The command is an `int`.
        libc::SYS_fcntl if WAITING_COMMANDS.contains(&(second & u64::from(u32::MAX))) => Some("fcntl"),
        libc::SYS_semop | libc::SYS_semtimedop => Some("semop"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn whoever_waits_for_a_lock_of_a_file_is_found() {
        let (held, wanted) = (tempfile::NamedTempFile::new().unwrap(), File::open);
        held.as_file().lock().unwrap();
        let waits = wanted(held.path()).unwrap();
        let waiter = std::thread::spawn(move || waits.lock().unwrap());
        let me = std::process::id();
        let mut looks = Looks::default();
        // Beyond the highest pid there is.
        looks.look(|| vec![1 << 25, me]);
        while looks.found().is_empty() {
            looks.look_at(me);
        }
        let [found] = &looks.found()[..] else { panic!("{:?}", looks.found()) };
        assert_eq!((found.pid, found.call.as_str()), (me, "flock"));
        assert!(found.threads >= 1 && found.looks >= 1);
        held.as_file().unlock().unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn commands_that_do_not_wait_are_none() {
        let at = |syscall_number, second| Syscall::Blocked {
            syscall_number,
            argument_registers: [3, second, 0, 0, 0, 0],
            stack_pointer: 0,
            program_counter: 0,
        };
        assert_eq!(waits_in(&at(libc::SYS_fcntl, libc::F_SETLKW as u64)), Some("fcntl"));
        assert_eq!(waits_in(&at(libc::SYS_fcntl, 0xffff_ffff_0000_0000 | libc::F_OFD_SETLKW as u64)), Some("fcntl"));
        assert_eq!(waits_in(&at(libc::SYS_fcntl, libc::F_GETLK as u64)), None);
        assert_eq!(waits_in(&at(libc::SYS_semop, 0)), Some("semop"));
        assert_eq!(waits_in(&Syscall::Running), None);
    }
}
