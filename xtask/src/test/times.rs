//! How long each test took, with its wait for a turn. A test program begins its tests in the order of their names. It runs a fixed number at a
//! time, and begins the next one when one has ended. It prints the ends only: the beginnings follow from them.

use std::time::{Duration, Instant};

/// How many are told.
const TOLD: usize = 20;

/// Tests with their times.
pub(super) struct Times {
    /// How many tests run at a time.
    at_a_time: usize,
    /// When the first ones began.
    begun: Instant,
    /// When each ended, the first one first.
    ended: Vec<(Instant, String)>,
}

impl Times {
    /// The first tests begin now.
    pub(super) fn start(at_a_time: usize) -> Self {
        Self { at_a_time, begun: Instant::now(), ended: Vec::new() }
    }

    /// A line of a test program's output has come.
    pub(super) fn hear(&mut self, line: &str) {
        if line.starts_with("running ") {
            (self.begun, self.ended) = (Instant::now(), Vec::new());
        } else if let Some((test, _result)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
            self.ended.push((Instant::now(), test.to_owned()));
        }
    }

    fn took(&self) -> Vec<(Duration, &str)> {
        let begun = std::iter::repeat_n(self.begun, self.at_a_time).chain(self.ended.iter().map(|&(end, _)| end));
        let mut tests: Vec<_> = self.ended.iter().map(|(end, test)| (test.as_str(), *end)).collect();
        tests.sort_unstable();
        tests.into_iter().zip(begun).map(|((test, end), begun)| (end.saturating_duration_since(begun), test)).collect()
    }

    /// The tests that took the longest, in words.
    pub(super) fn slowest(&self) -> String {
        let mut took = self.took();
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
        let mut times = Times::start(2);
        times.hear("running 3 tests");
        let begun = times.begun;
        for (test, seconds) in [("b::long", 7), ("a::longer", 8), ("c::short", 9)] {
            times.hear(&format!("test {test} ... ok"));
            times.ended.last_mut().unwrap().0 = begun + Duration::from_secs(seconds);
        }
        times.hear("test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 7.00s");
        // The third one began when the first one to end had ended.
        assert_eq!(times.slowest(), "a::longer 8 s, b::long 7 s, c::short 2 s");
    }
}
