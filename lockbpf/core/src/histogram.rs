//! Distributions of durations and their quantiles: as exact as what was counted allows, in bounded memory.
//!
//! Durations counted one by one are kept exactly as long as there are few different ones, then to within 0.4 %. What the
//! kernel counted is known to within a factor of two, and so is whatever is merged with that.

use crate::units::Nanos;
use lockbpf_common::sums::{BUCKETS, bucket};
use std::sync::Arc;

/// Different durations kept exactly: 16 KB.
const MAX_EXACT: usize = 1_024;
/// Beyond, each octave is divided into so many steps, as a power of two.
const FINE_BITS: u32 = 7;
/// The number itself.
const STEPS: usize = 1 << FINE_BITS;
/// Octaves: durations with the same number of bits. Those below [`STEPS`] share the first.
const OCTAVES: usize = (u64::BITS - FINE_BITS + 1) as usize;

/// Counts of durations. A copy shares them until one of the two counts on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(Arc<Kept>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// Durations and how often each occurred, in order.
    Exact(Vec<(u64, u64)>),
    /// Counts by octave and step; octaves without any are not there.
    Fine(Box<[Option<Box<[u64; STEPS]>>; OCTAVES]>),
    /// Counts by power of two: bucket b covers [2^b, 2^(b+1)) ns, bucket 0 also 0 ns, the last one is open.
    Coarse(Box<[u64; BUCKETS]>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

/// Durations that are not told apart: from `low` up to `high`, both included.
struct Cell {
    low: u64,
    high: u64,
    count: u64,
}

impl Histogram {
    /// Adds the counts of a histogram kept in the kernel.
    pub fn merge_raw(&mut self, raw: &[u64; BUCKETS]) {
        if raw.iter().any(|&count| count > 0) {
            self.add_coarse(raw.iter().copied());
        }
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        match &*other.0 {
            Kept::Exact(values) => values.iter().for_each(|&(value, count)| self.add_many(value, count)),
            Kept::Fine(_) => {
                if matches!(*self.0, Kept::Exact(_)) {
                    self.refine();
                }
                other.0.cells().into_iter().for_each(|cell| self.add_many(cell.low, cell.count));
            }
            Kept::Coarse(counts) => self.add_coarse(counts.iter().copied()),
        }
    }

    /// Counts one duration.
    pub fn add(&mut self, duration: Nanos) {
        self.add_many(duration.0, 1);
    }

    /// Counts one duration that stands for this many like it.
    pub fn add_for(&mut self, count: u64, duration: Nanos) {
        self.add_many(duration.0, count);
    }

    /// Durations counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        match &*self.0 {
            Kept::Exact(values) => values.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count)),
            Kept::Fine(octaves) => {
                octaves.iter().flatten().flat_map(|steps| steps.iter()).fold(0, |sum, &n| sum.saturating_add(n))
            }
            Kept::Coarse(counts) => counts.iter().fold(0, |sum, &count| sum.saturating_add(count)),
        }
    }

    /// The q-quantile (0 < q ≤ 1) by nearest rank: the smallest duration that at least a share of q does not exceed.
    /// Where durations are not told apart it is interpolated. Never above `max`; zero if empty.
    #[must_use]
    pub fn quantile(&self, q: f64, max: Nanos) -> Nanos {
        let total = self.count() as f64;
        // What rounding adds to a product that should be whole must not make the next rank of it.
        self.nth((q * total * (1.0 - 1e-12)).ceil().clamp(1.0, total.max(1.0)) as u64, max)
    }

    /// The duration of a rank, counted from 1 for the shortest; like [`Histogram::quantile`].
    #[must_use]
    pub fn nth(&self, rank: u64, max: Nanos) -> Nanos {
        let mut below = 0u64;
        for Cell { low, high, count } in self.0.cells() {
            let upto = below.saturating_add(count);
            if upto >= rank {
                let high = high.min(max.0).max(low);
                let part = (rank - below) as f64 / count as f64;
                let inside = if low == high { 0 } else { ((high - low) as f64 * part) as u64 };
                return Nanos(low.saturating_add(inside).min(max.0));
            }
            below = upto;
        }
        if below == 0 { Nanos(0) } else { max }
    }

    /// Durations that are not told apart, from the shortest: from, up to, how many. None is above `max`.
    pub(crate) fn spans(&self, max: Nanos) -> impl Iterator<Item = (f64, f64, f64)> {
        self.0.cells().into_iter().map(move |Cell { low, high, count }| {
            let high = high.min(max.0).max(low);
            (low as f64, high as f64, count as f64)
        })
    }

    /// Makes each count stand for so many.
    pub fn scale(&mut self, factor: f64) {
        let times = |count: &mut u64| *count = (*count as f64 * factor).round() as u64;
        match Arc::make_mut(&mut self.0) {
            Kept::Exact(values) => {
                values.iter_mut().for_each(|(_, count)| times(count));
                values.retain(|&(_, count)| count > 0);
            }
            Kept::Fine(octaves) => octaves.iter_mut().flatten().flat_map(|steps| steps.iter_mut()).for_each(times),
            Kept::Coarse(counts) => counts.iter_mut().for_each(times),
        }
    }

    fn add_many(&mut self, duration: u64, count: u64) {
        match Arc::make_mut(&mut self.0) {
            Kept::Exact(values) => {
                match values.binary_search_by_key(&duration, |&(value, _)| value) {
                    Ok(known) => {
                        if let Some((_, sum)) = values.get_mut(known) {
                            *sum = sum.saturating_add(count);
                        }
                    }
                    Err(place) => values.insert(place, (duration, count)),
                }
                if values.len() > MAX_EXACT {
                    self.refine();
                }
            }
            Kept::Fine(octaves) => {
                let (octave, step) = fine(duration);
                if let Some(steps) = octaves.get_mut(octave)
                    && let Some(sum) = steps.get_or_insert_with(|| Box::new([0; STEPS])).get_mut(step)
                {
                    *sum = sum.saturating_add(count);
                }
            }
            Kept::Coarse(counts) => {
                if let Some(sum) = counts.get_mut(bucket(duration)) {
                    *sum = sum.saturating_add(count);
                }
            }
        }
    }

    /// Goes over to octaves and steps.
    fn refine(&mut self) {
        let cells = self.0.cells();
        self.0 = Arc::new(Kept::Fine(Box::new([const { None }; OCTAVES])));
        cells.into_iter().for_each(|cell| self.add_many(cell.low, cell.count));
    }

    /// Goes over to powers of two, and adds counts by them.
    fn add_coarse(&mut self, counts: impl Iterator<Item = u64>) {
        let mut sums = match Arc::unwrap_or_clone(std::mem::take(&mut self.0)) {
            Kept::Coarse(sums) => sums,
            finer => {
                let mut sums = Box::new([0u64; BUCKETS]);
                for cell in finer.cells() {
                    if let Some(sum) = sums.get_mut(bucket(cell.low)) {
                        *sum = sum.saturating_add(cell.count);
                    }
                }
                sums
            }
        };
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = sum.saturating_add(count);
        }
        self.0 = Arc::new(Kept::Coarse(sums));
    }
}

