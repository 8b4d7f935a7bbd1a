//! A model from a recording: which lock follows which, after how long, and how long each is held.

use super::schema::{ClassInput, Input, LockInput};
use super::script::{Script, Step, Thread, What};
use crate::report::text::{counted, percent};

/// Threads that differ in less than this share of their lock operations have the same pattern.
const ALIKE: f64 = 0.1;
/// Classes at most; what is left over goes to the one most alike.
const MAX_CLASSES: usize = 8;
/// Locks with less than this share of the operations do not matter.
const FEW: f64 = 0.01;
/// Threads with less than this share of the operations of the busiest one are no part of the model.
const WORKER: f64 = 0.05;
/// Relative difference of the halves of a recording from which on it is not steady.
const UNSTEADY: f64 = 0.2;
/// Coefficients of variation from here to there pass for exponential.
const EXPONENTIAL: std::ops::Range<f64> = 0.7..1.4;

/// Why a recording gives no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Nothing was locked from beginning to end.
    #[error("there is no section from its beginning to its end")]
    Empty,
    /// Too many locks for a matrix.
    #[error("{0} locks are too many for a model: choose some with --only")]
    TooManyLocks(usize),
}

/// Locks of which it is told that they are not exponential.
const TOLD: usize = 4;
/// Locks in a model at most.
pub const MAX_LOCKS: usize = 1_024;

/// Sums from which r, z and holds follow.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Transitions i → j: number and time.
    next: Vec<Vec<(u64, f64)>>,
    /// By lock: number, Σ hold, Σ hold².
    holds: Vec<(u64, f64, f64)>,
    /// Locks taken while another is held.
    nested: u64,
    /// All that is not in a section, and of that what is idle.
    local: f64,
    idle: f64,
    /// First and last lock of each thread.
    ends: Vec<(u32, u32)>,
}

impl Sums {
    fn of(thread: &Thread, locks: usize, cover: &[Option<u32>]) -> Self {
        let mut sums =
            Self { next: vec![vec![(0, 0.0); locks]; locks], holds: vec![(0, 0.0, 0.0); locks], ..Self::default() };
        let (mut depth, mut hold, mut local, mut outer) = (0_u32, 0.0, 0.0, None);
        let (mut first, mut last) = (None, None);
        for &Step { after, what } in &thread.steps {
            let after = after as f64;
            if depth > 0 {
                hold += after;
            } else {
                local += after;
                sums.local += after;
                sums.idle += if what == What::Idle { after } else { 0.0 };
            }
            match what {
                What::Ask { lock, .. } => {
                    depth += 1;
                    if depth > 1 {
                        sums.nested += 1;
                        continue;
                    }
                    let Some(lock) = cover.get(lock as usize).copied().flatten() else { continue };
                    if let Some(last) = last {
                        let (count, time) = &mut sums.next[last as usize][lock as usize];
                        *count += 1;
                        *time += local;
                    }
                    first.get_or_insert(lock);
                    (local, hold, outer) = (0.0, 0.0, Some(lock));
                }
                What::Release { .. } => {
                    depth = depth.saturating_sub(1);
                    if depth == 0
                        && let Some(lock) = outer.take()
                    {
                        let (count, sum, squares) = &mut sums.holds[lock as usize];
                        (*count, *sum, *squares) = (*count + 1, *sum + hold, *squares + hold * hold);
                        last = Some(lock);
                    }
                }
                What::Barrier { .. } | What::Await { .. } | What::Idle | What::End => {}
            }
        }
        sums.ends.extend(first.zip(last));
        sums
    }

    fn add(&mut self, other: &Self) {
        if self.holds.is_empty() {
            *self = other.clone();
            return;
        }
        for (row, other) in self.next.iter_mut().zip(&other.next) {
            for (cell, other) in row.iter_mut().zip(other) {
                (cell.0, cell.1) = (cell.0 + other.0, cell.1 + other.1);
            }
        }
        for (hold, other) in self.holds.iter_mut().zip(&other.holds) {
            (hold.0, hold.1, hold.2) = (hold.0 + other.0, hold.1 + other.1, hold.2 + other.2);
        }
        self.nested += other.nested;
        self.ends.extend(&other.ends);
        self.local += other.local;
        self.idle += other.idle;
    }

    fn operations(&self) -> u64 {
        self.holds.iter().map(|(count, ..)| count).sum()
    }

