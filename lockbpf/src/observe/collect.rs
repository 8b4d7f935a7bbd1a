//! What becomes of events while an observation runs, if they are not recorded: analysed at once.

use super::sink::{Captured, Live, Sink};
use crate::analysis::{Analyst, Closing, Options};
use crate::event::Event;
use crate::observation::Observation;
use crate::symbol::Symbols;
use crate::units::Time;
use anyhow::Result;

/// Collects one observation.
pub struct Collector {
    analyst: Analyst,
}

impl Default for Collector {
    fn default() -> Self {
        // The kernel side keeps the sums.
        Self { analyst: Analyst::new(Options { totals: false, ..Options::default() }) }
    }
}

impl Sink for Collector {
    fn begin(&mut self, _live: &mut Live<'_>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.analyst.take(event);
    }

    fn poll(&mut self, _now: Time, _live: &mut Live<'_>) -> Result<String> {
        Ok(String::new())
    }
}

impl Collector {
    /// What has been analysed so far.
    pub fn analyst(&mut self) -> &mut Analyst {
        &mut self.analyst
    }

    /// Closes the collection.
    pub fn finish(mut self, captured: Captured, futex_only: bool) -> (Observation, Symbols) {
        let Captured { harvest, census, target, start, end } = captured;
        let (processes, symbols) = census.into_parts();
        processes.into_values().for_each(|seen| self.analyst.meet(seen));
        let closing = Closing { target, period: Some((start, end)), futex_only, ticks_per_ns: 1, harvest };
        (self.analyst.finish(closing), symbols)
    }
}
