//! Programs that are observed by somebody who is killed: they tell by a shared file how far they got.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use serde::Serialize;
use tempfile::TempDir;

use crate::{
    bench::{child::Child, interrupt},
    cc, process, workspace,
};

const C: &str = include_str!("work.c");
const GO: &str = include_str!("work.go");
/// Workers, and numbers of each in the shared file; work.c tells their meaning.
const WORKERS: usize = 4;
const SLOT: usize = 8;
const NUMBER: usize = size_of::<u64>();
/// How long a speed is measured.
const WINDOW: Duration = Duration::from_millis(400);
/// How long a worker may take to make a section. A child is forked anew within that.
const HANGS: Duration = Duration::from_secs(3);

/// What is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum Kind {
    /// Children that work, forked anew again and again
    Forking,
    /// Threads
    Threading,
    /// Goroutines
    Go,
}

impl Kind {
    pub(in crate::bench) const ALL: [Self; 3] = [Self::Forking, Self::Threading, Self::Go];

    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            Self::Forking => "forking",
            Self::Threading => "threading",
            Self::Go => "Go",
        }
    }
}

/// The compiled programs.
pub(in crate::bench) struct Programs {
    c: PathBuf,
    go: Option<PathBuf>,
    dir: TempDir,
}

impl Programs {
    /// Compiles them, the one in Go if there is Go.
    ///
    /// # Errors
    /// A compiler fails.
    pub(in crate::bench) fn compile() -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let c = cc::compile_text(C, dir.path(), "work", &[])?;
        let go = match workspace::find_program("go") {
            Some(go) => Some(compile_go(&go, dir.path())?),
            None => None,
        };
        Ok(Self { c, go, dir })
    }

    /// Whether there is one of this kind.
    pub(in crate::bench) fn has(&self, kind: Kind) -> bool {
        kind != Kind::Go || self.go.is_some()
    }

    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub(in crate::bench) fn start(&self, kind: Kind) -> Result<Target> {
        let path = tempfile::NamedTempFile::new_in(self.dir.path())?.into_temp_path();
        let page = File::options().read(true).write(true).open(&path).context("failed to open the shared file")?;
        page.set_len(4096).context("failed to extend the shared file")?;
        let program = if kind == Kind::Go { self.go.as_ref().context("go is not installed")? } else { &self.c };
        let mut command = Command::new(program);
        command.arg(&path).arg(if kind == Kind::Forking { "forks" } else { "threads" });
        let mut child = Child::start(&mut command)?;
        child.expect_out(|line| (line == "ready").then_some(()))?;
        Ok(Target { child, page })
    }
}

fn compile_go(go: &Path, dir: &Path) -> Result<PathBuf> {
    fs::write(dir.join("work.go"), GO).context("failed to write work.go")?;
    let program = dir.join("work-go");
    let mut command = Command::new(go);
    command.args(["build", "-o"]).arg(&program).arg("work.go").current_dir(dir);
    command.envs([("GO111MODULE", "off"), ("CGO_ENABLED", "0")]).env("GOCACHE", dir.join("cache"));
    process::output(&mut command, Duration::from_secs(180))?;
    Ok(program)
}

/// A running one. Ended when dropped.
pub(in crate::bench) struct Target {
    child: Child,
    page: File,
}

/// How far its workers got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) struct Done {
    made: [u64; WORKERS],
    timed: u64,
    timed_ns: u64,
}

impl Target {
    pub(in crate::bench) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// How it or a child of its has died, if that is so.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub(in crate::bench) fn death(&mut self) -> Result<Option<String>> {
        if let Err(error) = self.child.check_alive() {
            return Ok(Some(format!("{error:#}")));
        }
        // What `waitpid` said.
        let status = self.number(0)?;
        Ok((status != 0).then(|| format!("a child of its ended with wait status {status:#x}")))
    }

    /// How far it got.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub(in crate::bench) fn done(&self) -> Result<Done> {
        let mut done = Done { made: [0; WORKERS], timed: 0, timed_ns: 0 };
        for (worker, made) in done.made.iter_mut().enumerate() {
            let slot = SLOT * (1 + worker);
            *made = self.number(slot)?;
            done.timed += self.number(slot + 1)?;
            done.timed_ns += self.number(slot + 2)?;
        }
        Ok(done)
    }

    /// Its speed from now on: sections without contention in a second of CPU time, whatever else the machine does.
    ///
    /// # Errors
    /// It made none, or the benchmark was interrupted.
    pub(in crate::bench) fn speed(&self) -> Result<f64> {
        let before = self.done()?;
        interrupt::sleep(WINDOW)?;
        let speed = self.done()?.speed_since(before);
        ensure!(speed > 0.0, "the target makes no sections");
        Ok(speed)
    }

    /// Whether each of its workers gets on.
    ///
    /// # Errors
    /// The benchmark was interrupted.
    pub(in crate::bench) fn gets_on(&self) -> Result<bool> {
        let (before, begin) = (self.done()?, Instant::now());
        while begin.elapsed() < HANGS {
            if self.done()?.all_beyond(before) {
                return Ok(true);
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
        Ok(false)
    }

    fn number(&self, index: usize) -> Result<u64> {
        let mut bytes = [0; NUMBER];
        self.page.read_exact_at(&mut bytes, (index * NUMBER) as u64).context("failed to read the shared file")?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl Done {
    /// Sections in a second of CPU time since an earlier moment; 0 if there were none.
    pub(in crate::bench) fn speed_since(self, before: Self) -> f64 {
        let ns = self.timed_ns - before.timed_ns;
        if ns == 0 { 0.0 } else { (self.timed - before.timed) as f64 * 1e9 / ns as f64 }
    }

    /// Whether every worker has made sections since an earlier moment.
    pub(in crate::bench) fn all_beyond(self, before: Self) -> bool {
        self.made.iter().zip(before.made).all(|(&now, before)| now > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_by_cpu_time_and_a_worker_that_hangs_is_seen() {
        let before = Done { made: [1; WORKERS], timed: 100, timed_ns: 1_000 };
        let after = Done { made: [2; WORKERS], timed: 300, timed_ns: 3_000 };
        assert_eq!((after.speed_since(before), before.speed_since(before)), (1e8, 0.0));
        assert!(after.all_beyond(before));
        assert!(!Done { made: [2, 2, 1, 2], ..after }.all_beyond(before));
    }

    #[test]
    fn every_kind_of_target_works() {
        let programs = Programs::compile().unwrap();
        for kind in Kind::ALL.into_iter().filter(|&kind| programs.has(kind)) {
            let mut target = programs.start(kind).unwrap();
            assert!(target.gets_on().unwrap() && target.speed().unwrap() > 1e4, "{kind:?}");
            assert_eq!(target.death().unwrap(), None);
        }
    }
}
