//! One quantity in both recordings, and whether its change is worth a word.

use serde::Serialize;

/// ns in a second.
pub(super) const SECOND: f64 = 1e9;

/// What a change must exceed to be called out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// Larger over smaller value.
    pub factor: f64,
    /// Change of waiting or holding as a part of the recording's time.
    pub share: f64,
    /// Change in standard deviations.
    pub deviations: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { factor: 1.25, share: 0.001, deviations: 2.0 }
    }
}

/// A quantity in A and in B.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// In A; nothing where it is not known.
    pub a: Option<f64>,
    /// In B.
    pub b: Option<f64>,
    /// B over A, where that is a number.
    pub ratio: Option<f64>,
    /// Whether it exceeds the thresholds.
    pub called_out: bool,
    /// Upper bounds of the standard deviations of A's and B's values; 0 where they are not known.
    pub sd: [f64; 2],
    /// Whether the change is of any consequence, surely or not.
    pub matters: bool,
}

impl Change {
    /// B − A, where one that is not known counts as 0.
    pub(super) fn difference(&self) -> f64 {
        self.b.unwrap_or(0.0) - self.a.unwrap_or(0.0)
    }

    /// In other units.
    pub(super) fn times(self, factor: f64) -> Self {
        let [a, b] = [self.a, self.b].map(|value| value.map(|value| value * factor));
        Self { a, b, sd: self.sd.map(|sd| sd * factor), ..self }
    }

    /// The greater of both.
    pub(super) fn greater(&self) -> f64 {
        self.a.unwrap_or(0.0).max(self.b.unwrap_or(0.0))
    }
}

/// A quantity of one recording, with an upper bound of its standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) sd: f64,
}

impl Estimate {
    /// Something without chance in it.
    pub(super) fn exact(value: f64) -> Self {
        Self { value, sd: 0.0 }
    }

    /// Occurrences per `time`, if they come at random.
    pub(super) fn rate(count: f64, time: f64) -> Self {
        Self::sum(count, 1.0, time)
    }

    /// The sum of durations per `time`, the longest of which is known.
    pub(super) fn sum(sum: f64, longest: f64, time: f64) -> Self {
        Self { value: sum / time, sd: (sum * longest).max(0.0).sqrt() / time }
    }

    /// The mean of durations, the longest of which is known; nothing of none.
    pub(super) fn mean(sum: f64, longest: f64, count: f64) -> Option<Self> {
        let value = sum / count;
        (count > 0.0).then(|| Self { value, sd: ((longest - value) * value / count).max(0.0).sqrt() })
    }

    /// A part of a number; nothing of none.
    pub(super) fn share(part: f64, of: f64) -> Option<Self> {
        let value = part / of;
        (of > 0.0).then(|| Self { value, sd: (value * (1.0 - value) / of).max(0.0).sqrt() })
    }

    /// Known only to within another standard deviation.
    pub(super) fn within(self, sd: f64) -> Self {
        Self { sd: self.sd.hypot(sd), ..self }
    }

    /// In other units.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, sd: self.sd * factor }
    }
}

impl Thresholds {
    /// Compares; `matters` says, of A's and B's values, whether the change is of any consequence.
    pub(super) fn change(
        &self,
        a: Option<Estimate>,
        b: Option<Estimate>,
        matters: impl FnOnce(f64, f64) -> bool,
    ) -> Change {
        let matters = a.zip(b).is_some_and(|(a, b)| matters(a.value, b.value));
        let beyond_chance = |(a, b): (Estimate, Estimate)| {
            let (low, high) = (a.value.min(b.value), a.value.max(b.value));
            high > low && high >= low * self.factor && high - low >= self.deviations * a.sd.hypot(b.sd)
        };
        let called_out = matters && a.zip(b).is_some_and(beyond_chance);
        let sd = [a, b].map(|estimate| estimate.map_or(0.0, |e| e.sd));
        let [a, b] = [a, b].map(|estimate| estimate.map(|e| e.value));
        let ratio = a.zip(b).filter(|&(a, _)| a > 0.0).map(|(a, b)| b / a);
        Change { a, b, ratio, called_out, sd, matters }
    }

    /// Whether a ratio is within the factor: no change to speak of.
    pub(super) fn same(&self, change: &Change) -> bool {
        change.ratio.is_some_and(|ratio| ratio < self.factor && ratio > 1.0 / self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Thresholds = Thresholds { factor: 1.25, share: 0.001, deviations: 2.0 };

    fn called_out(a: Estimate, b: Estimate) -> bool {
        let change = T.change(Some(a), Some(b), |_, _| true);
        assert_eq!(change.called_out, T.change(Some(b), Some(a), |_, _| true).called_out, "both directions alike");
        change.called_out
    }

    #[test]
    fn chance_is_not_called_out() {
        // 9 and 16 of something: 7 more, one standard deviation is at most 5.
        assert!(!called_out(Estimate::rate(9.0, 1.0), Estimate::rate(16.0, 1.0)));
        assert!(called_out(Estimate::rate(900.0, 1.0), Estimate::rate(1_600.0, 1.0)));
        // One long wait among short ones, and many that are all longer.
        assert!(!called_out(Estimate::sum(100.0, 1.0, 1.0), Estimate::sum(300.0, 200.0, 1.0)));
        assert!(called_out(Estimate::sum(100.0, 1.0, 1.0), Estimate::sum(300.0, 3.0, 1.0)));
        // Means of two; of thousands; of equal ones.
        assert!(!called_out(Estimate::mean(2.0, 1.9, 2.0).unwrap(), Estimate::mean(4.0, 3.9, 2.0).unwrap()));
        assert!(called_out(Estimate::mean(2e4, 9.0, 1e4).unwrap(), Estimate::mean(4e4, 9.0, 1e4).unwrap()));
        assert!(called_out(Estimate::mean(20.0, 5.0, 4.0).unwrap(), Estimate::mean(40.0, 10.0, 4.0).unwrap()));
    }

    #[test]
    fn small_changes_are_not_called_out() {
        assert!(!called_out(Estimate::exact(100.0), Estimate::exact(124.0)));
        assert!(called_out(Estimate::exact(100.0), Estimate::exact(125.0)));
        assert!(called_out(Estimate::exact(0.0), Estimate::exact(1.0)));
        assert!(!called_out(Estimate::exact(0.0), Estimate::exact(0.0)));
        assert!(!T.change(Some(Estimate::exact(1.0)), Some(Estimate::exact(9.0)), |_, _| false).called_out);
    }

    #[test]
    fn what_is_not_known_is_no_change() {
        let change = T.change(None, Some(Estimate::exact(2.0)), |_, _| true);
        assert_eq!(change, Change { b: Some(2.0), ..Change::default() });
        assert_eq!(Estimate::mean(0.0, 0.0, 0.0), None);
        assert_eq!(Estimate::share(0.0, 0.0), None);
        assert_eq!(T.change(Some(Estimate::exact(0.0)), Some(Estimate::exact(2.0)), |_, _| true).ratio, None);
    }
}
