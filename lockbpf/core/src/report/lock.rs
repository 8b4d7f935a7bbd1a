//! One lock's entry: counts from the sums, who and where from the wait graph.

use super::attribution;
use super::divide::divide;
use super::durations::{Total, least_waits, over, up_to};
use super::gather::Gathered;
use super::kernel;
use super::place::Places;
use super::schema::{CorrectedEntry, Durations, LockEntry, Ns, ThreadId, Unit, WaitingNow, WaitingPlace};
use super::{sleepers, word};
use crate::correction::{Corrected, HoldBias};
use crate::estimate::{Estimates, Figures, Interval, Subject};
use crate::graph::WaitsAtPlace;
use crate::id::{Lock, Site, StackId};
use crate::op::LockKind;
use crate::sums::{Measure, SiteSums};
use crate::units::{Nanos, Time};
use lockbpf_common::kind::mutex_kind;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Threads waiting now that are named as holders.
const MAX_HELD_BY: usize = 8;

/// Everything about a lock that ranks it, before places get names.
#[derive(Debug)]
pub(super) struct Ranked<'a> {
    pub(super) lock: Lock,
    pub(super) gathered: &'a Gathered<'a>,
    pub(super) name: String,
    pub(super) total: Total,
    pub(super) wait: Measure,
    pub(super) contended: u64,
    pub(super) open_wait: Nanos,
    /// By calls of which the attempt was not seen. Sums of windows have such waits.
    attempt_unseen: Nanos,
    pub(super) harm: Nanos,
    /// Where the lock was observed in windows only.
    pub(super) figures: Option<Figures>,
    /// Where waits were, too, or only some of them were recorded: Σ wait, ns.
    wait_estimate: Option<Interval>,
    /// It has no sums of its own, but is among the locks of its process that were summed together.
    pub(super) in_others: bool,
    /// What observing adds to a hold, ns.
    hold_bias: f64,
    /// The same, where figures are told as they were seen.
    bias: Option<HoldBias>,
}

impl<'a> Ranked<'a> {
    /// Ranks a lock as of time `end`.
    pub(super) fn new(
        lock: Lock,
        gathered: &'a Gathered<'a>,
        name: String,
        end: Time,
        estimates: Option<&Estimates>,
        bias: Option<HoldBias>,
        in_others: bool,
    ) -> Self {
        let mut total = Total::of(if gathered.is_lock() { &gathered.mutex } else { &gathered.futex });
        let figures = estimates.and_then(|estimates| figures(lock, gathered, &total, estimates));
        if let Some(figures) = &figures {
            total.estimated(figures);
        }
        let (contended, wait) = match (&gathered.shares, gathered.waits) {
            _ if gathered.is_lock() && !gathered.mutex.is_empty() => (total.contended, total.wait.clone()),
            (Some(s), _) => {
                let sum = s.waits.time - s.timed_out.time - s.open.time;
                (s.histogram.count(), Measure { sum, max: s.max, histogram: s.histogram.clone() })
            }
            _ if !gathered.is_lock() && total.acquisitions > 0 => (total.acquisitions, total.wait.clone()),
            (None, Some(w)) if !gathered.is_lock() => {
                (w.waits.count, Measure { sum: w.waits.time, max: w.max, histogram: w.histogram.clone() })
            }
            _ => (0, Measure::default()),
        };
        let wait_estimate = figures
            .filter(|_| gathered.futex.is_empty() && wait.sum > Nanos(0))
            .map(|figures| figures.wait_ns.around(wait.sum.0 as f64))
            .or_else(|| gathered.thinned()?.spread.around(wait.sum));
        // Without estimates beside it the number is that of the waits told. Whatever is seen of a runtime's lock is one.
        let contended = if figures.is_some() && total.unseen > 0 {
            let told = measured(&wait);
            total.unseen = if total.inline { told } else { total.unseen };
            // Windows may have shown fewer acquisitions of another lock than waits were told.
            total.acquisitions = total.acquisitions.max(told);
            told
        } else {
            contended
        };
        let timed_out = if gathered.is_lock() { total.timed_out } else { Nanos(0) };
        let open_wait = gathered.open.iter().map(|w| end.since(w.since)).sum();
        let whole = gathered.is_lock() && !gathered.mutex.is_empty() && figures.is_none() && !total.inline;
        let whole = whole && estimates.is_none_or(|estimates| !estimates.are_of(lock.process));
        let attempt_unseen = gathered.shares.filter(|_| whole).map(|s| s.attempt_unseen).unwrap_or_default();
        let harm = wait.sum + timed_out + open_wait + attempt_unseen;
        let hold_bias = estimates.map_or(0.0, |estimates| estimates.hold_bias_ns.value);
        let bias = bias.filter(|_| figures.is_none());
        Self {
            lock,
            gathered,
            name,
            total,
            wait,
            contended,
            open_wait,
            attempt_unseen,
            harm,
            figures,
            wait_estimate,
            in_others,
            hold_bias,
            bias,
        }
    }

