//! Takes stretches and snapshots, and makes estimates of them.

use super::mean::Bias;
use super::moments::{Delta, Moments};
use super::process::ProcessSums;
use super::ratio::{self, Scale};
use super::stretch::Stretch;
use super::{Costs, Estimates, Figures, Subject, mean, tail, wait};
use crate::id::{Lock, Process, Site};
use crate::sums::KernelSums;
use foldhash::fast::RandomState;
use lockbpf_common::kind::Via;
use lockbpf_common::sums::Sums;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Subjects of each sort: as many as the kernel's map has rows.
const MAX_SUBJECTS: usize = 32_768;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Makes estimates of what was seen in windows.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    costs: Costs,
    budget: Option<f64>,
    processes: BTreeMap<Process, ProcessSums>,
    /// Sums as they were read last.
    before: Map<(Lock, Site, Via), Box<Sums>>,
    rows: Map<(Lock, Site, Via), Moments>,
    locks: Map<Lock, Moments>,
    sites: Map<Site, Moments>,
    beyond: HashSet<Subject, RandomState>,
}

impl Estimator {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(costs: Costs, budget: Option<f64>) -> Self {
        Self { costs, budget, ..Self::default() }
    }

    /// A stretch is over, and its window is closed.
    pub fn stretch(&mut self, stretch: Stretch) {
        self.processes.entry(stretch.process).or_default().stretch(&stretch);
    }

    /// Whether the next snapshot makes something of this process's sums.
    #[must_use]
    pub fn awaits(&self, process: Process) -> bool {
        self.processes.get(&process).is_some_and(|p| p.pending.is_some())
    }

    /// The kernel's sums, as they are now. What was added since the last snapshot belongs to the stretches that ended
    /// since; sums of processes without such a stretch are left for later.
    pub fn snapshot(&mut self, sums: &[KernelSums]) {
        let mut deltas: Vec<((Lock, Site, Via), Delta)> = Vec::new();
        let mut locks: Map<Lock, Delta> = Map::default();
        let mut sites: Map<Site, Delta> = Map::default();
        let mut processes: Map<Process, f64> = Map::default();
        for k in sums {
            // Sums of what is seen all the time need no estimate, and those of conditions get none.
            if !self.awaits(k.lock.process) || k.via.is_seen_always() || k.via == Via::CondWait {
                continue;
            }
            let key = (k.lock, k.site, k.via);
            let Some(delta) = self.difference(key, &k.sums) else { continue };
            *processes.entry(k.lock.process).or_default() += delta.acquisitions();
            locks.entry(k.lock).or_insert(Delta::NONE).add(&delta);
            sites.entry(k.site).or_insert(Delta::NONE).add(&delta);
            deltas.push((key, delta));
        }
        let mut windows = Map::default();
        for (&process, p) in self.processes.iter_mut().filter(|(_, p)| p.pending.is_some()) {
            let seen = processes.get(&process).copied().unwrap_or_default();
            windows.insert(process, p.settle(&self.costs, seen));
        }
        let beyond = &mut self.beyond;
        let mut take = |process: Process, moments: Option<&mut Moments>, delta: &Delta, subject: Subject| match (
            moments,
            windows.get(&process),
        ) {
            (Some(moments), Some(Some(window))) => moments.window(delta, window),
            (Some(moments), _) => moments.whole(delta),
            (None, _) => drop(beyond.insert(subject)),
        };
        for ((lock, site, via), delta) in &deltas {
            let moments = entry(&mut self.rows, (*lock, *site, *via));
            take(lock.process, moments, delta, Subject::Row(*lock, *site, *via));
        }
        for (lock, delta) in &locks {
            take(lock.process, entry(&mut self.locks, *lock), delta, Subject::Lock(*lock));
        }
        for (site, delta) in &sites {
            take(site.process, entry(&mut self.sites, *site), delta, Subject::Site(*site));
        }
    }

