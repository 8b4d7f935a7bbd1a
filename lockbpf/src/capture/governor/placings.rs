//! How often probes may be placed where more processes are observed than have places: the kernel goes over every process that maps the same
//! files, for each probe, when it is placed and when it is removed. With hundreds of them that is more than anything else that lockbpf does.

use super::super::session::clock;
use crate::units::{Nanos, Time};
use nix::time::ClockId;
use std::time::Duration;

/// How seldom a place is passed on from a process that needs none, and from one whose turn is over.
const EXCHANGE: Duration = Duration::from_millis(50);
const ROTATE: Duration = Duration::from_millis(150);
/// Share of a CPU that placing and removing may take, and CPU time beyond that, once: short observations see many processes at once.
const CPU_SHARE: f64 = 0.02;
const CPU_ONCE: Duration = Duration::from_secs(1);
/// Another process removes the probes. Placing and removing together take at most this many times what placing takes.
const WITH_REMOVAL: u64 = 3;

/// What placing probes has taken.
#[derive(Debug)]
pub(super) struct Placings {
    began: Time,
    passed_on: Time,
    used: Nanos,
}

impl Placings {
    /// None so far.
    pub fn new(now: Time) -> Self {
        Self { began: now, passed_on: Time(0), used: Nanos(0) }
    }

    /// Whether there may be another now.
    pub fn may_be(&self, now: Time) -> bool {
        let allowed = CPU_ONCE + Duration::from_nanos(now.since(self.began).0).mul_f64(CPU_SHARE);
        Duration::from_nanos(self.used.0) <= allowed
    }

    /// Whether a place may be passed on now; with `rotates`, between processes that both want it.
    pub fn may_pass_on(&self, now: Time, rotates: bool) -> bool {
        let since_last = Duration::from_nanos(now.since(self.passed_on).0);
        since_last >= if rotates { ROTATE } else { EXCHANGE }
    }

    /// A place is passed on.
    pub fn pass_on(&mut self, now: Time) {
        self.passed_on = now;
    }

    /// Places probes.
    pub fn place(&mut self, place: impl FnOnce()) {
        let thread = || clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let before = thread();
        place();
        self.used += Nanos(WITH_REMOVAL * thread().saturating_sub(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn placings_are_as_seldom_as_they_are_dear() {
        let begin = Time(5 * SECOND);
        let after = |ns: u64| begin + Nanos(ns);
        let mut placings = Placings::new(begin);
        assert!(placings.may_be(begin));
        placings.place(|| {
            let until = clock(ClockId::CLOCK_THREAD_CPUTIME_ID) + 100_000;
            while clock(ClockId::CLOCK_THREAD_CPUTIME_ID) < until {}
        });
        assert!(placings.used >= Nanos(WITH_REMOVAL * 100_000), "{:?}", placings.used);
        placings.used = Nanos(SECOND + SECOND / 5);
        assert!(!placings.may_be(after(9 * SECOND)) && placings.may_be(after(11 * SECOND)));
    }

    #[test]
    fn places_are_not_passed_on_at_once() {
        let mut placings = Placings::new(Time(0));
        placings.pass_on(Time(SECOND));
        let after = |ms: u64| Time(SECOND) + Nanos(1_000_000 * ms);
        assert!(!placings.may_pass_on(after(40), false) && placings.may_pass_on(after(60), false));
        assert!(!placings.may_pass_on(after(60), true) && placings.may_pass_on(after(160), true));
    }
}
