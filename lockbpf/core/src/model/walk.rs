//! What one thread did with locks, as the kernel side summed it up, made into the pattern of the locks that are in a model.

use super::pattern::{Flow, Holds, Pattern};
use crate::units::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Where what was seen of a thread begins.
pub(super) const START: u32 = u32::MAX;
/// Where it was not watched any more.
pub(super) const END: u32 = u32::MAX - 1;
/// What is left of numbers of visits that cancel out.
const NOTHING: f64 = 1e-6;
/// Locks that are left out one by one; of more, all are taken together.
const ONE_BY_ONE: usize = 256;

/// A thread's transitions; locks are numbers.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub flows: BTreeMap<(u32, u32), Flow>,
    pub holds: BTreeMap<u32, Holds>,
    /// When it was first seen.
    pub first: Option<Time>,
}

impl Walk {
    /// Visits of wanted locks that began.
    pub fn operations(&self, wanted: &[bool]) -> u64 {
        let to = |to: u32| wanted.get(to as usize).copied().unwrap_or(false);
        self.flows.iter().filter(|&(&(_, lock), _)| to(lock)).map(|(_, flow)| flow.count).sum::<f64>() as u64
    }

    /// Visits that have ended of the locks that are covered.
    pub fn visits(&self, cover: &[Option<u32>]) -> f64 {
        let covered = |lock: u32| cover.get(lock as usize).copied().flatten().is_some();
        self.holds.iter().filter(|&(&lock, _)| covered(lock)).map(|(_, holds)| holds.count).sum()
    }

    /// Visits that began, and times between visits of which the end was not seen.
    pub fn arrivals_and_cuts(&self) -> (f64, f64) {
        let (mut arrivals, mut cuts) = (0.0, 0.0);
        for (&(_, to), flow) in &self.flows {
            *if to == END { &mut cuts } else { &mut arrivals } += flow.count;
        }
        (arrivals, cuts)
    }

    /// What it did with the locks that are covered: what it did with the others counts as its own time.
    pub fn pattern(mut self, cover: &[Option<u32>]) -> Pattern {
        let number = |lock: u32| cover.get(lock as usize).copied().flatten();
        self.extend();
        self.pass_by(&|lock| lock == START || number(lock).is_some());
        let mut pattern = Pattern::default();
        // Locks where what was seen begins, and how many more visits each lock had than led on from it.
        let (mut begins, mut left) = (Vec::new(), BTreeMap::<u32, f64>::new());
        for (&(from, to), &flow) in &self.flows {
            let Some(to) = number(to) else { continue };
            *left.entry(to).or_default() += flow.count;
            if let Some(from) = number(from) {
                *left.entry(from).or_default() -= flow.count;
                pattern.next.entry((from, to)).or_default().add(flow);
                pattern.local += flow.time;
            } else {
                begins.push((to, flow.count));
            }
        }
        for (&lock, &holds) in &self.holds {
            if let Some(lock) = number(lock) {
                pattern.holds.entry(lock).or_default().add(holds);
            }
        }
        begins.sort_by(|a, b| b.1.total_cmp(&a.1));
        let begins: Vec<u32> = begins.into_iter().map(|(lock, _)| lock).collect();
        let ends: Vec<u32> = left.iter().filter(|&(_, left)| *left > NOTHING).map(|(&lock, _)| lock).collect();
        pattern.ends = closed(&pattern, &begins, &ends);
        pattern
    }

    /// Times between visits that were not seen to end make the others as much longer as exponential times would have been.
    fn extend(&mut self) {
        let mut times: BTreeMap<u32, (Flow, Flow)> = BTreeMap::new();
        for (&(from, to), &flow) in &self.flows {
            let (ended, cut) = times.entry(from).or_default();
            if to == END { cut } else { ended }.add(flow);
        }
        self.flows.retain(|&(_, to), _| to != END);
        let longer = |ended: f64, cut: f64| if ended > 0.0 { (ended + cut) / ended } else { 1.0 };
        for (&(from, _), flow) in &mut self.flows {
            if let Some((ended, cut)) = times.get(&from) {
                flow.time *= longer(ended.time, cut.time);
                flow.added *= longer(ended.added, cut.added);
            }
        }
    }

