//! A recording's timing by the names of access records: which of its locks, sites and threads are those of the records.

use super::records::Records;
use super::timing::{Section, Spent, Timing};
use super::usydg::TracedWait;
use crate::id::{Lock, Site};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Sites and locks of the records, each with its executions.
type Alike = Vec<((u32, u32), u64)>;

/// Executions by thread, and site and lock.
type Seen = BTreeMap<(u32, (u32, u32)), u64>;

/// What a recording calls its locks, sites and threads: each by every name that records could use.
#[derive(Clone, Debug, Default)]
pub struct TraceNames {
    /// Labels of each lock.
    pub locks: Map<Lock, Vec<String>>,
    /// Labels of each site.
    pub sites: Map<Site, Vec<String>>,
    /// Labels of each of the timing's threads, the one to show first.
    pub threads: Vec<Vec<String>>,
}

/// What a recording counted, also where it did not record one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Acquisitions.
    pub acquisitions: u64,
    /// Σ hold.
    pub hold: u64,
}

/// Time in a section that the records know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    /// Acquisitions.
    pub acquisitions: f64,
    /// Σ wait, ns.
    pub wait_ns: f64,
    /// Σ hold, ns.
    pub hold_ns: f64,
    /// Other threads' holds that fell into these waits.
    pub met: f64,
}

impl Time {
    fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.wait_ns += other.wait_ns;
        self.hold_ns += other.hold_ns;
        self.met += other.met;
    }

    /// w_c: other threads' holds in a wait, over all acquisitions; `None` of none.
    #[must_use]
    pub fn w_c(&self) -> Option<f64> {
        (self.acquisitions > 0.0).then(|| self.met / self.acquisitions)
    }
}

/// A thread of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTime {
    /// Its name.
    pub tid: String,
    /// E: from its first step to its last, ns.
    pub time_ns: f64,
    /// By site and lock of the records.
    pub sections: BTreeMap<(u32, u32), Time>,
}

/// A recording's timing, matched with records.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// The threads.
    pub threads: Vec<ThreadTime>,
    /// By site and lock of the records.
    pub sections: BTreeMap<(u32, u32), Time>,
    /// Who waited for whom.
    pub waits: BTreeSet<TracedWait>,
    /// Sections of the records that the recording does not have.
    pub missing: BTreeSet<(u32, u32)>,
    /// Sections whose lock is known by its site only, since the recording calls it otherwise.
    pub by_site: BTreeSet<(u32, u32)>,
    /// Sections that the recording does not tell apart, since their locks are requested in one method: what it has of them is
    /// shared out as their threads' samples are.
    pub together: BTreeSet<(u32, u32)>,
    /// The recording's locks by those of the records.
    pub locks: BTreeMap<u32, BTreeSet<Lock>>,
    /// The recording's sites by those of the records.
    pub sites: BTreeMap<u32, BTreeSet<Site>>,
}

impl Traced {
    /// Matches a recording with records. `counted` is what it counted in all; times are in so many ticks per ns.
    #[must_use]
    pub fn new(
        records: &Records,
        timing: &Timing,
        names: &TraceNames,
        counted: &Map<Section, Counted>,
        ticks_per_ns: u64,
    ) -> Self {
        let mut traced = Self::default();
        let find = |texts: Option<&Vec<String>>, known: &super::Names| {
            texts.into_iter().flatten().find_map(|text| known.find(text))
        };
        let site_of: Map<Site, u32> =
            names.sites.iter().filter_map(|(site, texts)| Some((*site, find(Some(texts), &records.sites)?))).collect();
        let addresses: Map<&str, u32> = records.lock_addresses.iter().map(|(&lock, text)| (&**text, lock)).collect();
        let lock = |texts: &Vec<String>| {
            let by_address = || texts.iter().find_map(|text| addresses.get(text.as_str()).copied());
            find(Some(texts), &records.locks).or_else(by_address)
        };
        let lock_of: Map<Lock, u32> =
            names.locks.iter().filter_map(|(known, texts)| Some((*known, lock(texts)?))).collect();
        let thread_of: Vec<Option<u32>> =
            names.threads.iter().map(|texts| find(Some(texts), &records.threads)).collect();
        let mut known: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut seen: Seen = BTreeMap::new();
        for execution in &records.executions {
            let key = (execution.site, execution.lock);
            *known.entry(key).or_default() += 1;
            *seen.entry((execution.thread, key)).or_default() += 1;
        }
        let method_of: Map<Site, u32> = names
            .sites
            .iter()
            .filter_map(|(site, texts)| Some((*site, find(Some(texts), &records.methods)?)))
            .collect();
        // The sections of the records that a section of the recording is.
        let mut matched: Map<Section, Alike> = Map::default();
        let here: BTreeSet<Section> = timing.spent.keys().map(|(_, section)| *section).collect();
        for &section in &here {
            let Some(&lock) = lock_of.get(&section.lock) else { continue };
            let own = site_of.get(&section.site).map(|&site| (site, lock));
            let own = own.and_then(|key| Some((key, *known.get(&key)?)));
            let requested = method_of.get(&section.site).and_then(|&method| records.requested.get(&(method, lock)));
            let callers = requested.into_iter().flatten().map(|(&site, &executions)| ((site, lock), executions));
            let keys: Vec<_> = own.into_iter().chain(callers).collect();
            if keys.len() > 1 {
                traced.together.extend(keys.iter().map(|&(key, _)| key));
            }
            if !keys.is_empty() {
                matched.insert(section, keys);
            }
        }
        let found: BTreeSet<(u32, u32)> = matched.values().flatten().map(|&(key, _)| key).collect();
        for &section in &here {
            let Some(&site) = site_of.get(&section.site) else { continue };
            if matched.contains_key(&section) || lock_of.contains_key(&section.lock) {
                continue;
            }
            // A lock of another name counts if its site has one lock in the records, and that is not in the recording.
            let mut at_site = known.range((site, 0)..=(site, u32::MAX));
            if let (Some((&only, _)), None) = (at_site.next(), at_site.next())
                && !found.contains(&only)
            {
                matched.insert(section, vec![(only, 1)]);
                traced.by_site.insert(only);
            }
        }
        let found: BTreeSet<(u32, u32)> = matched.values().flatten().map(|&(key, _)| key).collect();
        traced.missing = known.keys().filter(|key| !found.contains(key)).copied().collect();
        for (section, keys) in &matched {
            for &((site, lock), _) in keys {
                traced.sites.entry(site).or_default().insert(section.site);
                traced.locks.entry(lock).or_default().insert(section.lock);
            }
        }
        traced.spend(timing, names, (&matched, &thread_of, &seen), counted, ticks_per_ns.max(1) as f64);
        // Those of a method's callers where the thread was seen, if there are any.
        let parts = |(thread, site): (u32, Site)| -> Vec<(Option<u32>, u32)> {
            let thread = thread_of.get(thread as usize).copied().flatten();
            let callers = method_of.get(&site).map_or_else(BTreeSet::new, |&method| {
                let of_method = records.requested.range((method, 0)..=(method, u32::MAX));
                of_method.flat_map(|(_, callers)| callers.keys().copied()).collect()
            });
            let here = |site: &&u32| {
                let there = |thread| seen.range((thread, (**site, 0))..=(thread, (**site, u32::MAX))).next().is_some();
                thread.is_some_and(there)
            };
            let own: BTreeSet<u32> = callers.iter().filter(here).copied().collect();
            let callers = if own.is_empty() { callers } else { own };
            site_of.get(&site).copied().into_iter().chain(callers).map(|site| (thread, site)).collect()
        };
        for &(from, to) in &timing.waits {
            let tos = parts(to);
            for from in parts(from) {
                traced.waits.extend(tos.iter().map(|&to| TracedWait { from, to }));
            }
        }
        traced
    }

