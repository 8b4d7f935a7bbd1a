//! What was summed in a stretch of an observation: the sums at its end less those at its beginning.

use super::recorded::{Key, Recorded};
use crate::deadlock::Deadlock;
use crate::estimate::{Coverage, Estimates};
use crate::event::ThreadTotals;
use crate::id::{Lock, Process, Site, Tid};
use crate::measures::counted::{Counted, CountedSite};
use crate::observation::Harvest;
use crate::quality::{Quality, Unobserved};
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use lockbpf_common::counts::{Counts, SiteCounts, ThreadCounts};
use lockbpf_common::sums::{BUCKETS, Sums, bucket};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// What a stretch began with.
pub(super) struct Base {
    /// When that was.
    start: Time,
    /// How long the observation had lasted.
    before: Nanos,
    sums: HashMap<Key, Sums>,
    sites: HashMap<Key, SiteCounts>,
    counting: HashMap<(Process, Tid), ThreadCounts>,
    threads: HashMap<(Process, Tid), ThreadTotals>,
    orders: HashMap<(Lock, Site, Lock, Site), u64>,
    transitions: HashMap<(Process, Tid, Option<Lock>, Option<Lock>), Transition>,
    coverage: HashMap<Process, Coverage>,
    quality: Quality,
}

impl Base {
    /// The stretch begins at `start`, when there was `harvest`, in an observation that began at `observed_since`.
    pub(super) fn new(harvest: Harvest, start: Time, observed_since: Time) -> Self {
        let estimates = harvest.estimates.into_iter().flat_map(|estimates| estimates.processes);
        let counting = |t: &ThreadCounts| (Process(t.process), Tid(t.tid));
        Self {
            start,
            before: start.since(observed_since),
            sums: by(harvest.sums, |s| ((s.lock, s.site, s.via), s.sums)),
            sites: by(harvest.counted.sites, |s| ((s.lock, s.site, s.via), s.counts)),
            counting: by(harvest.counted.threads, |t| (counting(&t), t)),
            threads: by(harvest.threads, |t| ((t.process, t.tid), t)),
            orders: by(harvest.orders, |o| ((o.outer, o.outer_site, o.inner, o.inner_site), o.count)),
            transitions: by(harvest.transitions, |t| ((t.process, t.tid, t.from, t.to), t)),
            coverage: by(estimates, |c| (c.process, c)),
            quality: harvest.quality,
        }
    }

    /// When the stretch begins.
    pub(super) fn start(&self) -> Time {
        self.start
    }

    /// Takes from what a thread has done what it had done before.
    pub(super) fn thread(&self, totals: &mut ThreadTotals, recorded: &Recorded) {
        self.since(totals);
        let (wait, hold, longest) = recorded.before(totals.process, totals.tid);
        totals.wait = totals.wait - wait;
        totals.held_sum = totals.held_sum - hold;
        totals.held_union = (totals.held_union - longest).min(totals.held_sum);
    }

    fn since(&self, totals: &mut ThreadTotals) {
        let Some(before) = self.threads.get(&(totals.process, totals.tid)) else { return };
        // Another thread may have its number by now.
        if totals.acquisitions < before.acquisitions || totals.wait < before.wait || totals.held_sum < before.held_sum {
            return;
        }
        totals.acquisitions -= before.acquisitions;
        totals.wait = totals.wait - before.wait;
        totals.kernel_wait = totals.kernel_wait - before.kernel_wait;
        totals.held_sum = totals.held_sum - before.held_sum;
        totals.held_union = totals.held_union - before.held_union;
    }

    /// What was added up to `harvest`. Waits in progress, stacks and remarks are those of its end.
    pub(super) fn until(&self, mut harvest: Harvest, recorded: &Recorded) -> Harvest {
        harvest.sums.retain_mut(|row| self.sums(row, recorded));
        harvest.counted = self.counted(std::mem::take(&mut harvest.counted));
        harvest.threads.iter_mut().for_each(|totals| self.thread(totals, recorded));
        for wait in harvest.open_waits.iter_mut().filter(|wait| wait.since < self.start) {
            (wait.since, wait.before_start) = (self.start, true);
        }
        harvest.orders.retain_mut(|order| {
            let before = self.orders.get(&(order.outer, order.outer_site, order.inner, order.inner_site));
            order.count = order.count.saturating_sub(before.copied().unwrap_or(0));
            order.count > 0
        });
        harvest.transitions.retain_mut(|transition| self.transition(transition));
        harvest.deadlocks.retain(|deadlock| self.stood(deadlock));
        harvest.estimates = harvest.estimates.map(|estimates| self.estimates(estimates));
        harvest.quality = self.quality(harvest.quality);
        harvest
    }

