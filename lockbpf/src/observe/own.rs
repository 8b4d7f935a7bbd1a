//! What lockbpf itself uses, its helpers included, and what it allows itself.

use crate::capture::{guardian, remover};
use crate::sandbox;
use crate::units::Nanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Memory that an observation may take, unless another amount is named, bytes.
pub(crate) const MAX_MEMORY: u64 = 1 << 30;
/// Memory that an observation may take in any case, bytes.
const LEAST_MEMORY: u64 = 8 << 20;
/// Memory that is told of, bytes.
const MUCH_MEMORY: u64 = 300 << 20;
/// Share of a CPU that an observation may take, and CPU time beyond that, once.
const CPU_SHARE: f64 = 0.05;
const CPU_ONCE: Duration = Duration::from_secs(1);
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What an observation takes of the machine for lockbpf itself, held against what it may take.
pub(crate) struct Own {
    began: Instant,
    /// What was used before, and what each helper has used so far, by pid, also if it has ended meanwhile.
    before: Nanos,
    helpers: BTreeMap<u32, Nanos>,
    max_memory: u64,
    looked: Instant,
    /// The most that was seen, bytes.
    memory: u64,
    /// Why the observation has to end, if it has.
    full: Option<String>,
}

impl Own {
    /// Begins now; `max_memory` in bytes.
    pub(crate) fn begin(max_memory: u64) -> Self {
        let (began, memory) = (Instant::now(), resident_bytes());
        // What was there before, an observation cannot give back.
        let max_memory = max_memory.max(memory + LEAST_MEMORY);
        let mut own =
            Self { began, before: Nanos(0), helpers: BTreeMap::new(), max_memory, looked: began, memory, full: None };
        own.before = own.used();
        own
    }

    /// Whether the observation has to end, for want of memory.
    pub(crate) fn is_full(&mut self) -> bool {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let memory = resident_bytes();
            self.memory = self.memory.max(memory);
            self.full = (memory >= self.max_memory).then(|| {
                format!(
                    "lockbpf ended the observation after {:.1} s: it had taken {} MiB of memory itself (--max-memory allows more).",
                    self.began.elapsed().as_secs_f64(),
                    memory >> 20
                )
            });
        }
        self.full.is_some()
    }

    /// Whether it has used half of the CPU time so far that it may use: the rest is for what cannot be put off.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.observing() > allowed(self.began.elapsed()) / 2
    }

    /// What was taken beyond what it may take, and what came of that, each a sentence.
    pub(crate) fn notes(&mut self) -> Vec<String> {
        let used = self.observing();
        self.full.iter().cloned().chain(notes(used, self.began.elapsed(), self.memory)).collect()
    }

    /// CPU time since the observation began.
    fn observing(&mut self) -> Duration {
        Duration::from_nanos((self.used() - self.before).0)
    }

    fn used(&mut self) -> Nanos {
        self.helpers.extend(helpers());
        cpu(UsageWho::RUSAGE_SELF).unwrap_or_default() + self.helpers.values().copied().sum()
    }
}

/// CPU time of the helpers that run, by pid.
pub(crate) fn helpers() -> impl Iterator<Item = (u32, Nanos)> {
    let pids = sandbox::pids().into_iter().chain(remover::pid()).chain(guardian::pid());
    pids.filter_map(|pid| {
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        let used = clock_gettime(clock).ok()?;
        Some((pid, Nanos(u64::try_from(used.num_nanoseconds()).unwrap_or(0))))
    })
}

/// CPU time that an observation may take.
fn allowed(time: Duration) -> Duration {
    CPU_ONCE + time.mul_f64(CPU_SHARE)
}

fn notes(used: Duration, time: Duration, memory: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if used > allowed(time) {
        let share = 100.0 * used.as_secs_f64() / time.as_secs_f64();
        let (used, time, allowed) = (used.as_secs_f64(), time.as_secs_f64(), 100.0 * CPU_SHARE);
        notes.push(format!(
            "lockbpf itself used {share:.0} % of a CPU while it observed ({used:.1} s in {time:.1} s), more than the {allowed:.0} % that it allows itself."
        ));
    }
    if memory > MUCH_MEMORY {
        let (memory, much) = (memory >> 20, MUCH_MEMORY >> 20);
        notes.push(format!("lockbpf itself took {memory} MiB of memory, more than the usual {much}."));
    }
    notes
}

/// CPU time, user and system, of this process, or of the children that it has collected.
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn cpu(who: UsageWho) -> nix::Result<Nanos> {
    let usage = getrusage(who)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Nanos(u64::try_from(micros).unwrap_or(0) * 1_000))
}

/// CPU time of this thread.
pub(crate) fn thread_cpu() -> Nanos {
    // Each kernel has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Nanos(0), |used| Nanos(u64::try_from(used.num_nanoseconds()).unwrap_or(0)))
}

/// Memory of this process and of those that read files for it, bytes; what is not known is not counted.
pub(crate) fn resident_bytes() -> u64 {
    let [own, _] = sandbox::resident(std::process::id());
    own + sandbox::memory()
}

/// Now, ns since 1970 (UTC).
pub(crate) fn wall_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |now| u64::try_from(now.num_nanoseconds()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        assert!(resident_bytes() > 100_000);
        assert!(wall_ns() > 1_600_000_000_000_000_000);
        assert!(cpu(UsageWho::RUSAGE_SELF).unwrap() > Nanos(0));
    }

    #[test]
    fn more_than_is_allowed_is_told() {
        let seconds = Duration::from_secs_f64;
        assert!(notes(seconds(1.4), seconds(10.0), MUCH_MEMORY).is_empty());
        let [cpu, memory] = notes(seconds(4.0), seconds(10.0), 412 << 20).try_into().unwrap();
        assert!(cpu.contains("40 % of a CPU") && cpu.contains("4.0 s in 10.0 s"), "{cpu}");
        assert!(memory.contains("412 MiB"), "{memory}");
    }

    #[test]
    fn an_observation_ends_when_its_memory_is_used_up_and_not_for_what_was_there_before() {
        let mut own = Own::begin(0);
        assert!(own.max_memory > own.memory);
        assert!(!own.is_full(), "just looked at");
        own.looked = own.began.checked_sub(LOOK).unwrap();
        assert!(!own.is_full());
        (own.looked, own.max_memory) = (own.began.checked_sub(LOOK).unwrap(), 1);
        assert!(own.is_full() && own.notes()[0].contains("--max-memory"));
    }
}
