//! The report in JSON, as its readers see it, and what must hold in every one.

use lockbpf::report::schema::{ThrottledEntry, UnwatchedEntry};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A report.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) verdict: Vec<String>,
    pub(crate) totals: Value,
    /// Left out where there are none.
    #[serde(default)]
    pub(crate) patterns: Vec<Value>,
    pub(crate) culprits: Vec<Culprit>,
    pub(crate) deadlocks: Vec<Value>,
    pub(crate) inversions: Vec<Value>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) sites: Vec<Value>,
    /// Only if events were counted.
    #[serde(default)]
    pub(crate) counters: Option<Counters>,
    #[serde(default)]
    pub(crate) functions: Option<Functions>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) conditions: Vec<Value>,
    pub(crate) futexes: Vec<Value>,
    pub(crate) quality: Quality,
}

/// Counted events.
#[derive(Debug, Deserialize)]
pub(crate) struct Counters {
    pub(crate) unit: String,
    pub(crate) totals: CounterTotals,
    pub(crate) sites: Vec<Counted>,
}

/// Sums over all threads, by the clock.
#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct CounterTotals {
    pub(crate) threads: u64,
    pub(crate) sections: u64,
    pub(crate) sections_uncounted: u64,
    pub(crate) execution: f64,
    pub(crate) held_union: f64,
    pub(crate) held_sum: f64,
}

/// What was counted in the sections of a lock at a site.
#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Counted {
    pub(crate) symbol: String,
    pub(crate) sections: u64,
    pub(crate) hold_ns: f64,
    pub(crate) on_cpu_ns: f64,
    pub(crate) preempted_ns: f64,
    pub(crate) hold: BTreeMap<String, f64>,
}

impl Counters {
    /// What was counted in this function's sections.
    pub(crate) fn of(&self, function: &str) -> &Counted {
        let found = self.sites.iter().find(|site| site.symbol.starts_with(function));
        found.unwrap_or_else(|| panic!("nothing was counted in {function}: {:?}", self.sites))
    }
}

/// Calls of the C library.
#[derive(Debug, Deserialize)]
pub(crate) struct Functions {
    pub(crate) library_share: f64,
    pub(crate) categories: Vec<Calls>,
    pub(crate) functions: Vec<Calls>,
    pub(crate) threads: Vec<Calls>,
}

/// Calls of a function, or of a category.
#[derive(Debug, Deserialize)]
pub(crate) struct Calls {
    pub(crate) function: Option<String>,
    pub(crate) category: String,
    pub(crate) calls: u64,
    pub(crate) nested: u64,
    pub(crate) ended: u64,
    pub(crate) uncounted: u64,
    pub(crate) time_ns: f64,
    pub(crate) on_cpu_ns: f64,
    pub(crate) share: f64,
}

impl Functions {
    /// The calls of a function.
    pub(crate) fn of(&self, name: &str) -> &Calls {
        let found = self.functions.iter().find(|calls| calls.function.as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("{name} was not called: {:?}", self.functions))
    }
}

/// Who causes waiting.
#[derive(Debug, Deserialize)]
pub(crate) struct Culprit {
    pub(crate) function: Option<String>,
    /// Name of the lock that it holds; of several, of the first.
    pub(crate) name: String,
    pub(crate) locks: u64,
    pub(crate) share: f64,
    pub(crate) share_of_all: f64,
    pub(crate) causes: Option<BTreeMap<String, f64>>,
    pub(crate) callers: Option<Callers>,
}

impl Culprit {
    /// Whether it is this function.
    pub(crate) fn is(&self, function: &str) -> bool {
        self.function.as_deref() == Some(function)
    }
}

