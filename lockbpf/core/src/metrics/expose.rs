//! The families of metrics of what was observed, in words and in order.

use super::buckets::{BOUNDS_NS, Buckets};
use super::family::{Families, Kind, Label, Value};
use super::ledger::{Account, Book};
use super::otlp::Request;
use super::own::Own;
use super::series::LockSums;
use super::text::{Dialect, Text};
use super::workload::Workload;

/// What stands for locks and sites without series of their own.
const OTHER: &str = "other";

impl Book {
    /// As text.
    #[must_use]
    pub fn expose(&self, own: &Own, dialect: Dialect) -> String {
        let mut text = Text::new(dialect);
        self.tell(own, &mut text);
        text.finish()
    }

    /// As it is posted to a server of OpenTelemetry's metrics (`ExportMetricsServiceRequest`), at this moment, ns since 1970 (UTC). `teller` says
    /// who tells, by name and value.
    #[must_use]
    pub fn otlp_request(&self, own: &Own, teller: &[(&str, &str)], at_ns: u64) -> Vec<u8> {
        let mut request = Request::new(teller, at_ns);
        self.tell(own, &mut request);
        request.finish()
    }

    fn tell(&self, own: &Own, out: &mut impl Families) {
        self.locks(own, out);
        self.culprits(own, out);
        out.since(own.started_ns);
        self.whole(out);
        own.tell(out);
    }

    fn locks(&self, own: &Own, out: &mut impl Families) {
        out.family(
            "lockbpf_lock_wait_seconds",
            Kind::Histogram,
            "How long acquisitions of the lock waited that had to. Uncontended ones are not among them.",
        );
        self.each_lock(own, out, |labels, sums, out| {
            if sums.wait != Buckets::default() {
                out.histogram(labels, &BOUNDS_NS, &sums.wait.cumulative(), sums.wait.sum_ns);
            }
        });
        out.family("lockbpf_lock_hold_seconds", Kind::Histogram, "How long the lock was held.");
        self.each_lock(own, out, |labels, sums, out| {
            if let Some(hold) = sums.hold.as_ref().filter(|hold| **hold != Buckets::default()) {
                out.histogram(labels, &BOUNDS_NS, &hold.cumulative(), hold.sum_ns);
            }
        });
        out.family("lockbpf_lock_contentions", Kind::Counter, "Acquisitions of the lock that waited for a holder.");
        self.each_lock(own, out, |labels, sums, out| out.sample(labels, Value::Whole(sums.contentions)));
        out.family(
            "lockbpf_lock_acquisitions",
            Kind::Counter,
            "Acquisitions of the lock, where uncontended ones are seen: estimates under a budget.",
        );
        self.each_lock(own, out, |labels, sums, out| {
            if let Some(acquisitions) = sums.acquisitions {
                out.sample(labels, Value::Whole(acquisitions));
            }
        });
        out.family("lockbpf_lock_waiters", Kind::Gauge, "Threads that wait for the lock now.");
        self.each_lock(own, out, |labels, sums, out| out.sample(labels, Value::Whole(sums.waiters)));
    }

    fn each_lock<F: Families>(&self, own: &Own, out: &mut F, mut of: impl FnMut(&[Label<'_>], &LockSums, &mut F)) {
        for (workload, account) in &self.workloads {
            out.since(account.since(own));
            for (lock, sums) in &account.locks.own {
                of(&labels(workload, [("lock", lock.lock.as_str()), ("kind", &lock.kind)]), sums, out);
            }
            if account.locks.other != LockSums::default() {
                of(&labels(workload, [("lock", OTHER)]), &account.locks.other, out);
            }
        }
    }

    fn culprits(&self, own: &Own, out: &mut impl Families) {
        out.family(
            "lockbpf_wait_caused_seconds",
            Kind::Counter,
            "Waiting of others that holders of the lock caused who took it at the site, by what they were doing meanwhile.",
        );
        for (workload, account) in &self.workloads {
            out.since(account.since(own));
            for (who, causes) in &account.culprits.own {
                let held = [("lock", who.held.lock.as_str()), ("kind", &who.held.kind), ("site", &who.site)];
                for (cause, &wait) in causes {
                    let labels = labels(workload, held.into_iter().chain([("cause", *cause)]));
                    out.sample(&labels, Value::Seconds(wait));
                }
            }
            for (cause, &wait) in &account.culprits.other {
                let labels = labels(workload, [("lock", OTHER), ("site", OTHER), ("cause", cause)]);
                out.sample(&labels, Value::Seconds(wait));
            }
        }
    }

    fn whole(&self, out: &mut impl Families) {
        out.family("lockbpf_deadlocks", Kind::Counter, "Deadlocks found.");
        out.sample(&[], Value::Whole(self.deadlocks));
        out.family("lockbpf_deadlocks_standing", Kind::Gauge, "Deadlocks whose threads still wait for one another.");
        out.sample(&[], Value::Whole(self.standing));
        out.family(
            "lockbpf_observed_ratio",
            Kind::Gauge,
            "Part of the programs' own CPU time in which every lock operation was seen, since the observation was begun anew; 0 while none goes on.",
        );
        out.sample(&[], Value::Decimal(self.observed));
        out.family(
            "lockbpf_overhead_cpu_seconds",
            Kind::Counter,
            "What observing has cost the observed programs, of CPU time: counted in the kernel, priced by measurement.",
        );
        out.sample(&[], Value::Seconds(self.overhead_ns));
        out.family("lockbpf_lost", Kind::Counter, "What is missing from the other figures, by cause.");
        for (kind, &n) in &self.lost {
            out.sample(&[("kind", kind.as_str())], Value::Whole(n));
        }
        out.family(
            "lockbpf_series_omitted",
            Kind::Gauge,
            "What did something before the last snapshot and has no series of its own: it is in those called other.",
        );
        let omitted = |of: fn(&Account) -> u64| self.workloads.values().map(of).sum::<u64>();
        out.sample(&[("kind", "culprit")], Value::Whole(omitted(|account| account.culprits.omitted)));
        out.sample(&[("kind", "lock")], Value::Whole(omitted(|account| account.locks.omitted)));
        out.sample(&[("kind", "process")], Value::Whole(self.omitted));
        out.family(
            "lockbpf_series_evicted",
            Kind::Counter,
            "Processes whose series went, since they were silent and there was no room for others.",
        );
        out.sample(&[], Value::Whole(self.evicted));
        out.family("lockbpf_snapshots", Kind::Counter, "Snapshots taken.");
        out.sample(&[], Value::Whole(self.snapshots));
        out.family(
            "lockbpf_observations",
            Kind::Counter,
            "Observations ended, each of which was followed by a new one.",
        );
        out.sample(&[], Value::Whole(self.rounds));
    }
}

impl Account {
    /// When it began to count, ns since 1970.
    fn since(&self, own: &Own) -> u64 {
        self.since_ns.max(own.started_ns)
    }
}

/// A workload's labels, and these; without empty ones.
fn labels<'a>(workload: &'a Workload, of: impl IntoIterator<Item = Label<'a>>) -> Vec<Label<'a>> {
    workload.labels().chain(of.into_iter().filter(|(_, value)| !value.is_empty())).collect()
}
