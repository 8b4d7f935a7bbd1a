//! What a person who watches should notice, whatever is shown: each a sentence without its end.

use super::frame::Row;
use crate::report::Report;
use crate::report::schema::{CausesEntry, LockEntry, Ns};
use crate::report::text::{counted, percent};

/// Locks that are looked at, the ones that matter most now.
const LOOKED_AT: usize = 3;
/// As many threads have to wait on average for a lock to be warned of.
const MATTERS: f64 = 0.1;
/// A part of a lock's waiting that is too much for these reasons.
const MUCH: f64 = 0.3;

/// What is to be noticed; `locks` most harmful first.
pub(super) fn of(report: &Report, locks: &[Row]) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for deadlock in &report.deadlocks {
        let who: Vec<_> = deadlock.threads.iter().map(|thread| thread.tid.to_string()).collect();
        let names: Vec<_> = deadlock.threads.iter().map(|thread| format!("`{}`", thread.name)).collect();
        let what = if deadlock.for_ever { "DEADLOCK" } else { "threads wait for one another" };
        warnings.push(format!("{what}: {} at {}", who.join(", "), names.join(", ")));
    }
    let quality = &report.quality;
    for gap in quality.unobserved.iter().filter(|gap| gap.to_ns.is_none()) {
        warnings.push(format!("pid {} is not observed any more", gap.pid));
    }
    let lost: u64 = quality.lost.values().fold(0, |all, &n| all.saturating_add(n));
    if lost > 0 {
        let causes: Vec<_> = quality.lost.keys().map(String::as_str).collect();
        warnings.push(format!("data lost: {} ({})", counted(lost, "event"), causes.join(", ")));
    }
    if !quality.failed_probes.is_empty() {
        warnings.push(format!("{} failed", counted(quality.failed_probes.len() as u64, "probe")));
    }
    let busy = locks.iter().filter(|row| row.waiting[0].max(row.waiting[1]) >= MATTERS).take(LOOKED_AT);
    for lock in busy.filter_map(|row| report.locks.iter().find(|lock| lock.lock == row.id)) {
        warnings.extend(of_lock(lock));
    }
    warnings.extend(report.patterns.iter().take(LOOKED_AT).map(|pattern| pattern.title()));
    if !report.inversions.is_empty() {
        warnings.push(format!("{} of locking that could deadlock", counted(report.inversions.len() as u64, "order")));
    }
    warnings
}

/// What is wrong with how a lock is held.
fn of_lock(lock: &LockEntry) -> Option<String> {
    let causes = lock.causes?;
    let all = sum(&causes);
    let (preempted, handed) = (causes.runnable.share_of(all), causes.handoff.share_of(all));
    let name = &lock.label;
    if preempted >= MUCH {
        return Some(format!("holders of `{name}` are preempted: {} of its waiting", percent(preempted)));
    }
    (handed >= MUCH).then(|| format!("handing `{name}` over is {} of its waiting", percent(handed)))
}

fn sum(causes: &CausesEntry) -> Ns {
    let CausesEntry { running, runnable, blocked, sleeping, lock, kernel_lock, handoff, unknown } = *causes;
    [running, runnable, blocked, sleeping, lock, kernel_lock, handoff, unknown].into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::{BlockedEntry, DeadlockEntry};

    #[test]
    fn trouble_is_told() {
        let causes = CausesEntry { runnable: Ns::new(4), running: Ns::new(6), ..CausesEntry::default() };
        let entry = |lock: &str, causes| LockEntry {
            lock: lock.to_owned(),
            label: lock.to_owned(),
            causes: Some(causes),
            ..LockEntry::default()
        };
        let handed = CausesEntry { handoff: Ns::new(5), running: Ns::new(5), ..CausesEntry::default() };
        let mut report = Report { locks: vec![entry("a", causes), entry("b", handed)], ..Report::default() };
        let row = |id: &str, waiting| Row { id: id.to_owned(), waiting: [waiting; 3], ..Row::default() };
        let busy = [row("a", 1.0), row("b", 0.2)];
        assert_eq!(
            of(&report, &busy),
            ["holders of `a` are preempted: 40 % of its waiting", "handing `b` over is 50 % of its waiting"]
        );
        assert!(of(&report, &[row("a", 0.01)]).is_empty(), "nobody waits");
        report.quality.lost.insert("ring_full".to_owned(), 7);
        let threads = vec![BlockedEntry { name: "x".to_owned(), ..BlockedEntry::default() }];
        report.deadlocks.push(DeadlockEntry { for_ever: true, threads, ..DeadlockEntry::default() });
        assert_eq!(of(&report, &[]), ["DEADLOCK: 0 at `x`", "data lost: 7 events (ring_full)"]);
    }
}
