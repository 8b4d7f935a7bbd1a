//! How far a report can be trusted, from all that counts losses.

use super::build::Options;
use super::place::Places;
use super::schema::{
    CoverageEntry, FailedProbeEntry, Ns, ObservedEntry, PerturbationEntry, ProcessCoverageEntry, QualityEntry,
};
use super::text::{counted, share};
use crate::estimate::{Coverage, Estimates};
use crate::observation::Observation;
use crate::perturbation::Perturbation;
use lockbpf_common::counter::{Class, Counter};
use lockbpf_common::kind::Via;
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
    let count_of = |counter: Counter| q.counters.get(counter.name()).copied().unwrap_or(0);
    let duration = observation.duration();
    QualityEntry {
        target: observation.target.clone(),
        duration_ns: places.ns(duration),
        observed_share: if duration.0 == 0 { 1.0 } else { share((duration - q.paused).0, duration.0) },
        futex_only: observation.futex_only,
        processes: observation.processes.len() as u64,
        min_wait_ns: places.ns(options.min_wait),
        events: q.events,
        unfocused: count_of(Counter::Unfocused),
        kernel_in_interrupts: count_of(Counter::KernelInterrupts),
        lost,
        late: q.late,
        impossible,
        edges,
        observed: observation.estimates.as_ref().map(|estimates| observed(estimates, observation)),
        perturbation: q.perturbation.as_ref().map(perturbation),
        open_at_end: observation.open_waits.len() as u64,
        failed_probes: q
            .failed_probes
            .iter()
            .map(|p| FailedProbeEntry { probe: p.probe.clone(), file: p.file.clone(), reason: p.reason.clone() })
            .collect(),
        notes: q.notes.iter().cloned().chain(remarks(observation)).collect(),
        incomplete: q.incomplete() || beyond > 0 || q.late > 0,
    }
}

fn perturbation(p: &Perturbation) -> PerturbationEntry {
    PerturbationEntry {
        hits: p.taken.hits,
        stepped_hits: p.taken.stepped,
        futex_calls: p.taken.futex_calls,
        switches: p.taken.switches,
        records: p.taken.records,
        record_bytes: p.taken.record_bytes,
        stack_bytes: p.taken.stack_bytes,
        cost_ns: Ns::new(p.cost_ns),
        cost_share: p.share(),
        measured: p.measured,
    }
}

/// How much was observed, process by process.
fn observed(estimates: &Estimates, observation: &Observation) -> ObservedEntry {
    let entry = |c: &Coverage| CoverageEntry {
        time_share: c.observed_share(),
        cpu_share: c.observed_cpu_share(),
        windows: c.windows,
        cost_share: c.cost_share(),
        estimated: !c.whole,
    };
    let process = |c: &Coverage| {
        let seen = observation.processes.get(&c.process);
        ProcessCoverageEntry {
            pid: seen.map(|seen| seen.pid),
            comm: seen.map(|seen| seen.comm.clone()),
            coverage: entry(c),
        }
    };
    ObservedEntry {
        budget: estimates.budget,
        hold_bias_ns: estimates.hold_bias_ns,
        overall: entry(&estimates.overall()),
        processes: estimates.processes.iter().map(process).collect(),
    }
}

/// What a reader of figures from windows has to know.
fn remarks(observation: &Observation) -> Vec<String> {
    let Some(estimates) = observation.estimates.as_ref().filter(|e| e.sampled()) else { return Vec::new() };
    let mut remarks = Vec::new();
    if estimates.complete {
        remarks.push(
            "Figures with ~ are estimates from windows, ± half of their 95 % intervals; waits are not, the kernel tells \
             all of them. Who was to blame for waits is known where they were recorded."
                .to_owned(),
        );
    } else {
        remarks.push(
            "The recording broke off before its estimates: counts and holds are those of the observed part of the time."
                .to_owned(),
        );
    }
    if observation.sums.iter().any(|s| s.via == Via::CondWait && observation.is_estimated(s.lock.process)) {
        remarks.push("Condition variables are told as they were seen in the observed part of the time.".to_owned());
    }
    if estimates.beyond > 0 {
        let beyond = counted(estimates.beyond, "lock or site");
        remarks.push(format!("There was no room to estimate {beyond}: the counts are those of the observed time."));
    }
    remarks
}

/// Adds counts of the analysis to those of the kernel side.
fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<&'static str, u64>) {
    for (&kind, &n) in more.iter().filter(|&(_, &n)| n > 0) {
        *counts.entry(kind.to_owned()).or_default() += n;
    }
}
