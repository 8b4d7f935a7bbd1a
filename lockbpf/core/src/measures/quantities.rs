//! What profilers of locks report by the clock of the threads: LiMiT's statistics, HaLock's regions. "Clock" is cycles, or ns on a
//! CPU; waiting without a CPU takes none of it.

use super::counted::{CLOCK, Counted, add, scale, scaled};
use crate::id::Lock;
use lockbpf_common::counts::{Counts, SiteCounts};
use lockbpf_common::sums::{BUCKETS, bucket};
use std::collections::BTreeMap;

/// A log2 histogram: bucket b counts what is in [2^b, 2^(b+1)), and 0 in bucket 0.
pub type Buckets = [u64; BUCKETS];

/// Histograms of the three parts of a section, by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histograms {
    /// Attempt to acquire.
    pub acquire: Buckets,
    /// Release to the end of the wake-up it takes.
    pub release: Buckets,
    /// Acquire to release.
    pub hold: Buckets,
}

impl Default for Histograms {
    fn default() -> Self {
        Self { acquire: [0; BUCKETS], release: [0; BUCKETS], hold: [0; BUCKETS] }
    }
}

/// Sums over all threads, by the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantities {
    /// Threads counted.
    pub threads: u64,
    /// Locks counted: distinct instances.
    pub locks: u64,
    /// Sections counted.
    pub sections: u64,
    /// Everything that the threads did since they first locked something.
    pub execution: f64,
    /// Inside of lock calls that waited.
    pub lock: f64,
    /// Inside of unlock calls that woke somebody.
    pub unlock: f64,
    /// With at least one lock held.
    pub held_union: f64,
    /// Summed over the locks held.
    pub held_sum: f64,
    /// The part of `lock` and `unlock` while no other lock was held.
    pub outside: f64,
}

impl Quantities {
    /// The sums.
    #[must_use]
    pub fn of(counted: &Counted) -> Self {
        let mut all = Self {
            locks: by_lock(counted).values().filter(|counts| counts.sections > 0).count() as u64,
            sections: counted.sites.iter().map(|site| site.counts.sections).sum(),
            ..Self::default()
        };
        for t in &counted.threads {
            let scale = scale(&t.execution, CLOCK).unwrap_or(1.0);
            all.threads += t.threads;
            all.execution += t.execution.counts[CLOCK] as f64 * scale;
            for (sum, part) in [
                (&mut all.lock, t.wait),
                (&mut all.unlock, t.release),
                (&mut all.held_union, t.held_union),
                (&mut all.held_sum, t.held_sum),
                (&mut all.outside, t.outside),
            ] {
                *sum += part as f64 * scale;
            }
        }
        all
    }

    /// What has nothing to do with locks.
    #[must_use]
    pub fn free(&self) -> f64 {
        (self.execution - self.held_union - self.outside).max(0.0)
    }

    /// Mean hold.
    #[must_use]
    pub fn average_held(&self) -> f64 {
        per(self.held_sum, self.sections as f64)
    }

    /// Acquisitions per 10,000 of the clock.
    #[must_use]
    pub fn dynamic_per_10k(&self) -> f64 {
        per(self.sections as f64 * 1e4, self.execution)
    }

    /// Distinct locks per thread.
    #[must_use]
    pub fn static_per_thread(&self) -> f64 {
        per(self.locks as f64, self.threads as f64)
    }

    /// A part of the whole execution, as a share of 1.
    #[must_use]
    pub fn share(&self, part: f64) -> f64 {
        per(part, self.execution)
    }
}

/// `a` / `b`; 0 if there is nothing of `b`.
pub(crate) fn per(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// One count per acquisition.
#[must_use]
pub fn dynamic(counted: &Counted) -> Histograms {
    let mut all = Histograms::default();
    for site in &counted.sites {
        let SiteCounts { sections, hold_hist, wait_hist, release_hist, .. } = &site.counts;
        merge(&mut all.hold, hold_hist);
        // Those that did not wait, and those that woke nobody, take less than measuring them would.
        for (to, from) in [(&mut all.acquire, wait_hist), (&mut all.release, release_hist)] {
            merge(to, from);
            to[0] += sections.saturating_sub(from.iter().sum());
        }
    }
    all
}

/// One count per lock, at its mean.
#[must_use]
pub fn of_means(counted: &Counted) -> Histograms {
    let mut all = Histograms::default();
    for counts in by_lock(counted).values().filter(|counts| counts.sections > 0) {
        let mean = |sum: &Counts| bucket((scaled(sum, CLOCK).unwrap_or(0.0) / counts.sections as f64) as u64);
        all.hold[mean(&counts.hold)] += 1;
        all.acquire[mean(&counts.wait)] += 1;
        all.release[mean(&counts.release)] += 1;
    }
    all
}

/// What was counted of a lock, over its sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Sections.
    pub sections: u64,
    /// Waits.
    pub waits: u64,
    /// Acquire to release.
    pub hold: Counts,
    /// Attempt to acquire.
    pub wait: Counts,
    /// Release to the end of its wake-up.
    pub release: Counts,
}

