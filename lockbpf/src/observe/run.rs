//! One observation from its targets to the last sum: check, discover, attach, wait, harvest. What becomes of the events
//! is the business of a [`Sink`].

use super::audience::Audience;
use super::request::Request;
use super::running::Running;
use super::sink::{Captured, Sink};
use super::suspend;
use crate::capture::session::now;
use crate::helper;
use anyhow::{Result, ensure};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval_at};

/// How often the ring buffers are emptied. They are not waited for: a wake-up costs the target as much as a probe.
const POLL: Duration = Duration::from_millis(50);
/// How often lockbpf looks who is there, and whether a target has loaded a C library or generated code, where the kernel did not
/// tell.
const RESCAN: Duration = Duration::from_secs(1);
/// The same while lockbpf has no CPU time left.
const SELDOM: Duration = Duration::from_secs(10);

/// Observes until the time is over, the targets have exited, or the audience has had enough. It blocks: asynchronous programs give it a thread
/// of its own.
///
/// # Errors
/// When it cannot begin or go on, the sink fails, or the thread is one of an asynchronous runtime.
pub fn observe(request: &Request, sink: &mut impl Sink, audience: &mut impl Audience) -> Result<Captured> {
    helper::check()?;
    ensure!(
        Handle::try_current().is_err(),
        "this thread is one of an asynchronous runtime: observe in one of std::thread"
    );
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut running = Running::begin(request, audience)?;
        sink.begin(&mut running.live())?;
        running.go_on(sink, audience).await?;
        running.end(sink, audience)
    })
}

impl Running<'_> {
    /// Goes on until it is to end.
    async fn go_on(&mut self, sink: &mut impl Sink, audience: &mut impl Audience) -> Result<()> {
        let bell = self.session.bell()?;
        let began = tokio::time::Instant::from_std(self.began);
        let duration = self.request.duration;
        let mut poll = interval_at(began + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rescan_at = self.began + RESCAN / 10;
        loop {
            tokio::select! {
                () = audience.enough() => return Ok(()),
                () = tokio::time::sleep_until(began + duration.unwrap_or_default()), if duration.is_some() => return Ok(()),
                rung = bell.rung(), if !self.census.is_busy() => {
                    rung?;
                    let seen = self.drain(sink)?;
                    self.welcome(&seen)?;
                    if self.many {
                        self.take_in(false)?;
                    }
                }
                told = self.watch.told() => self.watch.take(told, &mut self.session, &self.census)?,
                _ = poll.tick() => {
                    if self.look(sink, audience)?.is_break() {
                        return Ok(());
                    }
                    let thorough = Instant::now() >= rescan_at;
                    if thorough {
                        rescan_at = Instant::now() + if self.census.is_busy() { SELDOM } else { RESCAN };
                    }
                    self.look_around(thorough, audience)?;
                }
            }
        }
    }

    /// Takes what there is, and looks at everything that may have changed. Breaks if the observation is to end.
    fn look(&mut self, sink: &mut impl Sink, audience: &mut impl Audience) -> Result<ControlFlow<()>> {
        if suspend::asked() {
            sink.suspended(true);
            suspend::stop(&mut self.session, &self.watch, audience)?;
            sink.suspended(false);
        }
        let time = now();
        self.census.pace(self.own.is_busy());
        self.watch.pace(self.census.is_busy());
        let seen = self.drain(sink)?;
        self.welcome(&seen)?;
        let Self { session, census, .. } = self;
        session.look_after();
        let blind = if census.is_busy() { Vec::new() } else { session.witness(|pid| census.number(pid)) };
        for pid in blind {
            audience.tell(&format!("lockbpf: pid {pid} is not observed any more: its probes see nothing\n"));
        }
        if !census.is_busy() {
            self.unwatched.look(|| census.pids().into_values().collect());
        }
        self.cpu_use.look(&mut self.ready.pids);
        self.focus.look(session, census.events())?;
        let new = census.newly_met();
        self.interpreters.look(&new, session, census);
        self.carriers.look(&new, session, census);
        self.parking.look(session, census);
        if let Some(text) = self.deadlocks.look(session, census) {
            audience.tell(&text);
        }
        let found = sink.poll(time, &mut self.live())?;
        if !found.is_empty() {
            audience.tell(&found);
        }
        audience.goes_on(self.began.elapsed(), self.census.events());
        let exited = self.ready.launched.as_mut().is_some_and(|child| child.exited().is_some());
        let is_over = self.own.is_full() || sink.is_done() || exited || self.liveness.all_exited();
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Looks who is there, and what the targets have loaded: where the kernel told of something, and, if `thorough`, in any case.
    fn look_around(&mut self, thorough: bool, audience: &mut impl Audience) -> Result<()> {
        if thorough {
            self.census.symbols().rest();
        }
        if self.many {
            return self.take_in(thorough);
        }
        if !self.newcomers.heard_of(&self.ready.pids) && !thorough {
            return Ok(());
        }
        self.census.refresh_made();
        if self.mapped.changed(&self.ready.pids) {
            self.census.refresh();
            self.interpreters.reconsider(&self.census);
            self.carriers.reconsider(self.census.pids());
            self.parking.reconsider();
            self.focus.refresh(&mut self.session, &mut self.census, audience)?;
            if !self.request.futex_only {
                self.place_in_what_was_loaded();
            }
        }
        Ok(())
    }
}
