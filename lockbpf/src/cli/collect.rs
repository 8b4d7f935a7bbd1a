//! What becomes of events while an observation runs, if they are not recorded: analysed at once.

use super::live::{Captured, Live, Sink};
use super::looks::Looks;
use crate::analysis::{Analyst, Closing, Options};
use crate::event::Event;
use crate::observation::Observation;
use crate::symbol::Symbols;
use crate::units::Time;
use anyhow::Result;

/// Collects one observation.
pub(super) struct Collector {
    analyst: Analyst,
    /// Tells the user meanwhile what was found, if that is wanted.
    looks: Option<Looks>,
}

impl Default for Collector {
    fn default() -> Self {
        // The kernel side keeps the sums.
        Self { analyst: Analyst::new(Options { totals: false, ..Options::default() }), looks: None }
    }
}

impl Sink for Collector {
    fn begin(&mut self, _live: &mut Live<'_>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.looks.iter_mut().for_each(|looks| looks.see(&event));
        self.analyst.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        self.looks.as_mut().map_or(Ok(String::new()), |looks| looks.look(&mut self.analyst, now, live))
    }
}

impl Collector {
    /// What has been analysed so far.
    pub(super) fn analyst(&mut self) -> &mut Analyst {
        &mut self.analyst
    }

    /// The same, but looked at while it goes on.
    pub(super) fn looked_at(self, looks: Option<Looks>) -> Self {
        Self { looks, ..self }
    }

    /// Closes the collection.
    pub(super) fn finish(mut self, captured: Captured, futex_only: bool) -> (Observation, Symbols) {
        let Captured { harvest, census, target, start, end } = captured;
        let (processes, symbols) = census.into_parts();
        processes.into_values().for_each(|seen| self.analyst.meet(seen));
        let closing = Closing { target, period: Some((start, end)), futex_only, ticks_per_ns: 1, harvest };
        (self.analyst.finish(closing), symbols)
    }
}
