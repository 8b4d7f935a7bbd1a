//! What observing costs: nanoseconds of CPU time for each thing that the kernel side counts, and how they follow from
//! samples taken with and without probes.

use serde::{Deserialize, Serialize};

/// Samples of a kind below which a median means nothing.
pub const MIN_SAMPLES: usize = 3;
/// A probe hit that takes longer was not measured but disturbed: even a single-stepped one takes a tenth of it.
const MAX_HIT_NS: f64 = 100_000.0;
/// The part of a hit for which samples find the program in its own code, as it was seen on a virtual machine.
const USUAL_USER: f64 = 0.17;

/// What observing adds to the threads observed, ns of CPU time unless said otherwise.
///
/// The default is what stands in where nothing could be measured: the upper end of what was seen on a busy virtual machine,
/// so that a budget kept by it is rather undercut than exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// An uncontended lock/unlock pair that nobody observes.
    pub bare_pair_ns: f64,
    /// One uprobe hit of an uncontended pair in the full tier, the program's work included.
    pub hit_ns: f64,
    /// The part of a hit for which samples of the clock find the program in its own code.
    pub user_ns: f64,
    /// What observing adds to a measured hold: the part of a pair's cost that falls between acquire and release.
    pub hold_bias_ns: f64,
    /// One section record, written at its release.
    pub record_ns: f64,
    /// One futex call: both of its tracepoints.
    pub futex_ns: f64,
    /// One switch of an observed thread that holds no lock.
    pub switch_ns: f64,
    /// How far the samples of a hit disagree: half the distance between their quartiles, by their median.
    pub spread: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            bare_pair_ns: 10.0,
            hit_ns: 1_200.0,
            user_ns: 200.0,
            hold_bias_ns: 1_200.0,
            record_ns: 600.0,
            futex_ns: 600.0,
            switch_ns: 150.0,
            spread: 0.5,
        }
    }
}

/// Batches of operations, each batch as its mean time of one, ns of CPU time.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Uncontended lock/unlock pairs.
    pub pair: Vec<f64>,
    /// Pairs whose lock seems to be waited for at its release: a record and a futex call more.
    pub waited: Vec<f64>,
    /// Futex calls that wake nobody.
    pub wake: Vec<f64>,
    /// Switches from thread to thread.
    pub switch: Vec<f64>,
    /// The part of samples of the clock that found the program in its own code during such pairs, one for each batch.
    pub in_user: Vec<f64>,
}

/// Why costs do not follow from samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// A kind of which there are too few.
    #[error("too few samples of {0}")]
    TooFew(&'static str),
    /// The observed pair was no dearer than the bare one, or absurdly so.
    #[error("the samples contradict one another")]
    Absurd,
}

impl Costs {
    /// Costs from batches without and with probes, and from mean holds (ns) that were told of empty sections.
    ///
    /// # Errors
    /// When there are too few, or what they say cannot be.
    pub fn of(bare: &Samples, observed: &Samples, holds: &[f64]) -> Result<Self, CostError> {
        let added = |kind, of: fn(&Samples) -> &[f64]| -> Result<f64, CostError> {
            let (bare, observed) = (median(of(bare)), median(of(observed)));
            Ok(observed.ok_or(CostError::TooFew(kind))? - bare.ok_or(CostError::TooFew(kind))?)
        };
        let bare_pair_ns = median(&bare.pair).ok_or(CostError::TooFew("pairs"))?;
        let pair_ns = added("pairs", |s| &s.pair)?;
        let hit_ns = pair_ns / 2.0;
        if !is_hit(hit_ns) {
            return Err(CostError::Absurd);
        }
        // What is left of a difference of differences may be below nothing on a busy machine.
        let futex_ns = added("futex calls", |s| &s.wake)?.max(0.0);
        let record_ns = (added("records", |s| &s.waited)? - pair_ns - futex_ns).max(0.0);
        let switch_ns = added("switches", |s| &s.switch)?.max(0.0);
        // Half of a bare pair lies between the two probes, too, but belongs to the section.
        let hold_ns = median(holds).ok_or(CostError::TooFew("holds"))?;
        let hold_bias_ns = (hold_ns - bare_pair_ns / 2.0).clamp(0.0, pair_ns);
        // The clock cannot be sampled where these are missing, so nothing depends on the usual part.
        let part = median(&observed.in_user).unwrap_or(USUAL_USER);
        let user_ns = (part * (hit_ns + bare_pair_ns / 2.0) - bare_pair_ns / 2.0).clamp(0.0, hit_ns);
        let spread = spread(&observed.pair);
        Ok(Self { bare_pair_ns, hit_ns, user_ns, hold_bias_ns, record_ns, futex_ns, switch_ns, spread })
    }

