//! Which tests of a test program failed, and why, read from what it prints.

use std::collections::VecDeque;

/// Lines of a panic's message that are kept: what was expected comes first, and what another program said about it last.
const FIRST: usize = 2;
const LAST: usize = 6;
/// Bytes of each of them.
const WIDTH: usize = 300;

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    /// Where it panicked first, and the beginning and the end of the message; empty if it did not.
    pub(crate) reason: String,
}

/// A test that failed, as far as its output has been read.
#[derive(Default)]
struct Heard {
    test: String,
    place: String,
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: bool,
}

impl Heard {
    /// A line of the message.
    fn keep(&mut self, line: &str) {
        let line = line[..line.floor_char_boundary(WIDTH)].trim().to_owned();
        if line.is_empty() {
            return;
        }
        if self.first.len() < FIRST {
            self.first.push(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > LAST {
            self.last.pop_front();
            self.left_out = true;
        }
    }

    fn failure(self) -> Failure {
        let gap = self.left_out.then(|| "…".to_owned());
        let place = Some(self.place).filter(|place| !place.is_empty());
        let lines: Vec<String> = place.into_iter().chain(self.first).chain(gap).chain(self.last).collect();
        Failure { test: self.test, reason: lines.join(" ") }
    }
}

/// The tests that failed so far.
#[derive(Default)]
pub(super) struct Failures {
    failed: Vec<Heard>,
    /// Whose output is being read.
    of: Option<usize>,
    /// Whether that is a panic's message.
    in_message: bool,
}

impl Failures {
    /// A line of a test program's output has come.
    pub(super) fn hear(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.number(test);
        } else if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.of = Some(self.number(test));
            self.in_message = false;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.of = None;
        } else if let Some(of) = self.of {
            self.read(of, line);
        }
    }

    /// All of them, in the order in which they were named.
    pub(super) fn all(self) -> Vec<Failure> {
        self.failed.into_iter().map(Heard::failure).collect()
    }

    fn number(&mut self, test: &str) -> usize {
        self.failed.iter().position(|heard| heard.test == test).unwrap_or_else(|| {
            self.failed.push(Heard { test: test.to_owned(), ..Heard::default() });
            self.failed.len() - 1
        })
    }

    fn read(&mut self, of: usize, line: &str) {
        let heard = &mut self.failed[of];
        match line.split_once(" panicked at ").filter(|(thread, _)| thread.starts_with("thread '")) {
            // What panics later does so because of the first.
            Some((_thread, place)) if heard.place.is_empty() => {
                place.clone_into(&mut heard.place);
                self.in_message = true;
            }
            None if self.in_message && line != "stack backtrace:" && !line.starts_with("note: run with") => {
                heard.keep(line)
            }
            _ => self.in_message = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(output: &str) -> Vec<(String, String)> {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.hear(line));
        failures.all().into_iter().map(|failure| (failure.test, failure.reason)).collect()
    }

    #[test]
    fn a_reason_is_the_first_panic_of_a_test() {
        let output = "test a::b ... ok\ntest c ... FAILED\ntest d::e ... FAILED\n\nfailures:\n\n---- c stdout ----\n\
            a line of its own\n\nthread 'c' (12) panicked at tests/c.rs:7:9:\nassertion `left == right` failed: twice\n  left: 1\n \
            right: 2\nstack backtrace:\n   0: std\nnote: some\n\nthread 'c' (12) panicked at tests/c.rs:99:1:\nlater\n\n\
            ---- d::e stdout ----\nno panic here\n\nfailures:\n    c\n    d::e\n\ntest result: FAILED. 1 passed; 2 failed";
        let [c, d] = &heard(output)[..] else { panic!("two failed") };
        assert_eq!(c.0, "c");
        assert_eq!(c.1, "tests/c.rs:7:9: assertion `left == right` failed: twice left: 1 right: 2");
        assert_eq!((d.0.as_str(), d.1.as_str()), ("d::e", ""));
    }

    #[test]
    fn tests_that_are_not_named_one_by_one_are_known_by_their_output() {
        let output =
            "running 3 tests\n.F.\nfailures:\n\n---- x::y stdout ----\n\nthread 'x::y' panicked at x.rs:1:2:\nno\n";
        assert_eq!(heard(output), [("x::y".to_owned(), "x.rs:1:2: no".to_owned())]);
    }

    #[test]
    fn of_a_long_message_both_ends_are_kept() {
        let long = "ä".repeat(500);
        let output =
            format!("---- x stdout ----\nthread 'x' panicked at x.rs:1:2:\n{long}\n1\n2\n3\n4\n\n5\n6\n\n7\n8\n\n");
        let reason = &heard(&output)[0].1;
        assert!(reason.starts_with("x.rs:1:2: ää") && reason.ends_with("ä 1 … 3 4 5 6 7 8"), "{reason}");
        assert!(reason.len() <= "x.rs:1:2:".len() + WIDTH + 25, "{reason}");
    }
}