/// For whom a function locks that several call.
#[derive(Debug, Deserialize)]
pub(crate) struct Callers {
    pub(crate) functions: u64,
    pub(crate) most: Vec<Caller>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Caller {
    pub(crate) function: Option<String>,
    pub(crate) share: f64,
}

/// What futex calls tell of a lock.
#[derive(Debug, Deserialize)]
pub(crate) struct Sleeps {
    /// Threads that went to sleep.
    pub(crate) slept: u64,
}

/// A lock.
#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    /// `PID:0xADDR`
    pub(crate) lock: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Known only by its futex word: its acquisitions are not.
    pub(crate) inferred: bool,
    /// Whether it is all locks for which there was no room one by one.
    #[serde(default)]
    pub(crate) others: bool,
    /// Whether it is one of those, so that its acquisitions are not told apart.
    #[serde(default)]
    pub(crate) in_others: bool,
    #[serde(default)]
    pub(crate) mutex_type: Option<String>,
    /// Whether it is the kernel's: then it belongs to no process.
    #[serde(default)]
    pub(crate) kernel: bool,
    #[serde(default)]
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) comm: String,
    /// 0 where it is not known: only waits were watched.
    #[serde(deserialize_with = "or_default")]
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) release_unseen: u64,
    #[serde(default)]
    pub(crate) first_site: Option<String>,
    pub(crate) try_failures: u64,
    pub(crate) timeouts: u64,
    pub(crate) errors: u64,
    pub(crate) timed_out_wait_ns: u64,
    pub(crate) harm_ns: f64,
    pub(crate) wait_ns: Durations,
    pub(crate) contended_wait_ns: Durations,
    /// Zeros where it is not known.
    #[serde(deserialize_with = "or_default")]
    pub(crate) hold_ns: Durations,
    pub(crate) waiting_now: WaitingNow,
    pub(crate) waiters: Vec<Party>,
    pub(crate) holders: Vec<Party>,
    pub(crate) unattributed_ns: f64,
    /// What the futex calls on its word tell.
    #[serde(default)]
    pub(crate) futex: Option<Sleeps>,
    /// What windows alone show of waits.
    #[serde(default)]
    pub(crate) wait_estimate: Option<Bounds>,
    /// Of what was seen in part: see [`super::estimates`].
    #[serde(default)]
    pub(super) estimates: Value,
}

/// `null` is for what was not observed.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// Between what an estimate is.
#[derive(Debug, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Many durations in a few numbers.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Durations {
    pub(crate) sum: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Waits that had not ended when the observation did.
#[derive(Debug, Deserialize)]
pub(crate) struct WaitingNow {
    pub(crate) count: u64,
    pub(crate) longest_ns: u64,
    pub(crate) held_by: Vec<Value>,
    pub(crate) places: Vec<WaitingPlace>,
}

/// Where threads wait.
#[derive(Debug, Deserialize)]
pub(crate) struct WaitingPlace {
    pub(crate) function: Option<String>,
    #[serde(default)]
    pub(crate) stack: Vec<Value>,
}

/// A place in the code that waits, or that others wait for.
#[derive(Debug, Deserialize)]
pub(crate) struct Party {
    #[serde(default)]
    pub(crate) symbol: String,
    pub(crate) function: Option<String>,
    #[serde(default)]
    pub(crate) file: Option<String>,
    #[serde(default)]
    pub(crate) line: Option<u32>,
    #[serde(default)]
    pub(crate) stack: Vec<Value>,
    pub(crate) wait_ns: f64,
    pub(crate) share: f64,
}

/// A thread.
#[derive(Debug, Deserialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) wait_ns: u64,
    pub(crate) kernel_wait_ns: u64,
    pub(crate) held_union_ns: u64,
    pub(crate) held_sum_ns: u64,
    pub(crate) acquisitions: u64,
}

/// How complete it all is.
#[derive(Debug, Deserialize)]
pub(crate) struct Quality {
    pub(crate) events: u64,
    pub(crate) unfocused: u64,
    pub(crate) thinned: u64,
    pub(crate) kernel_in_interrupts: u64,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) impossible: BTreeMap<String, u64>,
    pub(crate) edges: BTreeMap<String, u64>,
    pub(crate) failed_probes: Vec<Value>,
    pub(crate) notes: Vec<String>,
    pub(crate) duration_ns: u64,
    /// Per process, under a budget: see [`super::estimates`].
    #[serde(default)]
    pub(super) observed: Value,
    pub(crate) perturbation: Option<Perturbation>,
    #[serde(default)]
    pub(crate) unobserved: Vec<Unobserved>,
    #[serde(default)]
    pub(crate) throttled: Vec<ThrottledEntry>,
    #[serde(default)]
    pub(crate) unwatched: Vec<UnwatchedEntry>,
    #[serde(default)]
    pub(crate) virtual_threads: Vec<u32>,
    pub(crate) observed_share: f64,
    pub(crate) incomplete: bool,
}

/// What observing took.
#[derive(Debug, Deserialize)]
pub(crate) struct Perturbation {
    pub(crate) hits: u64,
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) switches: u64,
    pub(crate) cost_share: Option<f64>,
    pub(crate) futex_cost_share: Option<f64>,
    pub(crate) measured: bool,
    pub(crate) children: u64,
    pub(crate) children_cost_at_most_ns: u64,
}

/// When a process was not observed.
#[derive(Debug, Deserialize)]
pub(crate) struct Unobserved {
    pub(crate) pid: u32,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: Option<u64>,
}

