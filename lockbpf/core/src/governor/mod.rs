//! When the full tier of a process is open: always, if observing it costs less than the budget; else in windows at random
//! places, as long and as far apart as the budget allows.
//!
//! Pure: it is told what observing has cost and what the process has used, and says what to do and when to ask again. While
//! the tier does not stay open, the process's [`progress`] is divided into cycles with one window each. The lengths of a cycle
//! and of its window are settled before it begins, and the window's place is drawn at random, so that what is seen there may
//! stand for the whole, also of a program whose work is periodic. Progress is more CPU time than time: a program that does in
//! short bursts most of what it does is looked at in bursts.
#![forbid(unsafe_code)]

pub mod pacing;
pub mod shedding;
#[cfg(test)]
mod tests;
pub mod thinning;

use crate::units::{Nanos, Time};
use std::time::Duration;

/// The part of the budget that is spent. Costs are calibrated in a small loop; in a program whose caches the probes
/// disturb they have been measured at up to 1.4 times that.
const SPEND: f64 = 0.7;
/// A program that sleeps while it holds its locks uses hardly any CPU time, and a share of hardly any would show nothing of it. So whoever
/// uses less than this part of a CPU counts as if it used so much; processes that are observed together share it.
pub const LEAST_USE: f64 = 0.5;
/// Usual length of a cycle: [`pacing`] may lengthen it.
const CYCLE: Duration = Duration::from_millis(500);
/// Longest cycle: a tier that opens more seldom than this tells too little.
const MAX_CYCLE: Duration = Duration::from_secs(8);
/// So many times its length a cycle may last, if the process becomes idle meanwhile.
const PATIENCE: u32 = 3;
/// The greatest part of a cycle that its window takes.
pub const PART: f64 = 1.0 / 3.0;
/// Weight of time against CPU time in a process's progress.
const IDLE: f64 = 0.02;
/// Shortest window.
const MIN_WINDOW: Duration = Duration::from_millis(5);
/// What is seen in a window is to cost at least this part of what it costs to place and to remove its probes.
const WORTH: f64 = 0.5;
/// For how long a window's probes cost beyond it, as long as that was not measured.
const USUAL_EDGES: Duration = Duration::from_millis(10);
/// So long after a window its probes are gone. What they cost even later counts as what observing costs all the time.
const SETTLED: Duration = Duration::from_millis(100);
/// How long opening is expected to take at most: a busy kernel may take seconds, once.
const LONGEST_OPENING: Duration = Duration::from_millis(250);
/// Cost beyond the budget at which the tier is closed, since a burst is paid back later: what may be spent in so much time, but
/// neither less nor more than this.
const CREDIT_TIME: Duration = Duration::from_secs(1);
const MIN_CREDIT: Duration = Duration::from_millis(2);
const MAX_CREDIT: Duration = Duration::from_millis(8);
/// What a window may cost if all of it falls into a burst: what may be spent in so much time, but not more than that.
const BURST_TIME: Duration = Duration::from_secs(4);
const MAX_BURST: Duration = Duration::from_millis(25);
/// How much of the highest cost rate seen is still expected one window later.
const DECAY: f64 = 0.93;
/// How much of what was seen before still counts one window later.
const MEMORY: f64 = 0.9;
/// Cycles over which is paid back what was spent too much.
const REPAY_CYCLES: f64 = 2.0;
/// The least part of what may be spent that goes into windows: who pays back only learns nothing meanwhile.
const LEAST_SPENT: f64 = 0.25;
/// Windows that must have been cheap before the tier stays open.
const CALM_WINDOWS: u32 = 4;
/// The kernel brings the CPU clock of a process that runs up to date at its ticks, so a window is not closed before the
/// clock has moved: but not later than this, beyond the slowest tick, and looked at so often meanwhile.
const MAX_TICK: Duration = Duration::from_millis(11);
const TICK_LOOK: Duration = Duration::from_micros(400);
/// How often a tier is looked at that may be spending too much: with closing it, a burst is over well within 200 ms.
pub const LOOK: Duration = Duration::from_millis(5);
/// Looks in a long window, and the longest time between two of them.
const LOOKS: u64 = 32;
const MAX_LOOK: Duration = Duration::from_millis(20);

/// The share of a process's CPU time that observing it may cost.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Budget(f64);

impl Budget {
    /// A share between 0 and 1, without either.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share < 1.0).then_some(Self(share))
    }

    /// The share.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0
    }
}

