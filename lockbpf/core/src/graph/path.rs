//! The critical path: waits that ended with the lock, remembered for a walk back from the end of the program, or of
//! the recording.

use super::findings::{CriticalPath, OnPath, PathWait};
use super::tape::Tape;
use crate::id::{Lock, Tid};
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;

/// Waits remembered.
pub(super) const MAX_WAITS: usize = 1 << 20;

/// Ends from which the path is walked to see whether they agree.
const MAX_ENDS: usize = 64;

/// A wait of `tid` that ended when `giver` gave the lock back, or exited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) tid: Tid,
    pub(super) giver: Tid,
    /// `None` if it waited for the exit.
    pub(super) lock: Option<Lock>,
    pub(super) attempt: Time,
    pub(super) acquire: Time,
}

/// A wait, and how many waits before it the path goes on from there.
#[derive(Clone, Copy, Debug)]
struct Kept {
    hop: Hop,
    /// To the last wait of the giver that had ended by then; 0 if there is none.
    to_giver: u32,
    /// To the waiter's own last wait; 0 if there is none.
    to_own: u32,
}

/// The waits, in order of their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Hops {
    waits: Tape<Kept>,
    /// Each thread's last wait.
    last: FxHashMap<Tid, u64>,
}

/// Waiting on the path, and changes of thread, by lock.
type Waiting = FxHashMap<Lock, (u64, u64)>;

impl Hops {
    pub(super) fn push(&mut self, hop: Hop) {
        if hop.attempt >= hop.acquire || hop.tid == hop.giver {
            return;
        }
        if self.waits.len() >= MAX_WAITS {
            self.waits.forget_first();
        }
        let number = self.waits.end();
        // What is further back will have been forgotten long before.
        let back = |to: Option<u64>| to.map_or(0, |to| u32::try_from(number - to).unwrap_or(0));
        let to_giver = back(self.up_to(hop.giver, hop.acquire));
        let to_own = back(self.last.insert(hop.tid, number));
        self.waits.push(Kept { hop, to_giver, to_own });
        if self.last.len() > 2 * self.waits.len() {
            let first = self.waits.first();
            self.last.retain(|_, number| *number >= first);
        }
    }

    /// The last wait of a thread that had ended at a time.
    fn up_to(&self, tid: Tid, time: Time) -> Option<u64> {
        let mut number = *self.last.get(&tid)?;
        loop {
            let kept = self.waits.get(number)?;
            if kept.hop.acquire <= time {
                return Some(number);
            }
            number = before(number, kept.to_own)?;
        }
    }

    /// Whose exit a thread waited for last, if it has waited for one.
    pub(super) fn joined(&self, tid: Tid) -> Option<Tid> {
        let mut number = *self.last.get(&tid)?;
        loop {
            let kept = self.waits.get(number)?;
            if kept.hop.lock.is_none() {
                return Some(kept.hop.giver);
            }
            number = before(number, kept.to_own)?;
        }
    }

    /// Walks back from the end, which is that of `last`. If nothing says that the program ended there, so do the other `ends`,
    /// each a thread and its last step. With `keep` the path lists its threads.
    pub(super) fn path(
        &self,
        last: Option<Tid>,
        start: Time,
        end: Time,
        ends: Option<Vec<(Tid, Time)>>,
        keep: bool,
    ) -> CriticalPath {
        let truncated = self.waits.first() > 0;
        let first = self.waits.get(self.waits.first()).filter(|_| truncated);
        let first = first.map_or(start, |kept| kept.hop.acquire);
        let mut walk = Walk::new(self, last, end);
        let (mut on, mut trail) = (Vec::new(), Vec::new());
        while let Some(number) = walk.step(self, first, |stretch| on.extend(keep.then_some(stretch))) {
            trail.extend(walk.is_anybodys().then_some(number));
        }
        on.reverse();
        let mut waiting: Vec<PathWait> =
            walk.waiting.iter().map(|(&lock, &(wait, hops))| PathWait { lock, wait: Nanos(wait), hops }).collect();
        waiting.sort_unstable_by_key(|w| (std::cmp::Reverse(w.wait), w.lock));
        let mut path = CriticalPath {
            start: first,
            end,
            last,
            ended: ends.is_none(),
            hops: walk.hops,
            waiting,
            truncated,
            on,
            ..CriticalPath::default()
        };
        let Some(mut ends) = ends else { return path };
        ends.sort_unstable_by_key(|&(tid, at)| (std::cmp::Reverse(at), tid));
        ends.truncate(MAX_ENDS);
        path.ends = ends.len() as u64;
        let most = path.waiting.first().map(|wait| wait.lock);
        let main = Main { last, end, trail, waiting: walk.waiting };
        path.agreeing = ends.iter().filter(|&&end| self.most_waited(end, first, &main) == most).count() as u64;
        path
    }

    /// The lock that is waited for longest on the path from another end. Once that path has met the main one it is the same.
    fn most_waited(&self, (tid, at): (Tid, Time), first: Time, main: &Main) -> Option<Lock> {
        let mut walk = Walk::new(self, Some(tid), at);
        let mut trail = main.trail.iter().copied().peekable();
        let mut met = None;
        while let Some(number) = walk.step(self, first, |_| ()) {
            while trail.next_if(|&on| on > number).is_some() {}
            if walk.is_anybodys() && trail.peek() == Some(&number) {
                met = Some(number);
                break;
            }
        }
        let mut waiting = walk.waiting;
        if let Some(met) = met {
            let mut upper = Walk::new(self, main.last, main.end);
            while upper.step(self, first, |_| ()).is_some_and(|number| number > met) {}
            for (lock, &(wait, hops)) in &main.waiting {
                let (upper_wait, upper_hops) = upper.waiting.get(lock).copied().unwrap_or_default();
                if hops > upper_hops {
                    let sum = waiting.entry(*lock).or_default();
                    *sum = (sum.0 + (wait - upper_wait), sum.1 + (hops - upper_hops));
                } else if let Some(sum) = waiting.get_mut(lock) {
                    sum.0 += wait - upper_wait;
                }
            }
        }
        waiting.into_iter().max_by_key(|&(lock, (wait, _))| (wait, std::cmp::Reverse(lock))).map(|(lock, _)| lock)
    }
}

