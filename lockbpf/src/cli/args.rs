//! The arguments of observations: what was typed, then what it means ([`Plan`]).

use super::alert_args::AlertArgs;
use super::flight_args::FlightArgs;
use super::formats::{self, ExportFormat};
use super::limits;
use crate::capture::launch::How;
use crate::capture::user::{User, UserError};
use crate::governor::Budget;
use crate::measures::event::{Event, EventError};
use crate::measures::library::{Category, CategoryError};
use crate::observe::{DEFAULT_STACK_WAIT, Place, Request, Target};
use crate::unwind::Method;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whom to observe.
#[derive(Clone, Debug, Args)]
pub(super) struct TargetArgs {
    /// Observe this process, all its threads, later ones too (repeatable).
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Observe every process but lockbpf itself.
    #[arg(short = 'a', long, conflicts_with = "pid")]
    pub system_wide: bool,
    /// Observe every process that is in this cgroup (version 2) or below it, whenever it comes there: by the path of its
    /// directory, its path as in /proc/PID/cgroup, or its number.
    #[arg(long, value_name = "PATH|ID", conflicts_with_all = ["pid", "container", "system_wide"])]
    pub cgroup: Option<String>,
    /// Observe every process of this container (Docker, containerd, Podman, CRI-O, …), whenever it begins: by the container's
    /// id, or its first 12 or more digits.
    #[arg(long, value_name = "ID", conflicts_with_all = ["pid", "system_wide"])]
    pub container: Option<String>,
    /// Observe the processes that those start, too, and the ones that these start.
    #[arg(long, conflicts_with_all = ["system_wide", "cgroup", "container"])]
    pub follow_forks: bool,
    /// Run the command as this user, by name or number, with all its groups, and `HOME`, `SHELL`, `USER` and `LOGNAME` set. Without it: as
    /// the user who runs lockbpf, root under sudo.
    #[arg(long, value_name = "NAME", requires = "cmd", conflicts_with_all = ["pid", "system_wide", "cgroup", "container"], value_parser = user)]
    pub user: Option<User>,
    /// Kill the command if it still runs so long after it was asked to end by SIGTERM, which is done at the end of the observation.
    /// Without it: it is let be.
    #[arg(long, value_name = "TIME", requires = "cmd", conflicts_with_all = ["pid", "system_wide", "cgroup", "container"], value_parser = limits::time)]
    pub kill_after: Option<Duration>,
    /// Start this command and observe it until it exits.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "system_wide", "cgroup", "container"])]
    pub cmd: Vec<OsString>,
}

/// Whom to observe, and how.
#[derive(Debug, Args)]
pub(super) struct ObserveArgs {
    /// Whom.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to observe and report.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// How tables are written.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TablesArgs {
    /// With `--as parquet`: put files into folders by date (UTC) and host, as Hive does: `waits/date=2026-11-25/host=db1/…`.
    #[arg(long)]
    pub partition: bool,
    /// With `--as parquet`: what the recording's version of the program is called, for the table of runs.
    #[arg(long, value_name = "TEXT")]
    pub program_version: Option<String>,
}

/// What to record, or convert.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockbpf export --pid 1234 --duration 30s --to t.bin   record a process
  lockbpf export --from t.bin --to t.html               a page to look at, without network
  lockbpf export --from t.bin --to t.folded             for flame graphs
  lockbpf export --from a.bin b.bin --to all.pb.gz      several recordings, added up
  lockbpf export --from t.bin --to t.jsonl              event lines, for scripts
  lockbpf export --from t.bin --to fleet --as parquet --partition
                                                        tables, for questions about many machines")]
