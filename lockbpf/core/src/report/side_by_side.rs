//! Several runs in one timeline: beside each other, each from its own beginning.

use super::schema::Ns;
use super::timeline::{Culprit, Hold, NO_PID, Thread, Timeline, Wait};

/// One timeline shows at most so many runs: viewers take pids of 31 bits.
pub const MAX_RUNS: usize = 200;
/// Each run's pids and thread numbers are so far from those of the run before. Linux gives smaller ones, and a reader still sees them in the
/// last digits.
const APART: u32 = 10_000_000;

/// Joins all runs in one timeline, on the first one's clock. If there are several, processes and locks have the number of their run, from 1.
#[must_use]
pub fn side_by_side(mut runs: Vec<Timeline>) -> Timeline {
    match runs.len() {
        0 => Timeline::default(),
        1 => runs.remove(0),
        _ => {
            let Timeline { start_ns, started_ns, .. } = runs[0];
            let targets: Vec<&str> = runs.iter().map(|run| run.target.as_str()).collect();
            let target = targets.join(", ");
            let mut all = Timeline { target, start_ns, started_ns, ..Timeline::default() };
            for (at, run) in runs.into_iter().enumerate() {
                add(&mut all, run, at);
            }
            all.waits.sort_by_key(|wait| (wait.start_ns, wait.thread));
            all.holds.sort_by_key(|hold| (hold.start_ns, hold.thread));
            all
        }
    }
}

/// Adds the run at this place of the list.
fn add(all: &mut Timeline, run: Timeline, at: usize) {
    let Timeline {
        target, start_ns, end_ns, threads, locks, stacks, places, wakers, waits, holds, not_shown_ns, ..
    } = run;
    // One of them is 0.
    let (later, earlier) = (all.start_ns - start_ns, start_ns - all.start_ns);
    let shifted = |time: Ns| time + later - earlier;
    let number = at + 1;
    let further = u32::try_from(at).unwrap_or(u32::MAX).saturating_mul(APART);
    let [thread, lock, stack, place, waker] =
        [all.threads.len(), all.locks.len(), all.stacks.len(), all.places.len(), all.wakers.len()];
    all.threads.extend(threads.into_iter().map(|of| Thread {
        number: of.number.saturating_add(further),
        pid: Some(of.pid.unwrap_or(NO_PID).saturating_add(further)),
        process: format!("run {number}: {}", if of.process.is_empty() { &target } else { &of.process }),
        ..of
    }));
    all.locks.extend(locks);
    all.locks[lock..].iter_mut().for_each(|of| (of.entry, of.run) = (None, Some(number)));
    all.stacks.extend(stacks);
    all.places.extend(places);
    all.wakers.extend(wakers);
    let culprit =
        |of: Culprit| Culprit { thread: thread + of.thread, lock: lock + of.lock, place: place + of.place, ..of };
    all.waits.extend(waits.into_iter().map(|of| Wait {
        thread: thread + of.thread,
        lock: lock + of.lock,
        stack: stack + of.stack,
        start_ns: shifted(of.start_ns),
        waker: of.waker.map(|of| waker + of),
        culprits: of.culprits.into_iter().map(culprit).collect(),
        ..of
    }));
    all.holds.extend(holds.into_iter().map(|of| Hold {
        thread: thread + of.thread,
        lock: lock + of.lock,
        stack: stack + of.stack,
        start_ns: shifted(of.start_ns),
        end_ns: shifted(of.end_ns),
    }));
    all.end_ns = all.end_ns.max(shifted(end_ns));
    all.not_shown_ns += not_shown_ns;
}

#[cfg(test)]
mod tests {
    use super::super::schema::{Place, ThreadId};
    use super::super::timeline::{LockName, Stack};
    use super::*;

    /// A thread waits for 30 ns from the 5th on, because of itself as far as this tells, and then holds the lock for 10 ns.
    fn run(begin: u64, pid: Option<u32>) -> Timeline {
        let [start, until, end] = [5, 35, 45].map(|since| Ns::new(begin + since));
        let thread = Thread { tid: ThreadId::Number(7), number: 7, pid, ..Thread::default() };
        let culprit = Culprit { wait_ns: Ns::new(30), ..Culprit::default() };
        Timeline {
            target: "t".into(),
            start_ns: Ns::new(begin),
            end_ns: Ns::new(begin + 100),
            threads: vec![thread],
            locks: vec![LockName { name: "L".into(), entry: Some(0), ..LockName::default() }],
            stacks: vec![Stack::default()],
            places: vec![Place::default()],
            wakers: vec![ThreadId::Number(8)],
            waits: vec![Wait {
                start_ns: start,
                wait_ns: Ns::new(30),
                waker: Some(0),
                culprits: vec![culprit],
                ..Wait::default()
            }],
            holds: vec![Hold { start_ns: until, end_ns: end, ..Hold::default() }],
            not_shown_ns: Ns::new(2),
            ..Timeline::default()
        }
    }

    #[test]
    fn one_run_is_what_it_was() {
        assert_eq!(side_by_side(vec![run(3, Some(4))]), run(3, Some(4)));
        assert_eq!(side_by_side(Vec::new()), Timeline::default());
    }

    #[test]
    fn each_run_has_its_own_beginning_and_its_own_threads() {
        for (first, second) in [(1_000, 50), (50, 1_000)] {
            let all = side_by_side(vec![run(first, Some(4)), run(second, None)]);
            let since = |time: Ns| time.whole() - first;
            assert_eq!((since(all.start_ns), since(all.end_ns), all.not_shown_ns), (0, 100, Ns::new(4)));
            let starts: Vec<u64> = all.waits.iter().map(|wait| since(wait.start_ns)).collect();
            let holds: Vec<(u64, u64)> =
                all.holds.iter().map(|hold| (since(hold.start_ns), since(hold.end_ns))).collect();
            assert_eq!((starts, holds), (vec![5, 5], vec![(35, 45), (35, 45)]));
            for (at, wait) in all.waits.iter().enumerate() {
                let [culprit] = wait.culprits.as_slice() else { panic!("one is to blame") };
                assert_eq!([wait.thread, wait.lock, wait.stack], [at; 3]);
                assert_eq!([culprit.thread, culprit.lock, culprit.place, wait.waker.unwrap()], [at; 4]);
            }
            let called: Vec<_> = all.threads.iter().map(|of| (of.number, of.pid, of.process.as_str())).collect();
            assert_eq!(called, [(7, Some(4), "run 1: t"), (10_000_007, Some(10_000_001), "run 2: t")]);
            assert_eq!(
                all.locks.iter().map(|lock| (lock.run, lock.entry)).collect::<Vec<_>>(),
                [(Some(1), None), (Some(2), None)]
            );
            assert_eq!(all.target, "t, t");
        }
    }
}
