//! Totals: what was seen per unit of own work, times all of the work.

use super::Costs;
use super::interval::{Interval, gamma, student};
use super::moments::{Count, Moments, Pairs};
use super::process::{ProcessSums, Sizes};
use super::shadow::Own;
use super::stretch::{FREE, SAMPLED};

/// What placing and removing probes may take of the target's CPU time, which is not priced.
const PLACING: f64 = 0.03;
/// Where fewer of those that are so long lie inside a window, weights end.
pub(super) const LEAST_INSIDE: f64 = 0.02;

/// One subject, the process that it belongs to, and what observing costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale<'a> {
    pub process: &'a ProcessSums,
    pub moments: &'a Moments,
    pub costs: &'a Costs,
}

impl<'a> Scale<'a> {
    /// How many acquisitions there may have been of which no window tells.
    pub(super) fn unknown(&self) -> f64 {
        let seen = self.moments.windows > 0.0;
        if seen { self.process.unfamiliar(self.costs) } else { self.process.unseen(self.costs) }
    }

    /// The same as a share of all, beside those seen and `sampled` estimated ones.
    pub(super) fn unknown_share(&self, sampled: f64) -> f64 {
        let unknown = self.unknown();
        if unknown > 0.0 { unknown / (unknown + sampled + self.moments.whole.acquisitions) } else { 0.0 }
    }

    /// Variance of a ratio over windows; `None` if there is not much more than one that counts.
    pub(super) fn variance(&self, pairs: &Pairs) -> Option<f64> {
        // Windows of equal weight that would tell as much (Kish).
        let n = if pairs.below2 > 0.0 { pairs.below * pairs.below / pairs.below2 } else { 0.0 };
        let t = student(n - 1.0);
        let spread = pairs.deviation() / (pairs.below * pairs.below) * t * t * (1.0 - self.process.fraction());
        (n > 1.5 && pairs.below > 0.0).then(|| spread * n / (n - 1.0))
    }

    /// Independent sections that would know a share as well as these windows do. Where windows do not differ at all, it is
    /// between all sections and all windows.
    pub(super) fn independent(&self, pairs: &Pairs, count: f64) -> f64 {
        let share = pairs.ratio().clamp(0.0, 1.0);
        match self.variance(pairs) {
            Some(variance) if variance > 0.0 && share * (1.0 - share) > 0.0 => {
                (share * (1.0 - share) / variance).min(count)
            }
            _ => count.powf(0.75) * self.moments.windows.powf(0.25),
        }
    }

    /// Σ of the weighted waits, and the same without those that a window's edge has hidden: a wait that began before the
    /// window is not seen to end in it. `length` is what must fit in beside the wait.
    pub(super) fn waits(&self, length: f64) -> (f64, f64) {
        let inside = self.process.inside(length).max(LEAST_INSIDE);
        self.moments.waits.iter().fold((0.0, 0.0), |(seen, all), &(bucket, n)| {
            let fits = self.process.inside(length + middle(bucket.into())).max(LEAST_INSIDE);
            (seen + n, all + n * (inside / fits).max(1.0))
        })
    }
}

/// The middle of a bucket, ns.
pub(super) fn middle(bucket: usize) -> f64 {
    2f64.powf(bucket as f64 + 0.5)
}

/// Acquisitions in all.
pub(super) fn acquisitions(scale: &Scale<'_>) -> Interval {
    let Scale { process, moments, costs } = scale;
    let (seen, waited) = scale.waits(0.0);
    let completed = moments.contended.below;
    let hidden = if completed > 0.0 { 1.0 + (waited - seen) / completed } else { 1.0 };
    let in_way = |way: usize| total(process.sizes.get(way)?, moments.counts.get(way)?, process);
    let by_samples = process.shadow.own(costs).filter(|_| process.works());
    let all = match by_samples.and_then(|own| Some((own, in_way(SAMPLED)?, process.sizes.get(SAMPLED)?))) {
        Some((Own { least, likely, most }, total, sizes)) => {
            let of_work = |own: f64| {
                // Sizes add up to more than the work, and to more than all was: by both the same.
                let scaled = total.map(|x| x * sizes.plain / own * (sizes.of - sizes.plain + own) / sizes.of);
                scaled.capped(process.most(costs))
            };
            [likely, most, least].map(of_work).into_iter().reduce(Interval::or)
        }
        None => process.ways().iter().filter_map(|&way| in_way(way)).reduce(Interval::or),
    };
    let sampled = match all {
        Some(total) => {
            // A program that works off what comes at its own pace, waiting busily, does not do less while observed: it
            // waits less. One that had no time left to wait has no such pace.
            let paced = in_way(FREE).filter(|_| process.speed() > 0.5);
            let low = paced.map_or(total.low, |paced| total.low.min(paced.low * (1.0 - PLACING)));
            let low = low * (1.0 - process.unfamiliar_share());
            Interval { low, high: total.high + scale.unknown(), ..total }.map(|x| x * hidden)
        }
        None => Interval { high: moments.seen + scale.unknown(), ..Interval::exact(moments.seen) },
    };
    sampled.map(|x| x.max(moments.seen) + moments.whole.acquisitions)
}

/// A total in one way; `None` if there is nothing to scale with.
pub(super) fn total(sizes: &Sizes, count: &Count, process: &ProcessSums) -> Option<Interval> {
    let n = process.clusters;
    if sizes.sum <= 0.0 || count.sum <= 0.0 {
        return None;
    }
    let rate = count.sum / sizes.sum;
    let (value, unit) = (rate * sizes.of, sizes.of / sizes.sum);
    let unseen = 1.0 - (sizes.plain / sizes.of).clamp(0.0, 1.0);
    let deviation = (count.squares - 2.0 * rate * count.product + rate * rate * sizes.squares).max(0.0);
    let variance = if n > 1.5 {
        let t = student(n - 1.0);
        unit * unit * deviation * n / (n - 1.0) * t * t * unseen
    } else {
        value * value * unseen
    };
    // One more window like the fullest one may have been missed.
    let one = (unit * (count.largest - count.sum / n)).max(0.0) * unseen;
    let shape = |value: f64, variance: f64| value * value / variance.max(value * value * 1e-12);
    let low = value * gamma(shape(value, variance)).0;
    let high = (value + one) * gamma(shape(value + one, variance + one * one)).1;
    Some(Interval { value, low, high })
}
