//! Which figures are lockbpf's own doing rather than the target's, because observing changed the target by too much.

use super::schema::{DistrustEntry, LengthenedEntry, LockEntry, Ns, Report};
use super::text::{count, listed, percent};
use crate::correction::HoldBias;
use crate::observation::Observation;

/// Part of the target's CPU time from which on observing has changed how its threads meet.
const MUCH: f64 = 0.1;
/// From this part on sections are not ranked.
const TOO_MUCH: f64 = 1.0 / 3.0;
/// Prices that were not measured may be so many times the real ones.
const CAUTION: f64 = 2.0;
/// Part of a section's median hold from which on observing has made it another one.
const LONGER: f64 = 0.2;
/// Locks that nobody waits for are told if they make up this part of all acquisitions.
const FREQUENT: f64 = 0.1;
/// Locks named.
const NAMED: usize = 3;

/// What observing did to the figures, if it is much.
pub(super) fn of(report: &Report) -> Option<DistrustEntry> {
    let q = &report.quality;
    let cost = q.perturbation.and_then(|p| p.cost_share).or(q.observed.as_ref().map(|o| o.overall.cost_share));
    let cost_share = cost.filter(|&share| share > MUCH);
    let times_waited = cost_share.and_then(|_| times_waited(report));
    let off_cpu_share = cost_share.filter(|_| times_waited.is_none()).and_then(|_| off_cpu_share(report));
    let caution = if q.perturbation.is_none_or(|p| p.measured) { 1.0 } else { CAUTION };
    let too_much = cost_share.is_some_and(|share| share > TOO_MUCH * caution);
    let unranked = too_much && times_waited.is_none() && off_cpu_share.is_none() && !is_free(report);
    let governed = q.observed.as_ref().map(|o| Ns::from_f64(o.hold_bias_ns.value.round()));
    let hold_bias_ns = governed.or(q.perturbation.map(|p| p.hold_bias_ns)).unwrap_or_default();
    let lengthened: Vec<_> = report
        .locks
        .iter()
        .filter_map(|lock| {
            let median_hold_ns = median(lock, report)? - hold_bias_ns;
            let longer = hold_bias_ns.as_f64() > LONGER * median_hold_ns.as_f64();
            let may_make_wait = may_make_wait(lock, hold_bias_ns);
            let (lock, name) = (lock.lock.clone(), lock.label.clone());
            longer.then_some(LengthenedEntry { lock, name, median_hold_ns, may_make_wait })
        })
        .collect();
    let much = cost_share.is_some() || !lengthened.is_empty();
    much.then_some(DistrustEntry { cost_share, times_waited, off_cpu_share, unranked, hold_bias_ns, lengthened })
}

/// Whether nobody waited: there is nothing to be ranked, and no contention that observing could have made.
fn is_free(report: &Report) -> bool {
    report.totals.contended == 0 && report.totals.harm_ns == Ns::default()
}

/// The time that threads waited, as a multiple of the time that observing took; only where the multiple is so great that observing cannot have
/// made them wait. A program that sleeps while it holds its locks uses hardly any CPU time, and observing takes a great part of that.
fn times_waited(report: &Report) -> Option<u64> {
    let waited = report.totals.wait_ns.as_f64();
    let of_locks = report.locks.iter().map(|lock| lock.waiting_threads).max();
    let waiters =
        of_locks.unwrap_or_else(|| report.threads.iter().filter(|t| t.wait_ns > Ns::default()).count() as u64);
    let took = report.quality.perturbation.map(|p| p.cost_ns.as_f64()).filter(|&took| took > 0.0)?;
    // At worst all that it took was inside of sections, and everybody waited for each.
    (took * waiters.max(1) as f64 <= MUCH * waited).then_some((waited / took) as u64)
}

/// The part of all waiting during which whoever is to blame slept or was blocked; only if that is nearly all. Observing takes CPU time, which such a
/// thread does not use.
fn off_cpu_share(report: &Report) -> Option<f64> {
    let off_cpu_ns: Ns = report.locks.iter().filter_map(|lock| lock.causes).map(|c| c.sleeping + c.blocked).sum();
    let share = off_cpu_ns.as_f64() / report.totals.harm_ns.as_f64();
    (share >= 1.0 - MUCH).then_some(share.min(1.0))
}

/// Whether observing may have caused more than a tenth of the waiting for a lock: at worst each hold was longer by twice what was measured, and
/// everybody waited for that.
fn may_make_wait(lock: &LockEntry, hold_bias_ns: Ns) -> bool {
    let added = CAUTION * hold_bias_ns.as_f64() * lock.acquisitions.unwrap_or_default() as f64;
    lock.harm_ns == Ns::default() || added * lock.waiting_threads.max(1) as f64 > MUCH * lock.harm_ns.as_f64()
}

