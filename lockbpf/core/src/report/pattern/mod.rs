//! Patterns of waiting that have names: starvation, thundering herds, convoys, lock-step. docs/patterns.md defines them and says where
//! their thresholds come from.

mod convoy;
mod herd;
mod lockstep;
mod starvation;

use super::gather::Gathered;
use super::lock::Ranked;
use super::phrase::Threads;
use super::place::Places;
use super::schema::{Evidence, PatternEntry, Report};
use super::select::Selected;
use super::text::percent;
use crate::id::Lock;
use crate::observation::Observation;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Locks that are looked at, the most harmful ones, and condition variables.
const LOOKED_AT: usize = 64;
/// Patterns told in words.
const TOLD: usize = 3;
/// The part of all events from which on too many are lost for a pattern to be known.
const LOST: f64 = 0.01;

/// All that a pattern is looked for in.
pub(super) struct Seen<'a> {
    pub(super) observation: &'a Observation,
    pub(super) report: &'a Report,
}

impl Seen<'_> {
    /// A pattern of a lock, a barrier or a condition variable, which rests on so much waiting.
    fn entry(&self, places: &mut Places<'_>, lock: Lock, wait: Nanos, evidence: Evidence) -> PatternEntry {
        let wait_ns = places.ns(wait);
        PatternEntry {
            lock: places.lock_id(lock),
            name: places.lock_label(lock),
            wait_ns,
            share: wait_ns.share_of(self.report.totals.harm_ns).min(1.0),
            evidence,
        }
    }
}

/// The patterns of the selected locks and condition variables, by the waiting that they rest on.
pub(super) fn find(
    ranked: &[Ranked<'_>],
    all: &BTreeMap<Lock, Gathered<'_>>,
    selected: &Selected,
    seen: &Seen<'_>,
    places: &mut Places<'_>,
) -> Vec<PatternEntry> {
    let quality = &seen.report.quality;
    let lost: u64 = quality.lost.values().fold(0, |sum, &n| sum.saturating_add(n));
    if seen.observation.duration().0 == 0 || lost as f64 > LOST * quality.events as f64 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for r in ranked.iter().take(LOOKED_AT) {
        found.extend(starvation::find(r, seen, places));
        found.extend(convoy::find(r, seen, places));
        found.extend(lockstep::find(r, seen, places));
    }
    found.extend(herd::find(all, selected, seen, places));
    found.sort_by_key(|p| Reverse(p.wait_ns));
    found
}

/// Each in a sentence, with its usual cure.
pub(super) fn sentences(report: &Report, threads: &Threads<'_>) -> Vec<String> {
    report.patterns.iter().take(TOLD).map(|pattern| sentence(pattern, threads)).collect()
}

fn sentence(p: &PatternEntry, threads: &Threads<'_>) -> String {
    let (what, cure) = match &p.evidence {
        Evidence::Starvation(e) => (starvation::words(p, e, threads), starvation::CURE),
        Evidence::ThunderingHerd(e) => (herd::words(p, e), herd::CURE),
        Evidence::Convoy(e) => (convoy::words(p, e), convoy::CURE),
        Evidence::LockStep(e) => (lockstep::words(p, e), lockstep::CURE),
    };
    format!("{what} Usual cure: {cure} (docs/patterns.md).")
}

/// What a pattern rests on, as a part of all waiting.
fn rests_on(p: &PatternEntry) -> String {
    format!("{} of all waiting", percent(p.share))
}
