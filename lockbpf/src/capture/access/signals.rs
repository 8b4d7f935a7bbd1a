//! The signal by which threads are stopped: one that means nothing to them, if it reaches them after all.

use crate::proc;
use nix::sys::signal::Signal;

/// Signals that a process which does not catch them ignores.
const HARMLESS: [Signal; 2] = [Signal::SIGURG, Signal::SIGWINCH];

/// What a thread does with signals: masks with bit n - 1 for signal n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals {
    blocked: u64,
    caught: u64,
}

impl Signals {
    /// A thread's signals.
    pub(super) fn of(pid: i32, tid: i32) -> Option<Self> {
        Self::parse(&proc::text(format!("/proc/{pid}/task/{tid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let mask = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Some(Self { blocked: mask("SigBlk")?, caught: mask("SigCgt")? })
    }

    /// Whether it would be neither stopped by it nor do anything with it.
    pub(super) fn blocks(&self, signal: Signal) -> bool {
        self.blocked >> (signal as u32 - 1) & 1 == 1
    }

    /// Whether the process has a handler for it.
    pub(super) fn catches(&self, signal: Signal) -> bool {
        self.caught >> (signal as u32 - 1) & 1 == 1
    }
}

/// The signal that can stop most of these threads, and means nothing to them.
pub(super) fn choose(threads: &[Signals]) -> Option<Signal> {
    let usable = |signal: &Signal| threads.iter().filter(|t| !t.blocks(*signal) && !t.catches(*signal)).count();
    // The first of equals.
    HARMLESS.into_iter().rev().max_by_key(usable).filter(|signal| usable(signal) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_neither_caught_nor_blocked() {
        let with = |blocked: &[Signal], caught: &[Signal]| {
            let mask = |all: &[Signal]| all.iter().fold(0u64, |mask, &s| mask | 1 << (s as u32 - 1));
            let (blocked, caught) = (mask(blocked), mask(caught));
            Signals::parse(&format!("Name:\tx\nSigBlk:\t{blocked:016x}\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n")).unwrap()
        };
        let (urg, winch) = (Signal::SIGURG, Signal::SIGWINCH);
        assert_eq!(choose(&[with(&[], &[])]), Some(urg));
        assert_eq!(choose(&[with(&[], &[urg])]), Some(winch));
        assert_eq!(choose(&[with(&[urg], &[]), with(&[], &[])]), Some(winch));
        assert_eq!(choose(&[with(&[urg], &[winch])]), None);
        assert_eq!(choose(&[]), None);
        assert_eq!(Signals::parse("Name:\tx\n"), None);
    }
}
