//! What is kept of a subject's windows: sums from which totals, ratios and their variances follow. No window is kept by
//! itself, so memory does not grow with the observation.

use super::stretch::{BY_TIME, NOMINAL, Sample, WAYS};
use lockbpf_common::sums::{BUCKETS, Sums};

/// What one subject did in one window (or between two snapshots while observed as a whole).
#[derive(Clone, Debug)]
pub(super) struct Delta {
    /// Acquisitions whose section ended too.
    pub completed: f64,
    /// Sections that were open when the window closed.
    pub cut: f64,
    /// The contended ones of the completed.
    pub contended: f64,
    /// Σ hold of the completed, ns.
    pub hold_ns: f64,
    /// Σ of what was seen of those that were cut, ns.
    pub cut_ns: f64,
    /// Σ probe hits inside sections.
    pub inner_hits: f64,
    /// Longest hold of all so far, ns.
    pub hold_max_ns: u64,
    /// Σ wait of the contended, ns.
    pub wait_ns: f64,
    /// Waits of the contended.
    pub wait_hist: [u64; BUCKETS],
    /// Holds of the completed.
    pub hold_hist: [u64; BUCKETS],
}

impl Delta {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        completed: 0.0,
        cut: 0.0,
        contended: 0.0,
        hold_ns: 0.0,
        cut_ns: 0.0,
        inner_hits: 0.0,
        hold_max_ns: 0,
        wait_ns: 0.0,
        wait_hist: [0; BUCKETS],
        hold_hist: [0; BUCKETS],
    };

    /// What has been added to sums; `None` if nothing that counts here.
    pub(super) fn between(before: &Sums, now: &Sums) -> Option<Self> {
        let more = |of: fn(&Sums) -> u64| of(now).saturating_sub(of(before)) as f64;
        let delta = Self {
            completed: more(|s| s.acquisitions),
            cut: more(|s| s.cut),
            contended: more(|s| s.contended),
            hold_ns: more(|s| s.hold_ns),
            cut_ns: more(|s| s.cut_ns),
            inner_hits: more(|s| s.inner_hits),
            hold_max_ns: now.hold_max_ns,
            wait_ns: more(|s| s.wait_ns),
            wait_hist: std::array::from_fn(|b| now.wait_hist[b].wrapping_sub(before.wait_hist[b])),
            hold_hist: std::array::from_fn(|b| now.hold_hist[b].wrapping_sub(before.hold_hist[b])),
        };
        (delta.acquisitions() > 0.0).then_some(delta)
    }

    /// All acquisitions.
    pub(super) fn acquisitions(&self) -> f64 {
        self.completed + self.cut
    }

    /// Adds another subject's part of the same window.
    pub(super) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.cut += other.cut;
        self.contended += other.contended;
        self.hold_ns += other.hold_ns;
        self.cut_ns += other.cut_ns;
        self.inner_hits += other.inner_hits;
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        self.wait_ns += other.wait_ns;
        for (sum, n) in self.wait_hist.iter_mut().zip(other.wait_hist) {
            *sum = sum.saturating_add(n);
        }
        for (sum, n) in self.hold_hist.iter_mut().zip(other.hold_hist) {
            *sum = sum.saturating_add(n);
        }
    }
}

/// Weighted counts, beside the sizes of their windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    /// Σ v x.
    pub sum: f64,
    /// Σ (v x)².
    pub squares: f64,
    /// Σ v² x size.
    pub product: f64,
    /// Largest v x.
    pub largest: f64,
}

impl Count {
    fn add(&mut self, x: f64, sample: &Sample) {
        let weighted = x * sample.weight;
        self.sum += weighted;
        self.squares += weighted * weighted;
        self.product += weighted * sample.size * sample.weight;
        self.largest = self.largest.max(weighted);
    }
}

/// Weighted numerators and denominators of a ratio.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pairs {
    /// Σ of the numerators.
    pub above: f64,
    /// Σ of the denominators.
    pub below: f64,
    /// Σ of the numerators' squares.
    pub above2: f64,
    /// Σ of the products.
    pub both: f64,
    /// Σ of the denominators' squares.
    pub below2: f64,
}

impl Pairs {
    fn add(&mut self, above: f64, below: f64) {
        self.above += above;
        self.below += below;
        self.above2 += above * above;
        self.both += above * below;
        self.below2 += below * below;
    }

    /// The ratio; 0 of nothing.
    pub(super) fn ratio(&self) -> f64 {
        if self.below > 0.0 { self.above / self.below } else { 0.0 }
    }

    /// Σ of the squared deviations of numerators from what their denominators make of the ratio.
    pub(super) fn deviation(&self) -> f64 {
        let r = self.ratio();
        (self.above2 - 2.0 * r * self.both + r * r * self.below2).max(0.0)
    }
}

/// Counts of what is at least as long as the lower bound of a bucket, beside all that completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tails {
    /// By bucket, ascending. A bucket that is not there has the same tail as the next higher one that is.
    known: Vec<(u8, Pairs)>,
}

