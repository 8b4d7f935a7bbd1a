//! Ratios: the mean hold, the contended share.

use super::Costs;
use super::interval::{Interval, gamma, wilson};
use super::ratio::{LEAST_INSIDE, Scale, middle};
use super::stretch::multiples;

/// Probes make sections longer and everything else slower: by more than this the contended share is not corrected.
const MAX_DISTORTION: f64 = 1e4;

/// What observing adds to a hold: as calibrated, at least, at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bias {
    pub nominal: f64,
    pub least: f64,
    pub most: f64,
}

impl Bias {
    /// The bias of one subject.
    pub(super) fn of(scale: &Scale<'_>) -> Self {
        let m = scale.moments;
        let sections = m.contended.below + m.whole.completed;
        let inner = if sections > 0.0 { (m.inner_hits + m.whole.inner_hits) / sections } else { 0.0 };
        Self::beside(inner, scale.costs)
    }

    /// The bias of sections, each of which has on average `inner` hits of probes inside.
    pub(super) fn beside(inner: f64, costs: &Costs) -> Self {
        let nominal = costs.hold_bias_ns + inner * costs.hit_ns;
        let (least, most) = multiples(costs);
        Self { nominal, least: least * nominal, most: most * nominal }
    }

    pub(super) fn interval(&self) -> Interval {
        Interval { value: self.nominal, low: self.least, high: self.most }
    }

    /// An interval without it.
    pub(super) fn remove(&self, from: Interval) -> Interval {
        Interval {
            value: (from.value - self.nominal).max(0.0),
            low: (from.low - self.most).max(0.0),
            high: (from.high - self.least).max(0.0),
        }
    }
}

/// The part of all sections that is longer than any window, as far as that is no chance.
pub(super) fn too_long(scale: &Scale<'_>) -> f64 {
    let m = scale.moments;
    let all = m.hold.below;
    if all <= 0.0 || m.seen <= 0.0 {
        return 0.0;
    }
    let resolved: f64 = m.tails.buckets().map(|(b, n, _)| n / inside(scale, b)).sum();
    let chance = 3.0 * m.cut.sqrt() / m.seen;
    // Half a window is seen, on average, of what is longer than a window.
    let most = 2.0 * m.cut_ns / scale.process.window().max(1.0) / all;
    ((all - resolved) / all - chance).clamp(0.0, most.max(0.0))
}

/// How likely a section of a bucket lies inside a window.
pub(super) fn inside(scale: &Scale<'_>, bucket: usize) -> f64 {
    let length = middle(bucket).min(scale.moments.hold_max_ns as f64);
    scale.process.inside(length).max(LEAST_INSIDE)
}

/// Mean hold; `sampled` acquisitions are known from windows only.
pub(super) fn hold(scale: &Scale<'_>, sampled: f64) -> Interval {
    let m = scale.moments;
    let time = scale.process.weighted_time();
    // Those that began before a window and ended after it.
    let spanning: f64 = m
        .tails
        .buckets()
        .map(|(b, n, _)| {
            let length = middle(b).min(m.hold_max_ns as f64);
            n / (inside(scale, b) * time.max(1.0)) * scale.process.spanning(length)
        })
        .sum();
    let value = if m.hold.below > 0.0 { m.hold.ratio() + spanning / m.hold.below } else { 0.0 };
    // Few sections, in few windows, do not tell how far others differ: not worse than one in exponentially distributed ones.
    let few = m.seen.min(3.0) / 2.0;
    // What lies beyond the edges differs from window to window, too, unseen.
    let edges = 1.0 + m.cut / m.seen.max(1.0);
    let variance = scale.variance(&m.hold).map(|variance| edges * variance);
    let shape = variance.map_or(few, |variance| (value * value / variance.max(value * value * 1e-12)).max(few));
    let longest = scale.process.time();
    let (least, most) = gamma(shape);
    let high = if least > 0.0 { (value / least).min(longest) } else { longest };
    let observed = Interval { value, low: value / most, high: high.max(value) + too_long(scale) * longest };
    let known = Bias::of(scale).remove(with_whole(observed, sampled, m.whole.hold_ns, m.whole.acquisitions));
    known.unsure(scale.unknown_share(sampled), longest)
}

/// Share of contended acquisitions.
pub(super) fn contended_share(scale: &Scale<'_>, sampled: f64) -> Interval {
    let m = scale.moments;
    let share = m.contended.ratio().clamp(0.0, 1.0);
    let count = (m.seen - m.cut).max(0.0);
    let (low, high) = wilson(share, scale.independent(&m.contended, count));
    let mean = m.hold.ratio();
    let (seen, all) = scale.waits(mean);
    let hidden = if seen > 0.0 { all / seen } else { 1.0 };
    // A probed section is longer, and comes more seldom since all else is slower too: unobserved, the lock is found held
    // so many times less often, if who asks does not care.
    let held = mean - Bias::of(scale).nominal;
    let distortion = if mean > 0.0 { mean / held.max(mean / MAX_DISTORTION) * scale.process.speed() } else { 1.0 };
    let corrected = |share: f64, by: f64| odds(share, hidden / by);
    // How much that is depends on the program: it is taken to be in the middle.
    let observed = Interval {
        value: corrected(share, distortion.sqrt()),
        low: corrected(low, distortion.max(1.0)),
        high: corrected(high, distortion.min(1.0)),
    };
    let known = with_whole(observed, sampled, m.whole.contended, m.whole.completed).map(|share| share.clamp(0.0, 1.0));
    known.unsure(scale.unknown_share(sampled), 1.0)
}

/// A share of which the odds are so many times as high.
fn odds(share: f64, times: f64) -> f64 {
    let above = share * times;
    if above > 0.0 { above / (1.0 - share + above) } else { 0.0 }
}

/// The mean over what is estimated and what was all seen: a sum over a number.
fn with_whole(sampled: Interval, number: f64, sum: f64, of: f64) -> Interval {
    if number + of > 0.0 { sampled.map(|mean| (mean * number + sum) / (number + of)) } else { sampled }
}
