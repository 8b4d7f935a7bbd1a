//! An observation and names for its addresses to a report.

use super::attribution;
use super::culprit::{Divided, culprits};
use super::gather::{Gathered, gather};
use super::histograms::{Histograms, histograms};
use super::lock::Ranked;
use super::measured::{self, Certainty, Measured};
use super::naming::names;
use super::pictures::Pictures;
use super::place::Places;
use super::possible::violations;
use super::profile::{self, Profile};
use super::quality::quality;
use super::released::Released;
use super::schema::{LockEntry, Report, SCHEMA, Selection, Totals};
use super::select::{Selected, Unmatched};
use super::threads::threads;
use super::timeline::{Timeline, stretches, timeline};
use super::told::Rows;
use super::woken::Woken;
use super::{
    alike, calling, counters, danger, distrust, functions, graph, in_turn, pattern, permits, site, sleep, slept,
    templates, timed, verdict, windows, word,
};
use crate::graph::findings::Findings;
use crate::id::{Lock, Process};
use crate::names::Names;
use crate::observation::Observation;
use crate::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// What a report contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only so many locks, the most harmful ones; `None` for all.
    pub top: Option<usize>,
    /// Waits shorter than this were not recorded; only stated.
    pub min_wait: Nanos,
    /// Only the locks whose name or identity contains `lock`, and the critical sections whose symbol or identity
    /// contains `site` with their locks. Case matters.
    pub selection: Selection,
}

/// Builds the report.
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build(observation: &Observation, source: &mut dyn Names, options: &Options) -> Result<Report, Unmatched> {
    let (mut report, graph) = build_and(observation, source, options, |_, _, _, places| {
        let Findings { detail, last_thread, .. } = &observation.findings;
        detail.as_ref().map(|detail| graph::graph(detail, *last_thread, places))
    })?;
    report.graph = graph;
    check(observation, &report);
    Ok(report)
}

/// Builds the report, and how long the waits and holds of each of its locks were, in the order of [`Report::locks`].
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_histograms(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
) -> Result<(Report, Vec<Histograms>), Unmatched> {
    build_and(observation, source, options, |ranked, _, report, places| {
        histograms(&ranked[..report.locks.len()], places.unit())
    })
}

/// Builds the report with all its locks, and all waiting by stack; with the times of waits, if the graph itself was kept
/// ([`crate::analysis::Options::detail`]).
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_profile(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
) -> Result<(Report, Profile), Unmatched> {
    build_and(observation, source, &Options { top: None, ..options.clone() }, |ranked, divided, report, places| {
        let mut profile = profile::profile(ranked, divided, report, places);
        if observation.findings.detail.is_some() {
            timed::tell(&mut profile, &timeline(ranked, report, observation, places));
        }
        profile
    })
}

/// Builds the report with all its locks, and every recorded wait and hold in time. That takes the graph itself
/// ([`crate::analysis::Options::detail`]).
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_timeline(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
) -> Result<(Report, Timeline), Unmatched> {
    build_and(observation, source, &Options { top: None, ..options.clone() }, |ranked, _, report, places| {
        timeline(ranked, report, observation, places)
    })
}

/// Builds the report with all its locks; `read` is to read the recording once more for the rows, which have every recorded wait and hold.
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_rows<T>(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
    read: impl FnOnce(&Report, Rows<'_, '_>) -> T,
) -> Result<(Report, T), Unmatched> {
    build_and(observation, source, &Options { top: None, ..options.clone() }, |ranked, _, report, places| {
        read(report, Rows::new(ranked, report, observation, places))
    })
}

/// Builds the report with all its locks, and whatever pictures of it are drawn from. That takes the graph itself, as for
/// [`build_timeline`].
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_pictures(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
) -> Result<(Report, Pictures), Unmatched> {
    build_and(observation, source, &Options { top: None, ..options.clone() }, |ranked, divided, report, places| {
        let timeline = timeline(ranked, report, observation, places);
        Pictures {
            path: stretches(&observation.findings.path, &timeline, places),
            profile: profile::profile(ranked, divided, report, places),
            histograms: histograms(ranked, places.unit()),
            timeline,
        }
    })
}

