//! The 99th percentile of holds.

use super::interval::{Interval, wilson};
use super::mean::{Bias, inside, too_long};
use super::moments::Pairs;
use super::ratio::Scale;
use lockbpf_common::sums::BUCKETS;

/// The part of all sections that is longer than the quantile.
const BEYOND: f64 = 0.01;

/// The part of all sections that is at least as long as the lower bound of a bucket.
#[derive(Clone, Copy, Debug)]
struct Tail {
    share: f64,
    low: f64,
    high: f64,
}

/// The 99th percentile; `sampled` acquisitions are known from windows only. `mean` is the mean hold.
pub(super) fn p99(scale: &Scale<'_>, sampled: f64, mean: Interval) -> Interval {
    let m = scale.moments;
    let longest = scale.process.time();
    let tails = tails(scale, sampled);
    let edge = |bucket: usize| if bucket == 0 { 0.0 } else { 2f64.powi(bucket as i32) };
    let max = m.hold_max_ns as f64;
    // At least 2^b if surely more than 1 % are that long; below it if surely fewer are.
    let low = tails.iter().rposition(|t| t.low > BEYOND).unwrap_or(0);
    let high = tails.iter().position(|t| t.high < BEYOND);
    let at = tails.iter().rposition(|t| t.share > BEYOND).unwrap_or(0);
    let next = tails.get(at + 1).map_or(0.0, |t| t.share);
    let here = tails.get(at).map_or(0.0, |t| t.share);
    let part = if here > next { ((here - BEYOND) / (here - next)).clamp(0.0, 1.0) } else { 1.0 };
    let top = edge(at + 1).min(max).max(edge(at));
    let value = edge(at) + (top - edge(at)) * part;
    let high = match high {
        Some(bucket) => edge(bucket).min(if tails.get(bucket).is_some_and(|t| t.share > 0.0) { f64::MAX } else { max }),
        None => longest,
    };
    let observed = Interval { value, low: edge(low).min(value), high: high.max(value) };
    if m.tails.buckets().next().is_none() && m.whole.holds.is_empty() {
        // Every section was cut.
        return Interval { high: longest, ..mean };
    }
    let known = Bias::of(scale).remove(observed);
    if scale.unknown_share(sampled) > BEYOND { Interval { low: 0.0, high: longest, ..known } } else { known }
}

/// For each bucket the tail that begins with it.
fn tails(scale: &Scale<'_>, sampled: f64) -> Vec<Tail> {
    let m = scale.moments;
    let mut weighted = [0.0; BUCKETS];
    let mut pairs: [Option<Pairs>; BUCKETS] = [None; BUCKETS];
    for (bucket, n, tail) in m.tails.buckets() {
        if let (Some(slot), Some(pair)) = (weighted.get_mut(bucket), pairs.get_mut(bucket)) {
            (*slot, *pair) = (n / inside(scale, bucket), Some(tail));
        }
    }
    let beyond = too_long(scale) * m.hold.below;
    let all = (weighted.iter().sum::<f64>() + beyond).max(m.hold.below).max(1e-9);
    let whole: f64 = m.whole.holds.iter().map(|&(_, n)| n).sum();
    let count = (m.seen - m.cut).max(0.0);
    let nothing = Pairs { above: 0.0, ..m.contended };
    let nothing = Pairs { above2: 0.0, both: 0.0, ..nothing };
    let (mut above, mut exact, mut last) = (beyond, 0.0, nothing);
    let mut tails = Vec::with_capacity(BUCKETS + 1);
    for bucket in (0..=BUCKETS).rev() {
        above += weighted.get(bucket).copied().unwrap_or_default();
        last = pairs.get(bucket).copied().flatten().unwrap_or(last);
        exact += m.whole.holds.iter().find(|&&(b, _)| usize::from(b) == bucket).map_or(0.0, |&(_, n)| n);
        let share = (above / all).clamp(0.0, 1.0);
        let (low, high) = if m.windows > 0.0 { wilson(share, scale.independent(&last, count)) } else { (share, share) };
        let mix =
            |share: f64| if sampled + whole > 0.0 { (share * sampled + exact) / (sampled + whole) } else { share };
        tails.push(Tail { share: mix(share), low: mix(low), high: mix(high) });
    }
    tails.reverse();
    tails
}