    fn spend(
        &mut self,
        timing: &Timing,
        names: &TraceNames,
        (matched, thread_of, seen): (&Map<Section, Alike>, &[Option<u32>], &Seen),
        counted: &Map<Section, Counted>,
        ticks: f64,
    ) {
        let mut recorded: Map<Section, Spent> = Map::default();
        for ((_, section), spent) in &timing.spent {
            let sum = recorded.entry(*section).or_default();
            sum.acquisitions += spent.acquisitions;
            sum.hold += spent.hold;
        }
        // What was counted, but not recorded, is taken to be spread over threads as what was.
        let beyond = |section: &Section| {
            let (Some(counted), Some(recorded)) = (counted.get(section), recorded.get(section)) else {
                return (1.0, 1.0);
            };
            let factor = |counted: u64, recorded: u64| match recorded {
                0 => 1.0,
                n => (counted as f64 / n as f64).max(1.0),
            };
            (factor(counted.acquisitions, recorded.acquisitions), factor(counted.hold, recorded.hold))
        };
        let tid =
            |thread: usize| names.threads.get(thread).and_then(|texts| texts.first()).cloned().unwrap_or_default();
        self.threads = timing
            .threads
            .iter()
            .enumerate()
            .map(|(i, span)| ThreadTime {
                tid: tid(i),
                time_ns: span.last.since(span.first).0 as f64 / ticks,
                sections: BTreeMap::new(),
            })
            .collect();
        // A place may have several names: a thread has the one that it was seen in, if it was.
        let shares = |thread: u32, section: &Section| -> Vec<((u32, u32), f64)> {
            let Some(keys) = matched.get(section) else { return Vec::new() };
            let thread = thread_of.get(thread as usize).copied().flatten();
            let own = |&(key, _): &((u32, u32), u64)| Some((key, *seen.get(&(thread?, key))?));
            let own: Alike = keys.iter().filter_map(own).collect();
            let keys = if own.is_empty() { keys } else { &own };
            let all: u64 = keys.iter().map(|&(_, executions)| executions).sum();
            keys.iter().map(|&(key, executions)| (key, executions as f64 / all.max(1) as f64)).collect()
        };
        let mut spent: Vec<_> = timing.spent.iter().collect();
        // Sums of floating point numbers depend on their order.
        spent.sort_unstable_by_key(|(key, _)| **key);
        for ((thread, section), spent) in spent {
            let (acquisitions, hold) = beyond(section);
            for (key, share) in shares(*thread, section) {
                let time = Time {
                    acquisitions: spent.acquisitions as f64 * acquisitions * share,
                    wait_ns: spent.wait as f64 / ticks * share,
                    hold_ns: spent.hold as f64 * hold / ticks * share,
                    met: spent.met as f64 * share,
                };
                self.sections.entry(key).or_default().add(&time);
                if let Some(thread) = self.threads.get_mut(*thread as usize) {
                    thread.sections.entry(key).or_default().add(&time);
                }
            }
        }
    }
}
