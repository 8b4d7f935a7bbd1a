//! What the steps came to: a table, what was not run and why, and the counts as the closing line.

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{
    failures::Failure,
    step::{Counts, Outcome, Verdict},
};

/// The steps run so far.
pub(crate) struct Report {
    begun: Instant,
    steps: Vec<Step>,
}

struct Step {
    name: String,
    took: Duration,
    outcome: Outcome,
}

impl Report {
    /// A report whose steps begin now.
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), steps: Vec::new() }
    }

    /// Adds steps that ran beside these.
    pub(crate) fn add(&mut self, beside: Self) {
        self.steps.extend(beside.steps);
    }

    /// Runs a step and keeps how it ended; an error is a failure of the step.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome>) {
        eprintln!("\n=== {name}");
        let started = Instant::now();
        let outcome = step().unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
        let took = started.elapsed();
        eprintln!("{name} {} after {} s: {}", word(outcome.verdict), seconds(took), outcome.note);
        self.steps.push(Step { name: name.to_owned(), took, outcome });
    }

    /// Writes the summary to `out`, with `also_not_run` beside the skipped steps and the reasons of tests that failed; the exit code tells whether
    /// a step failed.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write(&self, also_not_run: &[String], out: &mut impl Write) -> Result<ExitCode> {
        writeln!(out, "\n{}", self.table())?;
        let skipped = self.steps.iter().filter(|step| step.outcome.verdict == Verdict::Skipped);
        let skipped = skipped.map(|step| format!("{}: {}", step.name, step.outcome.note));
        for (position, line) in skipped.chain(also_not_run.iter().cloned()).enumerate() {
            if position == 0 {
                writeln!(out, "not run:")?;
            }
            writeln!(out, "  {line}")?;
        }
        for step in &self.steps {
            let named = [(&step.outcome.failed, "FAILED"), (&step.outcome.passed_again, "passed only when run again")];
            for (tests, how) in named {
                for Failure { test, reason } in tests {
                    writeln!(out, "{how}: {test}: {reason}")?;
                }
            }
        }
        let Counts { passed, failed, skipped } = self.counts();
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
        let failed = self.steps.iter().any(|step| step.outcome.verdict == Verdict::Failed);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for step in &self.steps {
            sum += step.outcome.counts;
        }
        sum
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["step", "result", "time (s)", "tests passed", "failed", "skipped", ""]);
        for step in &self.steps {
            let Counts { passed, failed, skipped } = step.outcome.counts;
            let first_line = step.outcome.note.lines().next().unwrap_or_default().to_owned();
            let mut row = vec![step.name.clone(), word(step.outcome.verdict).to_owned(), seconds(step.took)];
            row.extend([passed, failed, skipped].map(|count| count.to_string()));
            row.push(first_line);
            table.add_row(row);
        }
        table.add_row(["all", "", &seconds(self.begun.elapsed())]);
        for column in table.column_iter_mut().skip(2).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn written(report: &Report, also_not_run: &[String]) -> (String, ExitCode) {
        let mut out = Vec::new();
        let code = report.write(also_not_run, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn an_error_fails_its_step_and_not_the_later_ones() {
        let mut report = Report::begin();
        report.run("first", || bail!("the reason"));
        report.run("second", || Ok(Outcome::passed("a remark")));
        let (text, code) = written(&report, &[]);
        assert!(text.contains("the reason") && text.contains("a remark"), "{text}");
        assert_eq!(code, ExitCode::FAILURE);
    }

    #[test]
    fn a_skip_is_listed_and_no_failure() {
        let mut report = Report::begin();
        report.run("only", || Ok(Outcome::skipped("not here")));
        let (text, code) = written(&report, &["a test: no such package".into()]);
        assert!(text.contains("only: not here") && text.contains("a test: no such package"), "{text}");
        assert_eq!(code, ExitCode::SUCCESS);
    }

    #[test]
    fn tests_that_failed_are_told_with_their_reasons() {
        let failure = |test: &str| vec![Failure { test: test.into(), reason: "a.rs:1:2: why".into() }];
        let mut report = Report::begin();
        let outcome = Outcome { failed: failure("a"), passed_again: failure("b"), ..Outcome::failed("") };
        report.run("tests", || Ok(outcome));
        let (text, _code) = written(&report, &[]);
        assert!(text.contains("\nFAILED: a: a.rs:1:2: why\npassed only when run again: b: a.rs:1:2: why\n"), "{text}");
    }

    #[test]
    fn the_closing_line_sums_the_tests_of_all_steps_also_of_those_that_ran_beside_others() {
        let mut report = Report::begin();
        for _ in 0..2 {
            let counts = Counts { passed: 3, failed: 0, skipped: 1 };
            report.run("tests", || Ok(Outcome { counts, ..Outcome::passed("") }));
        }
        let mut beside = Report::begin();
        beside.run("beside", || bail!("the reason"));
        report.add(beside);
        let (text, code) = written(&report, &[]);
        assert!(text.ends_with("\n6 passed, 0 failed, 2 skipped\n") && text.contains("the reason"), "{text}");
        assert_eq!(code, ExitCode::FAILURE);
    }
}