    /// Returns whether anything is left.
    fn sums(&self, row: &mut KernelSums, recorded: &Recorded) -> bool {
        let key = (row.lock, row.site, row.via);
        let s = &mut row.sums;
        s.first_ns = s.first_ns.max(self.start.0);
        let mut before = self.sums.get(&key).copied().unwrap_or(Sums::EMPTY);
        for (sum, before) in counts_of(s).into_iter().zip(counts_of(&mut before)) {
            *sum = sum.saturating_sub(*before);
        }
        less(&mut s.wait_hist, &before.wait_hist);
        less(&mut s.hold_hist, &before.hold_hist);
        let (began, longest) = (recorded.began_before(&key), recorded.longest(&key));
        for &(wait, hold) in began {
            wait.of_sums(&mut s.wait_ns, &mut s.wait_hist);
            hold.of_sums(&mut s.hold_ns, &mut s.hold_hist);
        }
        let whole = began.is_empty();
        s.wait_max_ns = longest_of(s.wait_max_ns, before.wait_max_ns, &s.wait_hist, longest.wait, whole);
        s.hold_max_ns = longest_of(s.hold_max_ns, before.hold_max_ns, &s.hold_hist, longest.hold, whole);
        counts_of(s).iter().any(|sum| **sum > 0)
    }

    fn counted(&self, mut counted: Counted) -> Counted {
        let mut before = self.counting.clone();
        // What a thread that has exited had counted before is now in the sum of those.
        let there: HashSet<_> = counted.threads.iter().map(|t| (Process(t.process), Tid(t.tid))).collect();
        let gone: Vec<_> = before.keys().filter(|key| !there.contains(key)).copied().collect();
        for key in gone {
            if let Some(thread) = before.remove(&key) {
                let exited = before.entry((key.0, Tid(0))).or_default();
                combine(exited, &thread, u64::saturating_add);
            }
        }
        for thread in &mut counted.threads {
            let key = (Process(thread.process), Tid(thread.tid));
            if let Some(before) = before.get(&key) {
                combine(thread, before, u64::saturating_sub);
            }
            if let (0, Some(before)) = (thread.tid, self.counting.get(&key)) {
                thread.threads = thread.threads.saturating_sub(before.threads);
            }
        }
        counted.sites.retain_mut(|CountedSite { lock, site, via, counts }| {
            if let Some(before) = self.sites.get(&(*lock, *site, *via)) {
                counts.sections = counts.sections.saturating_sub(before.sections);
                counts.waits = counts.waits.saturating_sub(before.waits);
                counts.releases = counts.releases.saturating_sub(before.releases);
                for (counts, before) in [
                    (&mut counts.hold, &before.hold),
                    (&mut counts.wait, &before.wait),
                    (&mut counts.release, &before.release),
                ] {
                    of_counts(counts, before, u64::saturating_sub);
                }
                less(&mut counts.hold_hist, &before.hold_hist);
                less(&mut counts.wait_hist, &before.wait_hist);
                less(&mut counts.release_hist, &before.release_hist);
            }
            [counts.sections, counts.waits, counts.releases].iter().any(|&count| count > 0)
        });
        counted
    }

    fn transition(&self, t: &mut Transition) -> bool {
        t.first = t.first.max(self.start);
        if let Some(before) = self.transitions.get(&(t.process, t.tid, t.from, t.to)) {
            t.count = t.count.saturating_sub(before.count);
            t.visits = t.visits.saturating_sub(before.visits);
            t.local = t.local - before.local;
            t.hold = t.hold - before.hold;
            t.cut = t.cut - before.cut;
            t.squares = t.squares.saturating_sub(before.squares);
        }
        t.count > 0 || t.visits > 0
    }

    /// Whether a deadlock stood in the stretch.
    fn stood(&self, deadlock: &Deadlock) -> bool {
        let goes_on = deadlock.ended.is_none() && !deadlock.exited;
        goes_on || deadlock.until() >= self.start
    }

