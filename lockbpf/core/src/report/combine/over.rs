//! The same thing in several runs, and means over all of them.

use super::super::schema::{Durations, LockEntry, Ns, SiteEntry};
use crate::estimate::{Figures, Interval};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What identifies a thing from run to run: its kind of identity, then names.
pub(super) type Key = Vec<String>;

/// Whether an identity is an address in a process, which says nothing about another run.
fn is_address(id: &str) -> bool {
    let Some((process, address)) = id.split_once(":0x") else { return false };
    let process = process.strip_prefix("process-").unwrap_or(process);
    let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    process.split('#').all(number) && !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What tells a thing in every run: its identity, or its name if that is an address.
pub(super) fn identity<'a>(id: &'a str, name: &'a str) -> &'a str {
    if is_address(id) { name } else { id }
}

pub(super) fn lock_key(lock: &LockEntry) -> Key {
    if is_address(&lock.lock) {
        vec![lock.comm.clone().unwrap_or_default(), lock.name.clone()]
    } else {
        vec![lock.lock.clone()]
    }
}

pub(super) fn site_key(site: &SiteEntry) -> Key {
    vec![identity(&site.site, &site.symbol).to_owned()]
}

/// What the combined report calls the locks of each run, whose identities may differ.
#[derive(Debug, Default)]
pub(super) struct LockIds<'a>(HashMap<(usize, &'a str), &'a str>);

impl<'a> LockIds<'a> {
    /// The locks of a group are called by the identity of one of them.
    pub(super) fn insert(&mut self, group: &Over<'a, LockEntry>, id: &'a str) {
        self.0.extend(group.things().map(|(run, lock)| ((run, lock.lock.as_str()), id)));
    }

    /// The identity of a run's lock in the combined report.
    pub(super) fn of(&self, run: usize, lock: &str) -> String {
        (*self.0.get(&(run, lock)).unwrap_or(&lock)).to_owned()
    }
}

