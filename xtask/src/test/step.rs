//! Running one step: its output streamed, the tests it ran counted.

use std::{
    io::{BufRead as _, BufReader, Write},
    ops::AddAssign,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{
    failures::{Failure, Failures},
    times::Times,
};
use crate::{process, workspace};

/// The option of a test program that sets how many of its tests run at a time.
const AT_A_TIME: &str = "--test-threads=";
/// It runs one test at a time.
pub(crate) const ONE_BY_ONE: &str = "--test-threads=1";
/// It runs two tests at a time.
pub(crate) const TWO_AT_A_TIME: &str = "--test-threads=2";

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// How many tests passed, failed and were not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// How a step ended, and why.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// The reason of a failure or of a skip, else a remark.
    pub(crate) note: String,
    pub(crate) counts: Counts,
    /// The tests that failed.
    pub(crate) failed: Vec<Failure>,
    /// Those that failed at first, and passed when they ran again.
    pub(crate) passed_again: Vec<Failure>,
}

impl Outcome {
    fn new(verdict: Verdict, note: impl Into<String>) -> Self {
        Self { verdict, note: note.into(), counts: Counts::default(), failed: Vec::new(), passed_again: Vec::new() }
    }

    /// The step did what it should.
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self::new(Verdict::Passed, note)
    }

    /// After the tests that failed have run `again`: what these came to counts, and the note names those that passed only then.
    pub(crate) fn repeated(self, again: Self) -> Self {
        let fails = |test: &str| again.failed.iter().any(|failure| failure.test == test);
        let passed_again: Vec<Failure> = self.failed.into_iter().filter(|failure| !fails(&failure.test)).collect();
        let note = match again.verdict {
            Verdict::Passed => {
                let only_then: Vec<&str> = passed_again.iter().map(|failure| failure.test.as_str()).collect();
                format!("passed only when run again: {}", only_then.join(", "))
            }
            _ => again.note,
        };
        let Counts { passed, failed, skipped: _ } = again.counts;
        let counts = Counts { passed: self.counts.passed + passed, failed, ..self.counts };
        Self { verdict: again.verdict, note, counts, failed: again.failed, passed_again }
    }

    /// The step found a fault.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Failed, reason)
    }

    /// The step does not apply here.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Skipped, reason)
    }

    /// What the step needs could not be had: a skip on a user's machine, a failure where the tests are the gate.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        if workspace::is_ci() { Self::failed(reason) } else { Self::skipped(reason) }
    }
}

/// Runs `command`, whose output the user sees.
///
/// # Errors
/// It cannot be started.
pub(crate) fn run(command: &mut Command) -> Result<Outcome> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("failed to start `{}`", process::describe(command)))?;
    Ok(if status.success() { Outcome::passed("") } else { Outcome::failed(status.to_string()) })
}

/// Runs `command`, a `cargo test`, and counts the tests while its output goes on to `out`. It then prints which tests took the longest, if
/// `command` sets [how many run at a time](AT_A_TIME).
///
/// # Errors
/// It cannot be started, or `out` cannot be written to.
pub(crate) fn run_tests(command: &mut Command, out: &mut impl Write) -> Result<Outcome> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start `{}`", process::describe(command)))?;
    let at_a_time = command.get_args().find_map(|arg| arg.to_str()?.strip_prefix(AT_A_TIME)?.parse().ok());
    let mut times = at_a_time.map(Times::start);
    let (mut counts, mut failures) = (Counts::default(), Failures::default());
    let output = child.stdout.take().context("failed to read the output of cargo test")?;
    for line in BufReader::new(output).split(b'\n') {
        let mut line = line?;
        line.push(b'\n');
        // At once: other steps write there, too.
        out.write_all(&line)?;
        out.flush()?;
        let line = String::from_utf8_lossy(&line);
        times.iter_mut().for_each(|times| times.hear(line.trim_end()));
        failures.hear(line.trim_end());
        counts += test_result(line.trim_end()).unwrap_or_default();
    }
    if let Some(times) = times {
        eprintln!("the slowest: {}", times.slowest());
    }
    let status = child.wait()?;
    if !status.success() && counts.failed == 0 {
        // What does not compile or dies has no closing line.
        counts.failed = 1;
    }
    let outcome = if status.success() { Outcome::passed("") } else { Outcome::failed(status.to_string()) };
    Ok(Outcome { counts, failed: failures.all(), ..outcome })
}

/// The counts in a closing line of a test program; tests filtered out are ones that cannot run here.
fn test_result(line: &str) -> Option<Counts> {
    let line = line.strip_prefix("test result: ")?;
    let (_verdict, fields) = line.split_once(". ")?;
    let mut counts = Counts::default();
    for field in fields.split("; ") {
        let Some((number, what)) = field.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match what {
            "passed" => counts.passed += number,
            "failed" => counts.failed += number,
            "ignored" | "filtered out" => counts.skipped += number,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn closing_lines_are_counted() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert_eq!(test_result(line), Some(Counts { passed: 5, failed: 2, skipped: 4 }));
        assert_eq!(test_result("test a::b ... ok"), None);
    }

    #[test]
    fn every_closing_line_of_a_run_is_summed() {
        let line = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let mut shown = Vec::new();
        let outcome = run_tests(&mut shell(&format!("echo '{line}'; echo '{line}'")), &mut shown).unwrap();
        assert_eq!(outcome.counts, Counts { passed: 4, failed: 0, skipped: 2 });
        assert_eq!(String::from_utf8(shown).unwrap(), format!("{line}\n{line}\n"));
        assert_eq!(outcome.verdict, Verdict::Passed);
    }

    #[test]
    fn tests_that_failed_count_as_what_they_come_to_when_run_again() {
        let run = |line: &str| {
            let lines = format!("test a::b ... FAILED\ntest a::c ... ok\ntest d ... FAILED\ntest result: {line}");
            run_tests(&mut shell(&format!("echo '{lines}'; exit 101")), &mut Vec::new()).unwrap()
        };
        let first = || run("FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        let failure = |test: &str| Failure { test: test.to_owned(), ..Failure::default() };
        assert_eq!(first().failed, ["a::b", "d"].map(failure));
        let counts = |passed, failed| Counts { passed, failed, skipped: 8 };
        let again = Outcome { counts: counts(2, 0), ..Outcome::passed("") };
        let both = first().repeated(again);
        assert_eq!((both.verdict, both.note.as_str()), (Verdict::Passed, "passed only when run again: a::b, d"));
        assert_eq!(both.counts, Counts { passed: 9, failed: 0, skipped: 1 });
        let again = Outcome { counts: counts(1, 1), failed: vec![failure("d")], ..Outcome::failed("exit status: 101") };
        let both = first().repeated(again);
        assert_eq!(
            (both.failed.as_slice(), both.passed_again.as_slice()),
            (&[failure("d")][..], &[failure("a::b")][..])
        );
        assert_eq!((both.verdict, both.note.as_str()), (Verdict::Failed, "exit status: 101"));
        assert_eq!(both.counts, Counts { passed: 8, failed: 1, skipped: 1 });
    }

    #[test]
    fn a_run_that_does_not_get_to_its_tests_counts_as_a_failure() {
        let outcome = run_tests(&mut shell("exit 101"), &mut Vec::new()).unwrap();
        assert_eq!(outcome.counts.failed, 1);
        assert_eq!(outcome.verdict, Verdict::Failed);
    }
}
