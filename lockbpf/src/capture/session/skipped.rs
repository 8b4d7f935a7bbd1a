//! What the kernel itself left out: a program for a tracepoint does not run where one runs already on that CPU, nor while a `bpf()` call
//! is at a map there. Who is preempted in either keeps the others' programs from running.

use crate::capture::{attach, kernel};
use aya::Ebpf;
use aya::programs::Program;
use std::os::fd::{AsFd, AsRawFd};

/// Runs of programs that were left out. The kernel counts them from the loading of the programs on, so that a difference tells of an
/// observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skipped {
    /// Runs of the programs on contentions of kernel locks.
    pub(super) contentions: u64,
    /// Runs of all others.
    pub(super) others: u64,
}

impl Skipped {
    /// So far.
    pub(super) fn read(ebpf: &Ebpf) -> Self {
        let mut skipped = Self::default();
        for (name, program) in ebpf.programs() {
            let of = if kernel::PROGRAMS.contains(&name) { &mut skipped.contentions } else { &mut skipped.others };
            *of += misses(program).unwrap_or(0);
        }
        skipped
    }

    /// So far, of the programs on futex calls alone: as often the beginning of a wait may have been missed.
    pub(super) fn futex_calls(ebpf: &Ebpf) -> u64 {
        let programs = [true, false].into_iter().flat_map(attach::futex_programs);
        programs.filter_map(|name| misses(ebpf.program(name)?)).sum()
    }

    /// Since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            contentions: self.contentions.saturating_sub(earlier.contentions),
            others: self.others.saturating_sub(earlier.others),
        }
    }

    /// What is to be said of contentions, which any process may have.
    pub(super) fn note(self) -> Option<String> {
        (self.contentions > 0).then(|| {
            let n = self.contentions;
            format!(
                "{n} waits for kernel locks, of any process, came while another was being handled, and were not seen."
            )
        })
    }
}

/// How often the kernel left out a loaded program.
fn misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Skipped;

    #[test]
    fn what_came_before_and_contentions_are_told_apart() {
        let before = Skipped { contentions: 2, others: 7 };
        let during = Skipped { contentions: 5, others: 7 }.since(before);
        assert_eq!(during, Skipped { contentions: 3, others: 0 });
        assert!(during.note().unwrap().starts_with("3 waits"));
        assert_eq!(before.since(before).note(), None);
    }
}
