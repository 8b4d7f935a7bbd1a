//! The tools that are compared, and what each can tell of locks.

use serde::Serialize;

use crate::workspace;

/// A tool, or a way to use lockbpf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    /// `lockbpf --futex-only`
    FutexOnly,
    /// `lockbpf` within its default budget
    Default,
    /// `lockbpf --budget off`: every lock operation
    Full,
    /// `lockbpf export --all-events`: every section recorded
    AllEvents,
    /// bpftrace with the usual uprobes on pthread_mutex_lock and pthread_mutex_unlock
    BpftracePthread,
    /// bpftrace with the tracepoints of the futex system call
    BpftraceFutex,
    /// `perf trace -s -e futex`
    PerfTrace,
    /// `strace -f -c -e futex`
    Strace,
    /// valgrind's DRD, lock hold times above 10 ms included
    Drd,
    /// valgrind's Helgrind
    Helgrind,
    /// mutrace, an LD_PRELOAD profiler
    Mutrace,
    /// LTTng's LD_PRELOAD recorder of pthread mutexes
    Lttng,
}

/// How a tool comes to observe a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It attaches to a running one.
    Attach,
    /// It must start it.
    Start,
}

/// What the letters of [`Tool::reports`] mean.
pub(super) const LEGEND: &str = "L locks named (symbol or place), H holders named, W waits, D durations of holding; lower case: only in part \
     (a: by address alone, s: for slow ones alone, r: raw records, which another program would have to analyse, \
     c: calls counted)";

impl Tool {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 12] = [
        Self::FutexOnly,
        Self::Default,
        Self::Full,
        Self::AllEvents,
        Self::BpftracePthread,
        Self::BpftraceFutex,
        Self::PerfTrace,
        Self::Strace,
        Self::Drd,
        Self::Helgrind,
        Self::Mutrace,
        Self::Lttng,
    ];

    /// How a table names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FutexOnly => "lockbpf --futex-only",
            Self::Default => "lockbpf",
            Self::Full => "lockbpf --budget off",
            Self::AllEvents => "lockbpf export --all-events",
            Self::BpftracePthread => "bpftrace, pthread script",
            Self::BpftraceFutex => "bpftrace, futex tracepoints",
            Self::PerfTrace => "perf trace -s -e futex",
            Self::Strace => "strace -f -c -e futex",
            Self::Drd => "valgrind DRD",
            Self::Helgrind => "valgrind Helgrind",
            Self::Mutrace => "mutrace (LD_PRELOAD)",
            Self::Lttng => "LTTng pthread wrapper (LD_PRELOAD)",
        }
    }

    /// What it can report, in the letters of [`LEGEND`]; seen in the output of each.
    pub(super) fn reports(self) -> &'static str {
        match self {
            Self::FutexOnly => "L H W",
            Self::Default | Self::Full | Self::AllEvents => "L H W D",
            Self::BpftracePthread => "a W D",
            Self::BpftraceFutex => "a W",
            Self::PerfTrace => "W, by thread",
            Self::Strace => "c",
            Self::Drd => "L, D s",
            Self::Helgrind => "L, in errors",
            Self::Mutrace => "L W D",
            Self::Lttng => "a H W D, r",
        }
    }

    /// How it comes to observe a program.
    pub(super) fn way(self) -> Way {
        match self {
            Self::Drd | Self::Helgrind | Self::Mutrace | Self::Lttng => Way::Start,
            _ => Way::Attach,
        }
    }

    /// Whether it can be told only by the locks taken that it observes.
    pub(super) fn shows_by_locks(self) -> bool {
        self == Self::BpftracePthread
    }

    /// The Debian package it comes in and a program of that package; `None` for lockbpf itself.
    pub(super) fn package(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::FutexOnly | Self::Default | Self::Full | Self::AllEvents => None,
            Self::BpftracePthread | Self::BpftraceFutex => Some(("bpftrace", "bpftrace")),
            Self::PerfTrace => Some(("linux-perf", "perf")),
            Self::Strace => Some(("strace", "strace")),
            Self::Drd | Self::Helgrind => Some(("valgrind", "valgrind")),
            Self::Mutrace => Some(("mutrace", "mutrace")),
            Self::Lttng => Some(("lttng-tools", "lttng-sessiond")),
        }
    }

    /// Further packages that it needs.
    pub(super) fn more_packages(self) -> &'static [&'static str] {
        if self == Self::Lttng { &["liblttng-ust1"] } else { &[] }
    }

    /// Why it cannot be used here, if so.
    pub(super) fn missing(self) -> Option<String> {
        let (package, program) = self.package()?;
        workspace::find_program(program).is_none().then(|| format!("missing: {package} is not installed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_in_the_table_once() {
        let all = <Tool as clap::ValueEnum>::value_variants();
        assert_eq!(all, Tool::ALL);
    }
}
