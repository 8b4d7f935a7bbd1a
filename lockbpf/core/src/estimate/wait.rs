//! How long threads waited in all, for locks whose waits windows alone show.
//!
//! A wait passes by itself: observing does not slow it, and it takes no CPU time. So a window stands for time here, not for work.

use super::interval::Interval;
use super::ratio::{self, LEAST_INSIDE, Scale, middle};
use super::stretch::BY_TIME;

/// Threads that may wait at once where no window tells how many do.
const WAITERS: f64 = 10_000.0;
/// What was seen in none of n windows is with 95 % certainty in less than this over n of the time.
const NONE_OF: f64 = 3.7;

/// The part of windows that a wait fits into, below which the point does not rest on it: few windows are so much longer than it.
const FITS: f64 = 0.2;

/// The sum of all waits, ns.
pub(super) fn total(scale: &Scale<'_>) -> Interval {
    let Scale { process, moments, .. } = scale;
    let sizes = &process.sizes[BY_TIME];
    let sampled = match ratio::total(sizes, &moments.wait_ns, process) {
        Some(sum) => {
            // Waits differ more than their number does: a few do not show how long the longest are. Two windows like the fullest one may have
            // been missed, beside the one that every total allows for.
            let longest = 2.0 * moments.wait_ns.largest * sizes.of / sizes.sum;
            let (likely, most) = (hidden(scale, FITS), hidden(scale, LEAST_INSIDE));
            // Few windows may all have missed waits that are longer than a window.
            let beyond = if process.clusters < NONE_OF { process.sampled_time() * WAITERS } else { 0.0 };
            Interval { value: sum.value * likely, low: sum.low * likely, high: (sum.high + longest) * most + beyond }
        }
        None => {
            let share = NONE_OF / process.clusters.max(NONE_OF);
            Interval { value: 0.0, low: 0.0, high: process.sampled_time() * share * WAITERS }
        }
    };
    sampled.map(|ns| ns.max(moments.waited_ns) + moments.whole.wait_ns)
}

/// How many times as long the waits are with those that a window's edges have hidden: only a wait whose section lies in the window, too, is
/// seen. What fits into less than `least` of the windows counts as if it fitted into so many.
fn hidden(scale: &Scale<'_>, least: f64) -> f64 {
    let hold = scale.moments.hold.ratio();
    let inside = |length: f64| scale.process.inside(length).max(least);
    let (seen, all) = scale.moments.waits.iter().fold((0.0, 0.0), |(seen, all), &(bucket, n)| {
        let length = middle(bucket.into());
        (seen + n * length, all + n * length * (inside(0.0) / inside(length + hold)).max(1.0))
    });
    if seen > 0.0 { all / seen } else { 1.0 }
}
