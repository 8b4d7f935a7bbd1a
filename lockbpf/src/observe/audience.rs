//! Who has asked for an observation: what they hear while it goes on, and how they end it.

use anyhow::Result;
use std::future::Future;
use std::time::Duration;

/// Hears what cannot wait for the report, and may end the observation.
pub trait Audience {
    /// Whether there is still to be an observation: asked again and again before it begins.
    ///
    /// # Errors
    /// When there is not: it is the error that the observation ends with.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until the observation is to end. It is dropped and called anew whenever something else happens, some twenty times a second: a
    /// time that it waits for is a moment, not a span.
    fn enough(&mut self) -> impl Future<Output = ()> {
        std::future::pending()
    }

    /// Hears whole lines, each with its end.
    fn tell(&self, text: &str);

    /// The probes are in place. `duration` is how long the observation is to last, if that is known.
    fn begins(&mut self, _duration: Option<Duration>) {}

    /// The observation goes on: it has lasted for `elapsed`, and had `events`. Called some twenty times a second.
    fn goes_on(&self, _elapsed: Duration, _events: u64) {}

    /// Nothing more is observed; the report is made.
    fn ends(&mut self) {}
}

/// Sends what it hears to the log, and lets an observation go on until its time is over or its target has exited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Audience for Log {
    fn tell(&self, text: &str) {
        text.lines().for_each(|line| log::info!("{line}"));
    }
}
