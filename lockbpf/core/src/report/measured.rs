//! Every lock's figures and who is to blame, with names but without the details of a report: what is taken again and again from a long
//! observation.

use super::culprit::Divided;
use super::divide::holder_place;
use super::doing;
use super::histograms::{Bar, bars};
use super::lock::Ranked;
use super::place::Places;
use super::profile::{self, Profile};
use super::schema::Report;
use crate::estimate::Interval;
use crate::graph::findings::{Cause, Shares, Who};
use crate::id::{Lock, Process};
use crate::op::LockKind;
use crate::units::Nanos;
use std::collections::HashMap;

/// What was seen of all locks since the observation began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The most harmful first.
    pub locks: Vec<MeasuredLock>,
    /// All waiting by stack.
    pub profile: Profile,
}

/// What was seen of a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredLock {
    /// Which.
    pub lock: Lock,
    /// Its name, without its process.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Completed sections; `None` where they are not seen, or told of others with it.
    pub acquisitions: Option<u64>,
    /// Those that are known to have waited for a holder.
    pub contended: u64,
    /// Waits of the contended ones, as far as they were measured.
    pub wait: Durations,
    /// Holds; `None` where they are not seen.
    pub hold: Option<Durations>,
    /// Threads that wait for it now.
    pub waiting: u64,
    /// Σ wait of the records that `caused` divides, waits in progress so far included.
    pub recorded: Nanos,
    /// Who is to blame. Adds up to `recorded`.
    pub caused: Vec<Caused>,
}

/// What is told of what was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// What it is at least, at 95 %: counters that cannot be corrected downwards later run with this.
    AtLeast,
    /// The estimate.
    Likely,
}

impl Certainty {
    fn of(self, estimate: Interval) -> u64 {
        match self {
            Self::AtLeast => estimate.low.max(0.0) as u64,
            Self::Likely => estimate.value.max(0.0).round() as u64,
        }
    }
}

/// Durations by powers of two, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many of each length were measured.
    pub bars: Vec<Bar>,
    /// How many these stand for.
    pub count: u64,
    /// Their sum.
    pub sum: Nanos,
}

/// Waiting that one holder caused, while it did one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caused {
    /// The lock that it held.
    pub held: Lock,
    /// Who; `None` where nobody is known.
    pub who: Option<Who>,
    /// The name of `held`, without its process.
    pub name: String,
    /// Its kind; empty where the report does not list it.
    pub kind: String,
    /// Where it had requested `held`, or gave it back.
    pub place: String,
    /// What it was doing.
    pub cause: &'static str,
    /// Waiting that this caused.
    pub wait: Nanos,
}

/// Where the place of a holder is not known.
const UNKNOWN: &str = "[unknown]";
/// Holders that are not told apart.
const OTHERS: &str = "[others]";

