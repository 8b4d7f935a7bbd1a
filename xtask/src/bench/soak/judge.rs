//! Whether what was used stays what it is.

use serde::Serialize;

use super::sample::Sample;

/// Memory of the agent and its helpers, bytes (docs/agent.md).
const MEMORY: u64 = 200 << 20;
/// By so much the peaks of two halves differ without anything growing: memory, maps, and what there are few of, descriptors and threads.
const NOISE: [f64; 4] = [0.05, 0.05, 0.1, 0.25];

/// The most of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Period {
    /// Memory of the agent and its helpers, bytes.
    pub(super) memory: u64,
    /// Kernel memory of its maps, bytes.
    pub(super) maps: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
    /// Threads.
    pub(super) threads: u64,
    /// CPU time of the agent without its helpers, % of a core.
    pub(super) cpu_percent: f64,
    /// Least share of the programs' work that was observed in full.
    pub(super) observed: Option<f64>,
    /// What was lost, since the agent was started.
    pub(super) lost: f64,
    /// Observations begun, since then.
    pub(super) observations: f64,
}

impl Period {
    /// The most of these looks; `None` without any.
    pub(super) fn of(samples: &[Sample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let most = |value: fn(&Sample) -> u64| samples.iter().map(value).max().unwrap_or_default();
        let time = (last.at - first.at).as_secs_f64();
        let cpu = (last.cpu - first.cpu).as_secs_f64();
        Some(Self {
            memory: most(|sample| sample.memory),
            maps: most(|sample| sample.maps),
            descriptors: most(|sample| sample.descriptors),
            threads: most(|sample| sample.threads),
            cpu_percent: if time > 0.0 { 100.0 * cpu / time } else { 0.0 },
            observed: samples.iter().filter_map(|sample| sample.observed).reduce(f64::min),
            lost: last.lost,
            observations: last.observations,
        })
    }
}

/// What holds, and what does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// By how much the highest peak of each half differs, as a share of the earlier one: memory, maps, descriptors, threads.
    pub(super) growth: [f64; 4],
    /// Memory grows by so much in a period, bytes: by the peaks of periods, the first one left out.
    pub(super) memory_slope: Option<f64>,
    /// The most memory of all.
    pub(super) memory: u64,
    /// Counters that have fallen.
    pub(super) fallen: Vec<String>,
    /// Programs that were harmed, and how.
    pub(super) harmed: Vec<String>,
}

impl Verdict {
    /// Whether nothing grows, falls or was harmed.
    pub(super) fn holds(&self) -> bool {
        self.growth.iter().zip(NOISE).all(|(&growth, noise)| growth <= noise)
            && self.memory <= MEMORY
            && self.fallen.is_empty()
            && self.harmed.is_empty()
    }
}

/// Judges a run. Caches fill in its first period, which is left out.
pub(super) fn judge(periods: &[Period], fallen: Vec<String>, harmed: Vec<String>) -> Verdict {
    let steady = periods.get(1..).unwrap_or_default();
    let (early, late) = steady.split_at(steady.len() / 2);
    let growth = |value: fn(&Period) -> u64| {
        let most = |half: &[Period]| half.iter().map(value).max().unwrap_or_default() as f64;
        if most(early) > 0.0 { most(late) / most(early) - 1.0 } else { 0.0 }
    };
    Verdict {
        growth: [growth(|p| p.memory), growth(|p| p.maps), growth(|p| p.descriptors), growth(|p| p.threads)],
        memory_slope: slope(&steady.iter().map(|period| period.memory as f64).collect::<Vec<_>>()),
        memory: periods.iter().map(|period| period.memory).max().unwrap_or_default(),
        fallen,
        harmed,
    }
}

/// The median of the slopes between any two of these (Theil and Sen), for each step.
fn slope(values: &[f64]) -> Option<f64> {
    let pairs = (0..values.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
    let slopes = pairs.map(|(i, j)| (values[j] - values[i]) / (j - i) as f64);
    Some(crate::bench::stats::Spread::of(slopes)?.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn flat(memory: impl Fn(u64) -> u64) -> Vec<Period> {
        (0..12)
            .map(|n| Period { memory: memory(n), maps: 70, descriptors: 50, threads: 9, ..Period::default() })
            .collect()
    }

    #[test]
    fn what_goes_up_and_down_is_flat_and_what_only_goes_up_is_not() {
        let sawtooth = judge(&flat(|n| 100_000 + 3_000 * (n % 3)), Vec::new(), Vec::new());
        assert!(sawtooth.holds(), "{sawtooth:?}");
        // A leak of 1.5 % a period, and one in the first period only.
        assert!(!judge(&flat(|n| 100_000 + 1_500 * n), Vec::new(), Vec::new()).holds());
        assert!(judge(&flat(|n| if n == 0 { 10 } else { 100_000 }), Vec::new(), Vec::new()).holds());
        assert!(!judge(&flat(|_| MEMORY + 1), Vec::new(), Vec::new()).holds());
        assert!(!judge(&flat(|_| 1), vec!["a_total".to_owned()], Vec::new()).holds());
        assert!(!judge(&flat(|_| 1), Vec::new(), vec!["Go: it hangs".to_owned()]).holds());
    }

    #[test]
    fn a_slope_is_that_of_most_pairs() {
        assert_eq!(slope(&[1.0, 3.0, 5.0, 100.0, 9.0]), Some(2.0));
        assert_eq!(slope(&[1.0]), None);
    }

    #[test]
    fn a_period_is_its_highest_and_lowest_look() {
        let at = |s, memory, observed| Sample {
            memory,
            observed: Some(observed),
            at: Duration::from_secs(s),
            cpu: Duration::from_millis(10 * s),
            ..Sample::default()
        };
        let period = Period::of(&[at(10, 7, 0.5), at(20, 9, 0.25), at(30, 8, 0.75)]).unwrap();
        assert_eq!((period.memory, period.observed, period.cpu_percent), (9, Some(0.25), 1.0));
        assert_eq!(Period::of(&[]), None);
    }
}