    /// r and z. A model is a circle, a recording is not: where nothing leads from a thread's last lock to the next thread's
    /// first, one visit does, after the mean time between sections.
    fn matrices(&self, ticks: f64) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let (count, time) = self.next.iter().flatten().fold((0, 0.0), |(n, t), cell| (n + cell.0, t + cell.1));
        let mean = if count > 0 { time / count as f64 } else { self.local };
        let mut next = self.next.clone();
        let begins = self.ends.iter().cycle().skip(1);
        for (&(_, last), &(first, _)) in self.ends.iter().zip(begins) {
            let cell = &mut next[last as usize][first as usize];
            if cell.0 == 0 {
                *cell = (1, mean);
            }
        }
        let first = self.ends.first().map_or(0, |&(first, _)| first as usize);
        let row = |row: &Vec<(u64, f64)>| {
            let all: u64 = row.iter().map(|(count, _)| count).sum();
            let cell = |(j, &(count, time)): (usize, &(u64, f64))| match (all, count) {
                // Never visited: the row only has to be one.
                (0, _) => (f64::from(u8::from(j == first)), 0.0),
                (_, 0) => (0.0, 0.0),
                _ => (count as f64 / all as f64, time / count as f64 / ticks),
            };
            row.iter().enumerate().map(cell).unzip()
        };
        next.iter().map(row).unzip()
    }

    fn share(&self, lock: usize) -> f64 {
        self.holds[lock].0 as f64 / self.operations().max(1) as f64
    }

    /// How much of what they do differs: half the sum of differences in shares.
    fn distance(&self, other: &Self) -> f64 {
        (0..self.holds.len()).map(|i| (self.share(i) - other.share(i)).abs()).sum::<f64>() / 2.0
    }

    fn cycle(&self) -> f64 {
        (self.local + self.holds.iter().map(|h| h.1).sum::<f64>()) / self.operations().max(1) as f64
    }
}

/// Makes a model; `name` tells what a lock is called, `wanted` which are to be in it.
///
/// # Errors
/// When nothing of them was locked, or there are too many.
pub fn model(
    script: &Script,
    mut name: impl FnMut(usize) -> String,
    wanted: impl Fn(&str) -> bool,
) -> Result<Input, ProfileError> {
    let names: Vec<String> = (0..script.locks.len()).map(&mut name).collect();
    let counts: Vec<Vec<u64>> =
        script.threads.iter().map(|thread| outermost(thread, script.locks.len(), &names, &wanted)).collect();
    let most = counts.iter().map(|counts| counts.iter().sum::<u64>()).max().unwrap_or(0);
    let works = |counts: &Vec<u64>| counts.iter().sum::<u64>() as f64 >= WORKER * most as f64 && most > 0;
    // Only locks that these took, in the order of their first use.
    let mut kept = Vec::new();
    let taken = |i: usize| counts.iter().filter(|&counts| works(counts)).any(|counts| counts[i] > 0);
    let cover: Vec<Option<u32>> = (0..script.locks.len())
        .map(|i| {
            taken(i).then(|| {
                kept.push(i);
                kept.len() as u32 - 1
            })
        })
        .collect();
    if kept.len() > MAX_LOCKS {
        return Err(ProfileError::TooManyLocks(kept.len()));
    }
    let workers: Vec<&Thread> =
        script.threads.iter().zip(&counts).filter(|(_, counts)| works(counts)).map(|(thread, _)| thread).collect();
    let threads: Vec<Sums> = workers.iter().map(|thread| Sums::of(thread, kept.len(), &cover)).collect();
    let mut whole = Sums::default();
    threads.iter().for_each(|sums| whole.add(sums));
    if kept.is_empty() || whole.operations() == 0 {
        return Err(ProfileError::Empty);
    }
    let ticks = script.ticks_per_ns as f64;
    let hold = |(count, sum, squares): (u64, f64, f64)| {
        let n = count.max(1) as f64;
        let mean = sum / n;
        let variance = (squares / n - mean * mean).max(0.0);
        (mean / ticks, if mean > 0.0 { variance.sqrt() / mean } else { 0.0 })
    };
    let lock = |(i, &at): (usize, &usize)| {
        let ((mean, cv), seen) = (hold(whole.holds[i]), script.seen[at]);
        LockInput {
            name: names[at].clone(),
            hold_ns: Some(mean),
            hold_cv: (whole.holds[i].0 > 1).then_some(cv),
            read_share: (seen.shared > 0).then(|| seen.shared as f64 / seen.acquisitions as f64),
            ..LockInput::default()
        }
    };
    let (routing, local_ns) = whole.matrices(ticks);
    let (classes, busy) = classes(&threads);
    let class = |(c, class): (usize, &(Sums, u32))| {
        let (sums, members) = class;
        let (routing, local_ns) = sums.matrices(ticks);
        ClassInput {
            name: format!("class {}", c + 1),
            share: f64::from(*members),
            routing,
            local_ns,
            hold_ns: sums.holds.iter().zip(&whole.holds).map(|(&h, &w)| hold(if h.0 > 0 { h } else { w }).0).collect(),
        }
    };
    let mut input = Input {
        threads: vec![busy.max(1)],
        locks: kept.iter().enumerate().map(lock).collect(),
        routing,
        local_ns,
        classes: if classes.len() > 1 { classes.iter().enumerate().map(class).collect() } else { Vec::new() },
        ..Input::default()
    };
    input.violations = violations(script, &whole, &input, busy);
    Ok(input)
}

