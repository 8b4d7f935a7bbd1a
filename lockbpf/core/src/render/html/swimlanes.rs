//! Waits and holds by thread, as many as a page bears: the longest waits one by one, with the holds that they were waits for; of all others
//! how much of each stretch of time they fill.

use crate::render::tables::{Strings, number};
use crate::report::pictures::{Pictures, Stretch};
use crate::report::schema::Ns;
use crate::report::timeline::{Culprit, Hold, Timeline, Wait};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Threads shown, those with most waiting and blame.
const MAX_THREADS: usize = 48;
/// Culprits shown of a wait; the others are put together.
const MAX_CULPRITS: usize = 4;
/// Stretches of time of which it is told how much of them is waiting.
const BINS: usize = 500;
/// Steps of how much that is.
const LEVELS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Lanes of threads. Times are since the beginning; threads, locks and places are named by their indices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Lanes {
    start_ns: Ns,
    length_ns: Ns,
    threads: Vec<Lane>,
    locks: Vec<String>,
    places: Vec<String>,
    waits: Waits,
    holds: Holds,
    /// Thread, since when, until when.
    path: Vec<(usize, Ns, Ns)>,
    left_out: LeftOut,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Lane {
    tid: String,
    name: String,
    process: String,
    /// All its waits that were recorded one by one.
    wait_ns: Ns,
    /// How much of each stretch of time they fill: a digit each, 0 to z. Empty if all waits are shown.
    density: String,
}

/// Waits, by start: a column a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Waits {
    thread: Vec<usize>,
    lock: Vec<usize>,
    place: Vec<usize>,
    start_ns: Vec<Ns>,
    wait_ns: Vec<Ns>,
    culprits: Vec<Vec<Part>>,
}

/// A part of a wait: thread, lock, place, for how long, what it was doing, whether that is inferred. Without a thread, of all others.
type Part = (Option<usize>, usize, usize, Ns, Option<&'static str>, bool);

/// Holds, by start: a column a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Holds {
    thread: Vec<usize>,
    lock: Vec<usize>,
    place: Vec<usize>,
    start_ns: Vec<Ns>,
    hold_ns: Vec<Ns>,
}

/// What is not shown one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct LeftOut {
    threads: usize,
    waits: usize,
    wait_ns: Ns,
    holds: usize,
    stretches: usize,
    /// Waiting that was counted, but not recorded one by one.
    not_recorded_ns: Ns,
}

/// Lanes of a recording, with at most so many waits and holds one by one.
pub(super) fn lanes(pictures: &Pictures, most: usize) -> Lanes {
    let timeline = &pictures.timeline;
    let order = threads(timeline);
    let shown: HashMap<usize, usize> = order.iter().enumerate().map(|(lane, &thread)| (thread, lane)).collect();
    let waits = longest(timeline, &shown, most);
    let holds = held(timeline, &shown, &waits, most);
    let path = path(&pictures.path, &shown, most);
    let mut table = Table { timeline, lanes: &shown, locks: Strings::default(), places: Strings::default() };
    let mut lanes = Lanes {
        start_ns: timeline.start_ns,
        length_ns: timeline.end_ns - timeline.start_ns,
        left_out: LeftOut {
            threads: timeline.threads.len() - order.len(),
            waits: timeline.waits.len() - waits.len(),
            wait_ns: all(&timeline.waits) - waits.iter().map(|wait| wait.wait_ns).sum(),
            holds: timeline.holds.len() - holds.len(),
            stretches: pictures.path.len() - path.len(),
            not_recorded_ns: timeline.not_shown_ns,
        },
        ..Lanes::default()
    };
    waits.iter().for_each(|wait| table.wait(wait, &mut lanes.waits));
    holds.iter().for_each(|hold| table.hold(hold, &mut lanes.holds));
    let (locks, places) = (table.locks, table.places);
    lanes.locks = locks.into_iter().collect();
    lanes.places = places.into_iter().collect();
    lanes.path =
        path.iter().map(|s| (shown[&s.thread], s.from_ns - lanes.start_ns, s.to_ns - lanes.start_ns)).collect();
    let mut fills = if lanes.left_out.waits > 0 { filled(timeline, &shown) } else { Vec::new() }.into_iter();
    let mut waited = vec![Ns::default(); timeline.threads.len()];
    timeline.waits.iter().for_each(|wait| waited[wait.thread] += wait.wait_ns);
    lanes.threads = order
        .iter()
        .map(|&at| {
            let thread = &timeline.threads[at];
            Lane {
                tid: thread.tid.to_string(),
                name: thread.name.clone(),
                process: thread.process.clone(),
                wait_ns: waited[at],
                density: fills.next().unwrap_or_default(),
            }
        })
        .collect();
    lanes
}

fn all(waits: &[Wait]) -> Ns {
    waits.iter().map(|wait| wait.wait_ns).sum()
}

/// Those that waited or made others wait for longest, in the order of their names.
fn threads(timeline: &Timeline) -> Vec<usize> {
    let mut harm = vec![Ns::default(); timeline.threads.len()];
    for wait in &timeline.waits {
        harm[wait.thread] += wait.wait_ns;
        wait.culprits.iter().for_each(|culprit| harm[culprit.thread] += culprit.wait_ns);
    }
    let mut order: Vec<usize> = (0..harm.len()).collect();
    order.sort_by_key(|&thread| (Reverse(harm[thread]), thread));
    order.truncate(MAX_THREADS);
    let called = |&thread: &usize| {
        let t = &timeline.threads[thread];
        (t.process.clone(), t.name.clone(), t.tid.clone())
    };
    order.sort_by_cached_key(called);
    order
}

