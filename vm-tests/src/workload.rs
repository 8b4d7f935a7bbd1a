//! A workload and its truth. The protocol is described in `tests/workloads/truth.h`.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use vm_tests::place::WORKLOADS;

/// What a workload says of itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Truth {
    pub(crate) pid: u32,
    pub(crate) locks: Vec<Lock>,
    /// Numbers of the workload's own.
    #[serde(default)]
    pub(crate) facts: BTreeMap<String, u64>,
}

/// What is true of one lock.
#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    pub(crate) symbol: Option<String>,
    pub(crate) addr: String,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) try_failures: u64,
    pub(crate) timeouts: u64,
    pub(crate) errors: u64,
}

/// A running workload.
pub(crate) struct Workload {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts `NAME ARGS…` and returns when it is ready.
    pub(crate) fn start(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let program = format!("{WORKLOADS}/{}", words.next().unwrap_or_default());
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("failed to start {program}"))?;
        let stdin = child.stdin.take().context("a workload has no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("a workload has no stdout")?);
        let mut workload = Self { child, stdin, stdout };
        let said = workload.line()?;
        ensure!(said == "ready", "the workload {line} is not ready, but says {said:?}");
        Ok(workload)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it work, and returns its truth.
    pub(crate) fn work(&mut self) -> Result<Truth> {
        self.stdin.write_all(b"g").context("failed to start a workload's work")?;
        loop {
            let line = self.line()?;
            if line.starts_with("{\"workload\"") {
                return serde_json::from_str(&line).with_context(|| format!("failed to read the truth {line}"));
            }
        }
    }

    /// Lets it work until its exit, and returns its truth.
    pub(crate) fn finish(mut self) -> Result<Truth> {
        let truth = self.work()?;
        self.dismiss()?;
        Ok(truth)
    }

    /// Waits for its exit.
    pub(crate) fn dismiss(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.child.wait().context("failed to wait for a workload")?;
        ensure!(status.success(), "a workload ended with {status}");
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("failed to read what a workload says")? == 0 {
            bail!("a workload ended without its truth: {}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }
}