/// What observing adds to the holds that are told as they were seen.
pub(super) fn hold_bias(observation: &Observation) -> Option<HoldBias> {
    let governed = observation.estimates.as_ref().map(|estimates| estimates.hold_bias_ns.value);
    HoldBias::new(governed.or(observation.quality.perturbation.map(|p| p.hold_bias_ns as f64))?)
}

/// Whether critical sections have no rank that would mean anything.
pub(super) fn is_unranked(report: &Report) -> bool {
    report.quality.distrust.as_ref().is_some_and(|distrust| distrust.unranked)
}

/// The median hold of a lock whose holds are told as they were seen, if they matter.
fn median(lock: &LockEntry, report: &Report) -> Option<Ns> {
    let hold = lock.hold_ns.filter(|_| lock.estimates.is_none() && !lock.kernel && lock.kind != "barrier")?;
    let acquisitions = lock.acquisitions? as f64;
    let matters = lock.contended > 0 || acquisitions >= FREQUENT * report.totals.acquisitions as f64;
    (matters && hold.max > Ns::default()).then_some(hold.p50)
}

/// In a sentence.
pub(super) fn sentence(entry: &DistrustEntry, report: &Report) -> String {
    let names: Vec<_> = entry.lengthened.iter().map(|lock| format!("`{}`", lock.name)).collect();
    let waited = entry.lengthened.iter().filter(|lock| lock.may_make_wait);
    let waited: Vec<_> = waited.map(|lock| format!("`{}`", lock.name)).collect();
    let bias = entry.hold_bias_ns;
    // What is open all the time within the budget is corrected nowhere.
    let better = match report.quality.observed.as_ref().and_then(|o| o.budget) {
        None => "; the default budget shows how much there is without it",
        Some(_) => "",
    };
    let no_matter = match (entry.times_waited, entry.off_cpu_share) {
        (Some(times), _) => {
            Some(format!("threads waited {} times as long as that took, so waits are not of that", count(times)))
        }
        (_, Some(part)) => Some(format!(
            "during {} of the waiting whoever is to blame was asleep or blocked, so that is not of observing",
            percent(part)
        )),
        _ => None,
    };
    if let (Some(share), Some(no_matter)) = (entry.cost_share, no_matter) {
        let holds = match names.as_slice() {
            [] => String::new(),
            names => format!(" About {bias} of each hold of {} is lockbpf's own{better}.", listed(names, NAMED)),
        };
        return format!("Observed at {} of its CPU time; {no_matter}.{holds}", percent(share));
    }
    match entry.cost_share {
        // A program that hardly does anything: little is much of that.
        Some(share) if is_free(report) => {
            let duration = report.quality.duration_ns.as_f64();
            let cost = report
                .quality
                .perturbation
                .map(|p| p.cost_ns.as_f64())
                .filter(|_| duration > 0.0 && report.runs.is_none());
            let of_a_cpu = cost.map_or_else(String::new, |cost| format!(", {} of a CPU", percent(cost / duration)));
            let holds = if bias == Ns::default() {
                String::new()
            } else {
                format!(": about {bias} of each hold is lockbpf's own")
            };
            format!("Observed at {} of its CPU time{of_a_cpu}{holds}{better}.", percent(share))
        }
        Some(share) if entry.unranked => {
            let instead = match report.quality.observed.as_ref().and_then(|o| o.budget) {
                None => "Observe within the default budget instead, without `--budget off`",
                Some(_) => "Observe with a smaller `--budget` instead",
            };
            format!(
                "Observed at {} of its CPU time: most of what was seen is lockbpf's own doing, so critical sections are not ranked. \
                 {instead}.",
                percent(share)
            )
        }
        Some(share) if names.is_empty() => format!(
            "Observed at {} of its CPU time: contention and waiting for short sections are in part lockbpf's own{better}.",
            percent(share),
        ),
        Some(share) if waited.is_empty() => format!(
            "Observed at {} of its CPU time: about {bias} of each hold of {} is lockbpf's own, but hardly any of the waiting for \
             {}{better}.",
            percent(share),
            listed(&names, NAMED),
            if names.len() == 1 { "it" } else { "them" },
        ),
        Some(share) => format!(
            "Observed at {} of its CPU time: contention of short sections ({}) is in part lockbpf's own, and about {bias} of each {}{better}.",
            percent(share),
            listed(&waited, NAMED),
            if waited.len() == names.len() {
                "of their holds".to_owned()
            } else {
                format!("hold of {}", listed(&names, NAMED))
            },
        ),
        None => {
            let own = if waited.is_empty() {
                "their holds are in part lockbpf's own, but hardly any of the waiting for them".to_owned()
            } else if waited.len() == names.len() {
                "their holds, and contention that comes of them, are in part lockbpf's own".to_owned()
            } else {
                format!("their holds, and the contention of {}, are in part lockbpf's own", listed(&waited, NAMED))
            };
            format!(
                "Observing makes each section about {bias} longer, which is more than a fifth of the median hold of {}: {own}{better}.",
                listed(&names, NAMED),
            )
        }
    }
}