    /// Whether they can have come of samples.
    #[must_use]
    pub fn are_plausible(&self) -> bool {
        let Self { bare_pair_ns, hit_ns, user_ns, hold_bias_ns, record_ns, futex_ns, switch_ns, spread } = *self;
        let others = [bare_pair_ns, user_ns, hold_bias_ns, record_ns, futex_ns, switch_ns, spread];
        is_hit(hit_ns) && others.iter().all(|cost| (0.0..MAX_HIT_NS).contains(cost))
    }
}

fn is_hit(ns: f64) -> bool {
    ns > 0.0 && ns < MAX_HIT_NS
}

/// The value at a share of the way through the sorted samples; `None` of too few.
fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    if sorted.len() < MIN_SAMPLES {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get((share * (sorted.len() - 1) as f64).round() as usize).copied()
}

fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

fn spread(samples: &[f64]) -> f64 {
    match (quantile(samples, 0.25), median(samples), quantile(samples, 0.75)) {
        (Some(low), Some(middle), Some(high)) if middle > 0.0 => (high - low) / 2.0 / middle,
        _ => Costs::default().spread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pair: f64, waited: f64, wake: f64, switch: f64) -> Samples {
        // One disturbed batch among five.
        let around = |ns: f64| vec![ns, ns * 0.98, ns * 40.0, ns, ns * 1.02];
        let in_user = vec![0.2, 0.19, 0.21];
        Samples { pair: around(pair), waited: around(waited), wake: around(wake), switch: around(switch), in_user }
    }

    #[test]
    fn costs_are_differences_of_medians() {
        let (bare, observed) = (samples(10.0, 160.0, 150.0, 1_500.0), samples(2_010.0, 2_860.0, 500.0, 1_600.0));
        let costs = Costs::of(&bare, &observed, &[905.0, 900.0, 9_000.0]).unwrap();
        assert_eq!((costs.bare_pair_ns, costs.hit_ns), (10.0, 1_000.0));
        assert_eq!((costs.futex_ns, costs.record_ns, costs.switch_ns), (350.0, 350.0, 100.0));
        assert_eq!(costs.hold_bias_ns, 900.0);
        assert!((costs.user_ns - (0.2 * 1_005.0 - 5.0)).abs() < 1e-6, "{}", costs.user_ns);
        assert!(costs.are_plausible() && Costs::default().are_plausible());
        for ns in [f64::NAN, f64::INFINITY, -1.0, 1e6] {
            assert!(!Costs { hit_ns: ns, ..costs }.are_plausible() && !Costs { futex_ns: ns, ..costs }.are_plausible());
        }
        assert!((costs.spread - 0.01).abs() < 0.001, "{}", costs.spread);
    }

    #[test]
    fn noise_makes_nothing_negative() {
        let (bare, observed) = (samples(10.0, 160.0, 150.0, 1_500.0), samples(2_010.0, 2_000.0, 149.0, 1_400.0));
        let costs = Costs::of(&bare, &observed, &[1.0; 3]).unwrap();
        assert_eq!((costs.futex_ns, costs.record_ns, costs.switch_ns, costs.hold_bias_ns), (0.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (bare, observed) = (samples(10.0, 160.0, 150.0, 1_500.0), samples(2_010.0, 2_860.0, 500.0, 1_600.0));
        assert_eq!(Costs::of(&bare, &bare, &[5.0; 3]), Err(CostError::Absurd));
        assert_eq!(Costs::of(&bare, &samples(1e9, 1e9, 1e9, 1e9), &[5.0; 3]), Err(CostError::Absurd));
        assert_eq!(Costs::of(&bare, &observed, &[5.0; 2]), Err(CostError::TooFew("holds")));
        assert_eq!(Costs::of(&Samples::default(), &observed, &[5.0; 3]), Err(CostError::TooFew("pairs")));
    }
}
