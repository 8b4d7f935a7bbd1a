//! Conditions on which a comparison fails: `wait > +20%`, `contended[] > 30% and wait[] > 50ms`.

mod comparison;
mod quantity;

use super::change::Change;
use super::schema::Diff;
use comparison::Comparison;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What stands between comparisons.
const AND: &str = " and ";

/// Comparisons all of which have to be true: those about locks of the same name, of one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    all: Vec<Comparison>,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has another form.
    #[error(
        "a condition has the form QUANTITY > +N%, < -N% or > VALUE, or QUANTITY[LOCK] > …, joined by `and`: for example 'wait > +20%', 'hold[cache_lock] > 2ms' or 'contended[] > 30% and wait[] > +20%'"
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
    /// Nothing went beyond the bounds.
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

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (mut all, mut rest) = (Vec::new(), text);
        // The name of a lock may have the word in it, too.
        let first = |text: &str| text.match_indices(AND).find_map(|(at, _)| Some((text[..at].parse().ok()?, at)));
        while let Some((comparison, at)) = first(rest) {
            all.push(comparison);
            rest = &rest[at + AND.len()..];
        }
        all.push(rest.parse()?);
        Ok(Self { all })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.all.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(AND))
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
        let mut subjects: Vec<(&Option<String>, Vec<&Comparison>)> = Vec::new();
        for comparison in &self.all {
            match subjects.iter_mut().find(|(lock, _)| **lock == comparison.lock) {
                Some((_, comparisons)) => comparisons.push(comparison),
                None => subjects.push((&comparison.lock, vec![comparison])),
            }
        }
        let mut judged = Judged { condition: self.clone(), outcome: Outcome::Failed, reasons: Vec::new() };
        for (lock, comparisons) in subjects {
            let (outcome, reasons) = about(diff, lock.as_deref(), &comparisons);
            judged.outcome = judged.outcome.min(outcome);
            judged.reasons.extend(reasons);
        }
        judged
    }
}

/// What is compared with the bounds, and what becomes of all of them together.
struct Subject<'a> {
    name: String,
    cases: Vec<(&'a Comparison, Change)>,
    outcome: Outcome,
}

/// The worst of what becomes of comparisons that have to be true together: of the program, or of one of the locks of a name.
fn about(diff: &Diff, lock: Option<&str>, comparisons: &[&Comparison]) -> (Outcome, Vec<String>) {
    let subject = |name: String, of: &dyn Fn(&Comparison) -> Change| {
        let cases: Vec<_> = comparisons.iter().map(|&c| (c, of(c))).collect();
        let outcomes = cases.iter().map(|(comparison, change)| comparison.outcome(change, &diff.thresholds));
        Subject { outcome: outcomes.min().unwrap_or(Outcome::Passed), name, cases }
    };
    let subjects: Vec<Subject<'_>> = match lock {
        None => vec![subject("the program".to_owned(), &|c| c.quantity.of_all(diff))],
        Some(part) => {
            let named = |name: &str| name.contains(part);
            let locks = diff.locks.iter().filter(|l| named(&l.name) || l.name_a.as_deref().is_some_and(named));
            locks.map(|lock| subject(format!("`{}`", lock.name), &|c| c.quantity.of_lock(lock))).collect()
        }
    };
    if let (Some(part), true) = (lock, subjects.is_empty()) {
        return (Outcome::Inconclusive, vec![format!("No lock's name contains {part:?}.")]);
    }
    let worst = subjects.iter().map(|subject| subject.outcome).max().unwrap_or(Outcome::Passed);
    // That every lock passed is said in one word.
    let told = |subject: &&Subject<'_>| (worst > Outcome::Passed || lock.is_none()) && subject.outcome == worst;
    let reasons = subjects.iter().filter(told).flat_map(|Subject { name, cases, .. }| {
        cases.iter().map(move |(comparison, change)| comparison.reason(name, change, &diff.thresholds))
    });
    (worst, reasons.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_joined_outside_of_names() {
        let told = |text: &str| text.parse::<Condition>().unwrap().to_string();
        for text in ["wait > +20%", "wait > +20% and hold > 2ms", "wait[a and b] > +20% and held[c > +1% and d] < 3%"] {
            assert_eq!(told(text), text);
        }
        let condition: Condition = "wait[a > +1% and b] > +2% and hold > +3%".parse().unwrap();
        assert_eq!((condition.all.len(), condition.all[0].lock.as_deref()), (2, Some("a > +1% and b")));
        for text in ["wait > +20% and", "wait > +20% and hold", ""] {
            assert_eq!(text.parse::<Condition>(), Err(ConditionError::Form), "{text}");
        }
        assert_eq!("wait > +1% and w > +1%".parse::<Condition>(), Err(ConditionError::Quantity("w".to_owned())));
    }
}
