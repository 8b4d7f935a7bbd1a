//! Whether a program is another one while its full tier stays open.
//!
//! The CPU time that observing costs does not tell that: where threads wait for one another, a lock that is given back a little
//! later may go to another thread (as Python's interpreter lock does), and a probe may itself wait for a lock of the kernel.
//! So a tier that is to stay open is closed for some short turns, and what the program does then is compared with what it does
//! between them. Compared is what can be seen either way ([`Kind`]).

use super::{Reading, later};
use crate::units::Time;
use std::time::Duration;

/// For how long a tier has been open before it is tried.
const FIRST: Duration = Duration::from_millis(500);
/// Until the next trial, and by how much longer this is after each one, up to the last.
const AGAIN: Duration = Duration::from_secs(10);
const LONGER: u32 = 4;
const SELDOM: Duration = Duration::from_mins(10);
/// Mean lengths of the turns in which the tier is open and closed.
const OPEN: Duration = Duration::from_millis(100);
const CLOSED: Duration = Duration::from_millis(60);
/// Pairs of turns before the first verdict, and at most.
const LEAST_PAIRS: usize = 5;
const MOST_PAIRS: usize = 12;
/// Futex calls a second below which threads do not wait for one another often enough.
const LEAST_CALLS: f64 = 100.0;
/// What was done fewer times than this in all turns tells nothing.
const LEAST_DONE: u64 = 100;
/// The smallest change that counts, as a share of the greater rate.
const MATTERS: f64 = 0.15;
/// Standard errors by which a change must exceed [`MATTERS`]: 99.5 % for a few pairs, of three kinds together.
const SURE: f64 = 4.0;
/// Standard errors by which it must fall short, to be none.
const UNLIKELY: f64 = 2.0;

/// What a program does that is seen whether its full tier is open or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Futex calls.
    FutexCalls,
    /// Pages that it touched first.
    PageFaults,
    /// Reads and writes of files, pipes and sockets by the calls of these names.
    Transfers,
}

impl Kind {
    const ALL: [Self; 3] = [Self::FutexCalls, Self::PageFaults, Self::Transfers];

    /// In a sentence, after "as many".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FutexCalls => "futex calls",
            Self::PageFaults => "page faults",
            Self::Transfers => "reads and writes",
        }
    }
}

/// How much a process has done by a time, in the order of the kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When.
    pub time: Time,
    /// How often, since it began.
    pub done: [u64; 3],
}

/// That a program does something at another rate while its tier is open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// What it does.
    pub kind: Kind,
    /// The rate while open by that while closed.
    pub ratio: f64,
}

impl Change {
    /// Its size as a share of the greater rate.
    #[must_use]
    pub fn share(self) -> f64 {
        1.0 - self.ratio.min(1.0 / self.ratio)
    }
}

/// What a trial has shown so far.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Undecided,
    NoChange,
    Changed(Change),
}

/// What was done in one turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    ns: u64,
    done: [u64; 3],
}

impl Turn {
    fn between(from: Activity, to: Activity) -> Self {
        let done = std::array::from_fn(|kind| to.done[kind].saturating_sub(from.done[kind]));
        Self { ns: to.time.since(from.time).0, done }
    }
}

/// The trials of one process.
#[derive(Debug)]
pub(super) struct Trials {
    /// Since when the tier stays open.
    since: Reading,
    /// When the next one begins.
    next: Time,
    pause: Duration,
    /// Those of the trial that goes on: what was done while closed, and while open after that.
    pairs: Vec<(Turn, Turn)>,
    /// The last closed turn.
    closed: Option<Turn>,
    /// Where the present turn began, and until when it lasts.
    from: Option<Activity>,
    until: Option<Time>,
    random: fastrand::Rng,
}

/// What a trial wants when its turn is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum After {
    /// The tier is opened again, for another turn or for good.
    Open,
    /// The tier does not stay open.
    Leave(Change),
}

