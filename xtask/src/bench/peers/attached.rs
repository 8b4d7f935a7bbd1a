//! A tool that observes a running process.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::tool::Tool;
use crate::{
    bench::{
        bpftrace,
        build::{FULL, Lockbpf},
        child::Child,
        interrupt,
        usage::{Objects, cpu_time, peak_rss},
    },
    workspace,
};

/// The futex script, as its copies on the net have it. The interval tells that its last probe is in place.
const FUTEX_SCRIPT: &str = r#"
tracepoint:syscalls:sys_enter_futex /pid == PID/ { @start[tid] = nsecs; @word[tid] = args->uaddr; }
tracepoint:syscalls:sys_exit_futex /@start[tid]/ {
    @wait_ns[comm, @word[tid]] = hist(nsecs - @start[tid]);
    delete(@start[tid]); delete(@word[tid]);
}
interval:ms:200 { printf("ready\n"); }
"#;

/// perf says nothing when it observes: its number of counters must stay the same for so long.
const SETTLED: Duration = Duration::from_millis(300);
/// How long it may take to get there.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// A tool at work. Ended when dropped.
pub(super) struct Attached {
    child: Child,
    tool: Tool,
    dir: TempDir,
    begin: Instant,
    cpu: Duration,
}

/// What a tool used and recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    /// Its CPU time while it observed, % of one core; `None` where it works inside of the observed process.
    pub(super) cpu_percent: Option<f64>,
    /// Its resident memory at most, and the kernel memory of its maps, bytes.
    pub(super) memory_bytes: Option<f64>,
    /// What it has written, bytes.
    pub(super) recorded_bytes: Option<f64>,
    /// What it says that it lost.
    pub(super) lost: Option<u64>,
}

impl Attached {
    /// Starts observing, and returns when the tool does observe. A tool that [shows by locks](Tool::shows_by_locks) needs
    /// the process at work.
    ///
    /// # Errors
    /// The tool cannot be started or gives up, or the benchmark was interrupted.
    pub(super) fn start(lockbpf: &Lockbpf, tool: Tool, pid: Pid) -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let recording = dir.path().join("recording.bin");
        let mut child = Child::start(&mut command(lockbpf, tool, pid, &recording)?)?;
        match tool {
            Tool::BpftracePthread => child.expect_out(|line| bpftrace::sees_sections(line).then_some(()))?,
            Tool::BpftraceFutex => child.expect_out(|line| (line == "ready").then_some(()))?,
            Tool::Strace => child.expect_err(|line| line.contains(" attached").then_some(()))?,
            Tool::PerfTrace => settled(&mut child)?,
            _ => child.expect_err(|line| line.starts_with("observing ").then_some(()))?,
        }
        let cpu = cpu_time(child.pid())?;
        Ok(Self { child, tool, dir, begin: Instant::now(), cpu })
    }

    /// Ends the observation.
    ///
    /// # Errors
    /// The tool fails, or its report cannot be understood.
    pub(super) fn stop(mut self) -> Result<Use> {
        self.child.check_alive()?;
        let pid = self.child.pid();
        let used = cpu_time(pid)?.saturating_sub(self.cpu).as_secs_f64() / self.begin.elapsed().as_secs_f64();
        let memory = peak_rss(pid)? + Objects::of(pid)?.map_bytes();
        // strace ends by the signal that interrupted it.
        let status = self.child.interrupted_status()?;
        ensure!(self.tool == Tool::Strace || status.success(), "{} ended with {status}", self.tool.name());
        let (out, err) = (self.child.out.rest(), self.child.err.rest());
        let (recorded, lost) = match self.tool {
            Tool::FutexOnly | Tool::Default | Tool::Full => (out.len() as u64, Some(lost(&out)?)),
            Tool::AllEvents => (fs::metadata(self.dir.path().join("recording.bin"))?.len(), None),
            _ => (out.len() as u64 + said(&err), None),
        };
        Ok(Use {
            cpu_percent: Some(100.0 * used),
            memory_bytes: Some(memory as f64),
            recorded_bytes: Some(recorded as f64),
            lost,
        })
    }
}

fn command(lockbpf: &Lockbpf, tool: Tool, pid: Pid, recording: &Path) -> Result<Command> {
    let number = pid.to_string();
    let peer = |name: &str| workspace::find_program(name).with_context(|| format!("{name} is not installed"));
    let live = || {
        let mut command = Command::new(&lockbpf.program);
        command.args(["--pid", &number, "--format", "json"]);
        command
    };
    Ok(match tool {
        Tool::FutexOnly => with(live(), &["--futex-only"]),
        Tool::Full => with(live(), &FULL),
        Tool::Default => live(),
        Tool::AllEvents => {
            let mut command = with(Command::new(&lockbpf.program), &["export", "--pid", &number, "--all-events"]);
            command.arg("--to").arg(recording);
            command
        }
        Tool::BpftracePthread => with(Command::new(peer("bpftrace")?), &["-p", &number, "-e", &bpftrace::script(pid)?]),
        Tool::BpftraceFutex => with(Command::new(peer("bpftrace")?), &["-e", &FUTEX_SCRIPT.replace("PID", &number)]),
        Tool::PerfTrace => with(Command::new(peer("perf")?), &["trace", "-s", "-e", "futex", "-p", &number]),
        _ => with(Command::new(peer("strace")?), &["-f", "-c", "-e", "futex", "-p", &number]),
    })
}

fn with(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

/// Waits until perf has opened all of its counters.
fn settled(child: &mut Child) -> Result<()> {
    let begin = Instant::now();
    let mut before = 0;
    loop {
        interrupt::sleep(SETTLED)?;
        child.check_alive()?;
        let counters = counters(child.pid())?;
        if counters > 0 && counters == before {
            return Ok(());
        }
        ensure!(begin.elapsed() < SETTLE_LIMIT, "it did not come to observe within {} s", SETTLE_LIMIT.as_secs());
        before = counters;
    }
}

fn counters(pid: Pid) -> Result<usize> {
    let dir = format!("/proc/{pid}/fd");
    let links = fs::read_dir(&dir).with_context(|| format!("failed to read {dir}"))?.flatten();
    let names = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(names.filter(|name| name.to_string_lossy().contains("[perf_event]")).count())
}

/// Bytes of what a tool has written to stderr, without what it says about itself.
fn said(err: &str) -> u64 {
    err.lines().filter(|line| !line.starts_with("strace: Process")).map(|line| line.len() as u64 + 1).sum()
}

/// What lockbpf says in a report that it lost, over all causes.
fn lost(report: &str) -> Result<u64> {
    let report: Value = serde_json::from_str(report).context("failed to read lockbpf's report")?;
    let lost = report.pointer("/quality/lost").and_then(Value::as_object);
    Ok(lost.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_was_lost() {
        assert_eq!(lost(r#"{"quality": {"lost": {"ring_full": 4, "sums_full": 1}}}"#).unwrap(), 5);
        assert_eq!(lost(r#"{"quality": {}}"#).unwrap(), 0);
        assert!(lost("").is_err());
    }

    #[test]
    fn stracess_words_about_itself_are_no_record() {
        assert_eq!(said("strace: Process 7 attached\n% time\nstrace: Process 7 detached\n"), 7);
    }

    #[test]
    fn the_full_mode_has_no_budget() {
        let lockbpf = Lockbpf { program: "lockbpf".into() };
        let command = command(&lockbpf, Tool::Full, Pid::from_raw(7), "r".as_ref()).unwrap();
        assert_eq!(crate::process::describe(&command), "lockbpf --pid 7 --format json --budget off");
    }
}
