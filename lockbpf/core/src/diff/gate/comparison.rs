//! One bound on a quantity: `wait > +20%`, `hold[cache_lock] > 2ms`, `acquisitions < -10%`.

use super::super::change::{Change, Thresholds};
use super::super::findings::from_to;
use super::quantity::Quantity;
use super::{ConditionError, Outcome};
use std::fmt;
use std::str::FromStr;

/// A quantity that may not go beyond a bound: of the whole program, or of each lock whose name contains something.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) quantity: Quantity,
    /// A part of the name; `None` for the whole program, empty for every lock.
    pub(super) lock: Option<String>,
    beyond: Side,
    bound: Bound,
    /// The bound as it was given, without spaces.
    told: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// This much more than in A, as a part of A's value; negative for less.
    Change(f64),
    /// A value for B, whatever A's was.
    Value(f64),
}

impl FromStr for Comparison {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        // The name of a lock may have any sign in it.
        let at = text.rfind(['<', '>']).ok_or(ConditionError::Form)?;
        let (what, bound) = (text[..at].trim(), text[at + 1..].trim());
        let beyond = if text[at..].starts_with('>') { Side::Above } else { Side::Below };
        let (name, lock) = match what.split_once('[') {
            Some((name, lock)) => (name.trim(), Some(lock.strip_suffix(']').ok_or(ConditionError::Form)?.to_owned())),
            None => (what, None),
        };
        let quantity = Quantity::named(name).ok_or_else(|| ConditionError::Quantity(name.to_owned()))?;
        let told: String = bound.chars().filter(|c| !c.is_whitespace()).collect();
        let bound = Bound::read(&told, quantity, beyond).ok_or(ConditionError::Form)?;
        Ok(Self { quantity, lock, beyond, bound, told })
    }
}

impl Bound {
    fn read(text: &str, quantity: Quantity, beyond: Side) -> Option<Self> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let sign = match beyond {
            Side::Above => '+',
            Side::Below => '-',
        };
        if let Some(change) = text.strip_prefix(sign) {
            let part = number(change.strip_suffix('%')?)? / 100.0;
            return Some(Self::Change(if beyond == Side::Above { part } else { -part }));
        }
        let unsigned = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let mut units = quantity.units().iter().filter(|_| unsigned);
        units.find_map(|(unit, size)| Some(Self::Value(number(text.strip_suffix(unit)?)? * size)))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quantity, lock, beyond, told, .. } = self;
        let lock = lock.as_ref().map(|lock| format!("[{lock}]")).unwrap_or_default();
        let sign = if *beyond == Side::Above { '>' } else { '<' };
        write!(f, "{}{lock} {sign} {told}", quantity.name())
    }
}

impl Comparison {
    /// Whether a value went beyond the bound.
    pub(super) fn outcome(&self, change: &Change, thresholds: &Thresholds) -> Outcome {
        let Some(b) = change.b else { return Outcome::Inconclusive };
        let (allowed, doubt, matters) = match self.bound {
            Bound::Value(value) => (value, change.sd[1], true),
            Bound::Change(part) => {
                let Some(a) = change.a else { return Outcome::Inconclusive };
                // What takes next to no time is of no consequence, however much it grows.
                (a * (1.0 + part), change.sd[1].hypot(change.sd[0] * (1.0 + part)), change.matters)
            }
        };
        let excess = match self.beyond {
            Side::Above => b - allowed,
            Side::Below => allowed - b,
        };
        match excess {
            excess if excess <= 0.0 || !matters => Outcome::Passed,
            excess if excess > thresholds.deviations * doubt => Outcome::Failed,
            _ => Outcome::Inconclusive,
        }
    }

