//! A model from a recording of every section: which lock follows which, after how long, and how long each is held.

use super::pattern::{self, Flow, Holds, Known, Pattern};
use super::schema::{Input, Recorded};
use super::script::{Script, Step, Thread, What};
use super::shadow::Shadow;
use super::violations;

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

/// Locks in a model at most.
pub const MAX_LOCKS: usize = 1_024;

/// What a thread did, in sums.
#[derive(Debug, Default)]
struct Summed {
    pattern: Pattern,
    /// Locks taken while another is held.
    nested: u64,
    /// The part of the time between sections that was idle.
    idle: f64,
}

impl Summed {
    /// Of a thread; `cover` are the numbers of the locks that are in the model, `added` is what observing added before a step.
    fn of(thread: &Thread, cover: &[Option<u32>], added: &dyn Fn(What, Option<What>) -> f64) -> Self {
        let mut sums = Self::default();
        let pattern = &mut sums.pattern;
        let (mut depth, mut hold, mut local, mut outer) = (0_u32, 0.0, 0.0, None);
        let (mut in_hold, mut in_local, mut before) = (0.0, 0.0, None);
        let (mut first, mut last) = (None, None);
        for &Step { after, what } in &thread.steps {
            let after = after as f64;
            let added = added(what, before.replace(what)).min(after);
            if outer.is_some() {
                hold += after;
                in_hold += added;
            } else {
                // Sections of locks that are not in the model are as good as outside of sections.
                local += after;
                in_local += added;
                pattern.local += after;
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
                        pattern.next.entry((last, lock)).or_default().add(Flow {
                            count: 1.0,
                            time: local,
                            added: in_local,
                        });
                    }
                    first.get_or_insert(lock);
                    (local, hold, outer) = (0.0, 0.0, Some(lock));
                    (in_local, in_hold) = (0.0, 0.0);
                }
                What::Release { .. } => {
                    depth = depth.saturating_sub(1);
                    if depth == 0
                        && let Some(lock) = outer.take()
                    {
                        let holds = Holds { count: 1.0, sum: hold, squares: hold * hold, cut: 0.0, added: in_hold };
                        pattern.holds.entry(lock).or_default().add(holds);
                        last = Some(lock);
                    }
                }
                What::Barrier { .. } | What::Await { .. } | What::Idle | What::End => {}
            }
        }
        pattern.ends.extend(first.zip(last));
        sums
    }
}

/// Makes a model; `shadow` is what observing added to all times, where that was measured, `name` tells what a lock is called, `wanted`
/// which are to be in it.
///
/// # Errors
/// When nothing of them was locked, or there are too many.
pub fn model(
    script: &Script,
    shadow: Option<&Shadow>,
    mut name: impl FnMut(usize) -> String,
    wanted: impl Fn(&str) -> bool,
) -> Result<Input, ProfileError> {
    let names: Vec<String> = (0..script.locks.len()).map(&mut name).collect();
    let counts: Vec<Vec<u64>> =
        script.threads.iter().map(|thread| outermost(thread, script.locks.len(), &names, &wanted)).collect();
    let works = pattern::workers(&counts.iter().map(|counts| counts.iter().sum()).collect::<Vec<u64>>());
    // Only locks that these took, in the order of their first use.
    let mut kept = Vec::new();
    let taken = |i: usize| counts.iter().zip(&works).any(|(counts, works)| *works && counts[i] > 0);
    let cover: Vec<Option<u32>> = (0..script.locks.len())
        .map(|i| {
            taken(i).then(|| {
                let seen = script.seen[i];
                kept.push(Known { name: names[i].clone(), acquisitions: seen.acquisitions, shared: seen.shared });
                kept.len() as u32 - 1
            })
        })
        .collect();
    if kept.len() > MAX_LOCKS {
        return Err(ProfileError::TooManyLocks(kept.len()));
    }
    let workers = script.threads.iter().zip(&works).filter(|(_, works)| **works).map(|(thread, _)| thread);
    let ticks = script.ticks_per_ns as f64;
    let added = |step, before| shadow.map_or(0.0, |shadow| ticks * shadow.before(step, before));
    let (mut threads, mut nested, mut idle) = (Vec::new(), 0, 0.0);
    for sums in workers.map(|thread| Summed::of(thread, &cover, &added)) {
        nested += sums.nested;
        idle += sums.idle;
        threads.push(sums.pattern);
    }
    let (mut input, whole) = pattern::model(&threads, &kept, ticks, shadow);
    if kept.is_empty() || whole.operations() <= 0.0 {
        return Err(ProfileError::Empty);
    }
    input.recorded = (script.duration > 0).then(|| Recorded {
        threads: threads.len() as u32,
        without_observer: shadow.is_some(),
        observed_per_ns: whole.operations() * ticks / script.duration as f64,
        ..Recorded::default()
    });
    let said = &mut input.violations;
    said.extend(violations::unsteady(script.pace.halves(script.duration)));
    let late = script.threads.iter().filter(|thread| thread.begin > script.duration / 10).count();
    violations::threads(said, script.threads.len(), threads.len(), late);
    let mut said = std::mem::take(said);
    violations::distributions(&mut said, &input, &whole);
    violations::nesting(&mut said, nested, nested as f64 + whole.operations());
    violations::idling(&mut said, idle, whole.local);
    violations::conditions(&mut said, script.explained.count);
    violations::company(&mut said, threads.len(), script.seen.iter().map(|seen| seen.contended).sum());
    input.violations = said;
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