/// A thread's acquisitions of each wanted lock while it holds no other.
fn outermost(thread: &Thread, locks: usize, names: &[String], wanted: &impl Fn(&str) -> bool) -> Vec<u64> {
    let mut counts = vec![0; locks];
    let mut depth = 0_u32;
    for step in &thread.steps {
        match step.what {
            What::Ask { lock, .. } => {
                counts[lock as usize] += u64::from(depth == 0);
                depth += 1;
            }
            What::Release { .. } => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    counts.iter_mut().zip(names).filter(|(_, name)| !wanted(name)).for_each(|(count, _)| *count = 0);
    counts
}

/// Threads of the same pattern together, and the number of threads that take part at all.
fn classes(threads: &[Sums]) -> (Vec<(Sums, u32)>, u32) {
    let mut order: Vec<&Sums> = threads.iter().collect();
    order.sort_by_key(|sums| std::cmp::Reverse(sums.operations()));
    let busy = order.len() as u32;
    let mut classes: Vec<(Sums, u32)> = Vec::new();
    for sums in order {
        let alike = |class: &Sums| {
            let pace = (class.cycle() / sums.cycle().max(f64::MIN_POSITIVE)).ln().abs();
            class.distance(sums) + if pace > 1.0 { 1.0 } else { 0.0 }
        };
        let full = classes.len() >= MAX_CLASSES;
        let nearest = classes.iter_mut().map(|class| (alike(&class.0), class)).min_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((distance, (class, members))) if distance <= ALIKE || full => {
                class.add(sums);
                *members += 1;
            }
            _ => classes.push((sums.clone(), 1)),
        }
    }
    (classes, busy)
}

fn violations(script: &Script, whole: &Sums, input: &Input, busy: u32) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(unsteady) = unsteady(script) {
        said.push(unsteady);
    }
    let idle = script.threads.len() as u64 - u64::from(busy);
    if idle > 0 {
        said.push(format!("Left out: {}, which hardly lock anything.", counted(idle, "thread")));
    }
    let began_late = script.threads.iter().filter(|thread| thread.begin > script.duration / 10).count();
    if began_late > 0 {
        said.push(format!(
            "The number of threads changed: {began_late} of {} began after the first tenth.",
            script.threads.len()
        ));
    }
    let odd = |(i, lock): (usize, &LockInput)| {
        let cv = lock.hold_cv.filter(|cv| !EXPONENTIAL.contains(cv) && whole.share(i) > FEW)?;
        Some(format!("`{}` {cv:.2}", lock.name))
    };
    let odd: Vec<String> = input.locks.iter().enumerate().filter_map(odd).collect();
    if !odd.is_empty() {
        let more = if odd.len() > TOLD { format!(" and of {} more locks", odd.len() - TOLD) } else { String::new() };
        said.push(format!(
            "Sections are not exponential: their coefficient of variation is not 1 but, of {}{more}.",
            odd[..odd.len().min(TOLD)].join(", ")
        ));
    }
    let asked = whole.nested + whole.operations();
    if whole.nested > 0 {
        said.push(format!(
            "{} of acquisitions are made while another lock is held: they are part of that section, and waits for them are not \
             predicted.",
            percent(whole.nested as f64 / asked as f64)
        ));
    }
    if whole.idle > 0.05 * whole.local {
        said.push(format!(
            "{} of the time between sections threads were idle (conditions, semaphores): how long depends on other threads, but is \
             kept as it was.",
            percent(whole.idle / whole.local)
        ));
    }
    if script.explained.count > 0 {
        said.push(format!("{} waits for conditions are left out.", script.explained.count));
    }
    let waited: u64 = script.seen.iter().map(|seen| seen.contended).sum();
    if busy > 1 && waited > 0 {
        said.push(format!(
            "The recording is of {busy} threads: sections and times between them include what they cost one another (caches, CPUs)."
        ));
    }
    said
}

/// Whether the halves of the recording differ in what is done per time.
fn unsteady(script: &Script) -> Option<String> {
    let [a, b] = script.pace.halves(script.duration);
    let off = (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
    (off > UNSTEADY && a + b > 100.0)
        .then(|| format!("The recording is not steady: its halves differ by {} in lock operations.", percent(off)))
}
