//! How far a sum over waits may be off of which some were recorded for others ([`lockbpf_common::thin`]). On all that ends in the same slice of time chance
//! decides together, so what a slice tells is recorded or missed as a whole: of one that stands for n, with the sum x, n(n − 1)x² is its part of the
//! variance (Horvitz–Thompson).

use crate::estimate::Interval;
use crate::units::{Nanos, Time};
use lockbpf_common::thin::slice;

/// Slices that waits may still come of: CPUs record side by side.
const RECENT: usize = 4;

/// What is known of such a sum. The slice is that of a wait's end, which is a little later than that of the wake on which chance decided.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    variance: f64,
    /// The slices of the waits before, and what they told.
    recent: [(u64, f64); RECENT],
    next: usize,
    /// What was recorded by itself.
    recorded: Nanos,
}

impl Spread {
    /// Adds a wait that stands for so many.
    pub(super) fn add(&mut self, end: Time, count: u64, wait: Nanos) {
        let slice = slice(end.0);
        let known = self.recent.iter().position(|&(recent, _)| recent == slice);
        let place = known.unwrap_or(self.next);
        self.next = if known.is_some() { self.next } else { (self.next + 1) % RECENT };
        let before = known.map_or(0.0, |place| self.recent[place].1);
        let (told, count) = (before + wait.0 as f64, count as f64);
        self.recent[place] = (slice, told);
        self.variance += count * (count - 1.0) * (told.powi(2) - before.powi(2));
        self.recorded += wait;
    }

    /// The sum with its 95 % interval; `None` if it is known. What was recorded is part of it.
    #[must_use]
    pub fn around(&self, sum: Nanos) -> Option<Interval> {
        let least = self.recorded.0.min(sum.0) as f64;
        (self.variance > 0.0).then(|| Interval::normal(sum.0 as f64, self.variance.sqrt(), least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_by_itself_is_certain() {
        let mut spread = Spread::default();
        (0..10).for_each(|i| spread.add(Time(i << 30), 1, Nanos(100)));
        assert_eq!(spread.around(Nanos(1_000)), None);
        spread.add(Time(10 << 30), 4, Nanos(100));
        let interval = spread.around(Nanos(1_400)).unwrap();
        assert_eq!((interval.value, interval.low), (1_400.0, 1_100.0));
        assert!(interval.high > 2_000.0);
    }

    #[test]
    fn waits_of_one_slice_count_together_though_others_come_between_them() {
        let of = |slices: [u64; 4]| {
            let mut spread = Spread::default();
            slices.into_iter().for_each(|slice| spread.add(Time(slice << 20), 8, Nanos(1_000)));
            spread.around(Nanos(32_000)).unwrap().high
        };
        assert_eq!(of([5, 5, 6, 6]), of([5, 6, 5, 6]));
        assert!(of([5, 5, 6, 6]) > of([5, 6, 7, 8]));
    }

    /// As often as it says, the truth is within the interval: of ten waits in each slice one slice in four is recorded.
    #[test]
    fn intervals_are_as_wide_as_chance_makes_them() {
        let (slices, of_slice) = (400u64, 10);
        let truth = (slices * of_slice * 1_000) as f64;
        let mut random = 0x1234_5678_9abc_def1u64;
        let mut within = 0;
        for _ in 0..1_000 {
            let (mut spread, mut sum) = (Spread::default(), Nanos(0));
            for i in 0..slices {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random >> 62 == 0 {
                    (0..of_slice).for_each(|_| spread.add(Time(i << 30), 4, Nanos(1_000)));
                    sum += Nanos(of_slice * 4_000);
                }
            }
            let Some(interval) = spread.around(sum) else { continue };
            within += u32::from((interval.low..=interval.high).contains(&truth));
        }
        assert!((920..=980).contains(&within), "{within} of 1000");
    }
}
