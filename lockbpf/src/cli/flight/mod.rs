//! The flight recorder: keeps the last minutes of an observation, whatever else is done with it, and makes a recording of them when it is
//! wanted (`--keep`).

mod dumps;
mod recorder;
pub(super) mod socket;

use super::alert_args::AlertArgs;
use super::args::Plan;
use super::ends::Ends;
use super::flight_args::DumpOn;
use crate::alert::SoFar;
use crate::event::Event;
use crate::observe::{Captured, Live, Request};
use crate::units::Time;
use anyhow::{Result, bail};
use recorder::Flight;

/// What is said to who asks for what is not kept.
const NOTHING: &str = "lockbpf: SIGUSR1 asks for what a flight recorder has kept: there is none without --keep\n";

/// A flight recorder, if one is wanted.
pub(super) struct Recording(Option<Flight>);

impl Recording {
    /// What the plan asks for.
    ///
    /// # Errors
    /// When nothing can be kept as it is asked for.
    pub(super) fn prepare(plan: &Plan, request: &Request) -> Result<Self> {
        let flight = &plan.capture.flight;
        let AlertArgs { wait_over, hold_over, .. } = &plan.capture.alert;
        for (on, over, option) in [(DumpOn::Wait, wait_over, "--wait-over"), (DumpOn::Hold, hold_over, "--hold-over")] {
            if flight.dump_on.contains(&on) && over.is_none() {
                bail!("--dump-on names an alert that there is none of: say of what there is one with {option}");
            }
        }
        Ok(Self(flight.keep.map(|keep| Flight::prepare(&plan.capture.flight, request, keep)).transpose()?))
    }

    /// The observation begins.
    ///
    /// # Errors
    /// When nothing can be written.
    pub(super) fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |flight| flight.begin(live))
    }

    /// Takes an event.
    pub(super) fn take(&mut self, event: &Event) {
        if let Some(flight) = &mut self.0 {
            flight.take(event);
        }
    }

    /// Every event known at this time has been taken; `alerts` are those told so far. Returns what is to be told.
    ///
    /// # Errors
    /// When the kernel side's sums cannot be read.
    pub(super) fn poll(&mut self, now: Time, live: &mut Live<'_>, alerts: &SoFar) -> Result<String> {
        let asked = Ends::dump_asked();
        match &mut self.0 {
            Some(flight) => flight.poll(now, live, alerts, asked),
            None if asked => Ok(NOTHING.to_owned()),
            None => Ok(String::new()),
        }
    }

    /// The observation has ended with this: what was asked for and is not made yet is made now. Returns what is to be told.
    pub(super) fn end(&mut self, captured: &mut Captured) -> String {
        self.0.take().map(|flight| flight.end(captured)).unwrap_or_default()
    }
}