/// What the budget takes each of `processes` to use at least, as a part of a CPU.
fn least_use(processes: usize) -> f64 {
    LEAST_USE / processes.max(1) as f64
}

/// What is known about a process at one moment, since it is observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// When.
    pub time: Time,
    /// CPU time used, the cost of observing included.
    pub cpu: Nanos,
    /// What observing cost in this time, by calibrated prices.
    pub cost: Nanos,
    /// What samples of the CPU's clock have found.
    pub sampled: Sampled,
}

/// What samples of the CPU's clock tell of a process: probes take their time in the kernel, and the process does its work at most partly there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Samples that found one of its threads running.
    pub samples: u64,
    /// How many of these found it in its own code.
    pub user: u64,
    /// Hits of probes meanwhile.
    pub hits: u64,
}

impl std::ops::Sub for Sampled {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(before.samples),
            user: self.user.saturating_sub(before.user),
            hits: self.hits.saturating_sub(before.hits),
        }
    }
}

impl std::ops::Add for Sampled {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { samples: self.samples + more.samples, user: self.user + more.user, hits: self.hits + more.hits }
    }
}

impl Reading {
    /// What a reading at a time between this and a later one may have been: as if what was used was used evenly.
    #[must_use]
    pub fn towards(&self, later: Self, time: Time) -> Self {
        let whole = later.time.since(self.time).0.max(1) as f64;
        let part = (time.since(self.time).0 as f64 / whole).clamp(0.0, 1.0);
        let between = |a: u64, b: u64| a + (b.saturating_sub(a) as f64 * part) as u64;
        let (a, b) = (self.sampled, later.sampled);
        Self {
            time,
            cpu: Nanos(between(self.cpu.0, later.cpu.0)),
            cost: Nanos(between(self.cost.0, later.cost.0)),
            sampled: Sampled {
                samples: between(a.samples, b.samples),
                user: between(a.user, b.user),
                hits: between(a.hits, b.hits),
            },
        }
    }

    fn progress(&self) -> f64 {
        progress((self.cpu - self.cost).0 as f64, self.time.0 as f64)
    }
}

/// How far a process gets in so much own CPU time and time: over this, windows are spread evenly.
#[must_use]
pub fn progress(own_cpu: f64, time: f64) -> f64 {
    own_cpu + IDLE * time
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until the given time.
    Wait(Time),
    /// Open the tier, then tell [`Policy::opened`].
    Open,
    /// Close the tier.
    Close,
    /// Nothing: a cycle is over, of which what was seen in its window tells.
    Next,
}

/// The end of a window or a cycle: when the process has got so far, and a time at the latest.
#[derive(Clone, Copy, Debug)]
struct End {
    progress: f64,
    latest: Time,
}

/// How much a window is to cover: of the process's progress, and of time, whichever is less.
#[derive(Clone, Copy, Debug)]
struct Window {
    progress: f64,
    time: Duration,
}

impl End {
    fn is_reached(&self, now: Reading) -> bool {
        now.progress() >= self.progress || now.time >= self.latest
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Open until it costs too much.
    Always,
    /// In a cycle, before its window, which is to be opened when the process has got so far.
    Before { open: f64, window: Window, end: End },
    /// Being opened: for a window of a cycle, or to stay open.
    Opening(Option<(Window, End)>),
    /// In the window of a cycle.
    During { close: End, end: End, opened: Reading },
    /// At its end, until the clock moves on from what was read first.
    Closing { end: End, opened: Reading, first: Reading },
    /// In a cycle, after its window.
    After { end: End },
    /// Between stretches.
    Between { always: bool },
}

/// The policy for one process.
#[derive(Debug)]
pub struct Policy {
    budget: Budget,
    state: State,
    first: Reading,
    last: Reading,
    /// Cost per time while the tier is open, the highest lately.
    peak: f64,
    /// Cost (ns) and time (ns) of windows, lately.
    mean: (f64, f64),
    /// CPU time per time, smoothed, and as it was last.
    usage: f64,
    pace: f64,
    /// How long opening takes, lately, ns.
    opening: f64,
    /// What a window costs beyond itself, lately, ns: its probes are placed before it begins, and removed after its end.
    edges: Option<f64>,
    /// What placing the probes of the present window has cost, ns; `None` where the tier was to stay open.
    placing: Option<f64>,
    /// When the tier was closed last, and what placing had cost, until the probes are gone.
    leaving: Option<(Reading, Option<f64>)>,
    /// Cost (ns) and time (ns) while no probes are in place, lately; and since when that is so.
    quiet: (f64, f64),
    quiet_from: Option<Reading>,
    calm: u32,
    /// CPUs that the process may use at once.
    cpus: usize,
    /// The part of a CPU that it counts as using at least.
    least: f64,
    /// How far apart windows are, against the usual.
    apart: f64,
    /// What observing may have cost by this reading, ns.
    allowed: f64,
    allowed_at: Reading,
    random: fastrand::Rng,
}

impl Policy {
    /// For a process whose tier is open from the first reading on, on a machine of so many CPUs.
    #[must_use]
    pub fn open(budget: Budget, first: Reading, cpus: usize, seed: u64) -> Self {
        Self::begin(budget, first, State::Always, cpus, seed)
    }

