//! What an observation has found so far, told while it goes on.

use super::live::Live;
use super::output;
use crate::analysis::{Analyst, Closing};
use crate::event::Event;
use crate::order::Watermark;
use crate::report::{self, table};
use crate::units::Time;
use anyhow::Result;
use lockbpf_common::kind::Via;
use std::time::{Duration, Instant};

/// A look may take one part in so many of the time: where it takes longer, looks are fewer. The first one reads symbols, which is done once.
const SHARE: u32 = 20;
/// Locks shown, if the user does not say.
const TOP: usize = 3;

/// Looks at an observation again and again.
pub(super) struct Looks {
    every: Duration,
    next: Instant,
    is_first: bool,
    watermark: Watermark,
    options: report::Options,
    futex_only: bool,
}

impl Looks {
    /// Will look at this interval, from now on, at what these options say.
    pub(super) fn new(every: Duration, options: &report::Options, futex_only: bool) -> Self {
        let options = report::Options { top: Some(options.top.unwrap_or(TOP).min(TOP)), ..options.clone() };
        Self {
            every,
            next: Instant::now() + every,
            is_first: true,
            watermark: Watermark::default(),
            options,
            futex_only,
        }
    }

    /// Takes note of an event.
    pub(super) fn see(&mut self, event: &Event) {
        self.watermark.see(event);
    }

    /// Looks, if it is time to; returns what there is to be told. Everything known at `now` has been taken.
    ///
    /// # Errors
    /// When the kernel side's sums cannot be read.
    pub(super) fn look(&mut self, analyst: &mut Analyst, now: Time, live: &mut Live<'_>) -> Result<String> {
        let began = Instant::now();
        if began < self.next {
            return Ok(String::new());
        }
        let harvest = live.harvest(now)?;
        // A futex wait is one step, at its end.
        let begun = harvest.open_waits.iter().filter(|wait| wait.via != Via::Futex).map(|wait| wait.since);
        analyst.advance(self.watermark.at(now, begun));
        live.census.processes().values().for_each(|seen| analyst.meet(seen.clone()));
        let observation = analyst.snapshot(Closing {
            target: live.target.to_owned(),
            period: Some((live.start, now)),
            futex_only: self.futex_only,
            ticks_per_ns: 1,
            harvest,
        });
        let text = match report::build(&observation, live.census.symbols(), &self.options) {
            Ok(report) => table::summary(&report, output::layout().width),
            // It may come.
            Err(unmatched) => format!("{unmatched}, so far.\n"),
        };
        let pause = if self.is_first { Duration::ZERO } else { began.elapsed() * SHARE };
        self.is_first = false;
        self.next = Instant::now() + self.every.max(pause);
        Ok(format!("after {}: {text}\n", now.since(live.start)))
    }
}
