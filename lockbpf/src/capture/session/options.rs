//! What an observation is of, and how much is recorded.

use crate::capture::btf::{Btf, TaskOffsets};
use crate::capture::cgroup::Cgroup;
use crate::capture::guardian::Guardian;
use crate::event::ProcessSeen;
use crate::measures::event::Event;
use crate::unwind::Method;
use lockbpf_common::config::{Config, MAX_STACKS, MORE_STACKS, comm_words, mode};
use lockbpf_common::kernel::Kernel;
use std::sync::Arc;
use std::time::Duration;

/// Whom to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These processes.
    Pids(Vec<u32>),
    /// Every process but this one.
    SystemWide {
        /// Whether their probes are placed in all of them at once; else as the processes are admitted.
        at_once: bool,
    },
    /// Every process in a cgroup, or below it, at each moment. Its probes are placed as the processes are admitted.
    Cgroup(Cgroup),
}

/// What to observe, and how much of it to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom.
    pub scope: Scope,
    /// Processes that have a number already.
    pub known: Vec<ProcessSeen>,
    /// Only threads with this name.
    pub comm: Option<String>,
    /// Only these threads.
    pub tids: Vec<u32>,
    /// Record every section.
    pub all_events: bool,
    /// Sum up transitions from lock to lock.
    pub transitions: bool,
    /// Do not record contended sections that waited less.
    pub min_wait: Duration,
    /// Take stacks of waits that lasted so long.
    pub stack_wait: Duration,
    /// How stacks are taken.
    pub unwind: Method,
    /// Room for stacks in each of the kernel side's tables; for tests, which fill them.
    pub walked_stacks: [u32; 2],
    /// Let the kernel side log its rare paths.
    pub kernel_log: bool,
    /// The kernel's types.
    pub types: &'static Btf,
    /// Offsets in its `task_struct`.
    pub task_offsets: TaskOffsets,
    /// Whether tracefs can be read.
    pub tracefs: bool,
    /// Whether to do without uprobes: only the futex calls are watched.
    pub futex_only: bool,
    /// Whether to do without uprobe sessions and links of many functions: by perf events, as on old kernels.
    pub plain_uprobes: bool,
    /// Whether to see the ends of threads and programs. Else the programs for them need not be loaded.
    pub life: bool,
    /// Whether the processes that observed ones start are observed, too.
    pub follow_forks: bool,
    /// What the programs have to know of the kernel, if its locks are to be observed.
    pub kernel_locks: Option<Kernel>,
    /// Events to count in sections, the clock first; none for no counting.
    pub events: Vec<Event>,
    /// Whether calls of the C library are to be seen.
    pub library: bool,
    /// Whether a governor will open and close the gates, process by process.
    pub governed: bool,
    /// Who ends this process if it is stopped while probes are in place.
    pub guardian: Option<Arc<Guardian>>,
}

impl Options {
    /// Observes these as the kernel allows: everything that waited is recorded, stacks by frame pointers, without a budget.
    #[must_use]
    pub fn new(scope: Scope, types: &'static Btf, task_offsets: TaskOffsets, tracefs: bool) -> Self {
        Self {
            scope,
            known: Vec::new(),
            comm: None,
            tids: Vec::new(),
            all_events: false,
            transitions: false,
            min_wait: Duration::ZERO,
            stack_wait: Duration::ZERO,
            unwind: Method::Fp,
            walked_stacks: [MAX_STACKS, MORE_STACKS],
            kernel_log: false,
            types,
            task_offsets,
            tracefs,
            futex_only: false,
            plain_uprobes: false,
            life: true,
            follow_forks: false,
            kernel_locks: None,
            events: Vec::new(),
            library: false,
            governed: false,
            guardian: None,
        }
    }

    /// As the kernel side takes it.
    pub(super) fn config(&self) -> Config {
        let mut bits = 0;
        for (bit, on) in [
            (mode::SYSTEM_WIDE, matches!(self.scope, Scope::SystemWide { .. } | Scope::Cgroup(_))),
            (mode::CGROUP, matches!(self.scope, Scope::Cgroup(_))),
            (mode::ALL_EVENTS, self.all_events),
            (mode::TRANSITIONS, self.transitions),
            (mode::FOLLOW_FORKS, self.follow_forks),
            (mode::COMM, self.comm.is_some()),
            (mode::TIDS, !self.tids.is_empty()),
            (mode::COPY_STACKS, self.unwind != Method::Fp),
            (mode::COMPARE_STACKS, self.unwind == Method::Auto),
        ] {
            if on {
                bits |= bit;
            }
        }
        let mut comm = [0; 16];
        if let Some(name) = &self.comm {
            // The kernel keeps 15 bytes of a thread's name.
            let kept = name.len().min(15);
            comm[..kept].copy_from_slice(&name.as_bytes()[..kept]);
        }
        let own_tid = self.task_offsets.own_tid;
        Config {
            min_wait_ns: u64::try_from(self.min_wait.as_nanos()).unwrap_or(u64::MAX),
            stack_wait_ns: u64::try_from(self.stack_wait.as_nanos()).unwrap_or(u64::MAX),
            self_pid: std::process::id(),
            mode: bits,
            task_group_leader: self.task_offsets.group_leader,
            task_start_boottime: self.task_offsets.start_boottime,
            task_state: self.task_offsets.state,
            task_run_delay: self.task_offsets.run_delay.unwrap_or(0),
            task_thread_pid: own_tid.map_or(0, |own| own.thread_pid),
            pid_level: own_tid.map_or(0, |own| own.level),
            pid_numbers: own_tid.map_or(0, |own| own.numbers),
            reserved: 0,
            comm: comm_words(&comm),
        }
    }
}
