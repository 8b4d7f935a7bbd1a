//! Values that many entries have: times, durations, threads.

use crate::id::Tid;
use crate::names::Names;
use crate::units::Nanos;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Thousandths of a ns in a ns.
const THOUSAND: u64 = 1_000;

/// Nanoseconds, to the thousandth: an integer in JSON where they are whole, else a decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ns {
    whole: u64,
    thousandths: u16,
}

impl Ns {
    /// Whole nanoseconds.
    #[must_use]
    pub const fn new(whole: u64) -> Self {
        Self { whole, thousandths: 0 }
    }

    /// Whether it is 0.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.whole == 0 && self.thousandths == 0
    }

    /// From thousandths.
    fn from_thousandths(thousandths: u128) -> Self {
        let thousand = u128::from(THOUSAND);
        Self {
            whole: u64::try_from(thousandths / thousand).unwrap_or(u64::MAX),
            thousandths: (thousandths % thousand) as u16,
        }
    }

    fn thousandths(self) -> u128 {
        u128::from(self.whole) * u128::from(THOUSAND) + u128::from(self.thousandths)
    }

    /// The nearest number, in ns; a negative one, or none at all, is 0.
    #[must_use]
    pub fn from_f64(ns: f64) -> Self {
        // The cast saturates, and takes what is no number for 0.
        Self::from_thousandths((ns * THOUSAND as f64).round() as u128)
    }

    /// As a number, in ns.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.whole as f64 + f64::from(self.thousandths) / THOUSAND as f64
    }

    /// Without the part of a ns.
    #[must_use]
    pub fn whole(self) -> u64 {
        self.whole
    }

    /// This part of `whole`; 0 of nothing.
    #[must_use]
    pub fn share_of(self, whole: Self) -> f64 {
        if whole == Self::default() { 0.0 } else { self.as_f64() / whole.as_f64() }
    }

    /// Divided by a number of runs, rounded to the thousandth; 0 without any.
    #[must_use]
    pub fn mean_of(self, runs: u64) -> Self {
        let runs = u128::from(runs.max(1));
        Self::from_thousandths((self.thousandths() + runs / 2) / runs)
    }

    /// Divided by a count, rounded down to a whole ns where it was whole; 0 without any.
    #[must_use]
    pub fn per(self, count: u64) -> Self {
        match count {
            0 => Self::default(),
            n if self.thousandths == 0 => Self::new(self.whole / n),
            n => Self::from_thousandths(self.thousandths() / u128::from(n)),
        }
    }
}

impl Add for Ns {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self::from_thousandths(self.thousandths() + rhs.thousandths())
    }
}

impl Sub for Ns {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self::from_thousandths(self.thousandths().saturating_sub(rhs.thousandths()))
    }
}

impl AddAssign for Ns {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sum for Ns {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl PartialEq<u64> for Ns {
    fn eq(&self, whole: &u64) -> bool {
        *self == Self::new(*whole)
    }
}

/// With the unit that keeps the number short; parts of a ns below 100 ns only.
impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.thousandths == 0 || self.whole >= 100 {
            return Nanos(self.whole).fmt(f);
        }
        let digits = format!("{:.3}", self.as_f64());
        f.pad(&format!("{} ns", digits.trim_end_matches('0').trim_end_matches('.')))
    }
}

impl Serialize for Ns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.thousandths == 0 {
            serializer.serialize_u64(self.whole)
        } else {
            serializer.serialize_f64(self.as_f64())
        }
    }
}

impl<'de> Deserialize<'de> for Ns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NsVisitor)
    }
}

struct NsVisitor;

impl Visitor<'_> for NsVisitor {
    type Value = Ns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in ns that is not negative")
    }

    fn visit_u64<E: de::Error>(self, ns: u64) -> Result<Ns, E> {
        Ok(Ns::new(ns))
    }

    fn visit_f64<E: de::Error>(self, ns: f64) -> Result<Ns, E> {
        if ns >= 0.0 { Ok(Ns::from_f64(ns)) } else { Err(E::invalid_value(de::Unexpected::Float(ns), &self)) }
    }
}

