//! What an observation has found so far, told while it goes on.

use super::output;
use crate::analysis::Analyst;
use crate::event::Event;
use crate::observe::snapshots::Snapshots;
use crate::observe::{Collector, Live, Sink};
use crate::report::{self, table};
use crate::units::Time;
use anyhow::Result;
use std::time::Duration;

/// Looks may take one part in so many of the time.
const PART: u32 = 20;
/// Locks shown, if the user does not say.
const TOP: usize = 3;

/// Looks at an observation again and again.
pub(super) struct Looks {
    snapshots: Snapshots,
    options: report::Options,
}

impl Looks {
    /// Will look at this interval, from now on, at what these options say.
    pub(super) fn new(every: Duration, options: &report::Options, futex_only: bool) -> Self {
        let options = report::Options { top: Some(options.top.unwrap_or(TOP).min(TOP)), ..options.clone() };
        Self { snapshots: Snapshots::new(every, PART, futex_only), options }
    }

    /// Takes note of an event.
    pub(super) fn see(&mut self, event: &Event) {
        self.snapshots.see(event);
    }

    /// Looks, if it is time to; returns what there is to be told. Everything known at `now` has been taken.
    ///
    /// # Errors
    /// When the kernel side's sums cannot be read.
    pub(super) fn look(&mut self, analyst: &mut Analyst, now: Time, live: &mut Live<'_>) -> Result<String> {
        let options = &self.options;
        let told = self.snapshots.take(analyst, now, live, |observation, live| {
            let text = match report::build(&observation, live.census.symbols(), options) {
                Ok(report) => table::summary(&report, output::layout().width),
                // It may come.
                Err(unmatched) => format!("{unmatched}, so far.\n"),
            };
            format!("after {}: {text}\n", now.since(live.start))
        })?;
        Ok(told.unwrap_or_default())
    }
}

/// A collector that is looked at while it goes on, if that is wanted.
pub(super) struct Looked {
    pub collector: Collector,
    pub looks: Option<Looks>,
}

impl Sink for Looked {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        self.collector.begin(live)
    }

    fn take(&mut self, event: Event) {
        self.looks.iter_mut().for_each(|looks| looks.see(&event));
        self.collector.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        let analyst = self.collector.analyst();
        self.looks.as_mut().map_or(Ok(String::new()), |looks| looks.look(analyst, now, live))
    }
}
