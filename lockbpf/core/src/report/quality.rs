//! How far a report can be trusted, from all that counts losses.

use super::build::Options;
use super::place::Places;
use super::schema::{
    CoverageEntry, FailedProbeEntry, Ns, ObservedEntry, PerturbationEntry, ProcessCoverageEntry, QualityEntry,
    UnobservedEntry,
};
use super::text::{counted, percent, share};
use super::throttled;
use super::unwatched;
use crate::estimate::{Coverage, Estimates};
use crate::graph::FutexWaits;
use crate::observation::Observation;
use crate::perturbation::Perturbation;
use crate::quality::Unobserved;
use lockbpf_common::counter::{Class, Counter};
use lockbpf_common::kind::Via;
use lockbpf_common::task::is_task;
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
        observed_share: match duration.0 {
            0 => 1.0,
            ns => share((duration - q.paused).0, ns) * (1.0 - unobserved_share(observation, None)),
        },
        futex_only: observation.futex_only,
        processes: observation.processes.len() as u64,
        min_wait_ns: places.ns(options.min_wait),
        events: q.events,
        unfocused: count_of(Counter::Unfocused),
        thinned: count_of(Counter::Thinned),
        kernel_in_interrupts: count_of(Counter::KernelInterrupts),
        lost,
        late: q.late,
        impossible,
        edges,
        observed: observation.estimates.as_ref().map(|estimates| observed(estimates, observation)),
        perturbation: q.perturbation.as_ref().map(perturbation),
        unobserved: q.unobserved.iter().map(|gap| unobserved(gap, observation)).collect(),
        unwatched: q
            .unwatched
            .iter()
            .filter(|found| found.threads > 0)
            .map(|found| unwatched::entry(found, observation))
            .collect(),
        virtual_threads: q.virtual_threads.clone(),
        throttled: q.throttled.iter().map(|group| throttled::entry(group, observation)).collect(),
        open_at_end: observation.open_waits.len() as u64,
        failed_probes: q
            .failed_probes
            .iter()
            .map(|p| FailedProbeEntry { probe: p.probe.clone(), file: p.file.clone(), reason: p.reason.clone() })
            .collect(),
        distrust: None,
        sleep: None,
        notes: q.notes.iter().cloned().chain(together(observation)).chain(remarks(observation)).collect(),
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
        hold_bias_ns: Ns::new(p.hold_bias_ns),
        cost_share: p.share(),
        futex_cost_share: p.futex_share(),
        measured: p.measured,
        children: p.children.started,
        children_cost_at_most_ns: Ns::new(p.children.used_ns),
    }
}

fn unobserved(gap: &Unobserved, observation: &Observation) -> UnobservedEntry {
    let seen = observation.processes.values().filter(|seen| seen.pid == gap.pid).max_by_key(|seen| seen.process);
    // The last gaps end when the probes go, which is after the end.
    let within = |ns: u64| Ns::new(ns.min(observation.duration().0));
    UnobservedEntry {
        pid: gap.pid,
        comm: seen.map(|seen| seen.comm.clone()),
        from_ns: within(gap.from_ns),
        to_ns: gap.to_ns.map(within),
    }
}

/// The part of the time in which a process, or any, was not observed although its gate was open.
fn unobserved_share(observation: &Observation, pid: Option<u32>) -> f64 {
    let duration = observation.duration().0;
    let of = |gap: &Unobserved| gap.to_ns.unwrap_or(duration).saturating_sub(gap.from_ns);
    let gaps = observation.quality.unobserved.iter().filter(|gap| pid.is_none_or(|pid| gap.pid == pid));
    let longest = gaps.map(of).max().unwrap_or(0);
    if duration == 0 { 0.0 } else { (longest as f64 / duration as f64).min(1.0) }
}

/// How much was observed, process by process.
fn observed(estimates: &Estimates, observation: &Observation) -> ObservedEntry {
    let entry = |c: &Coverage, pid: Option<u32>| CoverageEntry {
        time_share: c.observed_share() * (1.0 - unobserved_share(observation, pid)),
        cpu_share: c.observed_cpu_share() * (1.0 - unobserved_share(observation, pid)),
        windows: c.windows,
        cost_share: c.cost_share(),
        cost_cpus: c.cost_cpus(),
        estimated: !c.whole,
    };
    let process = |c: &Coverage| {
        let seen = observation.processes.get(&c.process);
        ProcessCoverageEntry {
            pid: seen.map(|seen| seen.pid),
            comm: seen.map(|seen| seen.comm.clone()),
            coverage: entry(c, Some(seen.map_or(0, |seen| seen.pid))),
        }
    };
    let cost_cpus = estimates.processes.iter().map(Coverage::cost_cpus).sum();
    ObservedEntry {
        budget: estimates.budget,
        hold_bias_ns: estimates.hold_bias_ns,
        overall: CoverageEntry { cost_cpus, ..entry(&estimates.overall(), None) },
        processes: estimates.processes.iter().map(process).collect(),
    }
}

