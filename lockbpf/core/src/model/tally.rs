//! What is counted while a network is played: by lock, in parts of the run, so that means have intervals.

use crate::estimate::Interval;

/// Parts of a run of which the spread of the means is taken.
const BATCHES: usize = 20;
/// The same where a run takes too long for all of them.
const SOME: usize = 4;
/// Student's t of a two-sided 95 % with one degree of freedom less than that.
const STUDENT: f64 = 2.093;

/// What was seen of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Mean wait, ns.
    pub wait: Interval,
    /// Mean time at the lock, ns.
    pub residence: Interval,
    /// Mean number of threads there.
    pub queue: f64,
    /// The share of time for which somebody holds it.
    pub utilisation: f64,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Lock operations per ns.
    pub throughput: Interval,
    /// The share of threads' time that they wait.
    pub waiting: Interval,
    /// Lock by lock.
    pub locks: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    count: f64,
    wait: f64,
    residence: f64,
}

/// Since when a lock is held, and for how long it was before.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    since: Option<f64>,
    time: f64,
}

/// Counts the lock operations of a play; those at its beginning, a sixth, do not count.
pub(super) struct Tally {
    threads: usize,
    warm_up: u64,
    batch: u64,
    done: u64,
    /// When each part began, and the last one ended.
    ends: Vec<f64>,
    /// By batch, by lock.
    batches: Vec<Vec<Batch>>,
    busy: Vec<Busy>,
}

impl Tally {
    pub(super) fn new(locks: usize, threads: usize, operations: u64) -> Self {
        Self {
            threads,
            warm_up: operations / 5,
            batch: (operations / BATCHES as u64).max(1),
            done: 0,
            ends: Vec::with_capacity(BATCHES + 1),
            batches: vec![vec![Batch::default(); locks]; BATCHES],
            busy: vec![Busy::default(); locks],
        }
    }

    /// A free lock is taken.
    pub(super) fn held(&mut self, lock: usize, now: f64) {
        self.busy[lock].since = Some(now);
    }

    /// A lock is free again.
    pub(super) fn free(&mut self, lock: usize, now: f64) {
        let busy = &mut self.busy[lock];
        busy.time += busy.since.take().map_or(0.0, |since| now - since);
    }

    /// A thread is through with a lock to which it came at one time, and which it got at another.
    pub(super) fn visit(&mut self, lock: usize, arrived: f64, began: f64, now: f64) {
        self.done += 1;
        if let Some(batch) = self.ends.len().checked_sub(1).and_then(|batch| self.batches.get_mut(batch)) {
            let batch = &mut batch[lock];
            batch.count += 1.0;
            batch.wait += began - arrived;
            batch.residence += now - arrived;
        }
    }

    /// Whether as much has been played as was asked for.
    pub(super) fn is_over(&mut self, now: f64) -> bool {
        if self.done >= self.warm_up + self.batch * self.ends.len() as u64 {
            if self.ends.is_empty() {
                for busy in &mut self.busy {
                    *busy = Busy { since: busy.since.map(|_| now), time: 0.0 };
                }
            }
            self.ends.push(now);
        }
        self.ends.len() > BATCHES
    }

    /// Whether there are parts enough for an interval.
    pub(super) fn has_some(&self) -> bool {
        self.ends.len() > SOME
    }

    pub(super) fn outcome(mut self, now: f64) -> Outcome {
        let (Some(&from), Some(&to)) = (self.ends.first(), self.ends.last()) else { return Outcome::default() };
        let elapsed = (to - from).max(f64::MIN_POSITIVE);
        let lengths: Vec<f64> = self.ends.windows(2).map(|w| w[1] - w[0]).collect();
        let rates: Vec<f64> = lengths.iter().map(|length| self.batch as f64 / length).collect();
        let threads = self.threads as f64;
        let waits = lengths
            .iter()
            .zip(&self.batches)
            .map(|(length, batch)| batch.iter().map(|lock| lock.wait).sum::<f64>() / (length * threads))
            .collect::<Vec<_>>();
        let locks = (0..self.busy.len()).map(|i| {
            let mean = |of: fn(&Batch) -> f64| {
                let means = self.batches.iter().map(|b| &b[i]).filter(|b| b.count > 0.0).map(|b| of(b) / b.count);
                let value = self.batches.iter().map(|b| of(&b[i])).sum::<f64>()
                    / self.batches.iter().map(|b| b[i].count).sum::<f64>().max(1.0);
                Interval { value, ..spread(&means.collect::<Vec<_>>()) }
            };
            let (wait, residence) = (mean(|b| b.wait), mean(|b| b.residence));
            let queue = self.batches.iter().map(|b| b[i].residence).sum::<f64>() / elapsed;
            self.free(i, now);
            Seen { wait, residence, queue, utilisation: self.busy[i].time / elapsed }
        });
        let locks = locks.collect();
        Outcome { throughput: spread(&rates), waiting: spread(&waits), locks }
    }
}

/// Mean of batches with its interval.
fn spread(values: &[f64]) -> Interval {
    let n = values.len() as f64;
    if values.is_empty() {
        return Interval::default();
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let half = STUDENT * (variance / n).sqrt();
    Interval { value: mean, low: (mean - half).max(0.0), high: mean + half }
}
