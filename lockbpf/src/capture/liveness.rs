//! Whether observed processes still run: by pid and start time, so that a reused pid does not count.

use crate::leader;
use crate::proc;
use crate::units::Time;
use procfs::process::ProcState;

/// Processes that are looked after.
#[derive(Debug)]
pub struct Liveness {
    /// With how often in a row each was not found.
    processes: Vec<(u32, u64, u32)>,
}

/// So often a process is not found before it has exited: while a thread of it ends, `/proc` may show none.
const LOOKS: u32 = 2;

impl Liveness {
    /// Takes note of the given processes.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        // One that has exited by now counts as one that does so later: else nobody would be left to wait for.
        Self { processes: pids.iter().map(|&pid| (pid, start_ticks(pid).unwrap_or(NEVER), 0)).collect() }
    }

    /// Takes note of one more, which began at this time since boot.
    pub fn add(&mut self, pid: u32, began: Time) {
        let tick = 1_000_000_000 / procfs::ticks_per_second();
        self.processes.push((pid, began.0 / tick, 0));
    }

    /// Whether none of them runs any more; `false` if there were none to look after.
    pub fn all_exited(&mut self) -> bool {
        if self.processes.is_empty() {
            return false;
        }
        // One that runs is enough. Those that were there first are asked first: they mostly stay.
        let mut runs = false;
        self.processes.retain_mut(|(pid, start, missed)| {
            if runs {
                return true;
            }
            runs = start_ticks(*pid) == Some(*start);
            *missed = if runs { 0 } else { *missed + 1 };
            *missed < LOOKS
        });
        let gone = self.processes.is_empty();
        if gone {
            // Stays true.
            self.processes.push((0, 0, LOOKS));
        }
        gone
    }
}

/// When no process has started.
const NEVER: u64 = u64::MAX;

/// Start of a process that still runs code, in clock ticks since boot. A main thread that has exited before its other
/// threads looks like a zombie, but is none.
fn start_ticks(pid: u32) -> Option<u64> {
    if leader::is_gone(pid) {
        return None;
    }
    let stat = proc::stat(pid)?;
    let dead = matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead)) && stat.num_threads <= 1;
    (!dead).then_some(stat.starttime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut liveness = Liveness::of(&[child.id()]);
        assert!(!liveness.all_exited());
        child.kill().unwrap();
        // A zombie does not count as alive, so there is no need to reap it first.
        while !liveness.all_exited() {
            std::thread::yield_now();
        }
        let own = std::process::id();
        let ticks = start_ticks(own).unwrap();
        let mut more = Liveness::of(&[child.id()]);
        more.add(own, Time(ticks * (1_000_000_000 / procfs::ticks_per_second()) + 1));
        for _ in 0..2 * LOOKS {
            assert!(!more.all_exited());
        }
        assert_eq!(more.processes, [(own, ticks, 0)]);
        let mut late = Liveness::of(&[child.id()]);
        child.wait().unwrap();
        assert!(liveness.all_exited());
        while !late.all_exited() {
            std::thread::yield_now();
        }
        assert!(!Liveness::of(&[]).all_exited());
    }
}