    /// The name of its kind.
    pub(super) fn kind(&self, places: &mut Places<'_>) -> String {
        let Self { lock, gathered, total, .. } = self;
        match total.runtime {
            Some(runtime) => format!("{} ({runtime})", total.kind.name()),
            None if lock.is_kernel() => kernel::kind(gathered).to_owned(),
            None => match sleepers::name(*lock, gathered, places) {
                Some(known) => known.to_owned(),
                None => kind(*lock, total.kind, places),
            },
        }
    }

    /// Whether calls on it are seen. Of a kernel lock only the waiting is.
    fn called(&self) -> bool {
        !self.gathered.mutex.is_empty() && !self.lock.is_kernel()
    }

    /// Completed sections; `None` where they are not seen.
    pub(super) fn acquisitions(&self) -> Option<u64> {
        (self.called() && !self.total.inline).then_some(self.total.acquisitions)
    }

    /// Where windows alone show waits, or only some of them were recorded: Σ wait, ns.
    pub(super) fn wait_estimate(&self) -> Option<Interval> {
        self.wait_estimate
    }

    /// Whether most holds are known.
    pub(super) fn holds_known(&self) -> bool {
        self.acquisitions().is_some() && self.total.unseen * 2 <= self.total.acquisitions
    }

    /// The entry.
    pub(super) fn entry(&self, places: &mut Places<'_>, aplt: Option<Nanos>, end: Time) -> LockEntry {
        let Self { lock, gathered, total, .. } = self;
        let called = self.called();
        let (pid, comm) = places.process(lock.process);
        // Event lines know neither processes nor glibc's kinds.
        let pthread = called && pid.is_some() && total.mutex_kind & mutex_kind::IS_FUTEX == 0;
        let one = !lock.is_others();
        let described = gathered.mutex.iter().any(|s| s.via.is_custom());
        let mutex = (one && pthread && !described && total.kind == LockKind::Mutex).then_some(total.mutex_kind);
        let bit = |bit| mutex.map(|kind| kind & bit != 0);
        let unit = places.unit();
        let mut entry = LockEntry {
            lock: places.lock_id(*lock),
            name: self.name.clone(),
            label: places.label(lock.process, &self.name),
            kind: self.kind(places),
            kernel: lock.is_kernel(),
            others: lock.is_others(),
            in_others: self.in_others,
            participants: (total.participants > 0).then_some(total.participants.into()),
            inferred: !gathered.is_lock(),
            mutex_type: mutex.map(|kind| mutex_type(kind).to_owned()),
            pi: bit(mutex_kind::PRIO_INHERIT),
            robust: bit(mutex_kind::ROBUST),
            shared: bit(mutex_kind::SHARED),
            pid,
            comm,
            acquisitions: self.acquisitions(),
            release_unseen: total.unseen,
            contended: self.contended,
            try_failures: if called { total.try_failures } else { 0 },
            timeouts: total.timeouts,
            timed_out_wait_ns: places.ns(if called { total.timed_out } else { Nanos(0) }),
            attempt_unseen_wait_ns: places.ns(self.attempt_unseen),
            errors: total.errors,
            harm_ns: places.ns(self.harm),
            attribution: attribution::of(places.ns(self.harm), Ns::default(), Ns::default(), Ns::default()),
            wait_ns: over(&self.wait, if called { total.acquisitions } else { self.contended }, unit),
            contended_wait_ns: over(&self.wait, self.measured(), unit),
            // A mean of the fewer ones would pass for that of all.
            hold_ns: self.holds_known().then(|| self.holds(unit)),
            corrected: self.corrected(unit),
            estimates: self.figures.filter(|_| total.unseen == 0 && !total.inline),
            wait_estimate: self.wait_estimate,
            aplt_ns: places.ns(aplt.unwrap_or_default()),
            first_site: gathered.first().1.map(|site| places.place(site).symbol),
            in_turn: gathered.place.map(WaitsAtPlace::share_in_turn),
            waiting_now: self.waiting_now(places, end),
            futex: word::counts(gathered, places),
            ..LockEntry::default()
        };
        if let Some(shares) = gathered.blame() {
            divide(*lock, shares, &mut entry, places);
        }
        entry
    }