impl Kept {
    /// The cells with counts, in order.
    fn cells(&self) -> Vec<Cell> {
        match self {
            Self::Exact(values) => values.iter().map(|&(v, count)| Cell { low: v, high: v, count }).collect(),
            Self::Fine(octaves) => {
                let mut cells = Vec::new();
                for (octave, steps) in octaves.iter().enumerate() {
                    let steps = steps.iter().flat_map(|steps| steps.iter()).enumerate();
                    cells.extend(steps.filter(|&(_, &n)| n > 0).map(|(step, &n)| fine_cell(octave, step, n)));
                }
                cells
            }
            Self::Coarse(counts) => {
                let counts = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
                counts.map(|(b, &count)| coarse_cell(b, count)).collect()
            }
        }
    }
}

/// Octave and step of a duration.
fn fine(duration: u64) -> (usize, usize) {
    let octave = (u64::BITS - duration.leading_zeros()).saturating_sub(FINE_BITS);
    // Octave 0 has the durations below 2^7 themselves, octave o those from 2^(o+6) on, in steps of 2^(o-1).
    let step = (duration >> octave.saturating_sub(1)) & (STEPS as u64 - 1);
    (octave as usize, step as usize)
}

fn fine_cell(octave: usize, step: usize, count: u64) -> Cell {
    match octave.checked_sub(1) {
        None => Cell { low: step as u64, high: step as u64, count },
        Some(shift) => {
            let low = ((STEPS + step) as u64) << shift;
            Cell { low, high: low + ((1 << shift) - 1), count }
        }
    }
}

