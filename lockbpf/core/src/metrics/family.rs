//! Families of metrics, whatever they are written as.

use std::fmt::{self, Display, Formatter};

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// A 1 with labels that say something.
    Info,
}

/// A label.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    /// A sum of ns, told in seconds.
    Seconds(u64),
    Decimal(f64),
}

/// Takes families of metrics, one after the other, each with its samples.
pub(super) trait Families {
    /// Begins a family. `name` is without the suffix of its kind, but with its unit.
    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str);
    /// When the counters and histograms that follow began to count, ns since 1970 (UTC).
    fn since(&mut self, _ns: u64) {}
    /// A sample of a counter, gauge or info.
    fn sample(&mut self, labels: &[Label<'_>], value: Value);
    /// A histogram: how many are at most so long as each bound, in all and their sum, ns.
    fn histogram(&mut self, labels: &[Label<'_>], bounds_ns: &[u64], cumulative: &[u64], sum_ns: u64);
}

/// A family's name without its unit, and the unit: seconds, bytes or a ratio.
pub(super) fn unit(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('_') {
        Some((name, unit @ ("seconds" | "bytes" | "ratio"))) => (name, Some(unit)),
        _ => (name, None),
    }
}

impl Display for Value {
    /// Writes the value as text; seconds with all nine digits, so that no ns is lost.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Seconds(ns) => write!(f, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
            Self::Decimal(number) => number.fmt(f),
        }
    }
}