/// Builds the report, without the details of any lock, and what is taken again and again from a long observation: of what was
/// estimated, as `certainty` says.
///
/// # Errors
/// When nothing matches [`Options::selection`].
pub fn build_measured(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
    certainty: Certainty,
) -> Result<(Report, Measured), Unmatched> {
    build_and(observation, source, &Options { top: Some(0), ..options.clone() }, |ranked, divided, report, places| {
        places.leave_out_processes();
        measured::measured(ranked, divided, report, certainty, places)
    })
}

/// Builds the report, and something else of what it is made of.
fn build_and<T>(
    observation: &Observation,
    source: &mut dyn Names,
    options: &Options,
    also: impl FnOnce(&[Ranked<'_>], Divided, &Report, &mut Places<'_>) -> T,
) -> Result<(Report, T), Unmatched> {
    let mut all = gather(observation);
    let processes: BTreeSet<_> = all.keys().map(|lock| lock.process).collect();
    let mut places = Places::new(observation, source, &processes);
    let templates = templates::find(&all, &mut places);
    places.tell(templates);
    in_turn::keep(&mut all, observation, &mut places);
    let slept = slept::find(&all, &mut places);
    all.iter_mut().for_each(|(lock, gathered)| gathered.slept = slept.get(lock));
    let names = names(&all, &mut places);
    places.set_names(names);
    let released = Released::of(&all, &mut places);
    let (mut blames, mut aplt) = (observation.findings.sites.clone(), observation.findings.aplt.clone());
    permits::discharge(&all, observation, &mut aplt, &mut blames);
    slept.iter().for_each(|(&lock, shares)| shares.charge(lock, None, &mut aplt, &mut blames));
    released.rename_sites(&mut blames, &all);
    let mut told = released.shares(&all);
    let mut blame = windows::Blame { told: &mut told, sites: &mut blames, locks: &mut aplt };
    windows::fit(&all, observation.estimates.as_ref(), observation.end, &mut blame);
    alike::infer(&all, &mut blame, &mut places);
    all.iter_mut().for_each(|(lock, gathered)| gathered.told = told.get(lock));
    places.set_stacks(calling::stacks(&all));
    let selected = Selected::new(&options.selection, &all, &mut places)?;
    let ranked = ranked(&all, &selected, observation, &mut places);
    let divided = Divided::of(&ranked);
    let woken = Woken::of(&all);
    let shown = &ranked[..options.top.unwrap_or(usize::MAX).min(ranked.len())];
    let findings = &observation.findings;
    let mut locks: Vec<LockEntry> = Vec::with_capacity(shown.len());
    for r in shown {
        let aplt = aplt.get(&r.lock).copied();
        let word_names = findings.disbelieved.get(&r.lock).map(|named| named.0);
        let woken_wait_ns = places.ns(woken.waited(r.gathered));
        locks.push(LockEntry { word_names, woken_wait_ns, ..r.entry(&mut places, aplt, observation.end) });
    }
    let mut conditions = Vec::new();
    let mut futexes = Vec::new();
    for (&lock, g) in all.iter().filter(|&(&lock, g)| selected.lock(lock) && !is_lock(g)) {
        let name = places.lock_name(lock);
        if g.is_condition() {
            conditions.push(word::condition(lock, g, &name, &mut places));
        } else {
            futexes.push(word::futex(lock, g, &name, &mut places));
        }
    }
    conditions.sort_by(|a, b| (b.waited_ns(), &a.name).cmp(&(a.waited_ns(), &b.name)));
    futexes.sort_by(|a, b| (b.wait_ns.sum, &a.name).cmp(&(a.wait_ns.sum, &b.name)));
    let unrestricted = options.selection == Selection::default();
    let totals = totals(&ranked, shown.len(), divided, &places);
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        verdict: Vec::new(),
        runs: None,
        selection: (!unrestricted).then(|| options.selection.clone()),
        deadlocks: danger::deadlocks(observation, false, &mut places),
        ended_circles: danger::deadlocks(observation, true, &mut places),
        patterns: Vec::new(),
        culprits: culprits(&ranked, &all, &totals, &mut places),
        totals,
        locks,
        sites: site::sites(shown, &all, observation, &blames, &|site| selected.site(site), &mut places),
        counters: counters::counters(observation, &selected, &mut places),
        functions: functions::functions(observation, &mut places),
        threads: threads(observation, &all, &mut places),
        critical_path: graph::critical_path(&findings.path, &mut places),
        inversions: danger::inversions(observation, &mut places),
        graph: None,
        conditions,
        futexes,
        quality: quality(observation, options, &places),
    };
    report.quality.distrust = distrust::of(&report);
    report.quality.sleep = sleep::of(&report);
    let seen = pattern::Seen { observation, report: &report };
    report.patterns = pattern::find(&ranked, &all, &selected, &seen, &mut places);
    report.verdict = verdict::sentences(&report);
    check(observation, &report);
    let other = also(&ranked, divided, &report, &mut places);
    Ok((report, other))
}