    /// For a process whose tier is closed at the first reading.
    #[must_use]
    pub fn closed(budget: Budget, first: Reading, cpus: usize, seed: u64) -> Self {
        Self::begin(budget, first, State::Between { always: true }, cpus, seed)
    }

    fn begin(budget: Budget, first: Reading, state: State, cpus: usize, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self {
            cpus: cpus.max(1),
            budget,
            state,
            first,
            last: first,
            peak: 0.0,
            mean: (0.0, 0.0),
            usage: 0.0,
            pace: 0.0,
            opening: USUAL_EDGES.as_nanos() as f64 / 2.0,
            edges: None,
            placing: None,
            leaving: None,
            quiet: (0.0, 0.0),
            quiet_from: None,
            calm: 0,
            least: least_use(1),
            apart: 1.0,
            allowed: 0.0,
            allowed_at: first,
            random,
        }
    }

    /// So many processes are observed together from now on, with windows so far apart, against the usual.
    pub fn shares_with(&mut self, processes: usize, apart: f64) {
        self.least = least_use(processes);
        self.apart = apart;
    }

    /// Whether the tier is to be open now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Always | State::During { .. } | State::Closing { .. })
    }

    /// The tier is open as of this reading; its probes were being placed since the other one.
    pub fn opened(&mut self, began: Reading, now: Reading) {
        if let State::Opening(window) = self.state {
            self.leave(began);
            if let Some(from) = self.quiet_from.take() {
                let (cost, time) = ((began.cost - from.cost).0 as f64, began.time.since(from.time).0 as f64);
                self.quiet = (self.quiet.0 * MEMORY + cost, self.quiet.1 * MEMORY + time);
            }
            let took = now.time.since(began.time).0.min(LONGEST_OPENING.as_nanos() as u64) as f64;
            self.opening = (self.opening * 3.0 + took) / 4.0;
            self.placing = window.map(|_| self.beyond_quiet(began, now));
            self.state = match window {
                Some((window, end)) => {
                    let progress = now.progress() + window.progress;
                    State::During { close: End { progress, latest: later(now.time, window.time) }, end, opened: now }
                }
                None => State::Always,
            };
            self.last = now;
        }
    }

    /// The tier that was open until it costs too much has been closed, since other processes need the place: it may be opened
    /// again like that.
    pub fn made_room(&mut self) {
        self.state = State::Between { always: true };
    }

    /// The tier was closed from outside, since nobody saw what happened. Returns whether that was a window, whose cycle goes on; else
    /// the tier may be opened again as it was.
    pub fn cut(&mut self) -> bool {
        if let State::During { end, .. } | State::Closing { end, .. } = self.state {
            self.state = State::After { end };
            return true;
        }
        self.made_room();
        false
    }

    /// Whether the tier is being opened for a window.
    #[must_use]
    pub fn opens_window(&self) -> bool {
        matches!(self.state, State::Opening(Some(_)))
    }