/// One thing over all runs: those in which it was seen, and how. Several of one run count together.
pub(super) struct Over<'a, T> {
    first: (usize, &'a T),
    things: Vec<(usize, &'a T)>,
    runs: usize,
}

impl<'a, T> Over<'a, T> {
    /// A thing over so many runs. Groups are never empty; one that is yields nothing.
    pub(super) fn new(things: Vec<(usize, &'a T)>, runs: usize) -> Option<Self> {
        let first = *things.first()?;
        Some(Self { first, things, runs })
    }

    /// The things that `of` finds in each, put together by key, in the order of the keys.
    pub(super) fn within<U: 'a, R>(
        &self,
        of: impl Fn(&'a T) -> &'a [U],
        key: impl Fn(&U) -> Key,
        combine: impl FnMut(&Over<'a, U>) -> R,
    ) -> Vec<R> {
        let mut groups: BTreeMap<Key, Vec<(usize, &'a U)>> = BTreeMap::new();
        for (run, thing) in self.things() {
            for inner in of(thing) {
                groups.entry(key(inner)).or_default().push((run, inner));
            }
        }
        let groups: Vec<_> = groups.into_values().filter_map(|group| Over::new(group, self.runs)).collect();
        groups.iter().map(combine).collect()
    }

    /// The things, and in which run each was.
    pub(super) fn things(&self) -> impl Iterator<Item = (usize, &'a T)> + '_ {
        self.things.iter().copied()
    }

    /// The first of them.
    pub(super) fn first(&self) -> &'a T {
        self.first.1
    }

    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Runs in which it was seen.
    pub(super) fn seen(&self) -> u64 {
        self.things.iter().map(|&(run, _)| run).collect::<BTreeSet<_>>().len() as u64
    }

    /// Mean of a time.
    pub(super) fn ns(&self, of: impl Fn(&T) -> Ns) -> Ns {
        self.things().map(|(_, thing)| of(thing)).sum::<Ns>().mean_of(self.runs as u64)
    }

    /// Mean of a count, rounded.
    pub(super) fn count(&self, of: impl Fn(&T) -> u64) -> u64 {
        let sum: u128 = self.things().map(|(_, thing)| u128::from(of(thing))).sum();
        let runs = self.runs as u128;
        u64::try_from((sum + runs / 2) / runs.max(1)).unwrap_or(u64::MAX)
    }

    /// The largest count.
    pub(super) fn most(&self, of: impl Fn(&T) -> u64) -> u64 {
        self.things().map(|(_, thing)| of(thing)).max().unwrap_or_default()
    }

    pub(super) fn any(&self, of: impl Fn(&T) -> bool) -> bool {
        self.things().any(|(_, thing)| of(thing))
    }

    /// Mean figures, if any of them are estimates; `count` is the number of acquisitions where it is exact.
    pub(super) fn figures(&self, of: impl Fn(&T) -> Option<Figures>, count: impl Fn(&T) -> u64) -> Option<Figures> {
        let known: Vec<Figures> = self.things().filter_map(|(_, thing)| of(thing)).collect();
        let number: f64 = known.iter().map(|f| f.acquisitions.value).sum();
        let ratio = |part: fn(&Figures) -> Interval| {
            Interval::mean(known.iter().map(|f| (part(f), f.acquisitions.value)), number)
        };
        let acquisitions = self.interval(|thing| Some(of(thing)?.acquisitions), |thing| count(thing) as f64)?;
        Some(Figures {
            acquisitions,
            hold_mean_ns: ratio(|f| f.hold_mean_ns),
            hold_p99_ns: ratio(|f| f.hold_p99_ns),
            contended_share: ratio(|f| f.contended_share).capped(1.0),
            wait_ns: Interval::default(),
        })
    }

    /// Mean estimate, if any of them is one; `exact` is what is known else.
    pub(super) fn interval(&self, of: impl Fn(&T) -> Option<Interval>, exact: impl Fn(&T) -> f64) -> Option<Interval> {
        let told = |thing: &T| of(thing).unwrap_or_else(|| Interval::exact(exact(thing)));
        let mean = || Interval::mean(self.things().map(|(_, thing)| (told(thing), 1.0)), self.runs as f64);
        self.any(|thing| of(thing).is_some()).then(mean)
    }

    /// The one that a time is largest of, the first of equals, and its run.
    pub(super) fn largest_run(&self, of: impl Fn(&T) -> Ns) -> (usize, &'a T) {
        self.things().fold(self.first, |best, thing| if of(thing.1) > of(best.1) { thing } else { best })
    }

    /// The one that a time is largest of.
    pub(super) fn largest(&self, of: impl Fn(&T) -> Ns) -> &'a T {
        self.largest_run(of).1
    }

    /// Mean and standard deviation (of the sample: n − 1) of a time.
    pub(super) fn spread(&self, of: impl Fn(&T) -> Ns) -> (Ns, Ns) {
        let mut by_run = vec![Ns::default(); self.runs];
        for (run, thing) in self.things() {
            if let Some(sum) = by_run.get_mut(run) {
                *sum += of(thing);
            }
        }
        let mean = by_run.iter().map(|ns| ns.as_f64()).sum::<f64>() / self.runs as f64;
        let squares: f64 = by_run.iter().map(|ns| (ns.as_f64() - mean).powi(2)).sum();
        let deviation = (squares / self.runs.saturating_sub(1).max(1) as f64).sqrt();
        (self.ns(of), Ns::from_f64(deviation))
    }

    /// Durations over all runs; `of` gives those of one with their number, if they are known.
    pub(super) fn durations(&self, of: impl Fn(&T) -> Option<(Durations, u64)>) -> Option<Durations> {
        let all: Vec<_> = self.things().filter_map(|(_, thing)| of(thing)).collect();
        let number: u64 = all.iter().map(|&(_, n)| n).fold(0, u64::saturating_add);
        let sum: Ns = all.iter().map(|(d, _)| d.sum).sum();
        let weighted = |of: fn(&Durations) -> Ns| {
            let sum: f64 = all.iter().map(|(d, n)| of(d).as_f64() * *n as f64).sum();
            Ns::new(if number == 0 { 0 } else { (sum / number as f64) as u64 })
        };
        (!all.is_empty()).then(|| Durations {
            sum: sum.mean_of(self.runs as u64),
            mean: sum.per(number),
            max: all.iter().map(|(d, _)| d.max).max().unwrap_or_default(),
            p50: weighted(|d| d.p50),
            p99: weighted(|d| d.p99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Interval, is_address};

    #[test]
    fn several_estimates_are_surer_than_one() {
        let one = Interval { value: 10.0, low: 6.0, high: 14.0 };
        let four = Interval::mean([(one, 1.0); 4].into_iter(), 4.0);
        assert_eq!(four, Interval { value: 10.0, low: 8.0, high: 12.0 });
        let seldom = Interval::mean([(one, 1.0)].into_iter(), 2.0);
        assert_eq!(seldom, Interval { value: 5.0, low: 3.0, high: 7.0 });
    }

    #[test]
    fn addresses_are_told_from_names() {
        assert!(["1234:0x7f00", "1234#2:0x1", "process-3:0xff"].into_iter().all(is_address));
        assert!(
            !["L1", "3", "0x10", "a:0x10", "1:0x", "1:0xzz", ":0x1", "flush (wal.c:210)"].into_iter().any(is_address)
        );
    }
}
