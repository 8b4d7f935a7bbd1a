//! How far a report can be trusted, from all that counts losses.

use super::build::Options;
use super::place::Places;
use super::schema::{FailedProbeEntry, QualityEntry};
use super::text::share;
use crate::observation::Observation;
use lockbpf_common::counter::{Class, Counter};
use std::collections::BTreeMap;

/// The entry.
pub(super) fn quality(observation: &Observation, options: &Options, places: &Places<'_>) -> QualityEntry {
    let (q, findings) = (&observation.quality, &observation.findings);
    let of_class = |class| q.of_class(class).map(|(name, n)| (name.to_owned(), n)).collect::<BTreeMap<_, _>>();
    let mut lost = of_class(Class::Lost);
    lost.extend(q.undecodable.iter().map(|(defect, &n)| (format!("undecodable_{defect}"), n)));
    let beyond = findings.beyond.count;
    if beyond > 0 {
        lost.insert("blame_locks_full".to_owned(), beyond);
    }
    let mut impossible = of_class(Class::Impossible);
    add(&mut impossible, &findings.impossible);
    let mut edges = of_class(Class::Edge);
    add(&mut edges, &findings.cut);
    let duration = observation.duration();
    QualityEntry {
        target: observation.target.clone(),
        duration_ns: places.ns(duration),
        observed_share: if duration.0 == 0 { 1.0 } else { share((duration - q.paused).0, duration.0) },
        futex_only: observation.futex_only,
        processes: observation.processes.len() as u64,
        min_wait_ns: places.ns(options.min_wait),
        events: q.events,
        unfocused: q.counters.get(Counter::Unfocused.name()).copied().unwrap_or(0),
        lost,
        late: q.late,
        impossible,
        edges,
        open_at_end: observation.open_waits.len() as u64,
        failed_probes: q
            .failed_probes
            .iter()
            .map(|p| FailedProbeEntry { probe: p.probe.clone(), file: p.file.clone(), reason: p.reason.clone() })
            .collect(),
        notes: q.notes.clone(),
        incomplete: q.incomplete() || beyond > 0 || q.late > 0,
    }
}

/// Adds counts of the analysis to those of the kernel side.
fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<&'static str, u64>) {
    for (&kind, &n) in more.iter().filter(|&(_, &n)| n > 0) {
        *counts.entry(kind.to_owned()).or_default() += n;
    }
}
