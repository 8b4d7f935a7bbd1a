//! What is to be observed, and how.

use super::placement::Place;
use crate::capture::cgroup::{Cgroup, CgroupError};
use crate::capture::launch::How;
use crate::capture::session::Scope;
use crate::governor::Budget;
use crate::measures::event::Event;
use crate::measures::library::Category;
use crate::report::{self, Parts, Selection};
use crate::units::Nanos;
use crate::unwind::Method;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Stacks are taken only of waits that last so long, unless somebody says otherwise.
pub const DEFAULT_STACK_WAIT: Duration = Duration::from_micros(10);

/// Whom to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Running processes.
    Pids(Vec<u32>),
    /// Everything.
    SystemWide,
    /// Who is in a cgroup: by its path or number.
    Cgroup(String),
    /// Who is in a container: by its id.
    Container(String),
    /// A command to start: the program and its arguments.
    Command(Vec<OsString>),
}

impl Target {
    /// The capture scope once the process ids are known; `cgroup` is the one that is meant, if one is. `at_once`: whether probes may be in
    /// all processes of the system.
    pub(super) fn scope(&self, pids: &[u32], cgroup: Option<&Cgroup>, at_once: bool) -> Scope {
        match (self, cgroup) {
            (_, Some(cgroup)) => Scope::Cgroup(cgroup.clone()),
            (Self::SystemWide, None) => Scope::SystemWide { at_once },
            (_, None) => Scope::Pids(pids.to_vec()),
        }
    }

    /// The cgroup that is meant, if one is.
    ///
    /// # Errors
    /// When there is no such cgroup, or not one that programs in the kernel can be told of.
    pub(super) fn cgroup(&self) -> Result<Option<Cgroup>, CgroupError> {
        match self {
            Self::Cgroup(given) => Cgroup::find(given).map(Some),
            Self::Container(id) => Cgroup::of_container(id).map(Some),
            Self::Pids(_) | Self::SystemWide | Self::Command(_) => Ok(None),
        }
    }
}

/// One observation, as asked for. [`Request::of`] has what the command line has without options.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whom.
    pub target: Target,
    /// What reports call the target; `None` for a name made of its command or processes.
    pub name: Option<String>,
    /// Whether also the processes that it starts.
    pub follow_forks: bool,
    /// How long; `None` until the target has exited or somebody ends it.
    pub duration: Option<Duration>,
    /// How much of the target's CPU time observing may cost; `None` for no bound. It holds where probes may be taken away for a while:
    /// see [`Request::kept_budget`].
    pub budget: Option<Budget>,
    /// Files that describe further locks, or names of descriptions that lockbpf brings along.
    pub locks: Vec<PathBuf>,
    /// Only threads with this name (the kernel keeps 15 bytes of it).
    pub comm: Option<String>,
    /// Only these threads; none for all.
    pub tids: Vec<u32>,
    /// Contended sections that waited less are counted, but not recorded.
    pub min_wait: Duration,
    /// Stacks are taken of waits that last so long.
    pub stack_wait: Duration,
    /// How stacks are taken.
    pub unwind: Method,
    /// Parts of names of locks, or addresses: only those are recorded, if any are named.
    pub lock: Vec<String>,
    /// Parts of names of functions, or addresses: only locks requested there are recorded, if any are named.
    pub site: Vec<String>,
    /// Whether all locks are recorded, however much that is.
    pub no_focus: bool,
    /// No uprobes: only waits that reach the kernel are seen.
    pub futex_only: bool,
    /// Also waits for the kernel's own locks.
    pub kernel_locks: bool,
    /// Events counted in sections, if any are; none named for the usual ones.
    pub counters: Option<Vec<Event>>,
    /// Categories of the C library's functions whose calls are seen, if any are.
    pub functions: Option<Vec<Category>>,
    /// Every section is recorded, not only contended ones and those that made them wait.
    pub all_events: bool,
    /// Transitions from lock to lock are summed up: for recordings, of which models can be made.
    pub transitions: bool,
    /// The observation ends once lockbpf itself has so much memory, bytes.
    pub max_memory: Option<u64>,
    /// Where probes go in functions.
    pub place: Place,
    /// Probes are perf events even if the kernel has something better.
    pub plain_uprobes: bool,
    /// The kernel side's log is shown.
    pub kernel_log: bool,
    /// How a command is started and ended.
    pub launch: How,
}

impl Request {
    /// Observes this target until it has exited or somebody ends it, within a budget of 3 % of its CPU time.
    #[must_use]
    pub fn of(target: Target) -> Self {
        Self {
            target,
            name: None,
            follow_forks: false,
            duration: None,
            budget: Budget::new(0.03),
            locks: Vec::new(),
            comm: None,
            tids: Vec::new(),
            min_wait: Duration::ZERO,
            stack_wait: DEFAULT_STACK_WAIT,
            unwind: Method::Auto,
            lock: Vec::new(),
            site: Vec::new(),
            no_focus: false,
            futex_only: false,
            kernel_locks: false,
            counters: None,
            functions: None,
            all_events: false,
            transitions: false,
            max_memory: None,
            place: Place::Best,
            plain_uprobes: false,
            kernel_log: false,
            launch: How::default(),
        }
    }

    /// Observes a running process.
    #[must_use]
    pub fn of_pid(pid: u32) -> Self {
        Self::of(Target::Pids(vec![pid]))
    }

    /// The budget to be kept; `None` if there are no uprobes, or they are to be there all the time.
    #[must_use]
    pub fn kept_budget(&self) -> Option<Budget> {
        let everything = self.all_events || self.counters.is_some() || self.functions.is_some();
        self.budget.filter(|_| !self.futex_only && !everything)
    }

    /// What a report on the observation shows: at most `top` locks, if that is a number.
    #[must_use]
    pub fn report_options(&self, top: Option<usize>) -> report::Options {
        let min_wait = Nanos(u64::try_from(self.min_wait.as_nanos()).unwrap_or(u64::MAX));
        report::Options { top, min_wait, selection: self.selection() }
    }

    /// The locks and sites that are asked for.
    #[must_use]
    pub fn selection(&self) -> Selection {
        Selection { lock: Parts(self.lock.clone()), site: Parts(self.site.clone()) }
    }
}
