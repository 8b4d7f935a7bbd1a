//! What the agent uses at a moment, and what it tells.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

use crate::bench::{
    exposition::{counted, family, get, series},
    usage::{Objects, children, cpu_time, own_share},
};

/// One look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Memory of the agent and its helpers, bytes: of pages that several have their parts.
    pub(super) memory: u64,
    /// Kernel memory of its maps, bytes.
    pub(super) maps: u64,
    /// Its open descriptors.
    pub(super) descriptors: u64,
    /// Its threads.
    pub(super) threads: u64,
    /// CPU time of the agent so far, without its helpers.
    pub(super) cpu: Duration,
    /// When it was looked.
    pub(super) at: Duration,
    /// Share of the programs' work that was observed in full.
    pub(super) observed: Option<f64>,
    /// What was lost so far.
    pub(super) lost: f64,
    /// Observations that it has begun.
    pub(super) observations: f64,
}

impl Sample {
    /// Looks at the agent, and at its metrics, the counters of which are held against those of the look before.
    ///
    /// # Errors
    /// It is gone, or does not answer.
    pub(super) fn take(agent: Pid, metrics: SocketAddr, counters: &mut Counters) -> Result<Self> {
        let text = get(metrics, "/metrics")?;
        counters.take(&text);
        let sum = |name: &str| series(&text).filter(|(key, _)| family(key) == name).map(|(_, value)| value).sum();
        let count = |folder: &str| {
            let path = format!("/proc/{agent}/{folder}");
            Ok::<_, anyhow::Error>(fs::read_dir(&path).with_context(|| format!("failed to read {path}"))?.count() as u64)
        };
        // A helper may have gone.
        let helpers: u64 = children(agent).into_iter().map(|pid| own_share(pid).unwrap_or_default()).sum();
        Ok(Self {
            memory: own_share(agent)? + helpers,
            maps: Objects::of(agent)?.map_bytes(),
            descriptors: count("fd")?,
            threads: count("task")?,
            cpu: cpu_time(agent)?,
            at: nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?.into(),
            observed: series(&text).find(|(key, _)| family(key) == "lockbpf_observed_ratio").map(|(_, value)| value),
            lost: sum("lockbpf_lost_total"),
            observations: sum("lockbpf_observations_total"),
        })
    }
}

/// The values of counters when they were looked at last, and which of them have fallen.
#[derive(Debug, Default)]
pub(super) struct Counters {
    last: BTreeMap<String, f64>,
    fallen: BTreeSet<String>,
}

impl Counters {
    /// Takes a look. A series that is gone, as its process is, may begin anew.
    fn take(&mut self, text: &str) {
        let counted = counted(text);
        let now: BTreeMap<String, f64> = series(text)
            .filter(|(key, _)| counted.contains(family(key)))
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        for (key, value) in &now {
            if self.last.get(key).is_some_and(|before| value < before) {
                self.fallen.insert(key.clone());
            }
        }
        self.last = now;
    }

    /// Those that have fallen.
    pub(super) fn fallen(&self) -> Vec<String> {
        self.fallen.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_falls_is_seen_and_one_that_begins_anew_is_none() {
        let text = |a: u32, rest: &str| {
            format!("# TYPE a_total counter\na_total{{x=\"y z\"}} {a}\n# TYPE h histogram\n# TYPE g gauge\ng 5\n{rest}")
        };
        let mut counters = Counters::default();
        for (a, rest) in [(3, "h_sum 7\nh_count 2\n"), (3, "h_sum 7\n"), (4, "h_sum 7.5\nh_count 1\n")] {
            counters.take(&text(a, rest));
        }
        assert_eq!(counters.fallen(), Vec::<String>::new());
        counters.take(&text(2, "h_sum 7\nh_count 1\ng 1\n"));
        assert_eq!(counters.fallen(), ["a_total{x=\"y z\"}", "h_sum"]);
    }
}
