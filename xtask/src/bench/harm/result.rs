//! What was found of one target in one mode.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{injury::Injury, traces::Left};
use crate::bench::stats::Spread;

/// The part of its speed that a target must have again.
const SPEED: f64 = 0.98;

/// Something that is not as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// The target, or a child of its, has died: how.
    Dead(String),
    /// A worker does not get on.
    Hangs,
    /// A worker did not get on while the observer was stopped.
    HungMeanwhile,
    /// So many bytes of code are not those of their files.
    Text(usize),
    /// CPUs, signals or states of threads that were not so before.
    Marks(Vec<String>),
    /// On the machine.
    Left(Left),
    /// The observer failed by itself.
    Observer(String),
}

impl Harm {
    /// The column that counts it.
    pub(super) fn column(&self) -> Column {
        match self {
            Self::Dead(_) => Column::Dead,
            Self::Hangs | Self::HungMeanwhile => Column::Hung,
            Self::Text(_) => Column::Text,
            Self::Marks(_) => Column::Marks,
            Self::Left(_) => Column::Left,
            Self::Observer(_) => Column::Observer,
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dead(how) => write!(f, "the target has died: {how}"),
            Self::Hangs => write!(f, "the target hangs"),
            Self::HungMeanwhile => write!(f, "the target hung while the observer was stopped"),
            Self::Text(bytes) => write!(f, "{bytes} bytes of the target's code are not those of its files"),
            Self::Marks(marks) => write!(f, "threads are not as before: {}", marks.join("; ")),
            Self::Left(left) => write!(f, "left behind: {left:?}"),
            Self::Observer(error) => write!(f, "the observer failed: {error}"),
        }
    }
}

/// Columns of rounds with harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Column {
    Dead,
    Hung,
    Text,
    Marks,
    Left,
    Observer,
}

impl Column {
    pub(super) const ALL: [Self; 6] = [Self::Dead, Self::Hung, Self::Text, Self::Marks, Self::Left, Self::Observer];
}

/// What one round showed.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) harms: Vec<Harm>,
    /// The target's speed afterwards, by that before.
    pub(super) after: Option<f64>,
    /// Its speed while the observer was stopped, by that before.
    pub(super) while_stopped: Option<f64>,
    /// How long it took until nothing was left, s.
    pub(super) settled_s: f64,
}

/// One mode with one target.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) mode: &'static str,
    pub(super) target: &'static str,
    /// Kills, stops, kills of a cgroup.
    pub(super) rounds: [u32; 3],
    /// Rounds with each kind of harm.
    pub(super) harms: BTreeMap<Column, u32>,
    /// The target's speed after each round, by that before.
    pub(super) after: Vec<f64>,
    /// Its speed while the observer was stopped, by that before.
    pub(super) while_stopped: Vec<f64>,
    /// How long it took at most until nothing was left, of those rounds without harm, s.
    pub(super) settled_s: f64,
}

impl Row {
    pub(super) fn new(mode: &'static str, target: &'static str) -> Self {
        let (harms, after, while_stopped) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { mode, target, rounds: [0; 3], harms, after, while_stopped, settled_s: 0.0 }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, injury: Injury, round: Round) {
        self.rounds[injury as usize] += 1;
        self.after.extend(round.after);
        self.while_stopped.extend(round.while_stopped);
        self.settled_s = self.settled_s.max(round.settled_s);
        let mut columns: Vec<Column> = round.harms.iter().map(Harm::column).collect();
        columns.dedup();
        columns.into_iter().for_each(|column| *self.harms.entry(column).or_default() += 1);
    }

    /// Whether everything was as before after every round.
    pub(super) fn is_unharmed(&self) -> bool {
        let reached = |ratios: &[f64]| Spread::of(ratios.iter().copied()).is_none_or(|spread| spread.median >= SPEED);
        self.harms.is_empty() && reached(&self.after) && reached(&self.while_stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_rounds_and_judges() {
        let mut row = Row::new("default", "forking");
        row.add(Injury::Kill, Round { after: Some(0.99), settled_s: 0.4, ..Round::default() });
        row.after.extend([1.01, 0.97]);
        assert!(row.is_unharmed());
        row.while_stopped.push(0.2);
        assert!(!row.is_unharmed());
        row.while_stopped.clear();
        let harms = vec![Harm::Hangs, Harm::HungMeanwhile, Harm::Text(2)];
        row.add(Injury::Stop, Round { harms, ..Round::default() });
        assert_eq!((row.rounds, row.harms[&Column::Hung], row.harms[&Column::Text]), ([1, 1, 0], 1, 1));
        assert!(!row.is_unharmed());
    }
}