    /// Whether no cycle has begun since the tier was closed for having cost too much, or for others.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Between { .. })
    }

    /// Whether the tier is open until it costs too much.
    #[must_use]
    pub fn stays_open(&self) -> bool {
        matches!(self.state, State::Always)
    }

    /// What to do at this reading. [`Action::Wait`] is the last answer of a look; after any other, ask again.
    pub fn look(&mut self, now: Reading) -> Action {
        self.learn(now);
        self.allow(now);
        // While the next probes are being placed it is too late: they cost something, too.
        let opens = matches!(self.state, State::Opening(_));
        if !opens && self.leaving.is_some_and(|(closed, _)| now.time >= later(closed.time, SETTLED)) {
            self.leave(now);
        }
        match self.state {
            State::Always if self.debt(now) > self.credit() => {
                self.leaving = Some((now, None));
                self.calm = 0;
                self.state = State::Between { always: false };
                Action::Close
            }
            State::Always => Action::Wait(later(now.time, self.patience(now))),
            State::Before { open, window, end } if now.progress() + self.lead() >= open => {
                self.state = State::Opening(Some((window, end)));
                Action::Open
            }
            State::Before { end, .. } if now.time >= end.latest => {
                self.state = State::Between { always: false };
                Action::Next
            }
            State::Before { open, end, .. } => Action::Wait(self.soonest(now, open).min(end.latest)),
            State::Opening(_) => Action::Open,
            State::During { close, end, opened } => {
                if !close.is_reached(now) && !self.is_over(opened, now) {
                    let apart = Duration::from_nanos(close.latest.since(opened.time).0 / LOOKS).clamp(LOOK, MAX_LOOK);
                    // By then all CPUs together have not spent too much.
                    let left = self.most() - (now.cost - opened.cost).0 as f64;
                    let safe = Duration::from_nanos((left / self.cpus as f64) as u64);
                    return Action::Wait(close.latest.min(later(now.time, apart.min(safe).max(LOOK))));
                }
                self.state = State::Closing { end, opened, first: now };
                self.look(now)
            }
            State::Closing { end, opened, first } => {
                let stands = now.cpu == first.cpu && now.cpu > opened.cpu && now.time < later(first.time, MAX_TICK);
                if stands && !self.is_over(opened, now) {
                    return Action::Wait(later(now.time, TICK_LOOK));
                }
                self.assess(opened, now);
                self.leaving = Some((now, self.placing));
                self.state = State::After { end };
                Action::Close
            }
            State::After { end } if end.is_reached(now) => {
                self.state = State::Between { always: self.calm >= CALM_WINDOWS && self.debt(now) <= 0.0 };
                Action::Next
            }
            State::After { end } => Action::Wait(self.soonest(now, end.progress).min(end.latest)),
            State::Between { always: true } => {
                self.state = State::Opening(None);
                Action::Open
            }
            State::Between { always: false } => {
                let (cycle, window) = self.plan(now);
                let (begin, ns) = (now.progress(), cycle.as_nanos() as f64);
                let length = progress(self.usage * ns, ns);
                let end = End { progress: begin + length, latest: later(now.time, cycle * PATIENCE) };
                let window = Window { progress: length * PART, time: window };
                let open = begin + length * self.random.f64();
                self.state = State::Before { open, window, end };
                self.look(now)
            }
        }
    }

    /// How far the process gets until what is begun now is done.
    fn lead(&self) -> f64 {
        progress(self.pace * self.opening, self.opening)
    }

    /// When the process can have got so far, even if it takes up more CPUs at once; it is not looked at all the time.
    fn soonest(&self, now: Reading, target: f64) -> Time {
        let rest = (target - now.progress() - self.lead()).max(0.0) / (1.0 + 2.0 * self.usage.max(self.pace));
        later(now.time, Duration::from_nanos(rest as u64).max(LOOK))
    }

    /// Whether a window has cost more than it may.
    fn is_over(&self, opened: Reading, now: Reading) -> bool {
        (now.cost - opened.cost).0 as f64 > self.most()
    }

    /// What a window may cost before it is closed early, ns.
    fn most(&self) -> f64 {
        1.5 * self.burst() + self.credit() / 2.0
    }

    /// What observing has cost beyond the part of the budget that is to be spent, ns.
    fn debt(&self, now: Reading) -> f64 {
        (now.cost - self.first.cost).0 as f64 - self.allowed
    }

    /// Adds what may be spent for what was used since the last reading.
    fn allow(&mut self, now: Reading) {
        let before = std::mem::replace(&mut self.allowed_at, now);
        let (cpu, time) = ((now.cpu - before.cpu).0 as f64, now.time.since(before.time).0 as f64);
        self.allowed += self.budget.0 * SPEND * cpu.max(self.least * time);
    }

    /// Takes note of how fast the process uses CPU time, and, while open, of what observing costs.
    fn learn(&mut self, now: Reading) {
        let wall = now.time.since(self.last.time).0 as f64;
        if wall < LOOK.as_nanos() as f64 / 4.0 {
            return;
        }
        let rate = now.cost.0.saturating_sub(self.last.cost.0) as f64 / wall;
        let usage = now.cpu.0.saturating_sub(self.last.cpu.0) as f64 / wall;
        self.pace = usage;
        // A second's memory.
        let weight = if self.usage == 0.0 { 1.0 } else { (wall / 1e9).min(1.0) };
        self.usage += (usage - self.usage) * weight;
        if matches!(self.state, State::Always) {
            self.peak = self.peak.max(rate);
        }
        self.last = now;
    }

    /// Takes note of what a window cost.
    fn assess(&mut self, opened: Reading, now: Reading) {
        let wall = now.time.since(opened.time).0.max(1) as f64;
        let cost = now.cost.0.saturating_sub(opened.cost.0) as f64;
        self.peak = (cost / wall).max(self.peak * DECAY);
        self.mean = (self.mean.0 * MEMORY + cost, self.mean.1 * MEMORY + wall);
        self.calm = if self.peak < self.income() * 0.8 { self.calm + 1 } else { 0 };
    }

    /// By this reading the probes of the last window are gone: takes note of what placing and removing them has cost.
    fn leave(&mut self, now: Reading) {
        let Some((closed, placing)) = self.leaving.take() else { return };
        self.quiet_from = Some(now);
        if let Some(placing) = placing {
            let edges = placing + self.beyond_quiet(closed, now);
            self.edges = Some(self.edges.map_or(edges, |before| (before * 3.0 + edges) / 4.0));
        }
    }

    /// What observing has cost from one reading to another, beyond what it costs while no probes are in place, ns.
    fn beyond_quiet(&self, from: Reading, to: Reading) -> f64 {
        let usual = ratio(self.quiet).unwrap_or(0.0) * to.time.since(from.time).0 as f64;
        ((to.cost - from.cost).0 as f64 - usual).max(0.0)
    }

    /// What may be spent per time, of 1.
    fn income(&self) -> f64 {
        (self.budget.0 * SPEND * self.usage.max(self.least)).max(1e-6)
    }

    /// What may be spent beyond the budget before the tier is closed, ns.
    fn credit(&self) -> f64 {
        let ns = |duration: Duration| duration.as_nanos() as f64;
        (self.income() * ns(CREDIT_TIME)).clamp(ns(MIN_CREDIT), ns(MAX_CREDIT))
    }

    /// For how long an open tier need not be looked at: even a process that did nothing but hit probes, on all CPUs, would not have
    /// spent too much by then.
    fn patience(&self, now: Reading) -> Duration {
        let left = (self.credit() - self.debt(now)).max(0.0);
        Duration::from_nanos((left / self.cpus as f64) as u64).clamp(LOOK, CYCLE)
    }

    /// What a window may cost if all of it falls into a burst, ns.
    fn burst(&self) -> f64 {
        (self.income() * BURST_TIME.as_nanos() as f64).min(MAX_BURST.as_nanos() as f64)
    }

    /// Length of the next cycle and of its window: what windows cost on average keeps the budget, and none is so long that
    /// it would have to be closed early if all of it fell into a burst.
    fn plan(&mut self, now: Reading) -> (Duration, Duration) {
        let repay = self.debt(now).max(0.0) / REPAY_CYCLES;
        let ns = |duration: Duration| duration.as_nanos() as f64;
        let income = self.income();
        // What is observed all the time is paid first.
        let free = (income - ratio(self.quiet).unwrap_or(0.0)).max(income * LEAST_SPENT);
        let rate = ratio(self.mean).unwrap_or(self.peak).max(1e-9);
        let edges = self.edges.unwrap_or(ns(USUAL_EDGES) * rate);
        let most = self.burst() / self.peak.max(1e-9);
        let least = (edges * WORTH / rate).min(most).max(ns(MIN_WINDOW));
        let cheapest = least * rate + edges;
        let shortest = (cheapest / (income * LEAST_SPENT)).min((cheapest + repay) / free);
        let longest = ns(MAX_CYCLE);
        let cycle = shortest.clamp((ns(CYCLE) * self.apart).min(longest), longest);
        let spend = (free * cycle - repay).max(income * cycle * LEAST_SPENT);
        let window = ((spend - edges) / rate).min(most).clamp(ns(MIN_WINDOW), cycle * PART);
        // Not a clock's beat.
        let cycle = cycle * (0.8 + 0.4 * self.random.f64());
        (Duration::from_nanos(cycle as u64), Duration::from_nanos(window as u64))
    }
}

/// Cost by time, if there is any time.
fn ratio((cost, time): (f64, f64)) -> Option<f64> {
    (time > 0.0).then(|| cost / time)
}

fn later(time: Time, by: Duration) -> Time {
    Time(time.0.saturating_add(by.as_nanos() as u64))
}
