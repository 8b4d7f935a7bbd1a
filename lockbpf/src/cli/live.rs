//! An observation from the command line: what goes on beside it, what the terminal shows, and who ends it.

use super::alerts::Alerts;
use super::args::Plan;
use super::ends::Ends;
use super::flight::Recording;
use super::messages;
use super::progress::Progress;
use crate::alert::SoFar;
use crate::event::Event;
use crate::observe::{self, Audience, Captured, Live, Request, Sink};
use crate::units::Time;
use anyhow::Result;
use std::time::Duration;

/// Observes until the time is over, the targets have exited, or the user has had enough; `name` describes the target if its command line
/// would not.
///
/// # Errors
/// When it cannot begin or go on, or the sink fails.
pub(super) fn observe(plan: &Plan, name: Option<&str>, sink: &mut impl Sink) -> Result<Captured> {
    observe_on(plan, name, sink, false)
}

/// The same while a screen shows how it goes.
///
/// # Errors
/// As [`observe`].
pub(super) fn observe_on_screen(plan: &Plan, sink: &mut impl Sink) -> Result<Captured> {
    observe_on(plan, None, sink, true)
}

fn observe_on(plan: &Plan, name: Option<&str>, sink: &mut impl Sink, has_screen: bool) -> Result<Captured> {
    let mut user = User { ends: Ends::listen()?, has_screen, progress: None };
    user.check()?;
    let request = plan.request(name);
    let mut beside = Beside::prepare(plan, &request, sink)?;
    observe::observe(&request, &mut beside, &mut user)
}

/// Who sits at the terminal.
struct User {
    ends: Ends,
    /// Whether something else shows how the observation goes.
    has_screen: bool,
    progress: Option<Progress>,
}

impl Audience for User {
    fn check(&self) -> Result<()> {
        self.ends.check()
    }

    async fn enough(&mut self) {
        self.ends.asked().await;
    }

    fn tell(&self, text: &str) {
        match &self.progress {
            Some(progress) => progress.tell(text),
            None => messages::write(text),
        }
    }

    fn begins(&mut self, duration: Option<Duration>) {
        self.progress = Some(Progress::start(duration, self.has_screen));
    }

    fn goes_on(&self, elapsed: Duration, events: u64) {
        if let Some(progress) = &self.progress {
            progress.update(elapsed, events);
        }
    }

    fn ends(&mut self) {
        self.progress = None;
    }
}

/// A sink, with alerts and a flight recorder beside it if they are wanted.
struct Beside<'a, S> {
    sink: &'a mut S,
    alerts: Option<Alerts>,
    recording: Recording,
}

impl<'a, S: Sink> Beside<'a, S> {
    /// What the plan asks for.
    ///
    /// # Errors
    /// When something cannot be done as it is asked for.
    fn prepare(plan: &Plan, request: &Request, sink: &'a mut S) -> Result<Self> {
        let alerts = Alerts::prepare(&plan.capture.alert, request.selection())?;
        Ok(Self { sink, alerts, recording: Recording::prepare(plan, request)? })
    }
}

impl<S: Sink> Sink for Beside<'_, S> {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        if let Some(alerts) = &mut self.alerts {
            alerts.begin(live.before, live.start, |tid| live.wants(tid));
        }
        self.recording.begin(live)?;
        self.sink.begin(live)
    }

    fn take(&mut self, event: Event) {
        self.recording.take(&event);
        self.sink.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        let alerts = self.alerts.as_mut();
        let mut text = alerts.and_then(|alerts| alerts.look(live.session, live.census)).unwrap_or_default();
        let none = SoFar::default();
        let told = self.alerts.as_ref().map_or(&none, Alerts::told);
        text += &self.recording.poll(now, live, told)?;
        text += &self.sink.poll(now, live)?;
        Ok(text)
    }

    fn is_done(&self) -> bool {
        self.sink.is_done()
    }

    fn suspended(&mut self, stops: bool) {
        self.sink.suspended(stops);
    }

    fn stopped(&mut self) -> String {
        self.alerts.take().map(Alerts::end).unwrap_or_default() + &self.sink.stopped()
    }

    fn end(&mut self, captured: &mut Captured) -> String {
        self.recording.end(captured) + &self.sink.end(captured)
    }
}