    /// The number of waits that the mean and percentiles cover. In windows the number of contended acquisitions is an estimate, often a wide
    /// one: a mean over it would be a wait that nobody had.
    fn measured(&self) -> u64 {
        if self.figures.is_some() { measured(&self.wait) } else { self.contended }
    }

    /// Without what observing added, where holds are known.
    fn corrected(&self, unit: Unit) -> Option<CorrectedEntry> {
        let known = is_corrected(self.lock, &self.gathered.mutex);
        Some(corrected(self.bias.filter(|_| known)?.remove(&self.wait, &self.total.hold), unit))
    }

    fn holds(&self, unit: Unit) -> Durations {
        let hold = &self.total.hold;
        let count = self.total.acquisitions - self.total.unseen.min(self.total.acquisitions);
        match &self.figures {
            // What was counted has the weights of windows, and was prolonged by observing: estimates have neither.
            Some(f) => {
                let seen = over(hold, count, unit);
                let without = |ns: Ns| Ns::from_f64((ns.as_f64() - self.hold_bias).max(0.0).round());
                let mean = Ns::from_f64(f.hold_mean_ns.value.round());
                // Where sections are longer than windows, none was seen to its end.
                let max = without(seen.max).max(mean);
                let p99 = Ns::from_f64(f.hold_p99_ns.value.round()).min(max);
                let sum = seen.sum.max(max);
                // The estimated sum may be less than the longest hold. Then the mean follows from that one.
                let each = Ns::from_f64((sum.as_f64() / count.max(1) as f64).round());
                let mean = if sum > seen.sum { mean.max(each) } else { mean };
                // Half of them are at least as long as the median.
                Durations { sum, mean, max, p99, p50: without(seen.p50).min(p99).min(mean + mean) }
            }
            None => up_to(hold.longest_summed(), hold, count, unit),
        }
    }

