//! What becomes of events while an observation runs, if they are not recorded: analysed at once.

use super::live::{Captured, Live, Sink};
use crate::analysis::{Analyst, Closing, Options};
use crate::event::Event;
use crate::observation::Observation;
use crate::symbol::Symbols;
use crate::units::Time;
use anyhow::Result;

/// Collects one observation.
pub(super) struct Collector(Analyst);

impl Default for Collector {
    fn default() -> Self {
        // The kernel side keeps the sums.
        Self(Analyst::new(Options { totals: false, ..Options::default() }))
    }
}

impl Sink for Collector {
    fn begin(&mut self, _live: &mut Live<'_>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.0.take(event);
    }

    fn poll(&mut self, _now: Time, _live: &mut Live<'_>) -> Result<()> {
        Ok(())
    }
}

impl Collector {
    /// Closes the collection.
    pub(super) fn finish(mut self, captured: Captured, futex_only: bool) -> (Observation, Symbols) {
        let Captured { harvest, census, target, start, end } = captured;
        let (processes, symbols) = census.into_parts();
        processes.into_values().for_each(|seen| self.0.meet(seen));
        let closing = Closing { target, period: Some((start, end)), futex_only, ticks_per_ns: 1, harvest };
        (self.0.finish(closing), symbols)
    }
}
