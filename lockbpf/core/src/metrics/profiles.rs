//! All waiting by stack that was ever observed, as far as there is room.

use super::labels;
use super::rise::{Divided, Peak};
use super::workload::Workload;
use crate::id::Process;
use crate::report::profile::{Profile, Sample};
use crate::report::schema::{Ns, StackFrame};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What stands for stacks without room.
const OTHER_STACKS: &str = "[other stacks]";
/// What stands for a function without a name.
const UNNAMED: &str = "[unnamed]";

/// Adds up profiles. Sums of a stack never fall.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    waiters: Side,
    culprits: Side,
    room: usize,
    round: u64,
}

#[derive(Clone, Debug, Default)]
struct Side {
    stacks: HashMap<Arc<Sample>, Sums>,
    other: Sums,
    waits: Divided<Arc<Sample>>,
    counts: HashMap<Arc<Sample>, Peak>,
    /// Stacks that ever got room.
    births: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    wait_ns: u64,
    /// The observation in which it grew last.
    round: u64,
    /// Tells these sums from those of the same stack before it had to make room.
    birth: u64,
}

impl Profiles {
    /// Nothing yet; so many stacks are told apart on each side.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// So many from now on.
    pub fn limit(&mut self, room: usize) {
        self.room = room;
    }

    /// Takes what was seen since the present observation began.
    pub fn take(&mut self, profile: &Profile, workloads: &HashMap<Process, Workload>) {
        let Self { room, round, .. } = *self;
        let total = profile.wait_ns.whole();
        self.waiters.take(total, &profile.waiters, workloads, room, round);
        self.culprits.take(total, &profile.culprits, workloads, room, round);
    }

    /// The observation is over. Where room is short, stacks go that have not grown in it, the shortest first.
    pub fn end_round(&mut self) {
        let Self { room, round, .. } = *self;
        self.waiters.end_round(room, round);
        self.culprits.end_round(room, round);
        self.round += 1;
    }

    /// All waiting so far.
    #[must_use]
    pub fn stacks(&self) -> Stacks {
        Stacks { waiters: self.waiters.sums(), culprits: self.culprits.sums() }
    }
}

/// All waiting by stack at one time. Cheap to make: what is long is shared.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    waiters: Vec<(Arc<Sample>, Sums)>,
    culprits: Vec<(Arc<Sample>, Sums)>,
}

impl Stacks {
    /// What has come since these.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self { waiters: risen(&self.waiters, &before.waiters), culprits: risen(&self.culprits, &before.culprits) }
    }

    /// Whether nobody has waited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.culprits.is_empty()
    }

    /// As a profile of what is `target` in words.
    #[must_use]
    pub fn profile(&self, target: &str, started_ns: Option<u64>, duration_ns: u64) -> Profile {
        let (waiters, culprits) = (samples(&self.waiters), samples(&self.culprits));
        Profile {
            target: target.to_owned(),
            duration_ns: Ns::new(duration_ns),
            started_ns,
            wait_ns: Ns::new(waiters.iter().map(|sample| sample.wait_ns.whole()).sum()),
            waiters,
            culprits,
            ..Profile::default()
        }
    }
}

impl Side {
    fn take(
        &mut self,
        total: u64,
        samples: &[Sample],
        workloads: &HashMap<Process, Workload>,
        room: usize,
        round: u64,
    ) {
        let mut counts: HashMap<Arc<Sample>, u64> = HashMap::new();
        let mut waits = Vec::with_capacity(samples.len());
        for sample in samples {
            let stack = Arc::new(stack(sample, workloads));
            *counts.entry(stack.clone()).or_default() += sample.count;
            waits.push((stack, sample.wait_ns.whole()));
        }
        for (stack, wait) in self.waits.rise(total, waits) {
            self.of(&stack, room, round).wait_ns += wait;
        }
        for (stack, count) in counts {
            let rise = self.counts.entry(stack.clone()).or_default().rise(count);
            if rise > 0 {
                self.of(&stack, room, round).count += rise;
            }
        }
    }

