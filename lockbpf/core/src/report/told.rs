//! Waits and holds of a recording that is read once more: a timeline that has no more of them than are wanted at one time.

use super::lock::Ranked;
use super::place::Places;
use super::schema::{Ns, Report};
use super::timeline::{Tables, Timeline, all, empty};
use crate::graph::findings::Told;
use crate::id::Lock;
use crate::inside::Insides;
use crate::observation::Observation;
use crate::units::{Nanos, Time};
use std::collections::HashSet;

/// The waits and holds of a recording, section by section ([`crate::options::Options::told`]), with the names of its report.
pub struct Rows<'a, 'b> {
    tables: Tables<'a, 'b>,
    timeline: Timeline,
    shown: HashSet<Lock>,
    /// Locks of which the divided waits are told, and not those of sections.
    runtimes: HashSet<Lock>,
    insides: Insides,
    period: (Time, Time),
}

impl<'a, 'b> Rows<'a, 'b> {
    pub(super) fn new(
        ranked: &[Ranked<'_>],
        report: &'a Report,
        observation: &'a Observation,
        places: &'a mut Places<'b>,
    ) -> Self {
        let insides = Insides::of(&observation.sums);
        let named = |&lock: &Lock| insides.lock_of(lock).unwrap_or(lock);
        let runtimes = observation.findings.runtimes.iter().map(named).collect();
        Self {
            timeline: Timeline { not_shown_ns: all(report), ..empty(report, observation, places) },
            tables: Tables::new(ranked, report, observation, places),
            shown: ranked.iter().map(|r| r.lock).collect(),
            runtimes,
            insides,
            period: (observation.start, observation.end),
        }
    }

    /// Takes what is told of a section, or of a wait.
    pub fn take(&mut self, told: Told) {
        let wait = match told {
            Told::Section { node, blamed } if self.shown.contains(&node.lock) => {
                self.timeline.holds.extend(self.tables.hold(&node, self.period));
                if node.wait == Nanos(0) || self.runtimes.contains(&node.lock) {
                    return;
                }
                let culprits = blamed.iter().map(|by| self.tables.blamed(by)).collect();
                self.tables.wait(&node, self.period.0, culprits)
            }
            Told::Section { .. } => return,
            Told::Divided(mut wait) => {
                wait.rename_locks(|lock| self.insides.lock_of(lock).unwrap_or(lock));
                if !self.shown.contains(&wait.lock) {
                    return;
                }
                self.tables.divided(&wait)
            }
        };
        self.timeline.not_shown_ns = self.timeline.not_shown_ns - wait.wait_ns;
        self.timeline.waits.push(wait);
    }

    /// Waits and holds since they were last forgotten.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.timeline.waits.len(), self.timeline.holds.len())
    }

    /// These, by their beginnings, with everything that was named so far.
    pub fn timeline(&mut self) -> &Timeline {
        self.tables.name(&mut self.timeline);
        self.timeline.waits.sort_by_key(|wait| (wait.start_ns, wait.thread));
        self.timeline.holds.sort_by_key(|hold| (hold.start_ns, hold.thread));
        &self.timeline
    }

    /// They are not wanted any more.
    pub fn forget_waits(&mut self) {
        self.timeline.waits.clear();
    }

    /// They are not wanted any more.
    pub fn forget_holds(&mut self) {
        self.timeline.holds.clear();
    }

    /// Waiting that no row has told.
    #[must_use]
    pub fn not_shown_ns(&self) -> Ns {
        self.timeline.not_shown_ns
    }
}
