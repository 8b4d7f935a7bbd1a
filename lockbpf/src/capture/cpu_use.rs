//! CPU time that the observed processes use meanwhile: what the cost of observing is a share of.

use crate::units::Nanos;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::{CurrentSI, KernelStats};
use std::collections::HashMap;
use std::time::Duration;

/// CPU time of some processes, or of the whole machine.
#[derive(Debug)]
pub enum CpuUse {
    /// Each process's, when it was first seen, and when it was last.
    Processes(HashMap<u32, (Nanos, Nanos)>),
    /// That of all CPUs when it began; `None` if that could not be read.
    Machine(Option<Nanos>),
}

impl CpuUse {
    /// Begins with these processes; with none, everything that runs is meant.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        if pids.is_empty() {
            return Self::Machine(machine());
        }
        let now = |pid| process(pid).map(|cpu| (pid, (cpu, cpu)));
        Self::Processes(pids.iter().copied().filter_map(now).collect())
    }

    /// Looks at them again, so that what they used is known once they are gone: those leave `pids`. Those that are new have been observed
    /// from their beginning.
    pub fn look(&mut self, pids: &mut Vec<u32>) {
        let Self::Processes(known) = self else { return };
        pids.retain(|&pid| {
            let cpu = process(pid);
            if let Some(cpu) = cpu {
                known.entry(pid).or_default().1 = cpu;
            }
            cpu.is_some()
        });
    }

    /// What was used since it began; of processes that are gone, up to the last look at them.
    #[must_use]
    pub fn used(&self) -> Option<Nanos> {
        match self {
            Self::Processes(known) if known.is_empty() => None,
            Self::Processes(known) => Some(known.values().fold(Nanos(0), |sum, &(first, last)| sum + (last - first))),
            Self::Machine(began) => Some(machine()? - (*began)?),
        }
    }
}

fn process(pid: u32) -> Option<Nanos> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
    Some(Nanos(Duration::from(clock_gettime(clock).ok()?).as_nanos() as u64))
}

/// CPU time used on all CPUs since boot, interrupts included.
fn machine() -> Option<Nanos> {
    let all = KernelStats::current().ok()?.total;
    let ticks = all.user + all.nice + all.system + all.irq.unwrap_or(0) + all.softirq.unwrap_or(0);
    Some(Nanos(ticks * 1_000_000_000 / procfs::ticks_per_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_in_the_process_and_on_the_machine() {
        let me = std::process::id();
        let (mut process, machine) = (CpuUse::of(&[me]), CpuUse::of(&[]));
        // Until the machine's clock, which goes by ticks, shows some of it.
        while machine.used().unwrap() < Nanos(30_000_000) || process.used() < Some(Nanos(30_000_000)) {
            std::hint::black_box((0..100_000u64).sum::<u64>());
            process.look(&mut vec![me]);
        }
        let mut pids = vec![me, 1 << 25];
        process.look(&mut pids);
        assert_eq!(pids, [me]);
        // Beyond the highest pid there is.
        assert!(CpuUse::of(&[1 << 25]).used().is_none());
    }
}