#[command(group = clap::ArgGroup::new("source").required(true).multiple(true).args(["from", "pid", "system_wide", "cgroup", "container", "cmd"]))]
pub(super) struct ExportArgs {
    /// Write the recording to this file; `-` is standard output. The suffix tells the format: `.jsonl` is event lines,
    /// `.bin` and `.trace` are traces, others are those of viewers (`.folded`, `.pb.gz`, …).
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Convert this recording instead of observing; `-` is standard input. Several are added up, in the formats that show sums by stack
    /// (repeatable).
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["pid", "system_wide", "cgroup", "container", "cmd", "user", "kill_after", "duration", "all_events", "lock", "site", "kernel_locks", "wait_over", "hold_over", "alerts", "on_alert", "keep"])]
    pub from: Vec<PathBuf>,
    /// Write in this format, whatever the suffix.
    #[arg(long = "as", visible_alias = "format", value_name = "FORMAT", value_parser = formats::export())]
    pub format: Option<ExportFormat>,
    /// Compress a trace: less to store, at some cost in time while observing.
    #[arg(long, overrides_with = "no_zstd")]
    pub zstd: bool,
    /// Do not compress a trace (the default).
    #[arg(long, overrides_with = "zstd")]
    pub no_zstd: bool,
    /// When it is written, also serve a file of the Firefox Profiler (`--as firefox`) to profiler.firefox.com in a browser on this machine,
    /// at this port of the loopback interface or any, until Ctrl-C; print the URL to open.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0")]
    pub serve: Option<u16>,
    /// How tables are written.
    #[command(flatten)]
    pub tables: TablesArgs,
    /// Whom to observe.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to observe.
    #[command(flatten)]
    pub capture: CaptureArgs,
}

/// How to observe.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct CaptureArgs {
    /// Also observe the locks that this file describes (docs/locks.md), or that lockbpf knows by this name: postgresql. What is in
    /// /etc/lockbpf/locks.d is observed in any case (repeatable).
    #[arg(long, value_name = "FILE", conflicts_with = "futex_only")]
    pub locks: Vec<PathBuf>,
    /// Stop after this time, e.g. 30s, 500ms, 2m. Without it: until Ctrl-C, or until the target exits.
    #[arg(short, long, value_name = "TIME", value_parser = limits::span)]
    pub duration: Option<Duration>,
    /// Only threads with this name (the kernel keeps 15 bytes of it).
    #[arg(long, value_name = "NAME", value_parser = limits::comm)]
    pub comm: Option<String>,
    /// Only this thread (repeatable).
    #[arg(long, value_name = "TID")]
    pub tid: Vec<u32>,
    /// Count contended sections that waited less, but do not record who they waited for.
    #[arg(long, value_name = "TIME", value_parser = limits::time)]
    pub min_wait: Option<Duration>,
    /// Take call stacks only of waits that lasted so long. Default: 10us.
    #[arg(long, value_name = "TIME", value_parser = limits::time)]
    pub stack_wait: Option<Duration>,
    /// How call stacks are taken: along frame pointers, which code often does not keep; by unwind information, from copies of
    /// stacks that seem new (16 KiB, some microseconds each); or, process by process, by whichever is right.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = UnwindChoice::Auto)]
    pub unwind: UnwindChoice,
    /// Record only this lock, and what its waiters depend on: a part of a global variable's name, or an address. All
    /// locks are counted (repeatable).
    #[arg(long, value_name = "LOCK")]
    pub lock: Vec<String>,
    /// Record only the locks requested in this function: a part of its name, or a return address (repeatable).
    #[arg(long, value_name = "SITE")]
    pub site: Vec<String>,
    /// Record all locks, however much that is. By itself lockbpf records only the locks that make up nearly all of the
    /// waiting, where there are more than 2,000 records a second.
    #[arg(long, conflicts_with_all = ["lock", "site"])]
    pub no_focus: bool,
    /// Place no uprobes: only waits that reach the kernel are seen, but locks that are free cost nothing.
    #[arg(long)]
    pub futex_only: bool,
    /// Also tell of waits for the kernel's own locks (kernel 5.19): which, asked for where, for how long. How long they are
    /// held is not to be seen. Costs a few microseconds a wait, which no budget bounds.
    #[arg(long)]
    pub kernel_locks: bool,
    /// How much of the target's CPU time observing may cost, e.g. 1%, 0.5%; or `off`. Within it every lock operation is observed,
    /// all the time if that is cheap enough, else in windows at random times from which totals are estimated. Processes that use
    /// less than half a CPU together count as if they used that.
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "3%", env = "LOCKBPF_BUDGET")]
    pub budget: Share,
    /// Count events in sections: instructions, cache-misses, page-faults, … by perf's names, :u or :k for the program's own code or the kernel
    /// only, rNNN for the processor's own numbers; up to 4 beside the clock. Without LIST: cycles and instructions, or task-clock
    /// on a machine without a PMU. Implies `--budget off`.
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "", value_parser = events, conflicts_with = "futex_only")]
    pub counters: Option<Counters>,
    /// Also tell of calls of the C library's functions, by category: io, memory, pthread. How many, how long, and what events counted
    /// meanwhile, each charged to the outermost function. Makes each such call dearer by a microsecond or more, which is told before.
    /// Counts user and kernel apart where there is a PMU, unless --counters says otherwise. Implies `--budget off`.
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "", value_parser = categories, conflicts_with = "futex_only")]
    pub functions: Option<Functions>,
    /// Record every section, not only contended ones and those that made them wait. Implies `--budget off`.
    #[arg(long, conflicts_with = "futex_only")]
    pub all_events: bool,
    /// What is told at once.
    #[command(flatten)]
    pub alert: AlertArgs,
    /// What is kept.
    #[command(flatten)]
    pub flight: FlightArgs,
    /// End the observation, with its report, once lockbpf itself has so much memory, e.g. 512M: the kernel's maps not counted, some 70 MB.
    /// Default: 1G.
    #[arg(long, value_name = "SIZE", value_parser = limits::size)]
    pub max_memory: Option<u64>,
    /// Where uprobes go: at the cheapest correct instruction, or at the function's first.
    #[arg(long, value_enum, default_value_t = PlacementChoice::Best, hide = true)]
    pub placement: PlacementChoice,
    /// Place uprobes as perf events even if the kernel has sessions or links of many, as on older ones.
    #[arg(long, hide = true)]
    pub plain_uprobes: bool,
    /// Exit with status 1 if anything was lost.
    #[arg(long)]
    pub strict: bool,
    /// Say more on stderr, the kernel side's log included; twice for all of it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// How a command is started and ended.
    #[arg(skip)]
    pub launch: How,
    /// Sum up transitions from lock to lock: for recordings, of which models can be made.
    #[arg(skip)]
    pub transitions: bool,
}