    /// How much was observed so far, without the figures.
    #[must_use]
    pub fn coverage(&self) -> Estimates {
        let processes = self.processes.iter().map(|(&process, p)| p.coverage(process, 1.0, 1.0)).collect();
        Estimates {
            budget: self.budget,
            hold_bias_ns: Bias::beside(0.0, &self.costs).interval(),
            processes,
            ..Estimates::default()
        }
    }

    /// The estimates so far, of everything for which there was a snapshot: of a process from the end of its first stretch on.
    #[must_use]
    pub fn so_far(&self) -> Estimates {
        let mut figures = Vec::new();
        let mut totals: Map<Process, [Part; 2]> = Map::default();
        let mut put = |subject: Subject, process: Process, moments: &Moments| {
            let Some(p) = self.processes.get(&process).filter(|p| !p.is_whole()) else { return };
            let made = self.figures(p, moments);
            if let Subject::Lock(_) = subject {
                let all = made.acquisitions.value;
                let [counts, holds] = totals.entry(process).or_default();
                counts.add(all, moments.seen + moments.whole.acquisitions);
                holds.add(all * made.hold_mean_ns.value, moments.held);
            }
            figures.push((subject, made));
        };
        for (&(lock, site, via), moments) in &self.rows {
            put(Subject::Row(lock, site, via), lock.process, moments);
        }
        for (&lock, moments) in &self.locks {
            put(Subject::Lock(lock), lock.process, moments);
        }
        for (&site, moments) in &self.sites {
            put(Subject::Site(site), site.process, moments);
        }
        figures.sort_unstable_by_key(|&(subject, _)| subject);
        let processes = self.processes.iter().map(|(process, p)| {
            let [counts, holds] = totals.get(process).copied().unwrap_or_default();
            p.coverage(*process, counts.factor(), holds.factor())
        });
        Estimates {
            budget: self.budget,
            hold_bias_ns: Bias::beside(0.0, &self.costs).interval(),
            processes: processes.collect(),
            figures,
            beyond: self.beyond.len() as u64,
            complete: true,
        }
    }

    /// The estimates at the end.
    #[must_use]
    pub fn finish(self) -> Estimates {
        self.so_far()
    }

    fn figures(&self, process: &ProcessSums, moments: &Moments) -> Figures {
        let scale = Scale { process, moments, costs: &self.costs };
        let acquisitions = ratio::acquisitions(&scale);
        let sampled = (acquisitions.value - moments.whole.acquisitions).max(0.0);
        let hold = mean::hold(&scale, sampled);
        Figures {
            acquisitions: acquisitions.in_order(),
            hold_mean_ns: hold.in_order(),
            hold_p99_ns: tail::p99(&scale, sampled, hold).in_order(),
            contended_share: mean::contended_share(&scale, sampled).in_order(),
            wait_ns: wait::total(&scale).in_order(),
        }
    }

    fn difference(&mut self, key: (Lock, Site, Via), sums: &Sums) -> Option<Delta> {
        // Not bounded by itself: the kernel's map is, and its rows are never removed.
        let before = self.before.entry(key).or_insert_with(|| Box::new(Sums::EMPTY));
        let delta = Delta::between(before, sums);
        if delta.is_some() {
            **before = *sums;
        }
        delta
    }
}

/// What was estimated, and what was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    all: f64,
    seen: f64,
}

impl Part {
    fn add(&mut self, all: f64, seen: f64) {
        self.all += all;
        self.seen += seen;
    }

    fn factor(&self) -> f64 {
        if self.seen > 0.0 { self.all / self.seen } else { 1.0 }
    }
}

/// A subject's entry; `None` if there is no room for it.
fn entry<K: std::hash::Hash + Eq>(map: &mut Map<K, Moments>, key: K) -> Option<&mut Moments> {
    if map.len() >= MAX_SUBJECTS && !map.contains_key(&key) { None } else { Some(map.entry(key).or_default()) }
}