impl Tails {
    fn add(&mut self, histogram: &[u64; BUCKETS], completed: f64, weight: f64) {
        for (bucket, _) in histogram.iter().enumerate().filter(|&(_, &n)| n > 0) {
            let bucket = bucket as u8;
            if let Err(place) = self.known.binary_search_by_key(&bucket, |&(b, _)| b) {
                let above = self.known.get(place).map(|&(_, pairs)| pairs).unwrap_or_default();
                self.known.insert(place, (bucket, above));
            }
        }
        let mut tail = 0.0;
        let mut at = BUCKETS;
        for (bucket, pairs) in self.known.iter_mut().rev() {
            let from = usize::from(*bucket);
            tail += histogram.get(from..at).unwrap_or_default().iter().map(|&n| n as f64).sum::<f64>();
            at = from;
            if tail > 0.0 {
                pairs.add(tail * weight, completed * weight);
            }
        }
    }

    /// Buckets with anything in them, ascending: the weighted number in each, and the tail that begins with it.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (usize, f64, Pairs)> + '_ {
        let next = self.known.iter().skip(1).map(|(_, p)| p.above).chain([0.0]);
        self.known.iter().zip(next).map(|(&(b, pairs), next)| (usize::from(b), pairs.above - next, pairs))
    }
}

/// Everything kept of one subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Acquisitions in windows.
    pub counts: [Count; WAYS],
    /// Holds over acquisitions, with what was cut counted twice.
    pub hold: Pairs,
    /// Contended over completed.
    pub contended: Pairs,
    /// Waits in windows, ns.
    pub wait_ns: Count,
    /// The same, not weighted.
    pub waited_ns: f64,
    /// Weighted probe hits inside sections.
    pub inner_hits: f64,
    /// Holds of the completed.
    pub tails: Tails,
    /// Weighted waits of the contended, by bucket.
    pub waits: Vec<(u8, f64)>,
    /// Sections cut, not weighted.
    pub cut: f64,
    /// Weighted time for which those were seen.
    pub cut_ns: f64,
    /// Acquisitions in windows, not weighted.
    pub seen: f64,
    /// Σ hold of sections seen to their end, whole stretches included, not weighted, ns.
    pub held: f64,
    /// Windows with any.
    pub windows: f64,
    /// What was seen where the process was observed as a whole.
    pub whole: Whole,
    /// Longest hold seen, ns.
    pub hold_max_ns: u64,
}

/// Plain sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    pub acquisitions: f64,
    pub completed: f64,
    pub contended: f64,
    pub wait_ns: f64,
    pub hold_ns: f64,
    pub inner_hits: f64,
    /// Holds by bucket.
    pub holds: Vec<(u8, f64)>,
}

impl Moments {
    /// Takes what was seen in a window.
    pub(super) fn window(&mut self, d: &Delta, samples: &[Sample; WAYS]) {
        let x = d.acquisitions();
        for (count, sample) in self.counts.iter_mut().zip(samples) {
            count.add(x, sample);
        }
        let v = samples[NOMINAL].weight;
        self.hold.add(v * (d.hold_ns + 2.0 * d.cut_ns), v * x);
        self.contended.add(v * d.contended, v * d.completed);
        self.wait_ns.add(d.wait_ns, &samples[BY_TIME]);
        self.waited_ns += d.wait_ns;
        self.inner_hits += v * d.inner_hits;
        self.tails.add(&d.hold_hist, d.completed, v);
        add_buckets(&mut self.waits, &d.wait_hist, v);
        self.cut += d.cut;
        self.cut_ns += v * d.cut_ns;
        self.seen += x;
        self.held += d.hold_ns;
        self.windows += 1.0;
        self.hold_max_ns = self.hold_max_ns.max(d.hold_max_ns);
    }

    /// Takes what was seen while all was.
    pub(super) fn whole(&mut self, d: &Delta) {
        let w = &mut self.whole;
        w.acquisitions += d.acquisitions();
        w.completed += d.completed;
        w.contended += d.contended;
        w.wait_ns += d.wait_ns;
        w.hold_ns += d.hold_ns + 2.0 * d.cut_ns;
        self.held += d.hold_ns;
        w.inner_hits += d.inner_hits;
        add_buckets(&mut w.holds, &d.hold_hist, 1.0);
        self.hold_max_ns = self.hold_max_ns.max(d.hold_max_ns);
    }
}

fn add_buckets(sums: &mut Vec<(u8, f64)>, histogram: &[u64; BUCKETS], weight: f64) {
    for (bucket, &n) in histogram.iter().enumerate().filter(|&(_, &n)| n > 0) {
        let bucket = bucket as u8;
        let n = n as f64 * weight;
        match sums.binary_search_by_key(&bucket, |&(b, _)| b) {
            Ok(at) => {
                if let Some((_, sum)) = sums.get_mut(at) {
                    *sum += n;
                }
            }
            Err(place) => sums.insert(place, (bucket, n)),
        }
    }
}
