//! The lockbpf to be measured.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{process, workspace};

/// The lockbpf that is measured.
pub(super) struct Lockbpf {
    /// Its program.
    pub(super) program: PathBuf,
}

impl Lockbpf {
    /// Builds it as users do.
    ///
    /// # Errors
    /// It does not compile; cargo has said why.
    pub(super) fn build() -> Result<Self> {
        Ok(Self { program: build()? })
    }
}

/// Which lockbpf a benchmark measures.
#[derive(clap::Args)]
pub(super) struct Given {
    /// This lockbpf instead of one that is built now
    #[arg(long, value_name = "PROGRAM")]
    lockbpf: Option<PathBuf>,
}

impl Given {
    /// The one that the user names, or else one that is built as users do.
    ///
    /// # Errors
    /// It does not compile; cargo has said why.
    pub(super) fn lockbpf(&self) -> Result<Lockbpf> {
        match &self.lockbpf {
            Some(program) => Ok(Lockbpf { program: program.clone() }),
            None => Lockbpf::build(),
        }
    }
}

/// The options for observing every lock operation all the time.
pub(super) const FULL: [&str; 2] = ["--budget", "off"];

/// Builds lockbpf as users do, and returns the program.
fn build() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--release", "--package", "lockbpf", "--bin", "lockbpf"]);
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().with_context(|| describe_failure(&cargo))?;
    if !output.status.success() {
        bail!("{}", describe_failure(&cargo));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages).with_context(|| format!("`{}` names no program", process::describe(&cargo)))
}

fn describe_failure(command: &Command) -> String {
    format!("failed to build lockbpf with `{}`", process::describe(command))
}

/// The program that cargo's messages name last.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from)).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_messages_name_the_program() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnot json\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/lockbpf\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/release/lockbpf")));
        assert_eq!(executable("{}"), None);
    }
}
