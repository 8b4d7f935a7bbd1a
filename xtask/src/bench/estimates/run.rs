//! One run: a workload with its truth, observed under a budget from before its work until its end.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::quantity::Quantity;
use super::tally::Statement;
use crate::{bench::child::Child, cc, workspace};

/// A workload of `tests/workloads`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    /// How the table names it.
    pub(super) name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

/// All of them.
pub(super) const WORKLOADS: [Workload; 5] = [
    Workload { name: "rates", program: "rates", args: &["5"] },
    Workload { name: "periodic", program: "periodic", args: &["500", "10", "busy"] },
    Workload { name: "periodic-idle", program: "periodic", args: &["500", "10", "sleep"] },
    Workload { name: "moderate", program: "steady", args: &["20000", "4", "1000"] },
    Workload { name: "tight", program: "steady", args: &["0", "4", "100"] },
];

/// The workloads, compiled, and lockbpf.
pub(super) struct Workloads {
    dir: TempDir,
    lockbpf: PathBuf,
    budget: String,
}

impl Workloads {
    /// Compiles them.
    ///
    /// # Errors
    /// One of them does not compile.
    pub(super) fn compile(lockbpf: PathBuf, budget: String) -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let sources = workspace::root().join("tests/workloads");
        for workload in WORKLOADS {
            let program = dir.path().join(workload.program);
            if !program.exists() {
                cc::compile(&sources.join(workload.program).with_extension("c"), &program, &["-std=c11", "-g"])?;
            }
        }
        Ok(Self { dir, lockbpf, budget })
    }

    /// Runs one under observation: every quantity of its locks, as it is and as lockbpf states it.
    ///
    /// # Errors
    /// The workload or lockbpf fails, or one of them says something that cannot be understood.
    pub(super) fn observe(&self, workload: &Workload) -> Result<Vec<Statement>> {
        let mut child = Child::start(Command::new(self.dir.path().join(workload.program)).args(workload.args))?;
        child.expect_out(|line| (line == "ready").then_some(()))?;
        let mut observe = Command::new(&self.lockbpf);
        observe.args(["--pid", &child.pid().to_string(), "--format", "json", "--budget", &self.budget]);
        let mut observer = Child::start(&mut observe)?;
        observer.expect_err(|line| line.starts_with("observing ").then_some(()))?;
        child.tell("g")?;
        let truth: Value = child
            .expect_out(|line| line.starts_with("{\"workload\"").then(|| serde_json::from_str(line).ok()).flatten())?;
        // It reaps the workload, whose exit lockbpf waits for.
        child.out.rest();
        drop(child);
        let report: Value = serde_json::from_str(&observer.out.rest()).context("failed to read lockbpf's report")?;
        Ok(statements(&truth, &report))
    }
}

/// Each truth beside what the report says of it. A lock that the report does not know is one of which nothing is stated.
fn statements(truth: &Value, report: &Value) -> Vec<Statement> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let told = array(&report["locks"]);
    let mut statements = Vec::new();
    for lock in array(&truth["locks"]) {
        let id = format!("{}:{}", truth["pid"], lock["addr"].as_str().unwrap_or_default());
        let told = told.iter().find(|told| told["lock"] == *id);
        for quantity in Quantity::ALL {
            let Some(truth) = quantity.truth(truth, &lock) else { continue };
            let name = lock["symbol"].as_str().unwrap_or_default().to_owned();
            statements.push(Statement {
                lock: name,
                quantity,
                truth,
                stated: told.and_then(|told| quantity.stated(told, report)),
            });
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn truths_are_matched_with_what_is_told() {
        let truth = json!({
            "pid": 7,
            "locks": [{"symbol": "a", "addr": "0x1", "acquisitions": 10, "contended": 5},
                      {"symbol": "b", "addr": "0x2", "acquisitions": 4, "contended": 0}],
            "facts": {},
        });
        let report = json!({"locks": [{"lock": "7:0x1", "acquisitions": 9, "contended": 5}]});
        let found = statements(&truth, &report);
        let brief: Vec<_> = found.iter().map(|s| (s.lock.as_str(), s.truth, s.stated.map(|i| i.value))).collect();
        assert_eq!(brief, [("a", 10.0, Some(9.0)), ("a", 0.5, Some(5.0 / 9.0)), ("b", 4.0, None), ("b", 0.0, None)]);
    }
}