fn check(observation: &Observation, report: &Report) {
    if !observation.findings.overlapping {
        debug_assert_eq!(violations(report), Vec::<String>::new(), "the report contradicts itself");
    }
}

fn is_lock(g: &Gathered<'_>) -> bool {
    g.is_lock() || g.is_inferred_lock()
}

/// The selected locks, most harmful first.
fn ranked<'a>(
    all: &'a BTreeMap<Lock, Gathered<'a>>,
    selected: &Selected,
    observation: &Observation,
    places: &mut Places<'_>,
) -> Vec<Ranked<'a>> {
    let together: BTreeSet<Process> =
        all.iter().filter(|(lock, g)| lock.is_others() && !g.mutex.is_empty()).map(|(lock, _)| lock.process).collect();
    let locks = all.iter().filter(|&(&lock, g)| is_lock(g) && selected.lock(lock));
    let bias = distrust::hold_bias(observation);
    let mut ranked: Vec<_> = locks
        .map(|(&lock, g)| {
            let in_others = g.is_lock() && g.mutex.is_empty() && together.contains(&lock.process);
            Ranked::new(
                lock,
                g,
                places.lock_name(lock),
                observation.end,
                observation.estimates.as_ref(),
                bias,
                in_others,
            )
        })
        .collect();
    ranked.sort_by(|a, b| (b.harm, &a.name, a.lock).cmp(&(a.harm, &b.name, b.lock)));
    ranked
}

fn totals(ranked: &[Ranked<'_>], shown: usize, divided: Divided, places: &Places<'_>) -> Totals {
    // Each wait counts once.
    let own = || ranked.iter().filter(|r| !r.in_others);
    let open = ranked.iter().filter(|r| r.in_others).map(|r| r.open_wait);
    let harm_ns = places.ns(own().map(|r| r.harm).chain(open).sum());
    let [recorded_wait_ns, unattributed_ns, inferred] =
        [divided.all, divided.unattributed, divided.inferred].map(|part| places.ns(part));
    Totals {
        locks: ranked.len() as u64,
        locks_omitted: (ranked.len() - shown) as u64,
        acquisitions: ranked.iter().filter(|r| !r.gathered.mutex.is_empty()).map(|r| r.total.acquisitions).sum(),
        contended: own().map(|r| r.contended).sum(),
        wait_ns: places.ns(own().map(|r| r.wait.sum).sum()),
        harm_ns,
        recorded_wait_ns,
        unattributed_ns,
        attribution: attribution::of(harm_ns, recorded_wait_ns, unattributed_ns, inferred),
        waiting_now: ranked.iter().map(|r| r.gathered.open.len() as u64).sum(),
    }
}
