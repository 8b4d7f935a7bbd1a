//! A report against the truth: counts, and nothing lost.

use anyhow::{Result, bail};

use crate::{
    lockbpf::{self, Report},
    workload::{self, Truth},
};

/// Demands that every lock of the workload is told exactly and that nothing was lost, late, impossible or left unprobed.
pub(crate) fn exact(truth: &Truth, report: &Report, contention: bool) -> Result<()> {
    let mut faults = incomplete(report);
    for lock in &truth.locks {
        let id = format!("{}:{}", truth.pid, lock.addr);
        let found: Vec<_> = report.locks.iter().filter(|told| told.lock == id).collect();
        match found[..] {
            [told] => faults.extend(differences(lock, told, contention)),
            ref others => faults.push(format!("{} locks at {id}, not one", others.len())),
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

fn incomplete(report: &Report) -> Vec<String> {
    let quality = &report.quality;
    let counted = [("lost", &quality.lost), ("impossible", &quality.impossible)];
    let mut faults: Vec<String> = counted
        .iter()
        .flat_map(|(what, causes)| causes.iter().map(move |(cause, n)| (what, cause, n)))
        .filter(|&(.., &n)| n > 0)
        .map(|(what, cause, n)| format!("{what}: {n} {cause}"))
        .collect();
    if quality.late > 0 {
        faults.push(format!("late: {}", quality.late));
    }
    faults.extend(quality.failed_probes.iter().map(|probe| format!("failed probe: {probe}")));
    faults
}

fn differences(truth: &workload::Lock, told: &lockbpf::Lock, contention: bool) -> Vec<String> {
    let mut pairs = vec![
        ("acquisitions", truth.acquisitions, told.acquisitions.unwrap_or_default()),
        ("try failures", truth.try_failures, told.try_failures),
        ("timeouts", truth.timeouts, told.timeouts),
        ("errors", truth.errors, told.errors),
    ];
    if contention {
        pairs.push(("contended", truth.contended, told.contended));
    }
    let mut faults: Vec<String> = pairs
        .into_iter()
        .filter(|(_, made, told)| made != told)
        .map(|(what, made, said)| format!("{what} of {}: {made} were made, {said} are told", told.name))
        .collect();
    if let Some(symbol) = &truth.symbol
        && *symbol != told.name
    {
        faults.push(format!("{symbol} is called {}", told.name));
    }
    faults
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
        let report = Report { locks: vec![told], counters: Counters::default(), quality: Quality::default() };
        (Truth { pid: 7, locks: vec![lock], facts: BTreeMap::new() }, report)
    }

    #[test]
    fn the_truth_passes() {
        let (truth, mut report) = case();
        report.quality.lost.insert("ring full".into(), 0);
        exact(&truth, &report, true).unwrap();
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
            exact(&truth, &report, true).unwrap_err();
        }
        let (truth, mut report) = case();
        report.locks[0].contended += 1;
        exact(&truth, &report, false).unwrap();
    }

    #[test]
    fn a_lock_must_be_told_once() {
        let (truth, mut report) = case();
        report.locks.push(report.locks[0].clone());
        exact(&truth, &report, true).unwrap_err();
        report.locks.clear();
        exact(&truth, &report, true).unwrap_err();
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
            let error = exact(&truth, &report, true).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
