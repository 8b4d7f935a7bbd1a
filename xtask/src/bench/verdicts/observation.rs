//! One observation of a program, and its report.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use crate::bench::{
    build::{FULL, Lockbpf},
    child::Child,
};

/// How a program is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// As lockbpf does by itself
    Default,
    /// Without uprobes
    FutexOnly,
    /// Every lock operation, all the time
    Full,
}

impl Mode {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 3] = [Self::Default, Self::FutexOnly, Self::Full];

    /// How a table names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::FutexOnly => "futex-only",
            Self::Full => "full",
        }
    }

    /// The options that make it.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::FutexOnly => &["--futex-only"],
            Self::Full => &FULL,
        }
    }
}

/// A running observation.
pub(super) struct Observation(Child);

impl Observation {
    /// Starts lockbpf, and returns when it observes.
    ///
    /// # Errors
    /// It gives up.
    pub(super) fn start(lockbpf: &Lockbpf, target: &[String], options: &[&str]) -> Result<Self> {
        let mut command = Command::new(&lockbpf.program);
        command.args(target).args(options).args(["--format", "json"]);
        let mut child = Child::start(&mut command)?;
        child.expect_err(|line| line.starts_with("observing ").then_some(()))?;
        Ok(Self(child))
    }

    /// Ends it, and returns its report.
    ///
    /// # Errors
    /// It fails, or its report cannot be understood.
    pub(super) fn stop(mut self) -> Result<Value> {
        self.0.interrupt()?;
        serde_json::from_str(&self.0.out.rest()).context("failed to read lockbpf's report")
    }
}
