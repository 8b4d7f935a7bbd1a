//! What becomes of events while the screen is shown: they are analysed at once, as for a report, and looked at once a second.

use super::board::Board;
use super::digest::Snapshot;
use super::now::Looker;
use crate::analysis::Analyst;
use crate::event::Event;
use crate::observation::Observation;
use crate::observe::snapshots::Snapshots;
use crate::observe::{Captured, Collector, Live, Sink, own};
use crate::report;
use crate::symbol::Symbols;
use crate::units::Time;
use anyhow::Result;
use nix::sys::resource::UsageWho;
use std::time::{Duration, Instant};

/// How often a snapshot is taken.
const EVERY: Duration = Duration::from_secs(1);
/// Snapshots may take one part in so many of the time.
const PART: u32 = 20;

/// Shows an observation.
pub(super) struct Shown {
    collector: Collector,
    snapshots: Snapshots,
    options: report::Options,
    looker: Looker,
    board: Option<Board>,
    /// CPU time of this process at the last snapshot, and when that was.
    used: (Duration, Instant),
}

impl Shown {
    /// Will show one, at what these options say.
    pub(super) fn new(options: report::Options, futex_only: bool) -> Self {
        let snapshots = Snapshots::new(EVERY, PART, futex_only);
        let used = (cpu_time(), Instant::now());
        Self { collector: Collector::default(), snapshots, options, looker: Looker::default(), board: None, used }
    }

    /// Closes the screen. Returns whether that went well.
    pub(super) fn close(&mut self) -> Result<()> {
        self.board.take().map_or(Ok(()), Board::close)
    }

    /// Closes the collection.
    pub(super) fn finish(self, captured: Captured, futex_only: bool) -> (Observation, Symbols) {
        self.collector.finish(captured, futex_only)
    }
}

impl Sink for Shown {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        self.board = Some(Board::open(live.start)?);
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.snapshots.see(&event);
        self.collector.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        let Self { collector, snapshots, options, looker, board, used } = self;
        let Some(board) = board else { return Ok(String::new()) };
        let analyst: &mut Analyst = collector.analyst();
        snapshots.take(analyst, now, live, |observation, live| {
            // At once: who holds it now is soon somebody else.
            let glance = looker.glance(&observation, board.chosen().as_deref(), live.session, live.census);
            let built = report::build_histograms(&observation, live.census.symbols(), options);
            // What was asked for may come.
            let Ok((report, histograms)) = built else { return };
            let seen = looker.tell(glance, &report, live.census);
            let (before, since) = std::mem::replace(used, (cpu_time(), Instant::now()));
            let own_cpu = (used.0.saturating_sub(before), used.1.duration_since(since));
            board.show(Snapshot { at: now, report, histograms, now: seen, own_cpu });
        })?;
        Ok(String::new())
    }

    fn is_done(&self) -> bool {
        self.board.as_ref().is_some_and(Board::is_done)
    }

    fn suspended(&mut self, stops: bool) {
        if let Some(board) = &self.board {
            board.suspended(stops);
        }
    }
}

/// CPU time that this process has used.
fn cpu_time() -> Duration {
    Duration::from_nanos(own::cpu(UsageWho::RUSAGE_SELF).unwrap_or_default().0)
}
