//! All waiting by stack, on both sides: of those who waited, and of those to blame. What viewers of profiles are fed with.
//!
//! Stacks of a place are weighed by the waits at which they were taken. They are brought down to what the report tells of the place, and what
//! they do not cover has no stack: it is charged to the place alone.

use super::culprit::Divided;
use super::divide::holder_place;
use super::doing;
use super::lock::Ranked;
use super::place::Places;
use super::schema::{Ns, Place, Report, StackFrame};
use super::word::elsewhere;
use crate::graph::findings::{Cause, Causes, Holder, Shares, Stacks};
use crate::id::{Lock, Process, StackId};
use crate::tally::Tally;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::HashMap;

/// All waiting by stack. Each side adds up to [`Profile::wait_ns`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What was observed, in words.
    pub target: String,
    /// How long.
    pub duration_ns: Ns,
    /// When it began, ns since 1970 (UTC), if that is known.
    pub started_ns: Option<u64>,
    /// Files in the memory of the process, if there is one only.
    pub mappings: Vec<Mapping>,
    /// All waiting: the report's `totals.harm_ns`, or `totals.recorded_wait_ns` where records stand for more than that.
    pub wait_ns: Ns,
    /// The part of it that was counted, but not recorded one by one: who waited and who is to blame is not known.
    pub not_recorded_ns: Ns,
    /// By stack of whoever waited, longest first.
    pub waiters: Vec<Sample>,
    /// By stack of whoever is to blame, longest first.
    pub culprits: Vec<Sample>,
}

impl Profile {
    /// Adds another recording's: sums, not means. Files in memory are kept if they are the same in both; times of waits are not.
    pub fn add(&mut self, other: Self) {
        self.duration_ns += other.duration_ns;
        self.wait_ns += other.wait_ns;
        self.not_recorded_ns += other.not_recorded_ns;
        if self.mappings != other.mappings {
            self.mappings.clear();
        }
        for (side, others) in [(&mut self.waiters, other.waiters), (&mut self.culprits, other.culprits)] {
            side.extend(others);
            // Each recording has a beginning of its own.
            side.iter_mut().for_each(|sample| sample.moments.clear());
            side.sort_by_key(|sample| Reverse(sample.wait_ns));
        }
    }
}

/// A file in the memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Last component of its path.
    pub file: String,
    /// GNU build id, in hexadecimal.
    pub build_id: Option<String>,
}

/// Waiting with one stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Innermost first, and never empty. A frame without an address stands for a place of which no stack is known; in brackets, for nobody.
    pub frames: Vec<StackFrame>,
    /// The lock's name as the table shows it: the one waited for, of culprits the one that they held.
    pub lock: String,
    /// Its kind; empty of a lock that the report does not list.
    pub kind: String,
    /// The process of that lock.
    pub process: Process,
    /// The name of whoever waited; empty where it is not known, or of several.
    pub thread: String,
    /// What else is told of it.
    pub labels: Vec<(&'static str, String)>,
    /// The lock waited for, of a culprit that held another one.
    pub waited_for: Option<String>,
    /// What a culprit was doing, where one thing is known of all of it: `running`, `runnable`, `blocked`, `sleeping`, `lock`,
    /// `kernel_lock`, `handoff`.
    pub cause: Option<&'static str>,
    /// Whether some of the blame rests on something less than the recorded order of holders.
    pub inferred: bool,
    /// Waits; of a culprit those that it prolonged, of which one wait may count for several culprits.
    pub count: u64,
    /// How long in all.
    pub wait_ns: Ns,
    /// The critical section of a culprit, in words; empty of others.
    pub place: String,
    /// Waits of these that are known one by one, in the order of time: all or some of them, or none.
    pub moments: Vec<Moment>,
}

/// A wait, or the part of it that somebody is to blame for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moment {
    /// When the wait began, since the observation did.
    pub since_start_ns: Ns,
    /// How long it lasted, or the part.
    pub wait_ns: Ns,
}

impl Sample {
    /// Whether it is what nobody is charged with.
    pub(super) fn is_of_nobody(&self) -> bool {
        self.frames.first().is_some_and(|frame| frame.function.as_deref() == Some(NOBODY))
    }
}

/// Waiting that was counted, but not recorded one by one.
const NOT_RECORDED: &str = "[not recorded one by one]";
/// Waiting for which nobody is to blame, or nobody is known.
const NOBODY: &str = "[nobody known]";

