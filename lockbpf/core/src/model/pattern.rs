//! What a thread does with locks, in sums: from which one it goes to which other, after what time of its own, and how long it
//! stays. Of these a model is made, and threads that do the same are found.

use super::schema::{ClassInput, Input, LockInput};
use super::shadow::{LEFT, Shadow};
use std::collections::{BTreeMap, BTreeSet};

/// Threads that differ in less than this share of their lock operations have the same pattern.
const ALIKE: f64 = 0.1;
/// Classes at most; what is left over goes to the one most alike.
const MAX_CLASSES: usize = 8;
/// Threads with less than this share of the operations of the busiest one are no part of the model.
const WORKER: f64 = 0.05;

/// Transitions of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Flow {
    /// How many.
    pub count: f64,
    /// Σ time in between.
    pub time: f64,
    /// Σ what observing added to that.
    pub added: f64,
}

impl Flow {
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.added += other.added;
    }
}

/// Sections of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Holds {
    /// How many.
    pub count: f64,
    /// Σ their lengths.
    pub sum: f64,
    /// Σ the squares of those.
    pub squares: f64,
    /// Σ what was seen of others, of which the end was not.
    pub cut: f64,
    /// Σ what observing added to all of them.
    pub added: f64,
}

impl Holds {
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.cut += other.cut;
        self.added += other.added;
    }

    /// Their mean, as it is if exponential ones are cut, and their coefficient of variation: without so many times what observing
    /// added, which is taken to be the same in each.
    fn mean_and_cv(self, times: f64) -> (f64, f64) {
        let n = self.count.max(1.0);
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let own = without(mean, times * self.added / n);
        (without(mean + self.cut / n, times * self.added / n), if own > 0.0 { variance.sqrt() / own } else { 0.0 })
    }
}

/// Sums from which r, z and holds follow. Locks are numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern {
    /// Transitions i → j.
    pub next: BTreeMap<(u32, u32), Flow>,
    /// By lock.
    pub holds: BTreeMap<u32, Holds>,
    /// All time that is not in a section.
    pub local: f64,
    /// Where what was seen of its threads begins and ends.
    pub ends: Vec<(u32, u32)>,
}

impl Pattern {
    pub fn add(&mut self, other: &Self) {
        for (&pair, &flow) in &other.next {
            self.next.entry(pair).or_default().add(flow);
        }
        for (&lock, &holds) in &other.holds {
            self.holds.entry(lock).or_default().add(holds);
        }
        self.ends.extend(&other.ends);
        self.local += other.local;
    }

    pub fn operations(&self) -> f64 {
        self.holds.values().map(|holds| holds.count).sum()
    }

    fn holds_of(&self, lock: u32) -> Holds {
        self.holds.get(&lock).copied().unwrap_or_default()
    }

    /// The share of the operations that is on this lock.
    pub fn share(&self, lock: u32) -> f64 {
        self.holds_of(lock).count / self.operations().max(1.0)
    }

    /// How much of what they do differs: half the sum of differences in shares.
    fn distance(&self, other: &Self) -> f64 {
        let locks: BTreeSet<u32> = self.holds.keys().chain(other.holds.keys()).copied().collect();
        let (mine, theirs) = (self.operations().max(1.0), other.operations().max(1.0));
        let apart = |lock: u32| (self.holds_of(lock).count / mine - other.holds_of(lock).count / theirs).abs();
        locks.into_iter().map(apart).sum::<f64>() / 2.0
    }

    fn cycle(&self) -> f64 {
        (self.local + self.holds.values().map(|holds| holds.sum + holds.cut).sum::<f64>()) / self.operations().max(1.0)
    }

    /// r and z of so many locks. A model is a circle, a recording is not: where nothing leads from where one thread ends to
    /// where the next one begins, one visit does, after the mean time between sections.
    fn matrices(&self, locks: usize, ticks: f64, times: f64) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let mut all = Flow::default();
        self.next.values().for_each(|&flow| all.add(flow));
        let (mean, added) =
            if all.count > 0.0 { (all.time / all.count, all.added / all.count) } else { (self.local, 0.0) };
        let mut next = self.next.clone();
        // In an order that does not depend on which thread came first.
        let mut ends = self.ends.clone();
        ends.sort_unstable();
        let begins = ends.iter().cycle().skip(1);
        for (&(_, last), &(first, _)) in ends.iter().zip(begins) {
            next.entry((last, first)).or_insert(Flow { count: 1.0, time: mean, added });
        }
        let mut leaving = vec![0.0; locks];
        next.iter().for_each(|(&(from, _), flow)| leaving[from as usize] += flow.count);
        let first = ends.first().map_or(0, |&(first, _)| first as usize);
        let (mut r, mut z) = (vec![vec![0.0; locks]; locks], vec![vec![0.0; locks]; locks]);
        for (&(from, to), flow) in &next {
            let (from, to) = (from as usize, to as usize);
            if flow.count > 0.0 {
                let own = without(flow.time, times * flow.added);
                (r[from][to], z[from][to]) = (flow.count / leaving[from], own / flow.count / ticks);
            }
        }
        // Never visited: the row only has to be one.
        for (row, _) in r.iter_mut().zip(&leaving).filter(|(_, leaving)| **leaving <= 0.0) {
            row[first] = 1.0;
        }
        (r, z)
    }
}

