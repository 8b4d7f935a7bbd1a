//! What becomes of events while an observation runs: merged by time, divided among holders.

use super::live::{Captured, Live, Sink};
use crate::blame::Blame;
use crate::event::{Event, ThreadTotals};
use crate::id::Tid;
use crate::observation::Observation;
use crate::order::Merger;
use crate::sums::SiteSums;
use crate::symbol::Symbols;
use crate::units::{Nanos, Time};
use anyhow::Result;

/// Exited threads listed one by one; what later ones did is added up in one entry.
const MAX_EXITED: usize = 16_384;

/// Collects one observation.
#[derive(Default)]
pub(super) struct Collector {
    merger: Merger,
    blame: Blame,
    exited: Vec<ThreadTotals>,
}

impl Sink for Collector {
    fn begin(&mut self, _live: &mut Live<'_>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.merger.push(event);
    }

    /// Lets every event that is old enough reach the analysis.
    fn poll(&mut self, now: Time, _live: &mut Live<'_>) -> Result<()> {
        for event in self.merger.release(now) {
            analyse(&mut self.blame, &mut self.exited, event);
        }
        Ok(())
    }
}

impl Collector {
    /// Closes the collection.
    pub(super) fn finish(mut self, captured: Captured) -> (Observation, Symbols) {
        let Captured { harvest, census, target, start, end } = captured;
        for event in self.merger.finish() {
            analyse(&mut self.blame, &mut self.exited, event);
        }
        let mut quality = harvest.quality;
        quality.events = census.events();
        quality.late = self.merger.late();
        let (processes, symbols) = census.into_parts();
        let mut threads = self.exited;
        threads.extend(harvest.threads);
        let observation = Observation {
            target,
            start,
            end,
            futex_only: false,
            processes,
            sums: harvest.sums.iter().map(SiteSums::from).collect(),
            threads,
            blame: self.blame,
            open_waits: harvest.open_waits,
            stacks: harvest.stacks,
            quality,
            deadlocks: harvest.deadlocks,
            orders: harvest.orders,
            ticks_per_ns: 1,
            ..Observation::default()
        };
        (observation, symbols)
    }
}

fn analyse(blame: &mut Blame, exited: &mut Vec<ThreadTotals>, event: Event) {
    match event {
        Event::Section(section) => blame.section(&section),
        Event::FutexWait(wait) => blame.futex_wait(&wait),
        Event::ThreadExit(totals) => list_exited(exited, totals),
        Event::Process(_) | Event::OffCpu(_) | Event::Op(_) | Event::Step(_) => {}
    }
}

fn list_exited(exited: &mut Vec<ThreadTotals>, totals: ThreadTotals) {
    if exited.len() < MAX_EXITED {
        exited.push(totals);
    } else if let Some(last) = exited.last_mut() {
        last.tid = Tid(0);
        last.comm = "(more that exited)".to_owned();
        last.acquisitions += totals.acquisitions;
        for (sum, add) in [
            (&mut last.wait, totals.wait),
            (&mut last.held_sum, totals.held_sum),
            (&mut last.held_union, totals.held_union),
        ] {
            *sum = Nanos(sum.0.saturating_add(add.0));
        }
    }
}