impl LockCounts {
    /// Adds those of a site.
    pub fn add(&mut self, site: &SiteCounts) {
        self.sections += site.sections;
        self.waits += site.waits;
        add(&mut self.hold, &site.hold);
        add(&mut self.wait, &site.wait);
        add(&mut self.release, &site.release);
    }
}

fn by_lock(counted: &Counted) -> BTreeMap<Lock, LockCounts> {
    let mut locks: BTreeMap<Lock, LockCounts> = BTreeMap::new();
    for site in &counted.sites {
        locks.entry(site.lock).or_default().add(&site.counts);
    }
    locks
}

fn merge(to: &mut Buckets, from: &[u64; BUCKETS]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Process, Site};
    use crate::measures::counted::CountedSite;
    use lockbpf_common::counts::ThreadCounts;
    use lockbpf_common::kind::Via;

    fn counts(clock: u64) -> Counts {
        let mut counts = Counts { on_cpu_ns: 10, counted_ns: [10; 5], ..Counts::NONE };
        counts.counts[CLOCK] = clock;
        counts
    }

    fn site(lock: u64, site: u64, sections: u64, hold: u64) -> CountedSite {
        let process = Process(1);
        let mut made = SiteCounts {
            sections,
            hold: counts(hold),
            wait: counts(30),
            releases: 1,
            release: counts(6),
            ..SiteCounts::EMPTY
        };
        made.hold_hist[bucket(hold / sections)] = sections;
        made.wait_hist[bucket(30)] = 1;
        made.release_hist[bucket(6)] = 1;
        CountedSite {
            lock: Lock { process, addr: lock },
            site: Site { process, addr: site },
            via: Via::Lock,
            counts: made,
        }
    }

    fn thread(execution: u64) -> ThreadCounts {
        ThreadCounts {
            threads: 1,
            execution: counts(execution),
            wait: 60,
            release: 12,
            outside: 50,
            held_union: 300,
            held_sum: 500,
            ..ThreadCounts::default()
        }
    }

    fn counted() -> Counted {
        Counted {
            events: vec!["cycles".into()],
            sites: vec![site(1, 7, 3, 300), site(1, 8, 1, 100), site(2, 7, 4, 600)],
            threads: vec![thread(1_000), thread(3_000)],
        }
    }

    #[test]
    fn sums_and_what_follows_from_them() {
        let q = Quantities::of(&counted());
        assert_eq!((q.threads, q.locks, q.sections), (2, 2, 8));
        assert_eq!((q.execution, q.lock, q.unlock, q.held_union, q.held_sum), (4_000.0, 120.0, 24.0, 600.0, 1_000.0));
        assert_eq!(q.free(), 4_000.0 - 600.0 - 100.0);
        assert_eq!((q.average_held(), q.dynamic_per_10k(), q.static_per_thread()), (125.0, 20.0, 1.0));
        // LiMiT's cross-check: average held × dynamic locks per 10k is the held share, nested holds counted twice.
        let held = q.average_held() * q.dynamic_per_10k() / 1e4;
        assert!((held - q.share(q.held_sum)).abs() < 1e-9 && q.share(q.held_union) <= held);
        let nothing = Quantities::of(&Counted::default());
        assert_eq!((nothing.average_held(), nothing.dynamic_per_10k(), nothing.share(1.0)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_clock_that_took_turns_is_scaled() {
        let mut counted = counted();
        counted.threads[0].execution.counted_ns[CLOCK] = 5;
        let q = Quantities::of(&counted);
        assert_eq!((q.execution, q.lock), (5_000.0, 180.0));
    }

    #[test]
    fn histograms_count_sections_or_locks() {
        let dynamic = dynamic(&counted());
        for histogram in [&dynamic.acquire, &dynamic.release, &dynamic.hold] {
            assert_eq!(histogram.iter().sum::<u64>(), 8);
        }
        assert_eq!((dynamic.release[0], dynamic.release[bucket(6)]), (5, 3));
        let means = of_means(&counted());
        for histogram in [&means.acquire, &means.release, &means.hold] {
            assert_eq!(histogram.iter().sum::<u64>(), 2);
        }
        assert_eq!((means.hold[bucket(100)], means.hold[bucket(150)]), (1, 1));
        assert_eq!(means.acquire[bucket(15)], 1, "60 in 4 sections");
    }
}
