//! Models and predictions as JSON.

use crate::untrusted;
use serde::{Deserialize, Serialize};

/// Name and number of what [`Prediction`] is.
pub const SCHEMA: &str = "lockbpf.prediction/1";

/// A model: a program's locks, how threads go from one to the next, and what is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// What the locks are, where one does not say.
    #[serde(default)]
    pub model: Algorithm,
    /// For how many threads.
    pub threads: Vec<u32>,
    /// How to solve it.
    #[serde(default)]
    pub solver: Solver,
    /// CPUs that the threads share; `None`: there is one for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// How long a thread keeps a CPU that others want, too, ns; `None`: they share it as if in slices of no length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<f64>,
    /// The locks.
    pub locks: Vec<LockInput>,
    /// r: of the visits to lock i, the share that lock j follows.
    pub routing: Vec<Vec<f64>>,
    /// z: mean time from the release of i to the attempt on j, ns.
    pub local_ns: Vec<Vec<f64>>,
    /// LO of a QD lock, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_overhead_ns: Option<f64>,
    /// DO(0), DO(1), … of a QD lock, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegation_overhead_ns: Vec<f64>,
    /// What leaving a section to the holder of a QD lock takes the thread that does not wait for it, and what the section takes the holder
    /// beside its own length, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_overhead_ns: Option<f64>,
    /// Threads of different patterns; empty where all have the pattern above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassInput>,
    /// The same model with other times that are as possible, of which the intervals take account: what observing added to those of a
    /// recording is known within a range.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Self>,
    /// What the recording itself did, which a prediction for it has to meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// What of the recording that the model was made of does not agree with its assumptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "untrusted::read_all")]
    pub violations: Vec<String>,
}

/// A recording's own configuration and throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Threads that take part.
    pub threads: u32,
    /// Whether what observing cost was known, and is taken out of the model's times.
    #[serde(default)]
    pub without_observer: bool,
    /// Lock operations per ns while every one of them was observed, and slowed by that.
    pub observed_per_ns: f64,
    /// The same over all the time, estimated from windows by the CPU time that the program used outside of them; `None` where it was
    /// observed all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_per_ns: Option<f64>,
    /// Where that is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_interval_per_ns: Option<[f64; 2]>,
}

/// How a lock works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// One holder, first come, first served.
    #[default]
    Mutex,
    /// Queue delegation: who comes while it is held leaves its section to the holder, and goes on at once.
    Qd,
    /// The same, but who left its section to the holder waits until that has executed it.
    QdWait,
    /// One writer or many readers, who go first.
    Rwlock,
}

/// How a model is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Solver {
    /// Exactly where that is possible in reasonable time, else approximately.
    #[default]
    Auto,
    /// Exactly or not at all.
    Exact,
    /// Bard and Schweitzer's approximation.
    Schweitzer,
    /// Played event by event.
    Simulation,
}

/// A lock of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockInput {
    /// What it is called.
    #[serde(deserialize_with = "untrusted::read")]
    pub name: String,
    /// How long it is held, on average, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<f64>,
    /// The same while the holder's data is in its own cache: a QD lock's helper's own section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_hold_ns: Option<f64>,
    /// The same of a section that was delegated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_hold_ns: Option<f64>,
    /// What taking and giving back adds to that.
    #[serde(default)]
    pub overhead_ns: Overhead,
    /// How it works, if not as the model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Whether threads that wait for it use a CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spins: bool,
    /// Whether it is handed to the one that has waited longest, even if that has no CPU: with `spins`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// What sleeping for it costs; `None`: who waits has it as soon as it is free and it is its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<Sleep>,
    /// Into how many locks of equal use it is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// The share of sections that only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_share: Option<f64>,
    /// Coefficient of variation of the holds; 1 for exponential ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_cv: Option<f64>,
}

/// A lock that is slept for: who gives it back wakes one that waits, which then tries to get it; whoever comes before that gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sleep {
    /// From the release until the woken thread tries, ns.
    pub wake_ns: f64,
    /// What waking takes the one that gives it back, after the release, ns.
    pub call_ns: f64,
}

/// What a lock's calls cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Overhead {
    /// Always the same, ns.
    Constant(f64),
    /// With 0, 1, 2, … waiters, ns; as the last one with more.
    ByWaiters(Vec<f64>),
}

