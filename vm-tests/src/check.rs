//! A report against the truth: counts, and nothing lost.

use anyhow::{Result, bail};

use crate::{
    lockbpf::{self, Report},
    machine,
    workload::{self, Truth},
};

/// How lockbpf calls runs of its programs that the kernel left out.
const SKIPPED: &str = "skipped_by_kernel";

/// Demands that every lock of the workload is told exactly and that nothing was lost, late, impossible or left unprobed, but for
/// [what the kernel left out](left_out): as many waits may be missing.
pub(crate) fn exact(truth: &Truth, report: &Report, contention: bool) -> Result<()> {
    compare(truth, report, contention, left_out(report)?)
}

/// Demands that nothing was lost, late, impossible or left unprobed, but for what the kernel left out. Returns how much that is.
pub(crate) fn complete(report: &Report) -> Result<u64> {
    let skipped = left_out(report)?;
    let faults = losses(report, skipped);
    if faults.is_empty() { Ok(skipped) } else { bail!("{}", faults.join("; ")) }
}

/// How many runs of programs on futex calls the kernel left out, as it may only where a thread can be preempted within a `bpf()` call or
/// in such a program.
fn left_out(report: &Report) -> Result<u64> {
    let skipped = report.quality.lost.get(SKIPPED).copied().unwrap_or(0);
    Ok(if skipped > 0 && machine::preempts_the_kernel()? { skipped } else { 0 })
}

fn compare(truth: &Truth, report: &Report, contention: bool, skipped: u64) -> Result<()> {
    let mut faults = losses(report, skipped);
    for lock in &truth.locks {
        let id = format!("{}:{}", truth.pid, lock.addr);
        let found: Vec<_> = report.locks.iter().filter(|told| told.lock == id).collect();
        match found[..] {
            [told] => faults.extend(differences(lock, told, contention, skipped)),
            ref others => faults.push(format!("{} locks at {id}, not one", others.len())),
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

fn losses(report: &Report, skipped: u64) -> Vec<String> {
    let quality = &report.quality;
    let counted = [("lost", &quality.lost), ("impossible", &quality.impossible)];
    let mut faults: Vec<String> = counted
        .iter()
        .flat_map(|(what, causes)| causes.iter().map(move |(cause, n)| (what, cause, n)))
        .filter(|&(_, cause, &n)| n > 0 && !(cause == SKIPPED && n <= skipped))
        .map(|(what, cause, n)| format!("{what}: {n} {cause}"))
        .collect();
    if quality.late > 0 {
        faults.push(format!("late: {}", quality.late));
    }
    faults.extend(quality.failed_probes.iter().map(|probe| format!("failed probe: {probe}")));
    faults
}

fn differences(truth: &workload::Lock, told: &lockbpf::Lock, contention: bool, skipped: u64) -> Vec<String> {
    let pairs = [
        ("acquisitions", truth.acquisitions, told.acquisitions.unwrap_or_default()),
        ("try failures", truth.try_failures, told.try_failures),
        ("timeouts", truth.timeouts, told.timeouts),
        ("errors", truth.errors, told.errors),
    ];
    let mut faults: Vec<String> = pairs
        .into_iter()
        .filter(|(_, made, told)| made != told)
        .map(|(what, made, said)| format!("{what} of {}: {made} were made, {said} are told", told.name))
        .collect();
    if contention {
        faults.extend(contended(truth, told, skipped));
    }
    if let Some(symbol) = &truth.symbol
        && *symbol != told.name
    {
        faults.push(format!("{symbol} is called {}", told.name));
    }
    faults
}

/// What is wrong with the number of waits that is told of a lock, of which as many may be missing as programs were left out.
pub(crate) fn contended(truth: &workload::Lock, told: &lockbpf::Lock, skipped: u64) -> Option<String> {
    let waits = truth.contended.saturating_sub(skipped)..=truth.contended;
    (!waits.contains(&told.contended))
        .then(|| format!("contended of {}: {} were made, {} are told", told.name, truth.contended, told.contended))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lockbpf::{Counters, Quality};

    fn case() -> (Truth, Report) {
        let lock = workload::Lock {
            symbol: Some("cache_lock".into()),
            addr: "0x10".into(),
            acquisitions: 9,
            contended: 3,
            try_failures: 2,
            timeouts: 1,
            errors: 4,
        };
        let told = lockbpf::Lock {
            lock: "7:0x10".into(),
            name: "cache_lock".into(),
            acquisitions: Some(9),
            contended: 3,
            try_failures: 2,
            timeouts: 1,
            errors: 4,
        };
        let report =
            Report { locks: vec![told], counters: Counters::default(), functions: None, quality: Quality::default() };
        (Truth { pid: 7, locks: vec![lock], facts: BTreeMap::new() }, report)
    }

    #[test]
    fn the_truth_passes() {
        let (truth, mut report) = case();
        report.quality.lost.insert("ring full".into(), 0);
        compare(&truth, &report, true, 0).unwrap();
    }

    #[test]
    fn every_count_is_compared() {
        let changes: [fn(&mut lockbpf::Lock); 6] = [
            |lock| lock.acquisitions = Some(8),
            |lock| lock.contended += 1,
            |lock| lock.try_failures = 0,
            |lock| lock.timeouts = 0,
            |lock| lock.errors = 0,
            |lock| lock.name = "mutex".into(),
        ];
        for change in changes {
            let (truth, mut report) = case();
            change(&mut report.locks[0]);
            compare(&truth, &report, true, 0).unwrap_err();
        }
        let (truth, mut report) = case();
        report.locks[0].contended += 1;
        compare(&truth, &report, false, 0).unwrap();
    }

    #[test]
    fn a_lock_must_be_told_once() {
        let (truth, mut report) = case();
        report.locks.push(report.locks[0].clone());
        compare(&truth, &report, true, 0).unwrap_err();
        report.locks.clear();
        compare(&truth, &report, true, 0).unwrap_err();
    }

    #[test]
    fn losses_are_named() {
        let changes: [fn(&mut Quality); 4] = [
            |quality| quality.late = 1,
            |quality| quality.lost.extend([("ring full".into(), 2)]),
            |quality| quality.impossible.extend([("unlock without a lock".into(), 1)]),
            |quality| quality.failed_probes.push("pthread_mutex_lock".into()),
        ];
        for (change, cause) in changes.into_iter().zip(["late: 1", "2 ring full", "unlock without", "mutex_lock"]) {
            let (truth, mut report) = case();
            change(&mut report.quality);
            let error = compare(&truth, &report, true, 0).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn as_many_waits_may_be_missing_as_programs_were_left_out() {
        let (truth, mut report) = case();
        report.quality.lost.insert(SKIPPED.into(), 2);
        report.locks[0].contended -= 2;
        compare(&truth, &report, true, 2).unwrap();
        compare(&truth, &report, true, 0).unwrap_err();
        report.locks[0].contended -= 1;
        compare(&truth, &report, true, 2).unwrap_err();
        let (truth, mut report) = case();
        report.locks[0].contended += 1;
        compare(&truth, &report, true, 2).unwrap_err();
        report.locks[0].contended -= 1;
        report.quality.lost.insert("ring_full".into(), 1);
        compare(&truth, &report, true, 2).unwrap_err();
    }
}
