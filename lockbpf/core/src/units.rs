//! Durations and points in time: nanoseconds on one monotonic clock, kept apart by type.

use serde::Serialize;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// A point in time: ns on `CLOCK_MONOTONIC` of the observed machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A duration in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Time {
    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Sub<Nanos> for Time {
    type Output = Self;
    fn sub(self, rhs: Nanos) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, rhs: Nanos) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Add::add)
    }
}

/// Three significant digits with the unit that keeps the number short: `812 ns`, `4.31 µs`, `72.5 ms`, `12.0 s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (ns / 1e3, "µs"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let decimals = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.decimals$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_at_a_glance() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (72_500_000, "72.5 ms"),
            (999_400, "999 µs"),
            (12_000_000_000, "12.0 s"),
            (9_999, "10.0 µs"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }
}