/// Which threads take part: those with enough operations, of all threads' numbers of them.
pub(super) fn workers(operations: &[u64]) -> Vec<bool> {
    let most = operations.iter().copied().max().unwrap_or(0);
    operations.iter().map(|&n| most > 0 && n as f64 >= WORKER * most as f64).collect()
}

/// What is known of a lock beside its place in the patterns.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub name: String,
    /// Acquisitions, and the shared ones among them.
    pub acquisitions: u64,
    pub shared: u64,
}

/// A time without what observing added to it.
fn without(time: f64, added: f64) -> f64 {
    (time - added).max(LEFT * time)
}

/// The model of threads with these patterns, and the pattern of all together. `ticks` is units of time per ns. Without what observing
/// added, if that is known: the model's bounds are those of as little and as much of that as there may have been.
pub(super) fn model(threads: &[Pattern], locks: &[Known], ticks: f64, shadow: Option<&Shadow>) -> (Input, Pattern) {
    let mut whole = Pattern::default();
    threads.iter().for_each(|pattern| whole.add(pattern));
    let classes = classes(threads);
    let times = |times| times_of(&whole, &classes, threads.len(), locks, (ticks, times));
    let input = match shadow {
        None => times(0.0),
        Some(shadow) => Input { bounds: shadow.range().map(times).into(), ..times(1.0) },
    };
    (input, whole)
}

/// The same without so many times what observing added.
fn times_of(
    whole: &Pattern,
    classes: &[(Pattern, u32)],
    threads: usize,
    locks: &[Known],
    (ticks, times): (f64, f64),
) -> Input {
    let lock = |(i, known): (u32, &Known)| {
        let holds = whole.holds_of(i);
        let (mean, cv) = holds.mean_and_cv(times);
        LockInput {
            name: known.name.clone(),
            hold_ns: Some(mean / ticks),
            hold_cv: (holds.count > 1.0).then_some(cv),
            read_share: (known.shared > 0).then(|| known.shared as f64 / known.acquisitions.max(1) as f64),
            ..LockInput::default()
        }
    };
    let (routing, local_ns) = whole.matrices(locks.len(), ticks, times);
    let class = |(c, (pattern, members)): (usize, &(Pattern, u32))| {
        let (routing, local_ns) = pattern.matrices(locks.len(), ticks, times);
        let hold = |i: u32| {
            let own = pattern.holds_of(i);
            (if own.count > 0.0 { own } else { whole.holds_of(i) }).mean_and_cv(times).0 / ticks
        };
        ClassInput {
            name: format!("class {}", c + 1),
            share: f64::from(*members),
            routing,
            local_ns,
            hold_ns: (0..locks.len() as u32).map(hold).collect(),
        }
    };
    Input {
        threads: vec![(threads as u32).max(1)],
        locks: (0..).zip(locks).map(lock).collect(),
        routing,
        local_ns,
        classes: if classes.len() > 1 { classes.iter().enumerate().map(class).collect() } else { Vec::new() },
        ..Input::default()
    }
}

/// Threads of the same pattern together.
fn classes(threads: &[Pattern]) -> Vec<(Pattern, u32)> {
    let mut order: Vec<&Pattern> = threads.iter().collect();
    order.sort_by(|a, b| b.operations().total_cmp(&a.operations()).then_with(|| a.ends.cmp(&b.ends)));
    let mut classes: Vec<(Pattern, u32)> = Vec::new();
    for pattern in order {
        let alike = |class: &Pattern| {
            let pace = (class.cycle() / pattern.cycle().max(f64::MIN_POSITIVE)).ln().abs();
            class.distance(pattern) + if pace > 1.0 { 1.0 } else { 0.0 }
        };
        let full = classes.len() >= MAX_CLASSES;
        let nearest = classes.iter_mut().map(|class| (alike(&class.0), class)).min_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((distance, (class, members))) if distance <= ALIKE || full => {
                class.add(pattern);
                *members += 1;
            }
            _ => classes.push((pattern.clone(), 1)),
        }
    }
    classes
}