impl Default for Overhead {
    fn default() -> Self {
        Self::Constant(0.0)
    }
}

/// Threads of one pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassInput {
    /// What it is called.
    #[serde(default, deserialize_with = "untrusted::read")]
    pub name: String,
    /// Its share of the threads, relative to the other classes'.
    pub share: f64,
    /// r of its threads.
    pub routing: Vec<Vec<f64>>,
    /// z of its threads, ns.
    pub local_ns: Vec<Vec<f64>>,
    /// How long its threads hold each lock, ns; empty: as the locks say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold_ns: Vec<f64>,
}

/// What a model predicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// How the locks work: those of the model, or what they were replaced by where that is one sort for all.
    pub model: Algorithm,
    /// What locks were replaced by, if they were: as `--with` calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The recording predicted from itself ([`super::check`]); `None` of a model that is of no recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// What has to hold for the prediction to hold.
    pub assumptions: Vec<String>,
    /// What of that is known not to hold.
    pub violations: Vec<String>,
    /// One for each number of threads, in the input's order.
    pub points: Vec<Point>,
}

/// A recording predicted from itself: how far its model can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Check {
    /// What the recording did.
    #[serde(flatten)]
    pub recorded: Recorded,
    /// What its model predicts for as many threads with today's locks, unobserved.
    pub predicted_per_ns: f64,
    /// Where that is expected.
    pub predicted_interval_per_ns: [f64; 2],
}

/// The prediction for one number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// How many.
    pub threads: u32,
    /// How it was solved: `exact`, `schweitzer` or `simulation`.
    pub solver: Solver,
    /// Lock operations per ns.
    pub throughput_per_ns: f64,
    /// Where it is expected.
    pub throughput_interval_per_ns: [f64; 2],
    /// The locks, in the input's order.
    pub locks: Vec<LockPoint>,
    /// The share of threads' time that they wait for locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention_fraction: Option<f64>,
    /// Where it is expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention_fraction_interval: Option<[f64; 2]>,
}

/// The prediction for one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockPoint {
    /// Its name.
    pub name: String,
    /// Mean wait per acquisition, ns.
    pub wait_ns: f64,
    /// Where it is expected.
    pub wait_interval_ns: [f64; 2],
    /// Mean time at the lock, ns: waiting, overhead and section.
    pub lock_ns: f64,
    /// Mean number of threads that wait for it or hold it; of a lock split into several, in all of them.
    pub queue: f64,
    /// The share of time for which it is held; of a lock split into several, of each of them.
    pub utilisation: f64,
    /// What only a QD lock has.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub qd: Option<QdPoint>,
}

/// What is predicted of a QD lock beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QdPoint {
    /// Mean wait of the helper, ns.
    pub wait_helper_ns: f64,
    /// Mean wait of the others, ns.
    pub wait_other_ns: f64,
    /// Mean time from delegating to going on: the helper's, which executes the others' sections beside its own, ns.
    pub delegation_helper_ns: f64,
    /// The others', ns.
    pub delegation_other_ns: f64,
    /// The mean of both, weighted with their visits, ns.
    pub delegation_ns: f64,
    /// k: mean number of non-helpers at the lock, the one in service included.
    pub contending: f64,
}

impl QdPoint {
    /// All times so many times as long.
    pub(super) fn stretch(&mut self, times: f64) {
        for ns in [
            &mut self.wait_helper_ns,
            &mut self.wait_other_ns,
            &mut self.delegation_helper_ns,
            &mut self.delegation_other_ns,
            &mut self.delegation_ns,
        ] {
            *ns *= times;
        }
    }
}

impl Point {
    /// Widens the intervals so that they contain those of another prediction for as many threads.
    pub(super) fn contain(&mut self, other: &Self) {
        let both = |a: [f64; 2], b: [f64; 2]| [a[0].min(b[0]), a[1].max(b[1])];
        self.throughput_interval_per_ns = both(self.throughput_interval_per_ns, other.throughput_interval_per_ns);
        for (lock, other) in self.locks.iter_mut().zip(&other.locks) {
            lock.wait_interval_ns = both(lock.wait_interval_ns, other.wait_interval_ns);
        }
        let fractions = self.contention_fraction_interval.zip(other.contention_fraction_interval);
        self.contention_fraction_interval = fractions.map(|(a, b)| both(a, b)).or(self.contention_fraction_interval);
    }
}
