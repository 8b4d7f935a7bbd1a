//! One lock's entry: counts from the sums, who and where from the records.

use super::durations::{Total, over};
use super::gather::Gathered;
use super::place::Places;
use super::schema::{
    BlameEntry, HolderEntry, LockEntry, PairEntry, Place, SiteEntry, WaiterEntry, WaitingNow, WaitingPlace,
};
use super::text::share;
use super::word;
use crate::blame::{Holder, Shares, Stacks, Who};
use crate::id::{Lock, Site, StackId};
use crate::sums::Measure;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::mutex_kind;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pairs of threads listed per lock.
const MAX_PAIRS: usize = 10;

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
    pub(super) harm: Nanos,
}

impl<'a> Ranked<'a> {
    /// Ranks a lock as of time `end`.
    pub(super) fn new(lock: Lock, gathered: &'a Gathered<'a>, name: String, end: Time) -> Self {
        let total = Total::of(if gathered.is_lock() { &gathered.mutex } else { &gathered.futex });
        let (contended, wait) = match (&gathered.shares, gathered.waits) {
            _ if gathered.is_lock() && !gathered.mutex.is_empty() => (total.contended, total.wait.clone()),
            (Some(s), _) => {
                let sum = s.waits.time - s.timed_out.time;
                (s.histogram.count(), Measure { sum, max: s.max, histogram: s.histogram.clone() })
            }
            _ if !gathered.is_lock() && total.acquisitions > 0 => (total.acquisitions, total.wait.clone()),
            (None, Some(w)) if !gathered.is_lock() => {
                (w.waits.count, Measure { sum: w.waits.time, max: w.max, histogram: w.histogram.clone() })
            }
            _ => (0, Measure::default()),
        };
        let timed_out = if gathered.is_lock() { total.timed_out } else { Nanos(0) };
        let open_wait = gathered.open.iter().map(|w| end.since(w.since)).sum();
        let harm = wait.sum + timed_out + open_wait;
        Self { lock, gathered, name, total, wait, contended, open_wait, harm }
    }

    /// The entry, and those of its sites (without rank).
    pub(super) fn entry(&self, places: &mut Places<'_>, end: Time) -> (LockEntry, Vec<SiteEntry>) {
        let Self { lock, gathered, total, .. } = self;
        let called = !gathered.mutex.is_empty();
        let (pid, comm) = places.process(lock.process);
        let kind = (called && total.mutex_kind & mutex_kind::IS_FUTEX == 0).then_some(total.mutex_kind);
        let bit = |bit| kind.map(|kind| kind & bit != 0);
        let shares = gathered.shares.as_ref();
        let mut entry = LockEntry {
            lock: places.id(lock.process, lock.addr),
            name: self.name.clone(),
            label: places.label(lock.process, &self.name),
            kind: total.kind.name().to_owned(),
            inferred: !gathered.is_lock(),
            mutex_type: kind.map(|kind| mutex_type(kind).to_owned()),
            pi: bit(mutex_kind::PRIO_INHERIT),
            robust: bit(mutex_kind::ROBUST),
            shared: bit(mutex_kind::SHARED),
            pid,
            comm,
            acquisitions: called.then_some(total.acquisitions),
            contended: self.contended,
            try_failures: if called { total.try_failures } else { 0 },
            timeouts: total.timeouts,
            timed_out_wait_ns: if called { total.timed_out.0 } else { 0 },
            errors: total.errors,
            harm_ns: self.harm.0,
            wait_ns: over(&self.wait, if called { total.acquisitions } else { self.contended }),
            contended_wait_ns: over(&self.wait, self.contended),
            hold_ns: called.then(|| over(&total.hold, total.acquisitions)),
            first_site: gathered.first().1.map(|site| places.place(site).symbol),
            waiting_now: self.waiting_now(places, end),
            futex: word::counts(gathered),
            ..LockEntry::default()
        };
        match (shares, gathered.waits) {
            (Some(shares), _) => self.divide(shares, &mut entry, places),
            (None, Some(waits)) if entry.inferred => word::divide(lock.process, waits, &mut entry, places),
            _ => {}
        }
        let sites = self.sites(places, &entry);
        (entry, sites)
    }