impl CaptureArgs {
    /// Whether alerts go to standard output.
    #[must_use]
    pub fn alerts_on_stdout(&self) -> bool {
        self.alert.alerts.as_deref() == Some(Path::new("-"))
    }
}

/// Events that were named; none for the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters(pub Vec<Event>);

/// Categories of functions; at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions(pub Vec<Category>);

fn events(text: &str) -> Result<Counters, EventError> {
    Event::parse_list(text).map(Counters)
}

fn categories(text: &str) -> Result<Functions, CategoryError> {
    Category::parse_list(text).map(Functions)
}

fn user(name: &str) -> Result<User, UserError> {
    User::find(name)
}

/// A budget, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share(pub Option<Budget>);

pub(super) fn share(text: &str) -> Result<Share, String> {
    if text == "off" {
        return Ok(Share(None));
    }
    let percent = text.strip_suffix('%').ok_or("a percentage like 3%, or off, is expected")?;
    let share: f64 = percent.trim().parse().map_err(|_| format!("{percent:?} is no number"))?;
    let budget = Budget::new(share / 100.0).ok_or("a share between 0% and 100% is expected, or off")?;
    Ok(Share(Some(budget)))
}

/// How to observe and report.
#[derive(Clone, Debug, Args)]
pub(super) struct CommonArgs {
    /// How to observe.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Show at most this many locks, the most harmful ones. Default: 10 in the table, all of them in JSON.
    #[arg(long, value_name = "N", value_parser = limits::top)]
    pub top: Option<usize>,
    /// Meanwhile tell on stderr, at this interval, what was found so far: the verdict and the worst locks. The report at the end is
    /// as without it.
    #[arg(long, value_name = "TIME", value_parser = limits::interval)]
    pub every: Option<Duration>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For programs: JSON of the schema that the command names, for reports `lockbpf.report/1`.
    Json,
}

