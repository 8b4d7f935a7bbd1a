//! The families of metrics, in words and in order.

use super::buckets::{BOUNDS_NS, Buckets};
use super::ledger::{Account, Book};
use super::series::LockSums;
use super::text::{Dialect, Kind, Label, Seconds, Text};
use super::workload::Workload;
use crate::units::Nanos;

/// What whoever serves the metrics says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// Version.
    pub version: String,
    /// CPU time that it used.
    pub cpu: Nanos,
    /// Memory that it has, bytes.
    pub resident_bytes: u64,
    /// When it started, ns since 1970 (UTC).
    pub started_ns: u64,
    /// When the last snapshot was taken, ns since 1970 (UTC); 0 for never.
    pub snapshot_ns: u64,
    /// Why nothing is observed, if so.
    pub fault: Option<String>,
    /// Requests by what became of them: an HTTP status.
    pub requests: Vec<(String, u64)>,
}

/// What stands for locks and sites without series of their own.
const OTHER: &str = "other";

impl Book {
    /// The whole text.
    #[must_use]
    pub fn expose(&self, own: &Own, dialect: Dialect) -> String {
        let mut text = Text::new(dialect);
        self.locks(&mut text);
        self.culprits(&mut text);
        self.whole(&mut text);
        told(own, &mut text);
        text.finish()
    }

    fn locks(&self, text: &mut Text) {
        text.family(
            "lockbpf_lock_wait_seconds",
            Kind::Histogram,
            "How long acquisitions of the lock waited that had to. Uncontended ones are not among them.",
        );
        self.each_lock(|labels, sums| {
            if sums.wait != Buckets::default() {
                text.histogram(labels, &BOUNDS_NS, &sums.wait.cumulative(), sums.wait.sum_ns);
            }
        });
        text.family("lockbpf_lock_hold_seconds", Kind::Histogram, "How long the lock was held.");
        self.each_lock(|labels, sums| {
            if let Some(hold) = sums.hold.as_ref().filter(|hold| **hold != Buckets::default()) {
                text.histogram(labels, &BOUNDS_NS, &hold.cumulative(), hold.sum_ns);
            }
        });
        text.family("lockbpf_lock_contentions", Kind::Counter, "Acquisitions of the lock that waited for a holder.");
        self.each_lock(|labels, sums| text.sample(labels.iter().copied(), sums.contentions));
        text.family(
            "lockbpf_lock_acquisitions",
            Kind::Counter,
            "Acquisitions of the lock, where uncontended ones are seen: estimates under a budget.",
        );
        self.each_lock(|labels, sums| {
            if let Some(acquisitions) = sums.acquisitions {
                text.sample(labels.iter().copied(), acquisitions);
            }
        });
        text.family("lockbpf_lock_waiters", Kind::Gauge, "Threads that wait for the lock now.");
        self.each_lock(|labels, sums| text.sample(labels.iter().copied(), sums.waiters));
    }

    fn each_lock(&self, mut of: impl FnMut(&[Label<'_>], &LockSums)) {
        for (workload, account) in &self.workloads {
            for (lock, sums) in &account.locks.own {
                of(&labels(workload, [("lock", lock.lock.as_str()), ("kind", &lock.kind)]), sums);
            }
            if account.locks.other != LockSums::default() {
                of(&labels(workload, [("lock", OTHER)]), &account.locks.other);
            }
        }
    }

    fn culprits(&self, text: &mut Text) {
        text.family(
            "lockbpf_wait_caused_seconds",
            Kind::Counter,
            "Waiting of others that holders of the lock caused who took it at the site, by what they were doing meanwhile.",
        );
        for (workload, account) in &self.workloads {
            for (who, causes) in &account.culprits.own {
                let held = [("lock", who.held.lock.as_str()), ("kind", &who.held.kind), ("site", &who.site)];
                for (cause, &wait) in causes {
                    text.sample(labels(workload, held.into_iter().chain([("cause", *cause)])), Seconds(wait));
                }
            }
            for (cause, &wait) in &account.culprits.other {
                text.sample(labels(workload, [("lock", OTHER), ("site", OTHER), ("cause", cause)]), Seconds(wait));
            }
        }
    }

    fn whole(&self, text: &mut Text) {
        text.family("lockbpf_deadlocks", Kind::Counter, "Deadlocks found.");
        text.sample([], self.deadlocks);
        text.family("lockbpf_deadlocks_standing", Kind::Gauge, "Deadlocks whose threads still wait for one another.");
        text.sample([], self.standing);
        text.family(
            "lockbpf_observed_ratio",
            Kind::Gauge,
            "Part of the programs' own CPU time in which every lock operation was seen, since the observation was begun anew; 0 while none goes on.",
        );
        text.sample([], self.observed);
        text.family(
            "lockbpf_overhead_cpu_seconds",
            Kind::Counter,
            "What observing has cost the observed programs, of CPU time: counted in the kernel, priced by measurement.",
        );
        text.sample([], Seconds(self.overhead_ns));
        text.family("lockbpf_lost", Kind::Counter, "What is missing from the other figures, by cause.");
        for (kind, &n) in &self.lost {
            text.sample([("kind", kind.as_str())], n);
        }
        text.family(
            "lockbpf_series_omitted",
            Kind::Gauge,
            "What did something before the last snapshot and has no series of its own: it is in those called other.",
        );
        let omitted = |of: fn(&Account) -> u64| self.workloads.values().map(of).sum::<u64>();
        text.sample([("kind", "culprit")], omitted(|account| account.culprits.omitted));
        text.sample([("kind", "lock")], omitted(|account| account.locks.omitted));
        text.sample([("kind", "process")], self.omitted);
        text.family(
            "lockbpf_series_evicted",
            Kind::Counter,
            "Processes whose series went, since they were silent and there was no room for others.",
        );
        text.sample([], self.evicted);
        text.family("lockbpf_snapshots", Kind::Counter, "Snapshots taken.");
        text.sample([], self.snapshots);
        text.family(
            "lockbpf_observations",
            Kind::Counter,
            "Observations ended, each of which was followed by a new one.",
        );
        text.sample([], self.rounds);
    }
}

fn told(own: &Own, text: &mut Text) {
    text.family("lockbpf_up", Kind::Gauge, "Whether an observation goes on.");
    text.sample([], u8::from(own.fault.is_none()));
    text.family(
        "lockbpf_snapshot_timestamp_seconds",
        Kind::Gauge,
        "When the last snapshot was taken, since 1970 (UTC).",
    );
    text.sample([], Seconds(own.snapshot_ns));
    text.family("lockbpf_http_requests", Kind::Counter, "Requests, by the status of the answer.");
    for (status, n) in &own.requests {
        text.sample([("code", status.as_str())], n);
    }
    text.family("lockbpf_build", Kind::Info, "Which lockbpf this is.");
    text.sample([("version", own.version.as_str())], 1);
    text.family("process_cpu_seconds", Kind::Counter, "CPU time that lockbpf itself used, user and system.");
    text.sample([], Seconds(own.cpu.0));
    text.family("process_resident_memory_bytes", Kind::Gauge, "Memory that lockbpf itself has.");
    text.sample([], own.resident_bytes);
    text.family("process_start_time_seconds", Kind::Gauge, "When lockbpf started, since 1970 (UTC).");
    text.sample([], Seconds(own.started_ns));
}

/// A workload's labels, and these; without empty ones.
fn labels<'a>(workload: &'a Workload, of: impl IntoIterator<Item = Label<'a>>) -> Vec<Label<'a>> {
    workload.labels().chain(of.into_iter().filter(|(_, value)| !value.is_empty())).collect()
}