fn coarse_cell(b: usize, count: u64) -> Cell {
    let low = if b == 0 { 0 } else { 1 << b };
    let high = if b + 1 == BUCKETS { u64::MAX } else { (1 << (b + 1)) - 1 };
    Cell { low, high, count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(sorted: &[u64], q: f64) -> u64 {
        let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
        sorted[rank - 1]
    }

    proptest! {
        #[test]
        fn few_different_durations_are_exact(mut values in prop::collection::vec(any::<u64>(), 1..300), percent in 1u32..=100) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&v| histogram.add(Nanos(v)));
            values.sort_unstable();
            let max = Nanos(*values.last().unwrap());
            let q = f64::from(percent) / 100.0;
            // In whole numbers, where 0.07 · 100 is not a little more than 7.
            let rank = (values.len() * percent as usize).div_ceil(100);
            prop_assert_eq!(histogram.quantile(q, max), Nanos(values[rank - 1]));
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }

        #[test]
        fn many_are_within_a_step(mut values in prop::collection::vec(1u64..1 << 40, 1_100..1_500), q in 0.01f64..1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&v| histogram.add(Nanos(v)));
            prop_assert!(matches!(*histogram.0, Kept::Fine(_)));
            values.sort_unstable();
            let right = exact(&values, q) as f64;
            let estimate = histogram.quantile(q, Nanos(*values.last().unwrap())).0 as f64;
            prop_assert!((estimate - right).abs() <= right / STEPS as f64, "{} for {}", estimate, right);
        }

        #[test]
        fn every_duration_lies_in_its_cell(value: u64) {
            let (octave, step) = fine(value);
            let cell = fine_cell(octave, step, 1);
            prop_assert!(cell.low <= value && value <= cell.high);
            prop_assert!(octave < OCTAVES && cell.high - cell.low <= cell.low / STEPS as u64);
        }

        #[test]
        fn merged_is_as_if_counted_together(
            a in prop::collection::vec(0u64..5_000, 0..1_500),
            b in prop::collection::vec(0u64..5_000, 0..1_500),
        ) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|&v| histogram.add(Nanos(v)));
                histogram
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }

        #[test]
        fn the_kernels_are_within_a_factor_of_two(mut values in prop::collection::vec(1u64..1 << 34, 1..200), q in 0.01f64..1.0) {
            let mut raw = [0; BUCKETS];
            values.iter().for_each(|&v| raw[bucket(v)] += 1);
            let mut histogram = Histogram::default();
            histogram.merge_raw(&raw);
            values.sort_unstable();
            let right = exact(&values, q) as f64;
            let estimate = histogram.quantile(q, Nanos(*values.last().unwrap())).0 as f64;
            prop_assert!(estimate <= right * 2.0 && estimate >= right / 2.0, "{} for {}", estimate, right);
        }
    }

    #[test]
    fn exact_and_the_kernels_together_are_coarse() {
        let mut histogram = Histogram::default();
        histogram.add(Nanos(5));
        let mut raw = [0; BUCKETS];
        raw[3] = 3;
        histogram.merge_raw(&raw);
        assert_eq!(histogram.count(), 4);
        assert!((4..8).contains(&histogram.nth(1, Nanos(15)).0));
        assert!((8..16).contains(&histogram.nth(2, Nanos(15)).0));
    }

    #[test]
    fn empty_and_extreme() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99, Nanos(0)), Nanos(0));
        histogram.merge_raw(&[0; BUCKETS]);
        assert_eq!(histogram, Histogram::default());
        histogram.add(Nanos(u64::MAX));
        assert_eq!(histogram.quantile(0.99, Nanos(u64::MAX)), Nanos(u64::MAX));
    }
}
