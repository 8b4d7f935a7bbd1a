//! The flight recorder: keeps the last minutes of an observation, whatever else is done with it, and makes a recording of them when it is
//! wanted (`--keep`).

mod dumps;
mod recorder;
pub(super) mod socket;

use super::alert_args::AlertArgs;
use super::args::Plan;
use super::census::Census;
use super::ends::Ends;
use super::flight_args::DumpOn;
use super::sink::{Live, Sink};
use crate::event::Event;
use crate::observation::Harvest;
use crate::units::Time;
use anyhow::{Result, bail};
use recorder::Flight;

/// What is said to who asks for what is not kept.
const NOTHING: &str = "lockbpf: SIGUSR1 asks for what a flight recorder has kept: there is none without --keep\n";

/// A sink, and a flight recorder beside it if one is wanted.
pub(super) struct Tee<'a, S> {
    sink: &'a mut S,
    flight: Option<Flight>,
}

impl<'a, S: Sink> Tee<'a, S> {
    /// What the plan asks for.
    ///
    /// # Errors
    /// When nothing can be kept as it is asked for.
    pub(super) fn prepare(plan: &Plan, sink: &'a mut S) -> Result<Self> {
        let flight = &plan.capture.flight;
        let AlertArgs { wait_over, hold_over, .. } = &plan.capture.alert;
        for (on, over, option) in [(DumpOn::Wait, wait_over, "--wait-over"), (DumpOn::Hold, hold_over, "--hold-over")] {
            if flight.dump_on.contains(&on) && over.is_none() {
                bail!("--dump-on names an alert that there is none of: say of what there is one with {option}");
            }
        }
        let flight = flight.keep.map(|keep| Flight::prepare(plan, keep)).transpose()?;
        Ok(Self { sink, flight })
    }

    /// The observation has ended with this: what was asked for and is not made yet is made now.
    pub(super) fn end(self, harvest: &Harvest, census: &mut Census, end: Time) {
        if let Some(flight) = self.flight {
            for line in flight.end(harvest, census, end).lines() {
                say!("{line}");
            }
        }
    }
}

impl<S: Sink> Sink for Tee<'_, S> {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        if let Some(flight) = &mut self.flight {
            flight.begin(live)?;
        }
        self.sink.begin(live)
    }

    fn take(&mut self, event: Event) {
        if let Some(flight) = &mut self.flight {
            flight.take(&event);
        }
        self.sink.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        let asked = Ends::dump_asked();
        let mut text = match &mut self.flight {
            Some(flight) => flight.poll(now, live, asked)?,
            None if asked => NOTHING.to_owned(),
            None => String::new(),
        };
        text += &self.sink.poll(now, live)?;
        Ok(text)
    }

    fn has_screen(&self) -> bool {
        self.sink.has_screen()
    }

    fn is_done(&self) -> bool {
        self.sink.is_done()
    }

    fn suspended(&mut self, stops: bool) {
        self.sink.suspended(stops);
    }
}
