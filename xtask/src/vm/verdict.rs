//! What a machine's results come to. Nothing counts as passed without the marker that all tests have ended.

use std::time::Duration;

use vm_tests::event::Event;

use crate::test::step::{Counts, Outcome};

/// Why a run is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is not.
    Running,
    /// QEMU ended, with this status.
    Ended(String),
    /// It was ended after this time.
    TimeUp(Duration),
}

/// What a machine has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// In order.
    pub(crate) events: Vec<Event>,
    /// What was no event, or is not a whole one yet.
    pub(crate) unreadable: Vec<String>,
    /// Why it tells no more.
    pub(crate) ending: Ending,
}

impl Log {
    /// Reads results.
    pub(crate) fn read(text: &str) -> Self {
        let mut log = Self { events: Vec::new(), unreadable: Vec::new(), ending: Ending::Running };
        for line in text.split_inclusive('\n') {
            match Event::parse(line) {
                Ok(event) if line.ends_with('\n') => log.events.push(event),
                _ => log.unreadable.push(line.trim_end().to_owned()),
            }
        }
        log
    }

    /// Whether the init was reached: from then on nothing is an accident of the boot.
    pub(crate) fn started(&self) -> bool {
        !self.events.is_empty() || !self.unreadable.is_empty()
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self) -> Outcome {
        let ends: Vec<_> = self.events.iter().filter_map(failure_of).collect();
        let mut faults: Vec<String> =
            ends.iter().filter_map(|(test, failure)| Some(format!("{test}: {}", (*failure)?))).collect();
        let failed = faults.len();
        if let Some(fault) = self.incomplete(ends.len()) {
            faults.push(fault);
        }
        let counts = Counts { passed: (ends.len() - failed) as u64, failed: faults.len() as u64, skipped: 0 };
        let outcome = match faults.is_empty() {
            true => Outcome::passed(self.kernel()),
            false => Outcome::failed(faults.join("\n")),
        };
        Outcome { counts, ..outcome }
    }

    fn kernel(&self) -> String {
        let kernel = self.events.iter().find_map(|event| match event {
            Event::Init { kernel } => Some(kernel.clone()),
            _ => None,
        });
        kernel.unwrap_or_default()
    }

    /// Why the results, of `ends` tests, are not to be trusted.
    fn incomplete(&self, ends: usize) -> Option<String> {
        if let Some(line) = self.unreadable.first() {
            return Some(format!("its results are unreadable: {line:?}"));
        }
        let over = match &self.ending {
            Ending::Running => "it runs".to_owned(),
            Ending::Ended(status) => format!("QEMU ended with {status}"),
            Ending::TimeUp(limit) => format!("its time was up after {} s", limit.as_secs()),
        };
        match self.events.last() {
            Some(Event::Done { tests }) if *tests == ends && ends > 0 => None,
            Some(Event::Done { tests }) => Some(format!("it told the results of {ends} tests of {tests}")),
            Some(Event::Begin { test }) => Some(format!("{over} during the test {test:?}")),
            Some(Event::Init { .. } | Event::End { .. }) => Some(format!("{over} before all tests had ended")),
            None => Some(format!("{over} before it reached its init")),
        }
    }
}

fn failure_of(event: &Event) -> Option<(&str, Option<&str>)> {
    match event {
        Event::End { test, failure, .. } => Some((test, failure.as_deref())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::step::Verdict;

    fn log(events: &[Event]) -> Log {
        let text: String = events.iter().map(|event| event.to_line().unwrap() + "\r\n").collect();
        Log { ending: Ending::Ended("exit status: 0".into()), ..Log::read(&text) }
    }

    fn init() -> Event {
        Event::Init { kernel: "6.1.0".into() }
    }

    fn begin(test: &str) -> Event {
        Event::Begin { test: test.into() }
    }

    fn end(test: &str, failure: Option<&str>) -> Event {
        Event::End { test: test.into(), took_ms: 1, failure: failure.map(str::to_owned), figures: None }
    }

    fn fails_with(log: &Log, reason: &str) {
        let outcome = log.outcome();
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert!(outcome.counts.failed > 0 && outcome.note.contains(reason), "{outcome:?}");
    }

    #[test]
    fn all_tests_passed() {
        let outcome = log(&[init(), begin("a"), end("a", None), Event::Done { tests: 1 }]).outcome();
        assert_eq!(outcome.verdict, Verdict::Passed);
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 0, skipped: 0 });
        assert_eq!(outcome.note, "6.1.0");
    }

    #[test]
    fn a_failed_test_fails_the_run_and_is_named() {
        let outcome = log(&[init(), end("a", Some("the reason")), end("b", None), Event::Done { tests: 2 }]).outcome();
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(outcome.note, "a: the reason");
    }

    #[test]
    fn an_end_without_the_marker_is_a_failure_whatever_qemu_says() {
        fails_with(&log(&[init(), begin("a")]), "exit status: 0 during the test \"a\"");
        fails_with(&log(&[init(), begin("a"), end("a", None)]), "before all tests had ended");
        fails_with(&log(&[init(), Event::Done { tests: 0 }]), "0 tests");
        fails_with(&log(&[init(), end("a", None), Event::Done { tests: 2 }]), "1 tests of 2");
        fails_with(&log(&[]), "before it reached its init");
        let hung = Log { ending: Ending::TimeUp(Duration::from_secs(9)), ..log(&[init(), begin("a")]) };
        fails_with(&hung, "time was up after 9 s during the test \"a\"");
    }

    #[test]
    fn a_cut_or_foreign_line_is_no_result() {
        let whole = log(&[init(), end("a", None), Event::Done { tests: 1 }]);
        let mut text: String = whole.events.iter().map(|event| event.to_line().unwrap() + "\n").collect();
        text.pop();
        fails_with(&Log::read(&text), "unreadable");
        fails_with(&Log::read(&format!("Kernel panic\n{text}\n")), "Kernel panic");
    }

    #[test]
    fn only_a_machine_that_told_nothing_has_not_started() {
        assert!(!log(&[]).started());
        assert!(log(&[init()]).started() && Log::read("{\"ev").started());
    }
}