    /// How much of the stretch was observed. What is estimated from that is known at the end of an observation only.
    fn estimates(&self, estimates: Estimates) -> Estimates {
        let of = |mut now: Coverage| {
            if let Some(before) = self.coverage.get(&now.process) {
                for (sum, before) in [
                    (&mut now.time, before.time),
                    (&mut now.observed, before.observed),
                    (&mut now.cpu, before.cpu),
                    (&mut now.cost, before.cost),
                    (&mut now.own_cpu, before.own_cpu),
                    (&mut now.observed_own_cpu, before.observed_own_cpu),
                ] {
                    *sum = *sum - before;
                }
                now.windows = now.windows.saturating_sub(before.windows);
            }
            Coverage { factor: 1.0, hold_factor: 1.0, ..now }
        };
        let processes = estimates.processes.into_iter().map(of).filter(|now| now.time > Nanos(0)).collect();
        Estimates { processes, figures: Vec::new(), beyond: 0, complete: false, ..estimates }
    }

    fn quality(&self, now: Quality) -> Quality {
        let mut now = now;
        let before = &self.quality;
        less_counts(&mut now.counters, &before.counters);
        less_counts(&mut now.undecodable, &before.undecodable);
        now.late = now.late.saturating_sub(before.late);
        now.paused = now.paused - before.paused;
        let before = self.before.0;
        now.unobserved.retain(|unobserved| unobserved.to_ns.is_none_or(|to| to > before));
        for unobserved in &mut now.unobserved {
            let Unobserved { from_ns, to_ns, .. } = unobserved;
            *from_ns = from_ns.saturating_sub(before);
            *to_ns = to_ns.map(|to| to - before);
        }
        now
    }
}

fn by<T, K: Eq + Hash, V>(all: impl IntoIterator<Item = T>, of: impl FnMut(T) -> (K, V)) -> HashMap<K, V> {
    all.into_iter().map(of).collect()
}

/// Everything that only grows.
fn counts_of(s: &mut Sums) -> [&mut u64; 14] {
    [
        &mut s.acquisitions,
        &mut s.contended,
        &mut s.unseen,
        &mut s.try_failures,
        &mut s.timeouts,
        &mut s.timeout_ns,
        &mut s.errors,
        &mut s.wakes,
        &mut s.wakes_of_none,
        &mut s.wait_ns,
        &mut s.hold_ns,
        &mut s.cut,
        &mut s.cut_ns,
        &mut s.inner_hits,
    ]
}

fn less(histogram: &mut [u64; BUCKETS], before: &[u64; BUCKETS]) {
    for (now, before) in histogram.iter_mut().zip(before) {
        *now = now.saturating_sub(*before);
    }
}

fn less_counts(counts: &mut BTreeMap<&'static str, u64>, before: &BTreeMap<&'static str, u64>) {
    for (name, count) in counts.iter_mut() {
        *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    counts.retain(|_, count| *count > 0);
}

/// The longest duration of a stretch. The kernel side keeps only that since the observation began: if it has grown, it is of the stretch, if all of
/// these are `whole`. Else it is the longest that was recorded if that is in the last bucket of the stretch, and else bounded by that bucket.
fn longest_of(now: u64, before: u64, histogram: &[u64; BUCKETS], recorded: Nanos, whole: bool) -> u64 {
    let Some(last) = histogram.iter().rposition(|&count| count > 0) else { return 0 };
    if now > before && whole {
        now
    } else if bucket(recorded.0) == last {
        recorded.0.min(now)
    } else if last + 1 < BUCKETS {
        now.min((1 << (last + 1)) - 1)
    } else {
        now
    }
}

fn combine(counts: &mut ThreadCounts, other: &ThreadCounts, how: fn(u64, u64) -> u64) {
    of_counts(&mut counts.execution, &other.execution, how);
    for (count, other) in [
        (&mut counts.wait, other.wait),
        (&mut counts.release, other.release),
        (&mut counts.outside, other.outside),
        (&mut counts.held_union, other.held_union),
        (&mut counts.held_sum, other.held_sum),
    ] {
        *count = how(*count, other);
    }
}

fn of_counts(counts: &mut Counts, other: &Counts, how: fn(u64, u64) -> u64) {
    counts.on_cpu_ns = how(counts.on_cpu_ns, other.on_cpu_ns);
    counts.preempted_ns = how(counts.preempted_ns, other.preempted_ns);
    let times = counts.counted_ns.iter_mut().zip(other.counted_ns);
    times.chain(counts.counts.iter_mut().zip(other.counts)).for_each(|(count, other)| *count = how(*count, other));
}