/// What was summed together, since there was no room for sums of each lock.
fn together(observation: &Observation) -> Option<String> {
    let others = || observation.sums.iter().filter(|s| s.lock.is_others());
    let operations: u64 = others().map(|s| s.acquisitions + s.try_failures + s.timeouts + s.errors).sum();
    (others().count() > 0).then(|| {
        format!(
            "There were more locks than can be summed one by one: {} on further ones {} summed together, by the place that requested \
             them (“other locks in …”). The totals are complete.",
            counted(operations, "operation"),
            if operations == 1 { "is" } else { "are" }
        )
    })
}

/// What a reader of figures from windows has to know.
fn remarks(observation: &Observation) -> Vec<String> {
    let mut remarks: Vec<String> = [thinned(observation), floor(observation)].into_iter().flatten().collect();
    let Some(estimates) = observation.estimates.as_ref().filter(|e| e.sampled()) else { return remarks };
    let in_windows = |via: Via| via.is_inline() && !via.is_seen_always();
    let inline = || observation.sums.iter().any(|sums| in_windows(sums.via) && sums.contended > 0);
    if estimates.complete && inline() {
        remarks.push(
            "Waits for locks that runtimes take inline are seen in windows only: how long they are, and who was to blame for them, \
             are estimates from there."
                .to_owned(),
        );
    }
    if estimates.complete {
        remarks.push(
            "Figures with ~ are estimates from windows, ± half of their 95 % intervals; waits are not, the kernel tells \
             all of them. Who was to blame for waits is known where they were recorded."
                .to_owned(),
        );
    } else {
        remarks.push(
            "The recording has no estimates (it broke off before them, or is a flight recorder's): counts and holds are \
             those of the observed part of the time."
                .to_owned(),
        );
    }
    if observation.sums.iter().any(|s| s.via == Via::CondWait && observation.is_estimated(s.lock.process)) {
        remarks.push(
            "Of condition variables, the numbers of waits and their means are those of the observed part of the time; their totals are the \
             kernel's."
                .to_owned(),
        );
    }
    if estimates.beyond > 0 {
        let beyond = counted(estimates.beyond, "lock or site");
        remarks.push(format!("There was no room to estimate {beyond}: the counts are those of the observed time."));
    }
    remarks
}

/// What nothing counts but the records.
const OF_VIRTUAL: &str = " Of virtual threads that were parked, numbers and times are estimates, too.";

/// Whether waits of Java's virtual threads are among those that were recorded.
fn virtual_ones(observation: &Observation) -> bool {
    let threads = |waits: &FutexWaits| waits.threads.top().iter().any(|(tid, _)| is_task(tid.0));
    observation.findings.words.values().any(threads)
}

/// That of waits some were recorded for others.
fn thinned(observation: &Observation) -> Option<String> {
    let count_of = |counter: Counter| observation.quality.counters.get(counter.name()).copied().unwrap_or(0);
    let (left, made) = (count_of(Counter::Thinned), count_of(Counter::FutexRecords));
    (left > 0).then(|| {
        let each = (left + made) as f64 / made.max(1) as f64;
        format!(
            "Of waits that only futex calls tell of, 1 of {each:.0} was recorded, weighted by those for which it stands: the budget \
             allows no more. Numbers and times without ~ are exact; who waited where, and because of whom, is an estimate.{}",
            if virtual_ones(observation) { OF_VIRTUAL } else { "" }
        )
    })
}

/// That what cannot be left out costs more than the budget.
fn floor(observation: &Observation) -> Option<String> {
    let budget = observation.estimates.as_ref()?.budget?;
    let calls = observation.quality.perturbation.as_ref()?.futex_share()?;
    (calls > budget).then(|| {
        format!(
            "To see the target's futex calls costs {} of its CPU time by itself, more than the budget of {}: they are counted \
             all the time, since nothing else tells its waits in full.",
            percent(calls),
            percent(budget)
        )
    })
}

/// Adds counts of the analysis to those of the kernel side.
fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<&'static str, u64>) {
    for (&kind, &n) in more.iter().filter(|&(_, &n)| n > 0) {
        *counts.entry(kind.to_owned()).or_default() += n;
    }
}
