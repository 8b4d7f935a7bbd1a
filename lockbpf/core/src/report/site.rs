//! Static critical sections over all their locks, ranked by the waiting that they cause.

use super::calling::Calling;
use super::distrust;
use super::doing::Doing;
use super::gather::Gathered;
use super::lock::{Ranked, corrected, is_corrected};
use super::place::Places;
use super::schema::SiteEntry;
use crate::estimate::Subject;
use crate::graph::findings::{SiteBlame, Who};
use crate::id::{Lock, Site};
use crate::observation::Observation;
use crate::op::LockKind;
use crate::sums::Measure;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// One static critical section.
#[derive(Debug, Default)]
struct Section {
    instances: u64,
    wait: Nanos,
    /// Whether holds are known.
    held: bool,
    holds: Measure,
    waits: Measure,
    /// It has waits or holds that cannot be told without what observing added.
    uncorrected: bool,
    /// Some of its waits are seen all the time, of which windows tell nothing.
    exact: bool,
    locks: HashMap<Lock, Part>,
}

/// What one lock has of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// Whether it was asked for here. In a function of a library that is called here others may be given back.
    asked: bool,
    /// The waiting that holding it here caused.
    harm: Nanos,
    /// The waiting for it here.
    wait: Nanos,
}

impl Section {
    fn asked(&mut self, lock: Lock, wait: Nanos) {
        let part = self.locks.entry(lock).or_default();
        (part.asked, part.wait) = (true, part.wait + wait);
    }
}

/// The entries of all sections of the locks shown that `wanted` lets pass, in the order of their rank.
pub(super) fn sites(
    shown: &[Ranked<'_>],
    all: &BTreeMap<Lock, Gathered<'_>>,
    observation: &Observation,
    blames: &BTreeMap<Site, SiteBlame>,
    wanted: &dyn Fn(Site) -> bool,
    places: &mut Places<'_>,
) -> Vec<SiteEntry> {
    let mut sections = collect(shown);
    let mut doing: HashMap<Site, (Doing, Calling)> = HashMap::new();
    let blamed = all.iter().filter_map(|(&lock, g)| Some((lock, g.blame()?)));
    for (lock, holder) in blamed.flat_map(|(lock, s)| s.holders.iter().map(move |h| (lock, h))) {
        if let (Some(held), Some(site)) = (holder.who.lock(), holder.who.site())
            && let Some(section) = sections.get_mut(&site)
        {
            let part = section.locks.entry(held).or_default();
            part.harm += holder.wait;
            part.asked |= matches!(holder.who, Who::Section { .. });
            let (doing, calling) = doing.entry(site).or_default();
            doing.add(holder, lock);
            calling.add(holder);
        }
    }
    // One thread at a time has a mutex: holds of one add up to no more than the time.
    let is_mutex = |lock: &Lock| {
        let kind = all.get(lock).and_then(|gathered| gathered.mutex.first()).map(|row| row.kind);
        !lock.is_kernel() && kind == Some(LockKind::Mutex)
    };
    let most_held = |section: &Section| {
        let alone = section.locks.keys().all(is_mutex);
        if alone { section.locks.len() as f64 * observation.duration().0 as f64 } else { f64::INFINITY }
    };
    let bias = distrust::hold_bias(observation);
    let mut entries = Vec::with_capacity(sections.len());
    for (site, section) in sections.into_iter().filter(|&(site, _)| wanted(site)) {
        let Some(id) = places.site_id(site) else { continue };
        let blame = blames.get(&site).cloned().unwrap_or_default();
        let doing = doing.get(&site).filter(|_| blame.apwt > Nanos(0));
        let lock = section.locks.iter().max_by_key(|&(&lock, &part)| (part, Reverse(lock))).map(|(&lock, _)| lock);
        // What was estimated for all locks together.
        let figures = observation.estimates.as_ref().filter(|_| !section.exact).and_then(|estimates| {
            let figures = estimates.of(Subject::Site(site))?;
            // Whoever slept acquired, whatever windows saw.
            let slept = if section.instances as f64 > figures.acquisitions.high { section.instances } else { 0 };
            Some(figures.beside(&estimates.known(slept, section.holds.max)))
        });
        let estimate = figures.map(|f| f.held_ns(most_held(&section)));
        let hold = estimate.map(|sum| Nanos(sum.value.round() as u64));
        entries.push(SiteEntry {
            site: id,
            lock: lock.map(|lock| places.lock_id(lock)).unwrap_or_default(),
            locks: section.locks.len() as u64,
            released: section.locks.values().all(|part| !part.asked),
            symbol: places.place(site).symbol,
            instances: figures.map_or(section.instances, |f| f.acquisitions.value.round() as u64),
            wait_ns: places.ns(section.wait),
            hold_estimate: estimate,
            hold_ns: hold.or(section.held.then_some(section.holds.sum)).map(|hold| places.ns(hold)),
            corrected: bias
                .filter(|_| figures.is_none() && section.held && !section.uncorrected)
                .map(|bias| corrected(bias.remove(&section.waits, &section.holds), places.unit())),
            estimates: figures,
            apwt_ns: places.ns(blame.apwt),
            cpwt_ns: blame.cpwt.map(|cpwt| places.ns(cpwt)),
            causes: doing.and_then(|(doing, _)| doing.causes(places)),
            off_in: doing.and_then(|(doing, _)| doing.off_in(places)),
            callers: doing.and_then(|(_, calling)| calling.callers(places)),
            ..SiteEntry::default()
        });
    }
    rank(&mut entries);
    entries
}

/// Puts sections in the order of their rank: those that made others wait most come first.
pub(super) fn rank(sites: &mut [SiteEntry]) {
    sites.sort_by(|a, b| (b.apwt_ns, b.wait_ns, &a.symbol, &a.site).cmp(&(a.apwt_ns, a.wait_ns, &b.symbol, &b.site)));
    for (rank, site) in (1..).zip(sites) {
        site.rank = rank;
    }
}

fn collect(shown: &[Ranked<'_>]) -> BTreeMap<Site, Section> {
    let mut sections: BTreeMap<Site, Section> = BTreeMap::new();
    for Ranked { lock, gathered, in_others, .. } in shown {
        for s in &gathered.mutex {
            let section = sections.entry(s.site).or_default();
            section.instances += s.acquisitions;
            section.wait += s.wait.sum;
            section.waits.merge(&s.wait);
            // A row of a place that no window saw has waiting and no sections: how long they held is not known.
            if !lock.is_kernel() && (s.acquisitions > 0 || s.wait.sum == Nanos(0)) {
                section.held = true;
                section.holds.merge(&s.hold);
            }
            section.exact |= s.via.is_seen_always();
            section.uncorrected |= !is_corrected(*lock, &[s]);
            section.asked(*lock, s.wait.sum);
        }
        if let Some(shares) = gathered.blame() {
            // Whatever the sums lack: lost, or never summed.
            let waiting = shares.waiters.iter().filter_map(|w| Some((w.site?, w.waits)));
            for (site, waits) in waiting.filter(|_| gathered.mutex.is_empty() && !in_others) {
                let section = sections.entry(site).or_default();
                section.instances += waits.count;
                section.wait += waits.time;
                section.uncorrected = true;
                section.asked(*lock, waits.time);
            }
            for holder in &shares.holders {
                if let (Some(held), Some(site)) = (holder.who.lock(), holder.who.site())
                    && held == *lock
                {
                    sections.entry(site).or_default().locks.entry(held).or_default();
                }
            }
        }
    }
    sections
}
