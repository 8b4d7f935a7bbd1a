//! A tool that must start the program that it observes: an instance of its own, which rests while others are measured.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use super::{attached::Use, lttng::Lttng, tool::Tool, workload::Starter};
use crate::{
    bench::{
        interrupt,
        server::{self, Loaded, Window},
        usage::{bytes_below, peak_rss},
        wrapper::Wrapper,
    },
    workspace,
};

/// How long it may take until the program works under the tool.
const WORK_LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether it does.
const POLL: Duration = Duration::from_millis(50);
/// What is being answered when the load is told to rest takes less than this.
const LAST_ANSWER: Duration = Duration::from_millis(250);

/// Under valgrind little is done in a window: it is so many times as long.
const SLOW_WINDOWS: u32 = 3;

/// A program under a tool. The program ends before what records it does.
pub(super) struct Started {
    loaded: Box<dyn Loaded>,
    lttng: Option<Lttng>,
    dir: TempDir,
    /// Whether it may be stopped while it rests.
    freezes: bool,
    /// Its windows are so many times as long.
    longer: u32,
}

impl Started {
    /// Starts the workload under the tool, and lets it rest once it has worked.
    ///
    /// # Errors
    /// The tool or the workload cannot be started, or does not come to work.
    pub(super) fn start(tool: Tool, workload: &Starter) -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let lttng = if tool == Tool::Lttng { Some(Lttng::start(dir.path())?) } else { None };
        let mut loaded = workload.start(&wrapper(tool, dir.path())?)?;
        let before = loaded.requests()?;
        loaded.resume()?;
        let begin = Instant::now();
        while loaded.requests()? == before {
            ensure!(begin.elapsed() < WORK_LIMIT, "under it nothing was done in {} s", WORK_LIMIT.as_secs());
            interrupt::sleep(POLL)?;
        }
        loaded.pause()?;
        let freezes = workload.workload.rests_by_signal();
        let started = Self { loaded, freezes, longer: if lttng.is_some() { 1 } else { SLOW_WINDOWS }, lttng, dir };
        started.stop()?;
        Ok(started)
    }

    /// Stops the program: even what it does by itself must not disturb others.
    fn stop(&self) -> Result<()> {
        interrupt::sleep(LAST_ANSWER)?;
        if self.freezes { self.signal(Signal::SIGSTOP) } else { Ok(()) }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.loaded.pid(), signal).with_context(|| format!("failed to send {signal} to the program"))
    }

    /// Measures one window of it.
    ///
    /// # Errors
    /// The program fails, or the benchmark was interrupted.
    pub(super) fn window(&mut self, length: Duration) -> Result<(Window, Use)> {
        // valgrind's log counts as a whole: it tells each thing once, whenever it comes upon it.
        let before = if self.lttng.is_some() { self.recorded()? } else { 0 };
        let reading = self.lttng.as_ref().map(Lttng::read).transpose()?;
        self.signal(Signal::SIGCONT)?;
        let window = server::window(self.loaded.as_mut(), length * self.longer)?;
        self.stop()?;
        let used = Use {
            cpu_percent: match (&self.lttng, reading) {
                (Some(lttng), Some(reading)) => Some(lttng.read()?.percent_since(&reading)),
                _ => None,
            },
            memory_bytes: Some(match &self.lttng {
                Some(lttng) => lttng.memory()? as f64,
                None => peak_rss(self.loaded.pid())? as f64,
            }),
            recorded_bytes: Some(self.recorded()?.saturating_sub(before) as f64),
            lost: None,
        };
        Ok((window, used))
    }

    fn recorded(&self) -> Result<u64> {
        bytes_below(self.dir.path())
    }
}

fn wrapper(tool: Tool, dir: &Path) -> Result<Wrapper> {
    let valgrind = |name: &str, option: &str| -> Result<Wrapper> {
        let found = |name| workspace::find_program(name).with_context(|| format!("{name} is not installed"));
        // memcached sets its limit of open files to this; valgrind would refuse any other than the one that is there.
        let limit = [found("prlimit")?.into_os_string(), "--nofile=1024:".into()];
        // Its threads run by turns; without a fair turn some get none for seconds.
        let program = found("valgrind")?;
        let log = format!("--log-file={}", dir.join("log").display());
        Ok(Wrapper::prefix(limit.into_iter().chain([
            program.into_os_string(),
            "--fair-sched=yes".into(),
            name.into(),
            option.into(),
            log.into(),
        ])))
    };
    match tool {
        Tool::Drd => valgrind("--tool=drd", "--exclusive-threshold=10"),
        Tool::Helgrind => valgrind("--tool=helgrind", "--history-level=full"),
        Tool::Lttng => Ok(Wrapper::preload("liblttng-ust-pthread-wrapper.so.1")),
        _ => {
            let program = workspace::find_program("mutrace").context("mutrace is not installed")?;
            Ok(Wrapper::prefix([program.into_os_string()]))
        }
    }
}
