//! Hosts that are made up: what an agent really served, with figures that go on growing, on each host at a pace of its own.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use crate::bench::exposition::{counted, family, series};

/// The salt of a host's pace, and of a moment's haste.
const SALTS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];

/// What an agent served after `age_s` seconds.
pub(super) struct Template {
    lines: Vec<Line>,
    age_s: f64,
}

enum Line {
    /// What is the same whenever one looks, and on all hosts.
    Fixed(String),
    /// A counter's series: with its labels, what it was, and whether it counts in whole numbers.
    Counter { key: String, value: f64, whole: bool },
}

impl Template {
    /// A template made of what an agent served when it had observed for `age_s` seconds.
    pub(super) fn new(text: &str, age_s: f64) -> Self {
        let counted = counted(text);
        let line = |line: &str| match series(line).next() {
            Some((key, value)) if counted.contains(family(key)) => {
                Line::Counter { key: key.to_owned(), value, whole: value.fract() == 0.0 }
            }
            _ => Line::Fixed(line.to_owned()),
        };
        Self { lines: text.lines().map(line).collect(), age_s }
    }

    /// How many series a host has.
    pub(super) fn series(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, Line::Fixed(text) if text.starts_with('#'))).count()
    }

    /// What a host serves in a step; each step lasts `step_s` seconds. No counter ever falls.
    pub(super) fn text(&self, host: u64, step: u64, step_s: f64) -> String {
        let grown = self.growth(host, step, step_s);
        let mut text = String::new();
        for line in &self.lines {
            // A string takes whatever it is given.
            let _ = match line {
                Line::Fixed(line) => writeln!(text, "{line}"),
                Line::Counter { key, value, whole } => writeln!(text, "{key} {}", grown_to(*value, grown, *whole)),
            };
        }
        text
    }

    /// A host's steps from a moment on, in s since 1970, as OpenMetrics with times.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(super) fn history(
        &self,
        host: u64,
        from_s: u64,
        steps: u64,
        step_s: u64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for step in 0..steps {
            let grown = self.growth(host, step, step_s as f64);
            let at = from_s + step * step_s;
            for line in &self.lines {
                match line {
                    Line::Fixed(line) if line.starts_with('#') => {}
                    Line::Fixed(line) => writeln!(out, "{line} {at}")?,
                    Line::Counter { key, value, whole } => {
                        writeln!(out, "{key} {} {at}", grown_to(*value, grown, *whole))?;
                    }
                }
            }
        }
        writeln!(out, "# EOF")
    }

    /// By what the agent's counters are multiplied in a step: hosts grow at a quarter to seven quarters of the agent's pace, unevenly from step to step.
    fn growth(&self, host: u64, step: u64, step_s: f64) -> f64 {
        let pace = 0.25 + 1.5 * share(host, SALTS[0]);
        let steps = step as f64 + 1.0 + share(host ^ step.rotate_left(32), SALTS[1]);
        pace * steps * step_s / self.age_s
    }
}

/// A number from 0 to 1 that looks as if by chance.
fn share(of: u64, salt: u64) -> f64 {
    let mixed = (of.wrapping_add(1)).wrapping_mul(salt);
    ((mixed ^ mixed >> 29).wrapping_mul(salt) >> 40) as f64 / (1_u64 << 24) as f64
}

fn grown_to(value: f64, grown: f64, whole: bool) -> f64 {
    if whole { (value * grown).round() } else { value * grown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE a counter\n# TYPE h histogram\n# TYPE g gauge\na_total{x=\"y z\"} 30\nh_sum 1.5\nh_bucket{le=\"1\"} 0\ng 5\n";

    #[test]
    fn counters_grow_on_each_host_at_its_pace_and_never_fall() {
        let template = Template::new(TEXT, 10.0);
        assert_eq!(template.series(), 4);
        let value = |host, step, key: &str| {
            let text = template.text(host, step, 10.0);
            series(&text).find(|(name, _)| *name == key).map(|(_, value)| value).unwrap()
        };
        for host in 0..50 {
            let mut before = 0.0;
            for step in 0..100 {
                let now = value(host, step, "a_total{x=\"y z\"}");
                assert!(now >= before && now.fract() == 0.0, "{before} {now}");
                before = now;
            }
            assert!((750.0..=5_400.0).contains(&before), "{before}");
        }
        assert!(value(1, 9, "h_sum") != value(2, 9, "h_sum"));
        assert_eq!((value(3, 7, "g"), value(3, 7, "h_bucket{le=\"1\"}")), (5.0, 0.0));
    }

    #[test]
    fn a_history_has_a_time_for_each_sample() {
        let mut history = Vec::new();
        Template::new(TEXT, 10.0).history(4, 1_000, 3, 60, &mut history).unwrap();
        let history = String::from_utf8(history).unwrap();
        let lines: Vec<&str> = history.lines().collect();
        assert_eq!(lines.len(), 3 * 4 + 1);
        assert!(lines[0].starts_with("a_total{x=\"y z\"} ") && lines[0].ends_with(" 1000"));
        assert!(lines[11] == "g 5 1120" && lines[12] == "# EOF");
    }
}
