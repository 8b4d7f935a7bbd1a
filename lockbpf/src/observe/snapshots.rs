//! Snapshots of an observation that goes on, at an interval and at a bounded cost.

use super::sink::Live;
use crate::analysis::{Analyst, Closing};
use crate::event::Event;
use crate::observation::Observation;
use crate::order::Watermark;
use crate::units::Time;
use anyhow::Result;
use lockbpf_common::kind::Via;
use std::time::{Duration, Instant};

/// Takes snapshots again and again.
pub(crate) struct Snapshots {
    every: Duration,
    part: u32,
    next: Instant,
    is_first: bool,
    watermark: Watermark,
    futex_only: bool,
}

impl Snapshots {
    /// Will take one at this interval, from now on. They may take one part in so many of the time: where they take longer, they are fewer. The
    /// first one reads symbols, which is done once.
    pub(crate) fn new(every: Duration, part: u32, futex_only: bool) -> Self {
        Self { every, part, next: Instant::now() + every, is_first: true, watermark: Watermark::default(), futex_only }
    }

    /// Takes note of an event.
    pub(crate) fn see(&mut self, event: &Event) {
        self.watermark.see(event);
    }

    /// Takes a snapshot, if it is time to, and makes something of it. Everything known at `now` has been taken.
    ///
    /// # Errors
    /// When the kernel side's sums cannot be read.
    pub(crate) fn take<T>(
        &mut self,
        analyst: &mut Analyst,
        now: Time,
        live: &mut Live<'_>,
        make: impl FnOnce(Observation, &mut Live<'_>) -> T,
    ) -> Result<Option<T>> {
        let began = Instant::now();
        if began < self.next {
            return Ok(None);
        }
        let harvest = live.harvest_estimated(now)?;
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
        let made = make(observation, live);
        let pause = if self.is_first { Duration::ZERO } else { began.elapsed() * self.part };
        self.is_first = false;
        self.next = Instant::now() + self.every.max(pause);
        Ok(Some(made))
    }
}
