//! What whoever tells the metrics says of itself.

use super::family::{Families, Kind, Value};
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
    /// What became of batches that are pushed, by destination.
    pub pushed: Vec<Pushed>,
}

/// What became of the batches for one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// What the destination is called in the configuration.
    pub destination: &'static str,
    /// Batches that it has taken.
    pub taken: u64,
    /// Data points or profiles of batches taken that it did not accept.
    pub rejected: u64,
    /// Attempts that failed, after each of which there is another.
    pub failures: u64,
    /// Batches dropped, the oldest first, since the queue was full.
    pub overflowed: u64,
    /// Batches dropped since the destination refused them.
    pub refused: u64,
    /// Batches dropped since they could not be written to the disk, or read from it.
    pub unkept: u64,
    /// Batches that wait.
    pub queued: u64,
    /// How large these are, bytes.
    pub queued_bytes: u64,
}

impl Own {
    /// All of it.
    pub(super) fn tell(&self, out: &mut impl Families) {
        out.family("lockbpf_up", Kind::Gauge, "Whether an observation goes on.");
        out.sample(&[], Value::Whole(self.fault.is_none().into()));
        out.family(
            "lockbpf_snapshot_timestamp_seconds",
            Kind::Gauge,
            "When the last snapshot was taken, since 1970 (UTC).",
        );
        out.sample(&[], Value::Seconds(self.snapshot_ns));
        out.family("lockbpf_http_requests", Kind::Counter, "Requests, by the status of the answer.");
        for (status, n) in &self.requests {
            out.sample(&[("code", status)], Value::Whole(*n));
        }
        out.family("lockbpf_build", Kind::Info, "Which lockbpf this is.");
        out.sample(&[("version", &self.version)], Value::Whole(1));
        out.family("process_cpu_seconds", Kind::Counter, "CPU time that lockbpf itself used, user and system.");
        out.sample(&[], Value::Seconds(self.cpu.0));
        out.family("process_resident_memory_bytes", Kind::Gauge, "Memory that lockbpf itself has.");
        out.sample(&[], Value::Whole(self.resident_bytes));
        out.family("process_start_time_seconds", Kind::Gauge, "When lockbpf started, since 1970 (UTC).");
        out.sample(&[], Value::Seconds(self.started_ns));
        if !self.pushed.is_empty() {
            self.tell_pushed(out);
        }
    }

    fn tell_pushed(&self, out: &mut impl Families) {
        let mut each = |name, kind, help, value: fn(&Pushed) -> u64| {
            out.family(name, kind, help);
            for pushed in &self.pushed {
                out.sample(&[("destination", pushed.destination)], Value::Whole(value(pushed)));
            }
        };
        each("lockbpf_push_batches", Kind::Counter, "Batches that the destination has taken.", |pushed| pushed.taken);
        each(
            "lockbpf_push_rejected",
            Kind::Counter,
            "Data points and profiles of batches taken that the destination did not accept.",
            |pushed| pushed.rejected,
        );
        each(
            "lockbpf_push_failures",
            Kind::Counter,
            "Attempts to push a batch that failed. It stays in the queue.",
            |pushed| pushed.failures,
        );
        each("lockbpf_push_queued", Kind::Gauge, "Batches that wait.", |pushed| pushed.queued);
        each("lockbpf_push_queue_bytes", Kind::Gauge, "How large the batches are that wait.", |pushed| {
            pushed.queued_bytes
        });
        out.family(
            "lockbpf_push_dropped",
            Kind::Counter,
            "Batches lost: the queue was full, the destination refused them, or the disk did not keep them.",
        );
        for pushed in &self.pushed {
            for (reason, n) in [("full", pushed.overflowed), ("refused", pushed.refused), ("disk", pushed.unkept)] {
                out.sample(&[("destination", pushed.destination), ("reason", reason)], Value::Whole(n));
            }
        }
    }
}