fn longest<'a>(timeline: &'a Timeline, shown: &HashMap<usize, usize>, most: usize) -> Vec<&'a Wait> {
    let mut waits: Vec<&Wait> = timeline.waits.iter().filter(|wait| shown.contains_key(&wait.thread)).collect();
    if waits.len() > most {
        waits.select_nth_unstable_by_key(most, |wait| Reverse((wait.wait_ns, wait.start_ns)));
        waits.truncate(most);
    }
    waits.sort_by_key(|wait| (wait.start_ns, wait.thread));
    waits
}

/// The holds that waits are charged to, then the longest others.
fn held<'a>(timeline: &'a Timeline, shown: &HashMap<usize, usize>, waits: &[&Wait], most: usize) -> Vec<&'a Hold> {
    let holds: Vec<&Hold> = timeline.holds.iter().filter(|hold| shown.contains_key(&hold.thread)).collect();
    if holds.len() <= most {
        return holds;
    }
    let mut by_holder: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    for (i, hold) in holds.iter().enumerate() {
        by_holder.entry((hold.thread, hold.lock)).or_default().push(i);
    }
    let mut kept = HashSet::new();
    let mut order: Vec<&&Wait> = waits.iter().collect();
    order.sort_by_key(|wait| Reverse(wait.wait_ns));
    for wait in order {
        let end = wait.start_ns + wait.wait_ns;
        for culprit in &wait.culprits {
            let own = by_holder.get(&(culprit.thread, culprit.lock)).map_or(&[][..], Vec::as_slice);
            // By start. A thread holds a lock once at a time, or nearly so: those that end later come later.
            let until = own.partition_point(|&i| holds[i].start_ns < end);
            let during = own[..until].iter().rev().take_while(|&&i| holds[i].end_ns > wait.start_ns);
            kept.extend(during.copied().take(most.saturating_sub(kept.len())));
        }
    }
    let mut others: Vec<usize> = (0..holds.len()).filter(|i| !kept.contains(i)).collect();
    others.sort_by_key(|&i| Reverse(holds[i].end_ns - holds[i].start_ns));
    kept.extend(others.into_iter().take(most.saturating_sub(kept.len())));
    holds.into_iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, hold)| hold).collect()
}

/// Stretches of the critical path; the longest ones, if there are too many.
fn path(path: &[Stretch], shown: &HashMap<usize, usize>, most: usize) -> Vec<Stretch> {
    let mut path: Vec<Stretch> = path.iter().filter(|s| shown.contains_key(&s.thread)).copied().collect();
    if path.len() > most {
        path.sort_by_key(|s| Reverse(s.to_ns - s.from_ns));
        path.truncate(most);
        path.sort_by_key(|s| s.from_ns);
    }
    path
}

/// How much of each stretch of time each thread waited.
fn filled(timeline: &Timeline, shown: &HashMap<usize, usize>) -> Vec<String> {
    let bin = (timeline.end_ns - timeline.start_ns).as_f64().max(1.0) / BINS as f64;
    let mut fills = vec![vec![0.0_f64; BINS]; shown.len()];
    for wait in &timeline.waits {
        let Some(&lane) = shown.get(&wait.thread) else { continue };
        let from = (wait.start_ns - timeline.start_ns).as_f64() / bin;
        let to = from + wait.wait_ns.as_f64() / bin;
        let bins = fills[lane].iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize);
        for (at, fill) in bins {
            *fill += (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
        }
    }
    let level = |fill: &f64| char::from(LEVELS[((fill * 35.0).ceil() as usize).min(LEVELS.len() - 1)]);
    fills.iter().map(|lane| lane.iter().map(level).collect()).collect()
}

struct Table<'a> {
    timeline: &'a Timeline,
    lanes: &'a HashMap<usize, usize>,
    locks: Strings,
    places: Strings,
}

impl Table<'_> {
    fn wait(&mut self, wait: &Wait, to: &mut Waits) {
        let timeline = self.timeline;
        to.thread.push(self.lanes[&wait.thread]);
        to.lock.push(number(&mut self.locks, &timeline.locks[wait.lock].name));
        to.place.push(number(&mut self.places, &timeline.stacks[wait.stack].place.symbol));
        to.start_ns.push(wait.start_ns - timeline.start_ns);
        to.wait_ns.push(wait.wait_ns);
        let mut culprits: Vec<&Culprit> = wait.culprits.iter().collect();
        culprits.sort_by_key(|culprit| Reverse(culprit.wait_ns));
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = Ns::default();
        for culprit in culprits {
            match self.lanes.get(&culprit.thread) {
                Some(&lane) if parts.len() < MAX_CULPRITS => parts.push((
                    Some(lane),
                    number(&mut self.locks, &timeline.locks[culprit.lock].name),
                    number(&mut self.places, &timeline.places[culprit.place].symbol),
                    culprit.wait_ns,
                    culprit.cause,
                    culprit.inferred,
                )),
                _ => rest += culprit.wait_ns,
            }
        }
        if rest > Ns::default() {
            parts.push((None, 0, 0, rest, None, false));
        }
        to.culprits.push(parts);
    }

    fn hold(&mut self, hold: &Hold, to: &mut Holds) {
        let timeline = self.timeline;
        to.thread.push(self.lanes[&hold.thread]);
        to.lock.push(number(&mut self.locks, &timeline.locks[hold.lock].name));
        to.place.push(number(&mut self.places, &timeline.stacks[hold.stack].place.symbol));
        to.start_ns.push(hold.start_ns - timeline.start_ns);
        to.hold_ns.push(hold.end_ns - hold.start_ns);
    }
}
