//! Conditions on which a comparison fails: `wait > +20 %`.

use super::change::{Change, SECOND, Thresholds};
use super::findings::{frequency, from_to, per_second, time};
use super::schema::{Diff, LockDiff, Overall};
use crate::report::text::percent;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A quantity that may not grow by more than a part of itself: of the whole program, or of each lock whose name contains something.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    quantity: Quantity,
    /// A part of the name; `None` for the whole program, empty for every lock.
    lock: Option<String>,
    /// The growth that is allowed, as a part of A's value.
    growth: f64,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Wait,
    Hold,
    Held,
    Contended,
    Acquisitions,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has another form.
    #[error(
        "a condition has the form QUANTITY > +N%, or QUANTITY[LOCK] > +N%, for example 'wait > +20%' or 'hold[cache_lock] > +50%'"
    )]
    Form,
    /// It names something else.
    #[error("there is no quantity {0:?}: there are wait, hold, held, contended and acquisitions")]
    Quantity(String),
}

/// What became of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing grew beyond what is allowed.
    Passed,
    /// Something did in what was seen, but chance explains it; or it is not known.
    Inconclusive,
    /// Something did, by more than chance explains.
    Failed,
}

/// A condition and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The condition.
    pub condition: Condition,
    /// The worst of all locks that it is about.
    pub outcome: Outcome,
    /// What is behind that, in sentences.
    pub reasons: Vec<String>,
}

impl Quantity {
    const ALL: [Self; 5] = [Self::Wait, Self::Hold, Self::Held, Self::Contended, Self::Acquisitions];

    fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Hold => "hold",
            Self::Held => "held",
            Self::Contended => "contended",
            Self::Acquisitions => "acquisitions",
        }
    }

    /// What it is in words.
    fn meaning(self) -> &'static str {
        match self {
            Self::Wait => "waiting",
            Self::Hold => "mean hold",
            Self::Held => "time held",
            Self::Contended => "contended share",
            Self::Acquisitions => "acquisitions",
        }
    }

    fn of_all(self, all: &Overall) -> &Change {
        match self {
            Self::Wait => &all.waiting_threads,
            Self::Hold => &all.mean_hold_ns,
            Self::Held => &all.holding_threads,
            Self::Contended => &all.contended_share,
            Self::Acquisitions => &all.dynamic_locks_per_s,
        }
    }

    fn of_lock(self, lock: &LockDiff) -> &Change {
        match self {
            Self::Wait => &lock.wait_ns_per_s,
            Self::Hold => &lock.mean_hold_ns,
            Self::Held => &lock.held_share,
            Self::Contended => &lock.contended_share,
            Self::Acquisitions => &lock.acquisitions_per_s,
        }
    }

    fn show(self, of_lock: bool) -> fn(f64) -> String {
        match self {
            Self::Wait if of_lock => per_second,
            // Threads that wait on average are seconds of waiting in a second.
            Self::Wait => |threads| per_second(threads * SECOND),
            Self::Hold => time,
            Self::Held | Self::Contended => percent,
            Self::Acquisitions => frequency,
        }
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        // The name of a lock may have any sign in it.
        let (what, bound) = text.rsplit_once('>').ok_or(ConditionError::Form)?;
        let growth = bound.trim().strip_prefix('+').and_then(|bound| bound.strip_suffix('%')).map(str::trim);
        let growth = growth.and_then(|growth| growth.parse::<f64>().ok()).filter(|g| g.is_finite() && *g >= 0.0);
        let growth = growth.ok_or(ConditionError::Form)? / 100.0;
        let what = what.trim();
        let (name, lock) = match what.split_once('[') {
            Some((name, lock)) => (name.trim(), Some(lock.strip_suffix(']').ok_or(ConditionError::Form)?.to_owned())),
            None => (what, None),
        };
        let quantity = Quantity::ALL.into_iter().find(|quantity| quantity.name() == name);
        let quantity = quantity.ok_or_else(|| ConditionError::Quantity(name.to_owned()))?;
        Ok(Self { quantity, lock, growth })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = self.lock.as_ref().map(|lock| format!("[{lock}]")).unwrap_or_default();
        // Parts of a percent are told as they were given.
        let percent = (self.growth * 1e8).round() / 1e6;
        write!(f, "{}{lock} > +{percent}%", self.quantity.name())
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What becomes of conditions in a comparison, in the same order.
#[must_use]
pub fn judge(diff: &Diff, conditions: &[Condition]) -> Vec<Judged> {
    conditions.iter().map(|condition| condition.judge(diff)).collect()
}

impl Condition {
    fn judge(&self, diff: &Diff) -> Judged {
        let Self { quantity, .. } = *self;
        let meaning = quantity.meaning();
        let cases: Vec<(String, &Change)> = match &self.lock {
            None => vec![(format!("{meaning} of the program"), quantity.of_all(&diff.overall))],
            Some(part) => {
                let named = |name: &str| name.contains(part.as_str());
                let locks = diff.locks.iter().filter(|l| named(&l.name) || l.name_a.as_deref().is_some_and(named));
                locks.map(|lock| (format!("{meaning} of `{}`", lock.name), quantity.of_lock(lock))).collect()
            }
        };
        if cases.is_empty() {
            let part = self.lock.as_deref().unwrap_or_default();
            let reasons = vec![format!("No lock's name contains {part:?}.")];
            return Judged { condition: self.clone(), outcome: Outcome::Inconclusive, reasons };
        }
        let show = quantity.show(self.lock.is_some());
        let judged = cases.into_iter().map(|(what, change)| (self.outcome(change, &diff.thresholds), what, change));
        let judged: Vec<_> = judged.collect();
        let worst = judged.iter().map(|&(outcome, ..)| outcome).max().unwrap_or(Outcome::Passed);
        let reasons = judged
            .iter()
            .filter(|&&(outcome, ..)| outcome == worst && (outcome > Outcome::Passed || self.lock.is_none()));
        let reasons = reasons.map(|(outcome, what, change)| reason(*outcome, what, change, show)).collect();
        Judged { condition: self.clone(), outcome: worst, reasons }
    }

    fn outcome(&self, change: &Change, thresholds: &Thresholds) -> Outcome {
        let (Some(a), Some(b)) = (change.a, change.b) else { return Outcome::Inconclusive };
        let allowed = a * (1.0 + self.growth);
        let doubt = change.sd[1].hypot(change.sd[0] * (1.0 + self.growth));
        match b - allowed {
            // What takes next to no time is of no consequence, however much it grows.
            excess if excess <= 0.0 || !change.matters => Outcome::Passed,
            excess if excess > thresholds.deviations * doubt => Outcome::Failed,
            _ => Outcome::Inconclusive,
        }
    }
}

fn reason(outcome: Outcome, what: &str, change: &Change, show: fn(f64) -> String) -> String {
    let values = from_to(change, show);
    let grown = match change.ratio {
        Some(ratio) => format!(" ({:+.1} %)", (ratio - 1.0) * 100.0),
        None => String::new(),
    };
    let doubt = match (outcome, change.a.zip(change.b)) {
        (Outcome::Inconclusive, Some(_)) => "; chance explains that",
        _ => "",
    };
    format!("{what}: {values}{grown}{doubt}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Condition {
        text.parse().unwrap()
    }

    #[test]
    fn conditions_are_read_and_told() {
        for (text, told) in [
            ("wait > +20 %", "wait > +20%"),
            ("wait>+0%", "wait > +0%"),
            (" hold[a > b] > +12.5% ", "hold[a > b] > +12.5%"),
            ("contended[] > +100%", "contended[] > +100%"),
        ] {
            assert_eq!(condition(text).to_string(), told);
            assert_eq!(condition(told), condition(text));
        }
        for text in ["wait", "wait > 20%", "wait > +20", "wait > +x%", "wait[a > +20%", "wait > +-1%", "wait > +inf%"] {
            assert_eq!(text.parse::<Condition>(), Err(ConditionError::Form), "{text}");
        }
        assert_eq!("waits > +1%".parse::<Condition>(), Err(ConditionError::Quantity("waits".to_owned())));
    }

    fn outcome(a: f64, b: f64, sd: [f64; 2], matters: bool) -> Outcome {
        let change = Change { a: Some(a), b: Some(b), ratio: Some(b / a), called_out: false, sd, matters };
        condition("wait > +20%").outcome(&change, &Thresholds::default())
    }

    #[test]
    fn growth_beyond_chance_fails() {
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
    fn what_is_not_known_is_inconclusive() {
        let change = Change { b: Some(2.0), ..Change::default() };
        assert_eq!(condition("hold > +1%").outcome(&change, &Thresholds::default()), Outcome::Inconclusive);
        assert_eq!(reason(Outcome::Inconclusive, "mean hold", &change, time), "mean hold: unknown -> 2 ns.");
    }
}