    /// Fills in who waited and who held the lock meanwhile.
    fn divide(&self, shares: &Shares, entry: &mut LockEntry, places: &mut Places<'_>) {
        let process = self.lock.process;
        let all = shares.waits.time.0;
        entry.recorded_wait_ns = all;
        entry.unattributed_ns = shares.unattributed.0;
        entry.forgotten_ns = shares.forgotten.0;
        entry.aplt_ns = shares.holders.iter().map(|h| h.wait).sum::<Nanos>().0;
        entry.waiting_threads = shares.threads.len() as u64;
        for (row, w) in shares.waiters.iter().enumerate() {
            let mut blamed: Vec<BlameEntry> = (shares.holders.iter().enumerate())
                .map(|(column, holder)| (shares.blamed(row, column).0, holder))
                .filter(|&(wait_ns, _)| wait_ns > 0)
                .map(|(wait_ns, holder)| {
                    let (place, tid) = holder_place(holder, places);
                    BlameEntry { place, tid, wait_ns, share: share(wait_ns, w.waits.time.0) }
                })
                .collect();
            blamed.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
            entry.waiters.push(WaiterEntry {
                place: w.site.map_or_else(|| word::elsewhere("other sites"), |site| places.place(site)),
                count: w.waits.count,
                wait_ns: w.waits.time.0,
                max_ns: w.max.0,
                share: share(w.waits.time.0, all),
                unattributed_ns: w.unattributed.0,
                blamed,
                stack: places.stack(process, w.site.map(|s| s.addr), top_stack(&w.stacks)),
            });
        }
        for holder in shares.holders.iter().filter(|h| h.wait > Nanos(0)) {
            let (place, tid) = holder_place(holder, places);
            entry.holders.push(HolderEntry {
                place,
                tid,
                wait_ns: holder.wait.0,
                handoff_ns: holder.handoff.0,
                share: share(holder.wait.0, all),
                victims: holder.victims,
                sections: holder.sections.count,
                inferred: tid.is_some(),
                stack: places.stack(process, holder_site(holder), top_stack(&holder.stacks)),
            });
        }
        entry.waiters.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
        entry.holders.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
        let pairs = shares.pairs.top().into_iter().take(MAX_PAIRS);
        entry.thread_pairs = pairs
            .map(|((waiter, holder), sum)| PairEntry { waiter: waiter.0, holder: holder.0, wait_ns: sum.time.0 })
            .collect();
    }

    fn waiting_now(&self, places: &mut Places<'_>, end: Time) -> WaitingNow {
        let open = &self.gathered.open;
        let longest = open.iter().map(|w| end.since(w.since)).max().unwrap_or_default();
        let mut held_by: Vec<u32> = open.iter().filter_map(|w| w.owner).map(|tid| tid.0).collect();
        held_by.sort_unstable();
        held_by.dedup();
        held_by.truncate(MAX_HELD_BY);
        let mut by_site: BTreeMap<Option<Site>, (u64, Option<StackId>)> = BTreeMap::new();
        for wait in open {
            let (count, stack) = by_site.entry(wait.site).or_default();
            *count += 1;
            *stack = stack.or(wait.stack);
        }
        let mut waiting: Vec<WaitingPlace> = by_site
            .into_iter()
            .map(|(site, (count, stack))| WaitingPlace {
                place: site.map_or_else(|| word::elsewhere("unknown site"), |site| places.place(site)),
                count,
                stack: places.stack(self.lock.process, site.map(|s| s.addr), stack),
            })
            .collect();
        waiting.sort_by_key(|p| Reverse(p.count));
        WaitingNow {
            count: open.len() as u64,
            longest_ns: longest.0,
            sum_ns: self.open_wait.0,
            held_by,
            before_start: open.iter().any(|w| w.before_start),
            places: waiting,
        }
    }

    /// The static critical sections of this lock, without rank.
    fn sites(&self, places: &mut Places<'_>, entry: &LockEntry) -> Vec<SiteEntry> {
        let mut sites: BTreeMap<Site, SiteEntry> = BTreeMap::new();
        for s in &self.gathered.mutex {
            let site = sites.entry(s.site).or_default();
            site.instances += s.acquisitions;
            site.wait_ns += s.wait.sum.0;
            site.hold_ns = Some(site.hold_ns.unwrap_or(0) + s.hold.sum.0);
        }
        if let Some(shares) = &self.gathered.shares {
            for holder in &shares.holders {
                if let Who::Site(site) = holder.who {
                    sites.entry(site).or_default().apwt_ns += holder.wait.0;
                }
            }
        } else if let Some(waits) = self.gathered.waits.filter(|_| entry.inferred) {
            for s in &waits.sites {
                let Some(site) = s.site else { continue };
                let site = sites.entry(site).or_default();
                site.instances += s.waits.count;
                site.wait_ns += s.waits.time.0;
            }
        }
        let named = sites.into_iter().filter(|(site, _)| site.addr != 0).map(|(site, entry_of_site)| SiteEntry {
            site: places.id(site.process, site.addr),
            lock: entry.lock.clone(),
            symbol: places.place(site).symbol,
            ..entry_of_site
        });
        named.collect()
    }
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

fn holder_site(holder: &Holder) -> Option<u64> {
    match holder.who {
        Who::Site(site) => Some(site.addr),
        Who::Thread(_) | Who::Others => None,
    }
}

fn top_stack(stacks: &Stacks) -> Option<StackId> {
    stacks.top().first().map(|&(stack, _)| stack)
}

fn holder_place(holder: &Holder, places: &mut Places<'_>) -> (Place, Option<u32>) {
    match holder.who {
        Who::Site(site) => (places.place(site), None),
        Who::Thread(tid) => (word::elsewhere(&format!("thread {} (site unknown)", tid.0)), Some(tid.0)),
        Who::Others => (word::elsewhere("other holders"), None),
    }
}