/// The path from the last end.
struct Main {
    last: Option<Tid>,
    end: Time,
    /// Its waits from which on it depends on nothing that comes later, the last one first.
    trail: Vec<u64>,
    waiting: Waiting,
}

/// A wait some waits before another.
fn before(number: u64, back: u32) -> Option<u64> {
    number.checked_sub(u64::from(back)).filter(|_| back > 0)
}

/// A walk back from one end.
struct Walk {
    thread: Option<Tid>,
    at: Time,
    /// The wait that comes next.
    next: Option<u64>,
    /// The waits for locks for which the path has left the waiter and that cover what comes next, the innermost last: each of them
    /// began before the one after it.
    waits: Vec<(Lock, Time)>,
    waiting: Waiting,
    hops: u64,
    /// Whether the last change of thread was for a lock.
    for_lock: bool,
}

impl Walk {
    fn new(hops: &Hops, last: Option<Tid>, end: Time) -> Self {
        let next = last.and_then(|tid| hops.up_to(tid, end));
        Self { thread: last, at: end, next, waits: Vec::new(), waiting: Waiting::default(), hops: 0, for_lock: false }
    }

    /// Goes back to the next wait, or to the beginning. It hands the stretch up to there to `on`, and returns the wait.
    fn step(&mut self, hops: &Hops, first: Time, mut on: impl FnMut(OnPath)) -> Option<u64> {
        let next = self.next.and_then(|number| Some((number, hops.waits.get(number)?)));
        let until = next.map_or(first, |(_, kept)| kept.hop.acquire);
        label(&mut self.waits, until, self.at, &mut self.waiting);
        self.thread
            .filter(|_| self.at > until)
            .into_iter()
            .for_each(|tid| on(OnPath { tid, from: until, to: self.at }));
        let (number, Kept { hop, to_giver, .. }) = next?;
        self.hops += 1;
        self.for_lock = hop.lock.is_some();
        if let Some(lock) = hop.lock {
            self.waiting.entry(lock).or_default().1 += 1;
            // Those that began later cover nothing before this one began.
            while self.waits.pop_if(|&mut (_, attempt)| attempt >= hop.attempt).is_some() {}
            self.waits.push((lock, hop.attempt));
        }
        (self.thread, self.at, self.next) = (Some(hop.giver), until, before(number, *to_giver));
        Some(number)
    }

    /// Whether any walk that comes to this wait goes on in the same way, and counts the same.
    fn is_anybodys(&self) -> bool {
        self.waits.len() == usize::from(self.for_lock)
    }
}

/// Counts the stretch `[from, to)` of the path as waiting for the lock of the innermost wait that covers it.
fn label(waits: &mut Vec<(Lock, Time)>, from: Time, to: Time, waiting: &mut Waiting) {
    let mut to = to;
    while let Some(&(lock, attempt)) = waits.last() {
        let part = to.since(attempt.max(from));
        waiting.entry(lock).or_default().0 += part.0;
        to = to.min(attempt.max(from));
        if attempt < from {
            return;
        }
        waits.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Process;
    use proptest::prelude::*;

    /// Waits of six threads for four locks, or for exits, in the order of their ends.
    fn waits() -> impl Strategy<Value = Vec<Hop>> {
        let wait = (0u32..6, 0u32..6, 0u64..5, 0u64..4, 1u64..30).prop_map(|(tid, giver, addr, pause, wait)| {
            let lock = (addr < 4).then_some(Lock { process: Process(1), addr });
            Hop { tid: Tid(tid), giver: Tid(giver), lock, attempt: Time(wait), acquire: Time(pause) }
        });
        prop::collection::vec(wait, 0..200).prop_map(|mut hops| {
            let mut now = 50;
            for hop in &mut hops {
                now += hop.acquire.0;
                (hop.attempt, hop.acquire) = (Time(now - hop.attempt.0), Time(now));
            }
            hops
        })
    }

    proptest! {
        #[test]
        fn paths_that_meet_are_as_if_walked_to_the_beginning(hops in waits(), forget in 0usize..40) {
            let mut all = Hops::default();
            hops.iter().for_each(|&hop| all.push(hop));
            (0..forget).for_each(|_| all.waits.forget_first());
            let end = hops.last().map_or(Time(50), |hop| hop.acquire);
            let ends: Vec<_> = (0..6).map(|tid| (Tid(tid), Time(end.0 - u64::from(tid)))).collect();
            let path = all.path(Some(Tid(0)), Time(0), end, Some(ends.clone()), false);
            let whole = |(tid, at)| all.path(Some(tid), Time(0), at, None, false).waiting.first().map(|wait| wait.lock);
            let most = path.waiting.first().map(|wait| wait.lock);
            prop_assert_eq!(path.agreeing, ends.into_iter().filter(|&end| whole(end) == most).count() as u64);
            // The links lead where looking through all waits does.
            let joined = |tid| {
                let kept = (all.waits.first()..all.waits.end()).rev().filter_map(|number| all.waits.get(number));
                kept.map(|kept| kept.hop).find(|hop| hop.tid == tid && hop.lock.is_none()).map(|hop| hop.giver)
            };
            for tid in (0..6).map(Tid) {
                prop_assert_eq!(all.joined(tid), joined(tid));
            }
        }
    }
}