/// All waiting for locks of which there is a report.
pub(super) fn profile(ranked: &[Ranked<'_>], divided: Divided, report: &Report, places: &mut Places<'_>) -> Profile {
    let kinds = ranked.iter().map(|r| (r.lock, r.kind(places))).collect();
    let mut sides = Sides { places, kinds, waiters: Vec::new(), culprits: Vec::new() };
    let mut told = sides.places.ns(divided.all);
    let all = report.totals.harm_ns.max(told);
    let recorded = told;
    for r in ranked {
        if let Some(shares) = r.gathered.blame() {
            sides.waiters(r.lock, shares);
            sides.culprits(r.lock, shares);
        }
        // What is summed for several locks together is not told apart by lock: it is part of the rest.
        if !r.in_others && !r.lock.is_others() {
            let known = r.gathered.blame().map(|shares| shares.waits).unwrap_or_default();
            let missing = (sides.places.ns(r.harm) - sides.places.ns(known.time)).min(all - told);
            let count = r.contended.saturating_sub(known.count);
            let (lock, kind) = (sides.places.lock_label(r.lock), sides.kind(r.lock));
            let process = r.lock.process;
            sides.not_recorded(Sample { lock, kind, process, count, wait_ns: missing, ..Sample::default() });
            told += missing;
        }
    }
    sides.not_recorded(Sample { lock: "other locks".to_owned(), wait_ns: all - told, ..Sample::default() });
    let Sides { mut waiters, mut culprits, .. } = sides;
    for side in [&mut waiters, &mut culprits] {
        // At equal times the order of the report's locks stays.
        side.sort_by_key(|sample| Reverse(sample.wait_ns));
    }
    Profile {
        target: report.quality.target.clone(),
        duration_ns: report.quality.duration_ns,
        started_ns: None,
        mappings: Vec::new(),
        wait_ns: all,
        not_recorded_ns: all - recorded,
        waiters,
        culprits,
    }
}

struct Sides<'a, 'b> {
    places: &'a mut Places<'b>,
    kinds: HashMap<Lock, String>,
    waiters: Vec<Sample>,
    culprits: Vec<Sample>,
}

impl Sides<'_, '_> {
    fn waiters(&mut self, lock: Lock, shares: &Shares) {
        let (name, kind, process) = (self.places.lock_label(lock), self.kind(lock), lock.process);
        // Estimates have been rounded down site by site: what is missing goes to the last.
        let told: Nanos = shares.waiters.iter().map(|waiter| waiter.waits.time).sum();
        let mut missing = shares.waits.time - told;
        for waiter in shares.waiters.iter().rev() {
            let mut waits = waiter.waits;
            waits.time += std::mem::take(&mut missing);
            for (stack, part) in by_stack(&waiter.stacks, waits) {
                let place = match waiter.site {
                    Some(site) => self.places.place_of_wait(site, stack),
                    None => elsewhere("[other sites]"),
                };
                let frames = self.frames(lock.process, waiter.site.map(|s| s.addr), stack, &place);
                let (lock, kind) = (name.clone(), kind.clone());
                let wait_ns = self.places.ns(part.time);
                self.waiters.push(Sample {
                    frames,
                    lock,
                    kind,
                    process,
                    count: part.count,
                    wait_ns,
                    ..Sample::default()
                });
            }
        }
    }

    fn culprits(&mut self, lock: Lock, shares: &Shares) {
        for holder in shares.holders.iter().filter(|holder| holder.wait > Nanos(0)) {
            let held = holder.who.lock().unwrap_or(lock);
            let (place, _) = holder_place(holder.who, self.places);
            let (site, stacks_of) = (holder.who.site().map(|site| site.addr), holder.who.process(lock));
            let all = Sample {
                lock: self.places.lock_label(held),
                kind: self.kind(held),
                process: held.process,
                waited_for: (held != lock).then(|| self.places.lock_label(lock)),
                inferred: holder.inferred > Nanos(0),
                place: place.symbol.clone(),
                ..Sample::default()
            };
            let parts = parts(holder);
            let mut victims = holder.victims;
            for (at, part) in parts.iter().enumerate() {
                let frames = match part.stack {
                    Some((stack, true)) => {
                        let frames = self.places.off_stack(stacks_of, stack);
                        if frames.is_empty() { vec![frame(&place)] } else { frames }
                    }
                    Some((stack, false)) => self.frames(stacks_of, site, Some(stack), &place),
                    None => vec![frame(&place)],
                };
                // Whom each part held up was not kept: the victims are divided as the time is.
                let of_time = u128::from(holder.victims) * u128::from(part.wait.0) / u128::from(holder.wait.0.max(1));
                let count = if at + 1 == parts.len() { victims } else { victims.min(of_time as u64) };
                victims -= count;
                let cause = part.cause.filter(|&cause| cause != Cause::Unknown).map(doing::name);
                let wait_ns = self.places.ns(part.wait);
                self.culprits.push(Sample { frames, cause, count, wait_ns, ..all.clone() });
            }
        }
        let charged: Nanos = shares.holders.iter().map(|holder| holder.wait).sum();
        let wait_ns = self.places.ns(shares.waits.time - charged);
        if wait_ns > Ns::default() {
            let (frames, kind, process) = (vec![pseudo(NOBODY)], self.kind(lock), lock.process);
            let lock = self.places.lock_label(lock);
            self.culprits.push(Sample { frames, lock, kind, process, wait_ns, ..Sample::default() });
        }
    }

    fn not_recorded(&mut self, sample: Sample) {
        if sample.wait_ns > Ns::default() {
            let sample = Sample { frames: vec![pseudo(NOT_RECORDED)], ..sample };
            self.culprits.push(Sample { count: 0, ..sample.clone() });
            self.waiters.push(sample);
        }
    }

    fn kind(&self, lock: Lock) -> String {
        self.kinds.get(&lock).cloned().unwrap_or_default()
    }

    fn frames(
        &mut self,
        process: Process,
        site: Option<u64>,
        stack: Option<StackId>,
        place: &Place,
    ) -> Vec<StackFrame> {
        let frames = self.places.stack(process, site, stack);
        if frames.is_empty() { vec![frame(place)] } else { frames }
    }
}

/// A part of what a holder is blamed for: with which stack, and whether its thread was off the CPU there.
struct Part {
    stack: Option<(StackId, bool)>,
    cause: Option<Cause>,
    wait: Nanos,
}

/// What a holder is blamed for, divided: while it was off the CPU, by the stack there, then by the stack at its attempt.
fn parts(holder: &Holder) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut left, mut causes) = (holder.wait, holder.causes);
    for ((cause, stack), tally) in holder.off_stacks.top() {
        let wait = tally.time.min(causes.of(cause)).min(left);
        if wait > Nanos(0) {
            parts.push(Part { stack: Some((stack, true)), cause: Some(cause), wait });
            left = left - wait;
            causes.0[cause as usize] = causes.of(cause) - wait;
        }
    }
    let stacks = by_stack(&holder.stacks, Tally { count: 0, time: left });
    match stacks.as_slice() {
        [] => {}
        &[(stack, _)] => {
            for cause in Cause::ALL {
                let wait = causes.of(cause).min(left);
                if wait > Nanos(0) {
                    parts.push(Part { stack: stack.map(|stack| (stack, false)), cause: Some(cause), wait });
                    left = left - wait;
                }
            }
            if left > Nanos(0) {
                parts.push(Part { stack: stack.map(|stack| (stack, false)), cause: None, wait: left });
            }
        }
        several => {
            let cause = only(&causes);
            let part = |&(stack, tally): &(Option<StackId>, Tally)| Part {
                stack: stack.map(|stack| (stack, false)),
                cause,
                wait: tally.time,
            };
            parts.extend(several.iter().map(part));
        }
    }
    parts
}