    fn of(&mut self, stack: &Arc<Sample>, room: usize, round: u64) -> &mut Sums {
        let kept = self.stacks.len();
        let sums = match self.stacks.entry(stack.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if kept < room => {
                self.births += 1;
                entry.insert(Sums { birth: self.births, ..Sums::default() })
            }
            Entry::Vacant(_) => &mut self.other,
        };
        sums.round = round;
        sums
    }

    fn end_round(&mut self, room: usize, round: u64) {
        self.waits = Divided::default();
        self.counts = HashMap::new();
        // Room for a quarter.
        let excess = self.stacks.len().saturating_sub(room - room / 4);
        let mut idle: Vec<_> = self.stacks.iter().filter(|(_, sums)| sums.round < round).collect();
        idle.sort_by_key(|(_, sums)| sums.wait_ns);
        let gone: Vec<_> = idle.into_iter().take(excess).map(|(stack, _)| stack.clone()).collect();
        for stack in &gone {
            self.stacks.remove(stack);
        }
    }

    fn sums(&self) -> Vec<(Arc<Sample>, Sums)> {
        let mut all: Vec<_> = self.stacks.iter().map(|(stack, &sums)| (stack.clone(), sums)).collect();
        if self.other.wait_ns > 0 {
            let frames = vec![StackFrame { function: Some(OTHER_STACKS.to_owned()), ..StackFrame::default() }];
            all.push((Arc::new(Sample { frames, lock: "other".to_owned(), ..Sample::default() }), self.other));
        }
        all
    }
}

/// What has come since, of the stacks that have grown.
fn risen(now: &[(Arc<Sample>, Sums)], before: &[(Arc<Sample>, Sums)]) -> Vec<(Arc<Sample>, Sums)> {
    let before: HashMap<&Sample, &Sums> = before.iter().map(|(stack, sums)| (&**stack, sums)).collect();
    let rise = |(stack, sums): &(Arc<Sample>, Sums)| {
        let mut sums = *sums;
        if let Some(before) = before.get(&**stack).filter(|before| before.birth == sums.birth) {
            sums.count = sums.count.saturating_sub(before.count);
            sums.wait_ns = sums.wait_ns.saturating_sub(before.wait_ns);
        }
        (sums.count > 0 || sums.wait_ns > 0).then(|| (stack.clone(), sums))
    };
    now.iter().filter_map(rise).collect()
}

/// Longest first.
fn samples(stacks: &[(Arc<Sample>, Sums)]) -> Vec<Sample> {
    let with = |(stack, sums): &(Arc<Sample>, Sums)| Sample {
        count: sums.count,
        wait_ns: Ns::new(sums.wait_ns),
        ..Sample::clone(stack)
    };
    let mut samples: Vec<Sample> = stacks.iter().map(with).collect();
    samples.sort_by_key(|sample| Reverse(sample.wait_ns));
    samples
}

/// What tells a sample from others in every process: names, and no addresses.
fn stack(sample: &Sample, workloads: &HashMap<Process, Workload>) -> Sample {
    let frame = |frame: &StackFrame| {
        let named = frame.function.is_some() || frame.module.is_some() && frame.offset.is_some();
        StackFrame {
            function: if named { frame.function.clone() } else { Some(UNNAMED.to_owned()) },
            address: String::new(),
            ..frame.clone()
        }
    };
    let workload = workloads.get(&sample.process);
    let labels = workload.iter().flat_map(|workload| workload.labels());
    Sample {
        frames: sample.frames.iter().map(frame).collect(),
        lock: name(&sample.lock),
        waited_for: sample.waited_for.as_deref().map(name),
        process: Process::default(),
        labels: labels.map(|(label, value)| (label, value.to_owned())).collect(),
        count: 0,
        wait_ns: Ns::default(),
        // What it is called may be an address.
        place: String::new(),
        moments: Vec::new(),
        ..sample.clone()
    }
}

fn name(lock: &str) -> String {
    labels::value(labels::without_number(lock))
}