impl Report {
    /// Reads a report; it must be one that can be believed as far as its own numbers go.
    pub(crate) fn parse(text: &str) -> Self {
        let report: Self = serde_json::from_str(text).unwrap_or_else(|error| panic!("bad report ({error}): {text}"));
        assert_eq!(report.schema, "lockbpf.report/1");
        let whole: lockbpf::report::Report = serde_json::from_str(text).expect("what lockbpf wrote is what it reads");
        assert_eq!(lockbpf::report::violations(&whole), Vec::<String>::new(), "the report contradicts itself: {text}");
        report.locks.iter().for_each(|lock| lock.assert_plausible(report.quality.duration_ns));
        assert!(
            report.quality.notes.iter().all(|note| note.ends_with('.')),
            "no sentences: {:?}",
            report.quality.notes
        );
        for thread in &report.threads {
            assert!(thread.held_union_ns <= thread.held_sum_ns, "{thread:?}");
            assert!(thread.held_union_ns <= report.quality.duration_ns, "{thread:?}");
            assert!(thread.wait_ns <= report.quality.duration_ns, "{thread:?}");
        }
        report
    }

    /// The locks at an address of a process: more than one only after an exec or when a pid was reused.
    pub(crate) fn all_at(&self, pid: u32, addr: &str) -> Vec<&Lock> {
        self.locks.iter().filter(|lock| lock.pid == pid && lock.lock.ends_with(&format!(":{addr}"))).collect()
    }

    /// The one lock at an address of a process.
    pub(crate) fn at(&self, pid: u32, addr: &str) -> &Lock {
        match self.all_at(pid, addr)[..] {
            [lock] => lock,
            ref other => panic!("{} locks at {pid}:{addr}, not one, among {:?}", other.len(), self.names()),
        }
    }

    /// Acquisitions of the lock at an address of a process, or permits taken of what is no lock; 0 if it is not told of.
    pub(crate) fn acquisitions_at(&self, pid: u32, addr: &str) -> u64 {
        let permits = self.semaphore_at(pid, addr).and_then(|semaphore| semaphore["permits"].as_u64());
        permits.unwrap_or_else(|| self.all_at(pid, addr).iter().map(|lock| lock.acquisitions).sum())
    }

    /// The semaphore at an address of a process, if its permits stand for work.
    pub(crate) fn semaphore_at(&self, pid: u32, addr: &str) -> Option<&Value> {
        entry_for(&self.conditions, &format!("{pid}:{addr}")).filter(|entry| entry["kind"] == "semaphore")
    }

    /// The one lock of this name.
    pub(crate) fn named(&self, name: &str) -> &Lock {
        let mut found = self.locks.iter().filter(|lock| lock.name == name);
        match (found.next(), found.next()) {
            (Some(lock), None) => lock,
            (first, _) => panic!("{} {name} among {:?}", if first.is_some() { "several" } else { "no" }, self.names()),
        }
    }

    /// Names of all locks, most harmful first.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.locks.iter().map(|lock| lock.name.as_str()).collect()
    }

    /// Acquisitions of all locks; arrivals at barriers are none.
    pub(crate) fn acquisitions(&self) -> u64 {
        let permits = self.conditions.iter().filter_map(|semaphore| semaphore["permits"].as_u64());
        let locks = self.locks.iter().filter(|lock| lock.kind != "barrier");
        locks.map(|lock| lock.acquisitions).chain(permits).sum()
    }

    /// The thread with this tid.
    pub(crate) fn thread(&self, tid: u32) -> &Thread {
        self.threads.iter().find(|thread| thread.tid == tid).unwrap_or_else(|| panic!("no thread {tid} in the report"))
    }
}

impl Lock {
    fn assert_plausible(&self, duration_ns: u64) {
        let completed = self.acquisitions + self.timeouts + self.errors;
        assert!(
            self.in_others || self.inferred || self.kernel || self.contended <= completed.max(self.release_unseen),
            "more contended than were made: {self:?}"
        );
        assert!(!self.name.is_empty() && !self.kind.is_empty(), "nameless: {self:?}");
        for durations in [&self.wait_ns, &self.contended_wait_ns, &self.hold_ns] {
            let Durations { sum, mean, max, p50, p99 } = *durations;
            assert!(p50 <= p99 && p99 <= max && mean <= max && max <= sum, "disordered: {durations:?} of {self:?}");
            assert!(max <= duration_ns as f64, "longer than the observation: {durations:?} of {self:?}");
        }
        assert!(self.contended_wait_ns.sum <= self.wait_ns.sum, "a part exceeds the whole: {self:?}");
        for parties in [&self.waiters, &self.holders] {
            let shares: f64 = parties.iter().map(|party| party.share).sum();
            assert!(shares <= 1.0 + 1e-6, "shares sum to {shares}: {self:?}");
            assert!(parties.is_sorted_by(|a, b| a.wait_ns >= b.wait_ns), "not in order: {self:?}");
        }
    }
}

/// Finds the object that describes a lock, whatever it is called there.
pub(crate) fn entry_for<'a>(entries: &'a [Value], id: &str) -> Option<&'a Value> {
    entries.iter().find(|entry| entry.as_object().is_some_and(|fields| fields.values().any(|v| v == id)))
}
