//! What windows take of lockbpf's own CPU time, and how often there may be one. The kernel goes over every process that maps the same files, for
//! each probe, when it is placed and when it is removed; then the sums of the window's process are read. Beside many processes that is more
//! than anything else that lockbpf does.

use super::super::remover;
use crate::governor::pacing::{OWN_SHARE, Pacing};
use crate::units::{Nanos, Time};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How seldom a place is passed on from a process that needs none, and from one whose turn is over.
const EXCHANGE: Duration = Duration::from_millis(50);
const ROTATE: Duration = Duration::from_millis(150);
/// Time for removing probes by time for placing them.
const REMOVAL: u64 = 2;
/// CPU time beyond the share of a CPU that windows may take, once: short observations see many processes at once.
const CPU_ONCE: Duration = Duration::from_secs(1);

/// What windows have taken.
#[derive(Debug)]
pub(super) struct Placings {
    began: Time,
    passed_on: Time,
    placed: Nanos,
    /// By the process that removes probes, until now, and before there was a window.
    removed: Nanos,
    removed_before: Nanos,
    /// By those who read the sums, ns.
    read: Arc<AtomicU64>,
    pacing: Pacing,
}

impl Placings {
    /// No window so far. Whoever reads the sums adds the CPU time for it to `read`, ns.
    pub fn new(now: Time, read: Arc<AtomicU64>) -> Self {
        let removed = removed();
        Self {
            began: now,
            passed_on: Time(0),
            placed: Nanos(0),
            removed,
            removed_before: removed,
            read,
            pacing: Pacing::new(now),
        }
    }

    /// How far apart windows are from now on, against the usual.
    pub fn apart(&mut self, now: Time) -> f64 {
        if self.pacing.is_due(now) {
            self.removed = self.removed.max(removed());
            self.pacing.look(now, self.used());
        }
        self.pacing.factor()
    }

    /// CPU time that windows have taken.
    fn used(&self) -> Nanos {
        let removed = match remover::pid() {
            Some(_) => self.removed - self.removed_before,
            // Threads of this process remove them.
            None => Nanos(REMOVAL * self.placed.0),
        };
        self.placed + removed + Nanos(self.read.load(Ordering::Relaxed))
    }

    /// Whether there may be another now, where more processes are observed than have places.
    pub fn may_be(&self, now: Time) -> bool {
        let allowed = CPU_ONCE + Duration::from_nanos(now.since(self.began).0).mul_f64(OWN_SHARE);
        Duration::from_nanos(self.used().0) <= allowed
    }

    /// Whether a place may be passed on now; with `rotates`, between processes that both want it.
    pub fn may_pass_on(&self, now: Time, rotates: bool) -> bool {
        let since_last = Duration::from_nanos(now.since(self.passed_on).0);
        since_last >= if rotates { ROTATE.mul_f64(self.pacing.factor()) } else { EXCHANGE }
    }

    /// A place is passed on.
    pub fn pass_on(&mut self, now: Time) {
        self.passed_on = now;
    }

    /// Placing probes has taken so much CPU time.
    pub fn placing_took(&mut self, cpu: Nanos) {
        self.placed += cpu;
    }
}

/// CPU time of the process that removes probes; none if there is no such process.
fn removed() -> Nanos {
    let used = || {
        let clock = clock_getcpuclockid(Pid::from_raw(remover::pid()?.cast_signed())).ok()?;
        clock_gettime(clock).ok()
    };
    used().map_or(Nanos(0), |used| Nanos(Duration::from(used).as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn placings_are_as_seldom_as_they_are_dear() {
        let begin = Time(5 * SECOND);
        let after = |ns: u64| begin + Nanos(ns);
        let read = Arc::<AtomicU64>::default();
        let mut placings = Placings::new(begin, read.clone());
        assert!(placings.may_be(begin));
        placings.placing_took(Nanos(100_000));
        assert!(placings.used() >= Nanos(100_000), "{:?}", placings.used());
        // Without a process that removes probes `used` counts removal by what was placed. Another test may have started one.
        placings.placed = Nanos(0);
        read.store(SECOND * 6 / 5, Ordering::Relaxed);
        assert!(!placings.may_be(after(9 * SECOND)) && placings.may_be(after(11 * SECOND)));
    }

    #[test]
    fn places_are_not_passed_on_at_once() {
        let mut placings = Placings::new(Time(0), Arc::default());
        placings.pass_on(Time(SECOND));
        let after = |ms: u64| Time(SECOND) + Nanos(1_000_000 * ms);
        assert!(!placings.may_pass_on(after(40), false) && placings.may_pass_on(after(60), false));
        assert!(!placings.may_pass_on(after(60), true) && placings.may_pass_on(after(160), true));
    }
}
