//! An observation and names for its addresses to a report.

use super::gather::{Gathered, gather};
use super::lock::Ranked;
use super::naming::names;
use super::place::Places;
use super::schema::{FailedProbeEntry, LockEntry, QualityEntry, Report, SCHEMA, SiteEntry, ThreadEntry, Totals};
use super::text::share;
use super::word;
use crate::names::Names;
use crate::observation::Observation;
use crate::units::Nanos;
use lockbpf_common::counter::Class;
use std::collections::{BTreeMap, BTreeSet};

/// What a report contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only so many locks, the most harmful ones; `None` for all.
    pub top: Option<usize>,
    /// Waits shorter than this were not recorded; only stated.
    pub min_wait: Nanos,
}

/// Builds the report.
pub fn build(observation: &Observation, source: &mut dyn Names, options: &Options) -> Report {
    let all = gather(observation);
    let processes: BTreeSet<_> = all.keys().map(|lock| lock.process).collect();
    let mut places = Places::new(observation, source, &processes);
    let names = names(&all, &mut places);
    let name = |lock| names.get(lock).map_or("", String::as_str);
    let is_lock = |g: &Gathered<'_>| g.is_lock() || g.is_inferred_lock();
    let mut ranked: Vec<Ranked<'_>> = all
        .iter()
        .filter(|(_, g)| is_lock(g))
        .map(|(lock, g)| Ranked::new(*lock, g, name(lock).to_owned(), observation.end))
        .collect();
    ranked.sort_by(|a, b| (b.harm, &a.name, a.lock).cmp(&(a.harm, &b.name, b.lock)));
    let shown = options.top.unwrap_or(usize::MAX).min(ranked.len());
    let totals = Totals {
        locks: ranked.len() as u64,
        locks_omitted: (ranked.len() - shown) as u64,
        acquisitions: ranked.iter().filter(|r| !r.gathered.mutex.is_empty()).map(|r| r.total.acquisitions).sum(),
        contended: ranked.iter().map(|r| r.contended).sum(),
        wait_ns: ranked.iter().map(|r| r.wait.sum).sum::<Nanos>().0,
        harm_ns: ranked.iter().map(|r| r.harm).sum::<Nanos>().0,
        waiting_now: ranked.iter().map(|r| r.gathered.open.len() as u64).sum(),
    };
    let entries = ranked[..shown].iter().map(|r| r.entry(&mut places, observation.end));
    let (locks, sites): (Vec<LockEntry>, Vec<Vec<SiteEntry>>) = entries.unzip();
    let mut conditions: Vec<_> = all
        .iter()
        .filter(|(_, g)| g.is_condition())
        .map(|(lock, g)| word::condition(*lock, g, name(lock), &mut places))
        .collect();
    conditions.sort_by(|a, b| (b.idle_ns.sum, &a.name).cmp(&(a.idle_ns.sum, &b.name)));
    let mut futexes: Vec<_> = all
        .iter()
        .filter(|(_, g)| !is_lock(g) && !g.is_condition())
        .map(|(lock, g)| word::futex(*lock, g, name(lock), &mut places))
        .collect();
    futexes.sort_by(|a, b| (b.wait_ns.sum, &a.name).cmp(&(a.wait_ns.sum, &b.name)));
    Report {
        schema: SCHEMA.to_owned(),
        totals,
        sites: ranked_sites(sites, &locks),
        locks,
        threads: threads(observation),
        conditions,
        futexes,
        quality: quality(observation, options),
    }
}

/// Sites of all locks by rank: those that made others wait most come first.
fn ranked_sites(sites: Vec<Vec<SiteEntry>>, locks: &[LockEntry]) -> Vec<SiteEntry> {
    let names: BTreeMap<&str, &str> = locks.iter().map(|l| (l.lock.as_str(), l.name.as_str())).collect();
    let mut sites: Vec<_> = sites.into_iter().flatten().collect();
    sites.sort_by(|a, b| {
        let key = |s: &'_ SiteEntry| (names.get(s.lock.as_str()).copied(), s.symbol.clone(), s.site.clone());
        (b.apwt_ns, b.wait_ns).cmp(&(a.apwt_ns, a.wait_ns)).then_with(|| key(a).cmp(&key(b)))
    });
    for (rank, site) in (1..).zip(&mut sites) {
        site.rank = rank;
    }
    sites
}

fn threads(observation: &Observation) -> Vec<ThreadEntry> {
    let mut threads: Vec<_> = observation
        .threads
        .iter()
        .map(|t| ThreadEntry {
            tid: t.tid.0,
            pid: observation.processes.get(&t.process).map(|p| p.pid),
            comm: t.comm.clone(),
            wait_ns: t.wait.0,
            held_union_ns: t.held_union.0,
            held_sum_ns: t.held_sum.0,
            acquisitions: t.acquisitions,
        })
        .collect();
    threads.sort_by(|a, b| (b.wait_ns, a.tid, &a.comm).cmp(&(a.wait_ns, b.tid, &b.comm)));
    threads
}

fn quality(observation: &Observation, options: &Options) -> QualityEntry {
    let q = &observation.quality;
    let of_class = |class| q.of_class(class).map(|(name, n)| (name.to_owned(), n)).collect::<BTreeMap<_, _>>();
    let mut lost = of_class(Class::Lost);
    lost.extend(q.undecodable.iter().map(|(defect, &n)| (format!("undecodable_{defect}"), n)));
    let beyond = observation.blame.beyond().count;
    if beyond > 0 {
        lost.insert("blame_locks_full".to_owned(), beyond);
    }
    let late = q.late + observation.blame.late();
    let duration = observation.duration();
    QualityEntry {
        target: observation.target.clone(),
        duration_ns: duration.0,
        observed_share: if duration.0 == 0 { 1.0 } else { share((duration - q.paused).0, duration.0) },
        futex_only: observation.futex_only,
        processes: observation.processes.len() as u64,
        min_wait_ns: options.min_wait.0,
        events: q.events,
        lost,
        late,
        impossible: of_class(Class::Impossible),
        edges: of_class(Class::Edge),
        open_at_end: observation.open_waits.len() as u64,
        failed_probes: q
            .failed_probes
            .iter()
            .map(|p| FailedProbeEntry { probe: p.probe.clone(), file: p.file.clone(), reason: p.reason.clone() })
            .collect(),
        notes: q.notes.clone(),
        incomplete: q.incomplete() || beyond > 0 || late > 0,
    }
}