impl Trials {
    pub fn new(first: Reading, seed: u64) -> Self {
        Self {
            since: first,
            next: later(first.time, FIRST),
            pause: AGAIN,
            pairs: Vec::new(),
            closed: None,
            from: None,
            until: None,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The tier stays open from now on, or does so again after a closed turn.
    pub fn opened(&mut self, now: Reading) {
        if self.goes_on() {
            self.until = Some(later(now.time, OPEN.mul_f64(0.6 + 0.8 * self.random.f64())));
        } else {
            self.since = now;
            self.next = self.next.max(later(now.time, FIRST));
        }
    }

    /// Whether turns are compared at present, so that their beginnings and ends are to be told.
    pub fn goes_on(&self) -> bool {
        self.until.is_some()
    }

    /// If the open tier is to be closed for a turn now: until when. `allowed` is what observing may cost of the CPU time used.
    pub fn close(&mut self, now: Reading, allowed: f64) -> Option<Time> {
        let due = match self.until {
            Some(until) => now.time >= until,
            None => now.time >= self.next && self.is_worth_it(now, allowed),
        };
        if !due {
            return None;
        }
        let until = later(now.time, CLOSED.mul_f64(0.6 + 0.8 * self.random.f64()));
        self.until = Some(until);
        Some(until)
    }

    /// When to ask next, at the latest.
    pub fn due(&self) -> Option<Time> {
        self.until
    }

    /// Threads must wait for one another, and observing must do something.
    fn is_worth_it(&mut self, now: Reading, allowed: f64) -> bool {
        let seconds = now.time.since(self.since.time).0 as f64 / 1e9;
        let calls = now.futex_calls.saturating_sub(self.since.futex_calls) as f64;
        let cost = now.cost.0.saturating_sub(self.since.cost.0) as f64;
        let cpu = now.cpu.0.saturating_sub(self.since.cpu.0) as f64;
        let worth_it = calls >= LEAST_CALLS * seconds && cost >= 0.1 * allowed * cpu;
        if !worth_it {
            // It may become busy at any time.
            (self.since, self.next) = (now, later(now.time, FIRST));
        }
        worth_it
    }

    /// A turn begins, after all that closing or opening takes.
    pub fn begin(&mut self, activity: Activity) {
        self.from = Some(activity);
    }

    /// A turn ends, before anything is opened or closed.
    pub fn end(&mut self, activity: Activity, was_open: bool) {
        let Some(from) = self.from.take() else { return };
        let turn = Turn::between(from, activity);
        if !was_open {
            self.closed = Some(turn);
        } else if let Some(closed) = self.closed.take() {
            self.pairs.push((closed, turn));
        }
    }

    /// What follows on a turn in which the tier was closed.
    pub fn after(&mut self, now: Reading) -> After {
        let verdict = verdict(&self.pairs);
        if verdict != Verdict::Undecided {
            self.stop(now);
        }
        match verdict {
            Verdict::Changed(change) => After::Leave(change),
            Verdict::Undecided | Verdict::NoChange => After::Open,
        }
    }

    /// The tier was closed for another reason, or all is known.
    pub fn stop(&mut self, now: Reading) {
        if self.goes_on() {
            self.pairs.clear();
            (self.closed, self.from, self.until) = (None, None, None);
            self.next = later(now.time, self.pause);
            self.pause = (self.pause * LONGER).min(SELDOM);
        }
    }
}

/// What pairs of turns show.
fn verdict(pairs: &[(Turn, Turn)]) -> Verdict {
    if pairs.len() < LEAST_PAIRS {
        return Verdict::Undecided;
    }
    let matters = -(1.0 - MATTERS).ln();
    let mut changed: Option<Change> = None;
    let mut decided = true;
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let done: u64 = pairs.iter().map(|(closed, open)| closed.done[number] + open.done[number]).sum();
        if done < LEAST_DONE {
            continue;
        }
        let (log, error) = log_ratio(pairs, number);
        let change = Change { kind, ratio: log.exp() };
        if log.abs() - SURE * error > matters && changed.is_none_or(|other| other.share() < change.share()) {
            changed = Some(change);
        }
        decided &= log.abs() + UNLIKELY * error < matters;
    }
    match changed {
        Some(change) => Verdict::Changed(change),
        None if decided || pairs.len() >= MOST_PAIRS => Verdict::NoChange,
        None => Verdict::Undecided,
    }
}

/// Logarithm of the rate while open by that while closed, and its standard error, by leaving out each pair in turn.
fn log_ratio(pairs: &[(Turn, Turn)], kind: usize) -> (f64, f64) {
    let without = |left_out: Option<usize>| {
        let mut sums = [0.0_f64; 4];
        for (_, (closed, open)) in pairs.iter().enumerate().filter(|&(i, _)| Some(i) != left_out) {
            let more = [closed.done[kind] as f64, closed.ns as f64, open.done[kind] as f64, open.ns as f64];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        let [closed, closed_ns, open, open_ns] = sums;
        ((open + 0.5) / open_ns.max(1.0)).ln() - ((closed + 0.5) / closed_ns.max(1.0)).ln()
    };
    let n = pairs.len() as f64;
    let each: Vec<f64> = (0..pairs.len()).map(|i| without(Some(i))).collect();
    let mean = each.iter().sum::<f64>() / n;
    let square = each.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
    (without(None), (square * (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    /// What had been done so much later, with so much more.
    fn plus(from: Activity, ns: u64, done: [u64; 3]) -> Activity {
        Activity { time: from.time + Nanos(ns), done: std::array::from_fn(|kind| from.done[kind] + done[kind]) }
    }

    /// Turns of a program whose rates, per 100 ms, are drawn around these.
    fn pairs(closed: u64, open: u64, noise: f64, n: usize, seed: u64) -> Vec<(Turn, Turn)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut turn = |rate: u64, ns: u64| {
            let factor = (noise * (random.f64() + random.f64() + random.f64() - 1.5) * 2.0).exp();
            Turn { ns, done: [(rate as f64 * factor * ns as f64 / 1e8) as u64, 0, 0] }
        };
        (0..n).map(|_| (turn(closed, 60_000_000), turn(open, 100_000_000))).collect()
    }

    #[test]
    fn who_changes_is_found_and_who_does_not_is_not() {
        let shown = |closed, open, noise| {
            let found = (0..400).filter(|&seed| {
                (LEAST_PAIRS..=MOST_PAIRS)
                    .map(|n| verdict(&pairs(closed, open, noise, n, seed)))
                    .find(|verdict| *verdict != Verdict::Undecided)
                    .is_some_and(|verdict| matches!(verdict, Verdict::Changed(_)))
            });
            found.count()
        };
        for noise in [0.05, 0.2, 0.5] {
            let taken = shown(1_000, 1_000, noise);
            assert!(taken <= 8, "at most one in fifty of those that do not change: {taken} of 400 ({noise})");
        }
        assert!(shown(1_000, 200, 0.3) >= 390, "a fifth of the speed");
        assert!(shown(1_000, 600, 0.05) >= 390);
        assert!(shown(1_000, 950, 0.02) == 0, "too small to matter");
        assert!(shown(1_000, 4_000, 0.3) >= 390, "more of it is another program, too");
    }

    #[test]
    fn what_happens_seldom_tells_nothing() {
        assert_eq!(verdict(&pairs(10, 1, 0.0, 5, 1)), Verdict::NoChange);
        let Verdict::Changed(change) = verdict(&pairs(1_000, 200, 0.0, 5, 1)) else { panic!() };
        assert_eq!(change.kind, Kind::FutexCalls);
        assert!((change.share() - 0.8).abs() < 0.01 && (change.ratio - 0.2).abs() < 0.01);
    }

    #[test]
    fn turns_are_told_apart_and_edges_left_out() {
        let ms = |ms: u64| Time(ms * 1_000_000);
        let reading = |at: u64, futex_calls| Reading {
            time: ms(at),
            cpu: Nanos(at * 1_000_000),
            cost: Nanos(at * 10_000),
            futex_calls,
        };
        let mut trials = Trials::new(reading(0, 0), 1);
        assert_eq!((trials.close(reading(400, 400), 0.02), trials.goes_on()), (None, false), "too early");
        assert_eq!(trials.close(reading(600, 20), 0.02), None, "nobody waits");
        assert_eq!(trials.close(reading(1_200, 2_000), 0.5), None, "observing does nothing");
        let mut at = 1_900;
        let until = trials.close(reading(at, 40_000), 0.02).unwrap();
        assert!(until > ms(at) && until < ms(at + 100) && trials.goes_on());
        let mut activity = Activity { time: ms(at), done: [0; 3] };
        let mut leaves = None;
        for _ in 0..=MOST_PAIRS {
            // Closed for 60 ms at 100 a ms, open for 100 ms at 10 a ms; what happens at the edges is not told.
            trials.begin(plus(activity, 10_000_000, [1_000_000, 0, 0]));
            activity = plus(activity, 70_000_000, [1_006_000, 0, 0]);
            trials.end(activity, false);
            at += 70;
            if let After::Leave(change) = trials.after(reading(at, 0)) {
                leaves = Some(change);
                break;
            }
            activity = plus(activity, 5_000_000, [7_000_000, 0, 0]);
            trials.opened(reading(at + 5, 0));
            trials.begin(activity);
            activity = plus(activity, 100_000_000, [1_000, 0, 0]);
            at += 105 + 60;
            assert!(trials.close(reading(at, 0), 0.02).is_some());
            trials.end(activity, true);
        }
        let change = leaves.unwrap();
        assert!((change.ratio - 0.1).abs() < 0.001, "{change:?}");
        assert!(!trials.goes_on() && trials.next > ms(at + 9_000));
    }
}