    fn waiting_now(&self, places: &mut Places<'_>, end: Time) -> WaitingNow {
        let open = &self.gathered.open;
        let longest = open.iter().map(|w| end.since(w.since)).max().unwrap_or_default();
        let mut held_by: Vec<ThreadId> = open.iter().filter_map(|w| w.owner).map(|tid| places.thread(tid)).collect();
        held_by.sort_unstable();
        held_by.dedup();
        held_by.truncate(MAX_HELD_BY);
        let mut by_site: BTreeMap<Option<Site>, (u64, Option<StackId>)> = BTreeMap::new();
        for wait in open {
            let site = wait.site.or_else(|| places.asker(self.lock.process, wait.stack?));
            let (count, stack) = by_site.entry(site).or_default();
            *count += 1;
            *stack = stack.or(wait.stack);
        }
        let mut waiting: Vec<WaitingPlace> = by_site
            .into_iter()
            .map(|(site, (count, stack))| WaitingPlace {
                place: site.map_or_else(|| word::elsewhere("unknown site"), |site| places.place_of_wait(site, stack)),
                count,
                stack: places.stack(self.lock.process, site.map(|s| s.addr), stack),
            })
            .collect();
        waiting.sort_by_key(|p| Reverse(p.count));
        WaitingNow {
            count: open.len() as u64,
            longest_ns: places.ns(longest),
            sum_ns: places.ns(self.open_wait),
            held_by,
            before_start: open.iter().any(|w| w.before_start),
            places: waiting,
        }
    }
}

/// What was estimated of a lock, beside what is known of it.
fn figures(lock: Lock, gathered: &Gathered<'_>, total: &Total, estimates: &Estimates) -> Option<Figures> {
    // One that processes share, of which each has windows of its own, or was seen as a whole; or one of which some waits are seen all the time.
    let parted = gathered.mutex.iter().any(|row| row.site.process != lock.process || row.via.is_seen_always());
    let figures = estimates.of(Subject::Lock(lock)).copied().filter(|_| !parted).or_else(|| {
        let of = |row: &SiteSums| estimates.of(Subject::Row(lock, row.site, row.via)).copied();
        let rows = &gathered.mutex;
        let parts = || rows.iter().map(|row| of(row).unwrap_or_else(|| seen(row))).collect::<Vec<_>>();
        rows.iter().any(|row| of(row).is_some()).then(|| Figures::together(&parts()))
    })?;
    let slept: u64 = gathered.futex.iter().map(|word| word.acquisitions).sum();
    Some(figures.beside(&estimates.known(slept.max(least_waits(total.wait.sum, total.wait.max)), total.hold.max)))
}

/// The number of waits that were measured. A histogram that was scaled is rounded, and may have lost some.
fn measured(wait: &Measure) -> u64 {
    wait.histogram.count().max(least_waits(wait.sum, wait.max))
}

/// The figures of what was seen as a whole.
fn seen(row: &SiteSums) -> Figures {
    let per = |sum: u64| Interval::exact(if row.acquisitions > 0 { sum as f64 / row.acquisitions as f64 } else { 0.0 });
    Figures {
        acquisitions: Interval::exact(row.acquisitions as f64),
        hold_mean_ns: per(row.hold.sum.0),
        hold_p99_ns: Interval::exact(row.hold.histogram.quantile(0.99, row.hold.max).0 as f64),
        contended_share: per(row.contended).capped(1.0),
        wait_ns: Interval::exact(row.wait.sum.0 as f64),
    }
}

/// Whether waits and holds can be told without what observing added: where holds are, and the lock is one of the program's.
pub(super) fn is_corrected(lock: Lock, sums: &[&SiteSums]) -> bool {
    let held = |s: &&SiteSums| s.unseen == 0 && s.kind != LockKind::Barrier && s.via.runtime().is_none();
    !lock.is_kernel() && !sums.is_empty() && sums.iter().all(held)
}

pub(super) fn corrected(c: Corrected, unit: Unit) -> CorrectedEntry {
    CorrectedEntry { contended: c.contended, wait_ns: unit.ns(c.wait), hold_ns: unit.ns(c.hold) }
}

/// The name of a lock's kind.
pub(super) fn kind(lock: Lock, kind: LockKind, places: &mut Places<'_>) -> String {
    places.kind(lock).unwrap_or_else(|| kind.name().to_owned())
}

/// glibc's name for the type of a mutex.
fn mutex_type(kind: u32) -> &'static str {
    match kind & mutex_kind::TYPE_MASK {
        1 => "recursive",
        2 => "errorcheck",
        3 => "adaptive",
        _ => "normal",
    }
}