/// Where probes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum PlacementChoice {
    /// The cheapest correct site.
    #[default]
    Best,
    /// The entry of the function; to show what placement is worth.
    Entry,
}

/// How call stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum UnwindChoice {
    /// By frame pointers where a process keeps them, else by unwind information.
    #[default]
    Auto,
    /// By frame pointers.
    Fp,
    /// By unwind information (`.eh_frame`, `.debug_frame`).
    Dwarf,
}

impl From<PlacementChoice> for Place {
    fn from(choice: PlacementChoice) -> Self {
        match choice {
            PlacementChoice::Best => Self::Best,
            PlacementChoice::Entry => Self::Entry,
        }
    }
}

impl From<UnwindChoice> for Method {
    fn from(choice: UnwindChoice) -> Self {
        match choice {
            UnwindChoice::Auto => Self::Auto,
            UnwindChoice::Fp => Self::Fp,
            UnwindChoice::Dwarf => Self::Dwarf,
        }
    }
}

/// One observation, as asked for.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whom.
    pub target: Target,
    /// Whether also the processes that it starts.
    pub follow_forks: bool,
    /// How.
    pub capture: CaptureArgs,
}

impl Plan {
    /// What the command line means.
    ///
    /// # Errors
    /// When it names nobody to observe.
    pub fn from_args(target: TargetArgs, capture: CaptureArgs) -> Result<Self> {
        let TargetArgs { mut pid, system_wide, cgroup, container, follow_forks, user, kill_after, cmd } = target;
        let launch = How { user, kill_after, ..capture.launch };
        let capture = CaptureArgs { launch, ..capture };
        pid.sort_unstable();
        pid.dedup();
        let many = [
            system_wide.then_some((Target::SystemWide, "--system-wide")),
            cgroup.map(|given| (Target::Cgroup(given), "--cgroup")),
            container.map(|id| (Target::Container(id), "--container")),
        ];
        let target = if let Some((target, option)) = many.into_iter().flatten().next() {
            if !capture.lock.is_empty() || !capture.site.is_empty() {
                bail!("--lock and --site name locks of one program: observe it with --pid, not with {option}");
            }
            target
        } else if !cmd.is_empty() {
            if !capture.tid.is_empty() {
                bail!("--tid names a thread that there is: of a command that is yet to be started there is none");
            }
            Target::Command(cmd)
        } else if !pid.is_empty() {
            Target::Pids(pid)
        } else {
            bail!(
                "nothing to observe: name a process with --pid, a command after --, --container, --cgroup or --system-wide"
            );
        };
        Ok(Self { target, follow_forks, capture })
    }

    /// The same for whoever observes; `name` describes the target if its command line would not.
    #[must_use]
    pub fn request(&self, name: Option<&str>) -> Request {
        let c = self.capture.clone();
        Request {
            name: name.map(str::to_owned),
            follow_forks: self.follow_forks,
            duration: c.duration,
            budget: c.budget.0,
            locks: c.locks,
            comm: c.comm,
            tids: c.tid,
            min_wait: c.min_wait.unwrap_or_default(),
            stack_wait: c.stack_wait.unwrap_or(DEFAULT_STACK_WAIT),
            unwind: c.unwind.into(),
            lock: c.lock,
            site: c.site,
            no_focus: c.no_focus,
            futex_only: c.futex_only,
            kernel_locks: c.kernel_locks,
            counters: c.counters.map(|Counters(events)| events),
            functions: c.functions.map(|Functions(categories)| categories),
            all_events: c.all_events,
            transitions: c.transitions,
            max_memory: c.max_memory,
            place: c.placement.into(),
            plain_uprobes: c.plain_uprobes,
            kernel_log: c.verbose > 0,
            launch: c.launch,
            target: self.target.clone(),
        }
    }
}