/// What one unit of the observation's times is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    per_ns: u64,
}

impl Unit {
    /// So many units to the ns; 0 means 1.
    pub(crate) fn per_ns(units: u64) -> Self {
        Self { per_ns: units.max(1) }
    }

    /// A time of the observation in ns.
    pub(crate) fn ns(self, time: Nanos) -> Ns {
        match self.per_ns {
            1 => Ns::new(time.0),
            n => Ns::from_thousandths(u128::from(time.0) * u128::from(THOUSAND) / u128::from(n)),
        }
    }
}

/// Durations in ns. Quantiles come from log2 histograms: exact within a factor of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Sum.
    pub sum: Ns,
    /// Mean, rounded down.
    pub mean: Ns,
    /// Longest.
    pub max: Ns,
    /// Median.
    pub p50: Ns,
    /// 99th percentile.
    pub p99: Ns,
}

/// A thread: its number, or what the input calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ThreadId {
    /// A thread id of the operating system, or of an input that numbers its threads.
    Number(u64),
    /// The name of a thread, in an input that names its threads.
    Name(String),
}

impl ThreadId {
    /// What the input calls a thread.
    pub(crate) fn new(tid: Tid, names: &mut dyn Names) -> Self {
        match names.thread_number(tid) {
            Some(number) => Self::Number(number),
            None => names.thread_id(tid).map_or(Self::Number(tid.0.into()), Self::Name),
        }
    }
}

impl ThreadId {
    /// As it stands in a sentence: `thread 12`; goroutines, tasks and virtual threads say what they are themselves.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Name(name)
                if ["goroutine ", "task ", "readers ", "virtual thread "].iter().any(|what| name.starts_with(what)) =>
            {
                name.clone()
            }
            _ => format!("thread {self}"),
        }
    }
}

impl Default for ThreadId {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Name(name) => f.pad(name),
        }
    }
}

impl PartialEq<u64> for ThreadId {
    fn eq(&self, number: &u64) -> bool {
        *self == Self::Number(*number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_times_stay_integers() {
        let unit = Unit::per_ns(1_000);
        let json = |ticks| serde_json::to_string(&unit.ns(Nanos(ticks))).unwrap();
        assert_eq!([4_000, 4_500, 1, 0].map(json), ["4", "4.5", "0.001", "0"]);
        assert_eq!(serde_json::to_string(&Unit::per_ns(0).ns(Nanos(u64::MAX))).unwrap(), u64::MAX.to_string());
        assert!(serde_json::from_str::<Ns>("-1.5").is_err() && serde_json::from_str::<Ns>("-1").is_err());
    }

    #[test]
    fn parts_of_a_ns_are_shown_where_they_matter() {
        let texts = [4_500, 12_345, 100_900, 2_500_000].map(|ticks| Unit::per_ns(1_000).ns(Nanos(ticks)).to_string());
        assert_eq!(texts, ["4.5 ns", "12.345 ns", "100 ns", "2.50 µs"]);
    }

    #[test]
    fn threads_keep_the_type_of_the_input() {
        let ids: [ThreadId; 2] = serde_json::from_str(r#"[7,"T7"]"#).unwrap();
        assert_eq!(ids, [ThreadId::Number(7), ThreadId::Name("T7".into())]);
        assert_eq!(serde_json::to_string(&ids).unwrap(), r#"[7,"T7"]"#);
    }

    proptest! {
        #[test]
        fn times_survive_a_round_trip_and_add_up(a in 0u64..1 << 50, b in 0u64..1 << 50) {
            let unit = Unit::per_ns(1_000);
            let (x, y) = (unit.ns(Nanos(a)), unit.ns(Nanos(b)));
            let back: Ns = serde_json::from_str(&serde_json::to_string(&x).unwrap()).unwrap();
            prop_assert_eq!(back, x);
            prop_assert_eq!(x + y, unit.ns(Nanos(a + b)));
            prop_assert_eq!(x + y - y, x);
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }
    }
}
