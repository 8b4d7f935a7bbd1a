//! How long each of some tests took that ran one after the other, by the times at which they were told to have ended.

use std::time::{Duration, Instant};

/// How many are told.
const TOLD: usize = 20;

/// Tests with their times.
pub(super) struct Times {
    last: Instant,
    took: Vec<(Duration, String)>,
}

impl Times {
    /// The first test begins now.
    pub(super) fn start() -> Self {
        Self { last: Instant::now(), took: Vec::new() }
    }

    /// A line of a test program's output has come.
    pub(super) fn hear(&mut self, line: &str) {
        if line.starts_with("running ") {
            self.last = Instant::now();
        } else if let Some((test, _result)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
            let now = Instant::now();
            self.took.push((now - self.last, test.to_owned()));
            self.last = now;
        }
    }

    /// The tests that took the longest, in words.
    pub(super) fn slowest(&self) -> String {
        let mut took: Vec<_> = self.took.iter().collect();
        took.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        let told = took.iter().take(TOLD).map(|(time, test)| format!("{test} {:.0} s", time.as_secs_f64()));
        told.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_told_first() {
        let mut times = Times::start();
        times.hear("running 2 tests");
        times.hear("test a::short ... ok");
        times.last -= Duration::from_secs(7);
        times.hear("test b::long ... FAILED");
        times.hear("test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 7.00s");
        assert_eq!(times.slowest(), "b::long 7 s, a::short 0 s");
    }
}