/// All locks, and all waiting by stack.
pub(super) fn measured(
    ranked: &[Ranked<'_>],
    divided: Divided,
    report: &Report,
    certainty: Certainty,
    places: &mut Places<'_>,
) -> Measured {
    let kinds: HashMap<Lock, String> = ranked.iter().map(|r| (r.lock, r.kind(places))).collect();
    let mut locks = Vec::with_capacity(ranked.len());
    for r in ranked {
        // Their sums are those of others with them.
        let own = !r.in_others;
        let wait = if own { waits(r, certainty, places) } else { Durations::default() };
        // The share that is contended is a rough estimate where windows are few; whoever slept is known.
        let contended = if r.figures.is_some() { wait.count } else { r.contended };
        locks.push(MeasuredLock {
            lock: r.lock,
            name: r.name.clone(),
            kind: kinds.get(&r.lock).cloned().unwrap_or_default(),
            acquisitions: acquisitions(r, certainty).filter(|_| own),
            contended: if own { contended } else { 0 },
            wait,
            // Nobody holds a barrier.
            hold: (own && r.holds_known() && r.total.kind != LockKind::Barrier).then(|| holds(r, certainty, places)),
            waiting: r.gathered.open.len() as u64,
            recorded: r.gathered.blame().map(|shares| shares.waits.time).unwrap_or_default(),
            caused: r.gathered.blame().map(|shares| caused(r.lock, shares, &kinds, places)).unwrap_or_default(),
        });
    }
    Measured { locks, profile: profile::profile(ranked, divided, report, places) }
}

fn acquisitions(r: &Ranked<'_>, certainty: Certainty) -> Option<u64> {
    Some(r.figures.map_or(r.acquisitions()?, |figures| certainty.of(figures.acquisitions)))
}

fn waits(r: &Ranked<'_>, certainty: Certainty, places: &Places<'_>) -> Durations {
    let (bars, sum) = (bars(&r.wait, places.unit()), r.wait.sum);
    let count = bars.iter().map(|bar| bar.count).sum();
    match r.wait_estimate() {
        // Those that were seen stand for as many as the sum does for theirs.
        Some(estimate) if certainty == Certainty::AtLeast && sum > Nanos(0) => {
            let least = certainty.of(estimate).min(sum.0);
            let count = (u128::from(count) * u128::from(least) / u128::from(sum.0)) as u64;
            Durations { bars, count, sum: Nanos(least) }
        }
        _ => Durations { bars, count, sum },
    }
}

fn holds(r: &Ranked<'_>, certainty: Certainty, places: &Places<'_>) -> Durations {
    let bars = bars(&r.total.hold, places.unit());
    let seen: u64 = bars.iter().map(|bar| bar.count).sum();
    match &r.figures {
        Some(figures) if seen > 0 => {
            let count = certainty.of(figures.acquisitions).saturating_sub(r.total.unseen);
            let mean = certainty.of(figures.hold_mean_ns);
            Durations { bars, count, sum: Nanos(count.saturating_mul(mean)) }
        }
        Some(_) => Durations::default(),
        None => Durations { bars, count: seen, sum: r.total.hold.sum },
    }
}

fn caused(lock: Lock, shares: &Shares, kinds: &HashMap<Lock, String>, places: &mut Places<'_>) -> Vec<Caused> {
    let mut all = Vec::new();
    for holder in shares.holders.iter().filter(|holder| holder.wait > Nanos(0)) {
        let held = holder.who.lock().unwrap_or(lock);
        let place = match holder.who {
            Who::Section { .. } | Who::Released { .. } => holder_place(holder.who, places).0.symbol,
            Who::Thread(_) => UNKNOWN.to_owned(),
            Who::Others => OTHERS.to_owned(),
        };
        let one = Caused {
            held,
            who: Some(holder.who),
            name: places.lock_name(held),
            kind: kinds.get(&held).cloned().unwrap_or_default(),
            place,
            cause: doing::name(Cause::Unknown),
            wait: Nanos(0),
        };
        let mut left = holder.wait;
        for cause in Cause::ALL.into_iter().filter(|&cause| cause != Cause::Unknown && places.scheduling_known()) {
            let wait = holder.causes.of(cause).min(left);
            if wait > Nanos(0) {
                left = left - wait;
                all.push(Caused { cause: doing::name(cause), wait, ..one.clone() });
            }
        }
        if left > Nanos(0) {
            all.push(Caused { wait: left, ..one });
        }
    }
    let charged: Nanos = shares.holders.iter().map(|holder| holder.wait).sum();
    let wait = shares.waits.time - charged;
    if wait > Nanos(0) {
        let (name, kind) = (places.lock_name(lock), kinds.get(&lock).cloned().unwrap_or_default());
        let (place, cause) = (UNKNOWN.to_owned(), doing::name(Cause::Unknown));
        all.push(Caused { held: lock, who: None, name, kind, place, cause, wait });
    }
    all
}

/// The process whose lock it is, of which series are told.
impl MeasuredLock {
    /// Whose it is.
    #[must_use]
    pub fn process(&self) -> Process {
        self.lock.process
    }
}
