//! kyotocabinet's `kccachetest wicked`: four threads of random operations on a database in memory.

use std::{fs::File, process::Stdio};

use anyhow::{Context as _, Result};
use nix::{sys::signal::Signal, unistd::Pid};
use tempfile::TempDir;

use crate::{
    bench::{child::Child, server::Loaded, wrapper::Wrapper},
    workspace,
};

/// The program.
pub(super) const PROGRAM: &str = "kccachetest";
/// Its Debian package.
pub(super) const PACKAGE: &str = "kyotocabinet-utils";
const ARGS: [&str; 6] = ["wicked", "-th", "4", "-it", "1000000", "20000"];

/// A running one, which stops by the signal where others rest. It shows its progress, a byte every 54 operations of each
/// thread on average, from which it is known how fast it works.
pub(super) struct Kyoto {
    child: Child,
    progress: File,
    _dir: TempDir,
}

impl Kyoto {
    /// Starts it as the wrapper says; it does not rest.
    ///
    /// # Errors
    /// It is not installed, or cannot be started.
    pub(super) fn start(wrapper: &Wrapper) -> Result<Self> {
        let program = workspace::find_program(PROGRAM).with_context(|| format!("{PROGRAM} is not installed"))?;
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let path = dir.path().join("progress");
        let progress = File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
        let child = Child::start_into(wrapper.command(&program).args(ARGS), Stdio::from(progress.try_clone()?))?;
        Ok(Self { child, progress, _dir: dir })
    }
}

impl Loaded for Kyoto {
    fn name(&self) -> &'static str {
        PROGRAM
    }

    fn load(&self) -> &'static str {
        "kccachetest wicked -th 4 20000, again and again"
    }

    fn pid(&self) -> Pid {
        self.child.pid()
    }

    fn resume(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGCONT)
    }

    fn pause(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGSTOP)
    }

    fn requests(&mut self) -> Result<u64> {
        self.child.check_alive()?;
        Ok(self.progress.metadata().context("failed to see the program's progress")?.len())
    }
}