    /// Makes what leads to a lock that is not kept lead on from it: its visits are part of the way. Where the thread goes from there is
    /// taken to be independent of where it came from.
    fn pass_by(&mut self, keep: &dyn Fn(u32) -> bool) {
        let locks = self.flows.keys().flat_map(|&(from, to)| [from, to]);
        let mut others: Vec<u32> = locks.filter(|&lock| !keep(lock)).collect::<BTreeSet<u32>>().into_iter().collect();
        if others.len() > ONE_BY_ONE
            && let Some(&one) = others.first()
        {
            let name = |lock: u32| if keep(lock) { lock } else { one };
            let mut flows = BTreeMap::<_, Flow>::new();
            for (&(from, to), &flow) in &self.flows {
                flows.entry((name(from), name(to))).or_default().add(flow);
            }
            let mut holds = BTreeMap::<_, Holds>::new();
            self.holds.iter().for_each(|(&lock, &of)| holds.entry(name(lock)).or_default().add(of));
            (self.flows, self.holds, others) = (flows, holds, vec![one]);
        }
        for lock in others {
            self.pass_by_one(lock);
        }
    }

    fn pass_by_one(&mut self, lock: u32) {
        let mut again = Flow::default();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.flows.retain(|&(from, to), flow| {
            match (from == lock, to == lock) {
                (true, true) => again = *flow,
                (true, false) => after.push((to, *flow)),
                (false, true) => before.push((from, *flow)),
                (false, false) => return true,
            }
            false
        });
        let holds = self.holds.remove(&lock).unwrap_or_default();
        let leaving: f64 = after.iter().map(|(_, flow)| flow.count).sum();
        if leaving <= 0.0 {
            return;
        }
        let mean = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
        // Between coming and leaving it may come back to the lock several times.
        let back = again.count / leaving;
        let way = |hold: f64, of: fn(&Flow) -> f64, came: &Flow, left: &Flow| {
            let mean = |flow: &Flow| mean(of(flow), flow.count);
            mean(came) + hold + back * (mean(&again) + hold) + mean(left)
        };
        let (hold, added) = (mean(holds.sum + holds.cut, holds.count), mean(holds.added, holds.count));
        for (from, came) in &before {
            for (to, left) in &after {
                let count = came.count * left.count / leaving;
                let time = count * way(hold, |flow| flow.time, came, left);
                let added = count * way(added, |flow| flow.added, came, left);
                self.flows.entry((*from, *to)).or_default().add(Flow { count, time, added });
            }
        }
    }
}

/// Where visits are to be added so that a thread's way, which was seen from some locks to some others, is a circle. One that was
/// seen without a break is closed; of one seen in windows only what does not hang together.
fn closed(pattern: &Pattern, begins: &[u32], ends: &[u32]) -> Vec<(u32, u32)> {
    let Some(&first) = begins.first().or_else(|| pattern.holds.keys().next()) else { return Vec::new() };
    let last = ends.first().copied().unwrap_or(first);
    if begins.len() <= 1 && ends.len() <= 1 {
        return vec![(first, last)];
    }
    // A lock from which a way to the first one is known needs none.
    let back = ends.iter().copied().find(|&end| pattern.next.contains_key(&(end, first)));
    if let Some(back) = back
        && hangs_together(pattern, first)
    {
        return vec![(first, back)];
    }
    let pairs = 0..begins.len().max(ends.len());
    let at = |of: &[u32], i: usize, otherwise: u32| of.get(i).copied().unwrap_or(otherwise);
    pairs.map(|i| (at(begins, i, first), at(ends, i, last))).collect()
}

/// Whether each lock can be reached from this one, and the other way round.
fn hangs_together(pattern: &Pattern, lock: u32) -> bool {
    let locks: BTreeSet<u32> = pattern.next.keys().flat_map(|&(from, to)| [from, to]).collect();
    [false, true].into_iter().all(|back| {
        let mut ways: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &(from, to) in pattern.next.keys() {
            let (from, to) = if back { (to, from) } else { (from, to) };
            ways.entry(from).or_default().push(to);
        }
        let mut reached = BTreeSet::from([lock]);
        let mut open = vec![lock];
        while let Some(at) = open.pop() {
            for &to in ways.get(&at).into_iter().flatten() {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached.is_superset(&locks)
    })
}
