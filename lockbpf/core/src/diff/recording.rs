//! A report's sums by name, ready to be compared.

use crate::estimate::Figures;
use crate::report::Report;
use crate::report::schema::LockEntry;
use std::collections::{BTreeMap, BTreeSet};

/// What identifies a lock or a site across recordings: its process's name (nothing where there is only one process) and its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) comm: String,
    pub(super) name: String,
}

impl Key {
    /// As the reader sees it.
    pub(super) fn label(&self) -> String {
        if self.comm.is_empty() { self.name.clone() } else { format!("{}:{}", self.comm, self.name) }
    }
}

/// Sums of the locks of one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LockSums {
    pub(super) kind: String,
    pub(super) instances: u64,
    /// Whether acquisitions and holds were seen (not in the futex tier).
    pub(super) complete: bool,
    pub(super) acquisitions: f64,
    pub(super) contended: f64,
    pub(super) wait: f64,
    pub(super) longest_wait: f64,
    pub(super) hold: f64,
    pub(super) longest_hold: f64,
    pub(super) aplt: f64,
    pub(super) doubt: Doubt,
}

/// Standard deviations of what was estimated from windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Doubt {
    pub(super) acquisitions: f64,
    pub(super) hold: f64,
    pub(super) wait: f64,
    /// Means over acquisitions, times those.
    mean_hold: f64,
    contended: f64,
    number: f64,
}

impl Doubt {
    fn add(&mut self, figures: Option<&Figures>, number: f64) {
        self.number += number;
        let Some(f) = figures else { return };
        let mean = f.hold_mean_ns;
        let hold = (mean.value * f.acquisitions.deviation()).hypot(number * mean.deviation());
        self.acquisitions = self.acquisitions.hypot(f.acquisitions.deviation());
        self.hold = self.hold.hypot(hold);
        self.mean_hold = self.mean_hold.hypot(number * mean.deviation());
        self.contended = self.contended.hypot(number * f.contended_share.deviation());
    }

    pub(super) fn mean_hold(&self) -> f64 {
        self.mean_hold / self.number.max(1.0)
    }

    pub(super) fn contended_share(&self) -> f64 {
        self.contended / self.number.max(1.0)
    }
}

/// Sums of the sections of one symbol.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SiteSums {
    /// Its lock; of several, the one whose holding causes most waiting.
    pub(super) lock: String,
    pub(super) instances: f64,
    pub(super) wait: f64,
    /// Nothing where holds were not seen.
    pub(super) hold: Option<f64>,
    pub(super) apwt: f64,
    /// Its lock's: no wait of it, and no hold, is longer.
    pub(super) longest_wait: f64,
    pub(super) longest_hold: f64,
    pub(super) doubt: Doubt,
}

/// A recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    /// Observed time, ns.
    pub(super) time: f64,
    pub(super) threads: f64,
    pub(super) held_union: f64,
    pub(super) longest_hold: f64,
    pub(super) longest_wait: f64,
    pub(super) locks: BTreeMap<Key, LockSums>,
    /// By symbol: a site may request several locks.
    pub(super) sites: BTreeMap<Key, SiteSums>,
}

impl Recording {
    pub(super) fn of(report: &Report) -> Self {
        let processes: BTreeSet<_> = report.locks.iter().map(|lock| lock.pid).collect();
        let key = |lock: &LockEntry| Key {
            comm: lock.comm.clone().filter(|_| processes.len() > 1).unwrap_or_default(),
            name: if lock.pid.is_some() { family(&lock.name).to_owned() } else { lock.name.clone() },
        };
        let mut recording = Self {
            time: report.quality.duration_ns.as_f64() * report.quality.observed_share,
            threads: report.threads.len() as f64,
            held_union: report.threads.iter().map(|t| t.held_union_ns.as_f64()).sum(),
            ..Self::default()
        };
        let mut by_id = BTreeMap::new();
        for lock in &report.locks {
            let sums = recording.locks.entry(key(lock)).or_default();
            sums.add(lock);
            recording.longest_wait = recording.longest_wait.max(sums.longest_wait);
            recording.longest_hold = recording.longest_hold.max(sums.longest_hold);
            by_id.insert(lock.lock.as_str(), key(lock));
        }
        for site in &report.sites {
            let lock = by_id.get(site.lock.as_str()).cloned().unwrap_or_default();
            let of_lock = recording.locks.get(&lock);
            let own = Key { comm: lock.comm.clone(), name: site.symbol.clone() };
            let sums = recording.sites.entry(own).or_default();
            if site.apwt_ns.as_f64() >= sums.apwt {
                sums.lock = lock.label();
            }
            sums.instances += site.instances as f64;
            sums.doubt.add(site.estimates.as_ref(), site.instances as f64);
            sums.wait += site.wait_ns.as_f64();
            sums.apwt += site.apwt_ns.as_f64();
            if let Some(hold) = site.hold_ns {
                *sums.hold.get_or_insert(0.0) += hold.as_f64();
            }
            sums.longest_wait = sums.longest_wait.max(of_lock.map_or(0.0, |l| l.longest_wait));
            sums.longest_hold = sums.longest_hold.max(of_lock.map_or(0.0, |l| l.longest_hold));
        }
        recording
    }
}

/// A name without its number: locks without a symbol are called after their first call site and numbered by first use, which
/// is another order in every recording. Those of one site are compared together.
pub(crate) fn family(name: &str) -> &str {
    match name.rsplit_once(" #") {
        Some((family, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => family,
        _ => name,
    }
}

impl LockSums {
    fn add(&mut self, lock: &LockEntry) {
        self.kind.clone_from(&lock.kind);
        self.instances += 1;
        self.contended += lock.contended as f64;
        self.wait += lock.harm_ns.as_f64();
        self.doubt.wait = self.doubt.wait.hypot(lock.wait_estimate.map_or(0.0, |sum| sum.deviation()));
        self.aplt += lock.aplt_ns.as_f64();
        // No more is known of timed-out attempts than their sum.
        let timed_out = lock.timed_out_wait_ns.per(lock.timeouts);
        let longest = lock.contended_wait_ns.max.max(lock.waiting_now.longest_ns).max(timed_out);
        self.longest_wait = self.longest_wait.max(longest.as_f64());
        if let (Some(acquisitions), Some(hold)) = (lock.acquisitions, lock.hold_ns) {
            self.complete = true;
            self.acquisitions += acquisitions as f64;
            self.doubt.add(lock.estimates.as_ref(), acquisitions as f64);
            self.hold += hold.sum.as_f64();
            self.longest_hold = self.longest_hold.max(hold.max.as_f64());
        }
    }
}
