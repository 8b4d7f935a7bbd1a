//! A script's work done by another number of threads.

use super::script::{Script, Step, Thread, What};

/// Why a change has no prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpredictable {
    /// Barriers in the midst of the work need all their participants.
    #[error("threads meet at barriers between their sections: with another number of them these would not open")]
    Barriers,
    /// A thread's wait for another one's doing has no place in another division.
    #[error(
        "threads wait for what others do (conditions, joins): who would do it with another number of threads is not known"
    )]
    Conditions,
    /// A deadlock.
    #[error("with this change {0} threads would wait for one another for ever: the order of their locks allows that")]
    Stuck(u32),
    /// Nobody locks anything.
    #[error("no thread has a whole section")]
    Empty,
}

/// Threads with fewer than this share of the most sections are no workers.
const WORKER: f64 = 0.1;

/// The same sections in the same order, by so many workers: those of fewer are cut into pieces, those of more are done one
/// after the other. Other threads stay as they are.
///
/// # Errors
/// When threads wait for one another other than for locks.
pub fn divide(script: &Script, workers: u32) -> Result<Script, Unpredictable> {
    let sections = |thread: &Thread| thread.steps.iter().filter(|s| matches!(s.what, What::Ask { .. })).count();
    if script.threads.iter().any(meets_while_it_works) {
        return Err(Unpredictable::Barriers);
    }
    let most = script.threads.iter().map(sections).max().unwrap_or(0);
    if most == 0 || workers == 0 {
        return Err(Unpredictable::Empty);
    }
    let is_worker = |thread: &&Thread| sections(thread) as f64 >= WORKER * most as f64;
    let old: Vec<&Thread> = script.threads.iter().filter(is_worker).collect();
    if old.iter().flat_map(|thread| &thread.steps).any(|step| matches!(step.what, What::Await { .. })) {
        return Err(Unpredictable::Conditions);
    }
    // Signals from workers are gone; whoever waits for a worker's end waits as long as it did.
    let mut threads: Vec<Thread> = script.threads.iter().filter(|thread| !is_worker(thread)).cloned().collect();
    for thread in &mut threads {
        thread.steps.retain(|step| !matches!(step.what, What::Await { .. }));
        thread.steps.iter_mut().for_each(open_barrier);
    }
    let begin = old.iter().map(|thread| thread.begin).min().unwrap_or(0);
    // All work in a row, cut where no lock is held.
    let all: usize = old.iter().map(|thread| thread.steps.len()).sum();
    let share = all.div_ceil(workers as usize).max(1);
    let mut steps: Vec<Step> = Vec::with_capacity(share);
    let mut held = 0_u32;
    let finish = |steps: &mut Vec<Step>, threads: &mut Vec<Thread>| {
        if let Some(first) = old.first().filter(|_| !steps.is_empty()) {
            steps.push(Step { after: 0, what: What::End });
            threads.push(Thread { begin, steps: std::mem::take(steps), ..(*first).clone() });
        }
    };
    let mut made = 0;
    for &step in old.iter().flat_map(|thread| &thread.steps) {
        let mut step = step;
        open_barrier(&mut step);
        match step.what {
            What::Ask { .. } => held += 1,
            What::Release { .. } => held = held.saturating_sub(1),
            What::End => {
                // A lock may be held to the end.
                held = 0;
                if step.after > 0 {
                    steps.push(Step { what: What::Idle, ..step });
                }
                continue;
            }
            What::Barrier { .. } | What::Await { .. } | What::Idle => {}
        }
        let what = match step.what {
            What::Release { lock, .. } => What::Release { lock, told: false },
            what => what,
        };
        steps.push(Step { what, ..step });
        if held == 0 && steps.len() >= share && made + 1 < workers {
            made += 1;
            finish(&mut steps, &mut threads);
        }
    }
    finish(&mut steps, &mut threads);
    Ok(Script { threads, signals: Vec::new(), ..script.clone_without_threads() })
}

/// Whether a thread arrives at a barrier between its first section and its last. Those before and after are where the
/// work begins and ends.
fn meets_while_it_works(thread: &Thread) -> bool {
    let works = |step: &Step| matches!(step.what, What::Ask { .. });
    let (Some(first), Some(last)) = (thread.steps.iter().position(works), thread.steps.iter().rposition(works)) else {
        return false;
    };
    thread.steps[first..=last].iter().any(|step| matches!(step.what, What::Barrier { .. }))
}

/// Nobody waits at a barrier any more.
fn open_barrier(step: &mut Step) {
    if matches!(step.what, What::Barrier { .. }) {
        step.what = What::Idle;
    }
}

impl Script {
    fn clone_without_threads(&self) -> Self {
        Self {
            threads: Vec::new(),
            locks: self.locks.clone(),
            seen: self.seen.clone(),
            sites: self.sites.clone(),
            signals: Vec::new(),
            pace: self.pace.clone(),
            ends: None,
            ..*self
        }
    }
}
