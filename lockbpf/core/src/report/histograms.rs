//! How long waits and holds of each lock were, by powers of two: what small histograms are drawn from.

use super::lock::Ranked;
use super::schema::Unit;
use crate::sums::Measure;
use crate::units::Nanos;
use serde::Serialize;

/// Distributions of one lock's durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histograms {
    /// Waits that were measured. An uncontended acquisition, which waits for nothing, is none of them.
    pub wait: Vec<Bar>,
    /// Holds that were measured. Empty where they are not known.
    pub hold: Vec<Bar>,
}

/// How many durations were at least `from_ns`, and below twice that; the first bar of all begins at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// A power of two, or 0.
    pub from_ns: u64,
    /// How many.
    pub count: u64,
}

/// The histograms of each lock, in the same order.
pub(super) fn histograms(ranked: &[Ranked<'_>], unit: Unit) -> Vec<Histograms> {
    ranked.iter().map(|r| Histograms { wait: bars(&r.wait, unit), hold: bars(&r.total.hold, unit) }).collect()
}

/// Durations by powers of two.
pub(super) fn bars(measure: &Measure, unit: Unit) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for (low, _, count) in measure.histogram.spans(measure.max) {
        let ns = unit.ns(Nanos(low as u64)).whole();
        let from_ns = if ns < 2 { 0 } else { 1 << ns.ilog2() };
        match bars.last_mut() {
            Some(last) if last.from_ns == from_ns => last.count += count as u64,
            _ => bars.push(Bar { from_ns, count: count as u64 }),
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        let mut measure = Measure::default();
        for ns in [0, 1, 2, 3, 4, 1_000, 1_023, 1_024] {
            measure.add(Nanos(ns));
        }
        let bar = |from_ns, count| Bar { from_ns, count };
        let expected = [bar(0, 2), bar(2, 2), bar(4, 1), bar(512, 2), bar(1_024, 1)];
        assert_eq!(bars(&measure, Unit::per_ns(1)), expected);
        assert_eq!(bars(&measure, Unit::per_ns(1_000)), [bar(0, 8)]);
        assert_eq!(bars(&Measure::default(), Unit::per_ns(1)), []);
    }
}