/// The cause of all of it, if there is one.
fn only(causes: &Causes) -> Option<Cause> {
    let mut known = Cause::ALL.into_iter().filter(|&cause| causes.of(cause) > Nanos(0));
    known.next().filter(|_| known.next().is_none())
}

/// A sum by stack. Stacks that stand for more than all are shares of it; what they do not cover has none.
fn by_stack(stacks: &Stacks, all: Tally) -> Vec<(Option<StackId>, Tally)> {
    let kept = stacks.top();
    let known: u64 = stacks.total().time.0;
    let scale = if known > all.time.0 { all.time.0 as f64 / known as f64 } else { 1.0 };
    let mut left = all;
    let mut parts = Vec::with_capacity(kept.len() + 1);
    for (stack, mut part) in kept {
        if scale < 1.0 {
            part.scale(scale, scale);
        }
        part = Tally { count: part.count.min(left.count), time: part.time.min(left.time) };
        if part.time > Nanos(0) {
            left = Tally { count: left.count - part.count, time: left.time - part.time };
            parts.push((Some(stack), part));
        }
    }
    match parts.as_mut_slice() {
        // What was cut off by rounding belongs to the only stack that there is.
        [(_, only)] if scale < 1.0 && stacks.rest().count == 0 => {
            *only = all;
        }
        _ if left.time > Nanos(0) => parts.push((None, left)),
        [.., (_, last)] => last.count += left.count,
        [] => {}
    }
    parts
}

/// A place of which no stack is known.
pub(super) fn frame(place: &Place) -> StackFrame {
    let function = place.function.clone().unwrap_or_else(|| place.symbol.clone());
    StackFrame { function: Some(function), file: place.file.clone(), line: place.line, ..StackFrame::default() }
}

fn pseudo(name: &str) -> StackFrame {
    StackFrame { function: Some(name.to_owned()), ..StackFrame::default() }
}