    /// What is behind an outcome, as a sentence.
    pub(super) fn reason(&self, of: &str, change: &Change, thresholds: &Thresholds) -> String {
        let values = from_to(change, self.quantity.show());
        let grown = match change.ratio {
            Some(ratio) => format!(" ({:+.1} %)", (ratio - 1.0) * 100.0),
            None => String::new(),
        };
        let known = change.b.is_some() && (change.a.is_some() || matches!(self.bound, Bound::Value(_)));
        let chance = known && self.outcome(change, thresholds) == Outcome::Inconclusive;
        let doubt = if chance { "; chance explains that" } else { "" };
        format!("{} of {of}: {values}{grown}{doubt}.", self.quantity.meaning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(text: &str) -> Comparison {
        text.parse().unwrap()
    }

    #[test]
    fn comparisons_are_read_and_told() {
        for (text, told) in [
            ("wait > +20 %", "wait > +20%"),
            ("wait>+0%", "wait > +0%"),
            (" hold[a > b] > +12.5% ", "hold[a > b] > +12.5%"),
            ("contended[] > +100%", "contended[] > +100%"),
            ("acquisitions < - 10 %", "acquisitions < -10%"),
            ("hold[a < b] > 2.5 ms", "hold[a < b] > 2.5ms"),
            ("contended > 30 %", "contended > 30%"),
            ("acquisitions < 1000", "acquisitions < 1000"),
        ] {
            assert_eq!(comparison(text).to_string(), told);
            assert_eq!(comparison(told), comparison(text));
        }
        for text in [
            "wait",
            "wait > 20%",
            "wait > +20",
            "wait > +x%",
            "wait[a > +20%",
            "wait > +-1%",
            "wait > +inf%",
            "wait > -20%",
            "wait < +20%",
            "hold > 3",
            "contended > 3ms",
            "acquisitions < inf",
            "hold > -3ms",
        ] {
            assert_eq!(text.parse::<Comparison>(), Err(ConditionError::Form), "{text}");
        }
        assert_eq!("waits > +1%".parse::<Comparison>(), Err(ConditionError::Quantity("waits".to_owned())));
    }

    fn outcome(text: &str, a: f64, b: f64, sd: [f64; 2], matters: bool) -> Outcome {
        let change = Change { a: Some(a), b: Some(b), ratio: Some(b / a), called_out: false, sd, matters };
        comparison(text).outcome(&change, &Thresholds::default())
    }

    #[test]
    fn growth_beyond_chance_fails() {
        let outcome = |a, b, sd, matters| outcome("wait > +20%", a, b, sd, matters);
        assert_eq!(outcome(100.0, 120.0, [0.0; 2], true), Outcome::Passed);
        assert_eq!(outcome(100.0, 120.1, [0.0; 2], true), Outcome::Failed);
        assert_eq!(outcome(100.0, 120.1, [0.0; 2], false), Outcome::Passed);
        // Bounds are 120 ± 2 · √(3² + (1.2 · 4)²) = 120 ± 11.3.
        assert_eq!(outcome(100.0, 131.0, [4.0, 3.0], true), Outcome::Inconclusive);
        assert_eq!(outcome(100.0, 131.4, [4.0, 3.0], true), Outcome::Failed);
        assert_eq!(outcome(100.0, 50.0, [0.0; 2], true), Outcome::Passed);
        assert_eq!(outcome(0.0, 50.0, [0.0; 2], true), Outcome::Failed);
    }

    #[test]
    fn falling_below_fails_too() {
        let outcome = |b, sd| outcome("acquisitions < -10%", 1_000.0, b, sd, true);
        assert_eq!(outcome(900.0, [0.0; 2]), Outcome::Passed);
        assert_eq!(outcome(899.0, [0.0; 2]), Outcome::Failed);
        assert_eq!(outcome(899.0, [0.0, 1.0]), Outcome::Inconclusive);
        assert_eq!(outcome(2_000.0, [0.0; 2]), Outcome::Passed);
    }

    #[test]
    fn a_value_is_bounded_whatever_it_was_before() {
        let outcome = |b, sd| outcome("hold > 2us", 9_000.0, b, sd, false);
        assert_eq!(outcome(2_000.0, [0.0; 2]), Outcome::Passed);
        assert_eq!(outcome(2_001.0, [0.0; 2]), Outcome::Failed);
        // Only B's doubt counts.
        assert_eq!(outcome(2_001.0, [500.0, 0.0]), Outcome::Failed);
        assert_eq!(outcome(2_001.0, [0.0, 1.0]), Outcome::Inconclusive);
        let new = Change { b: Some(3_000.0), ..Change::default() };
        assert_eq!(comparison("hold > 2us").outcome(&new, &Thresholds::default()), Outcome::Failed);
    }

    #[test]
    fn what_is_not_known_is_inconclusive() {
        let (change, thresholds) = (Change { b: Some(2.0), ..Change::default() }, Thresholds::default());
        let comparison = comparison("hold > +1%");
        assert_eq!(comparison.outcome(&change, &thresholds), Outcome::Inconclusive);
        assert_eq!(comparison.reason("it", &change, &thresholds), "mean hold of it: unknown -> 2 ns.");
    }
}
