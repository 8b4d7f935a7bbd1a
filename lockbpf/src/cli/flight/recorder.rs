//! Writing what is observed as segments, of which the newest are kept.

use super::dumps::Dumps;
use crate::alert::SoFar;
use crate::cli::flight_args::FlightArgs;
use crate::cli::segments::{Closed, Held, Open, Store};
use crate::event::Event;
use crate::flight::{Limits, Ring, Segment};
use crate::observation::Harvest;
use crate::observe::census::Census;
use crate::observe::processes::Processes;
use crate::observe::record::{self, probed};
use crate::observe::{Captured, Live, Request};
use crate::trace::{Capture, Compression, Header, Kept, Writer};
use crate::units::{Nanos, Time};
use crate::untrusted::shown_lines;
use anyhow::{Context, Result};
use std::io;
use std::time::{Duration, Instant};

/// How often sums and names are written where segments outlive this program: what is lost if it is killed.
const LASTING: Duration = Duration::from_millis(900);
/// The same where they do not, and sums are wanted at the ends of segments only: names of what may soon be gone.
const PASSING: Duration = Duration::from_secs(5);
/// Reading sums may take one part in so many of the time; where it takes longer, it is done more rarely.
const PART: u32 = 20;

/// A flight recorder.
pub(super) struct Flight {
    ring: Ring<Closed>,
    store: Store,
    capture: Capture,
    header: Header,
    open: Option<Writing>,
    /// When sums and names are written next.
    next: Instant,
    /// Written in the open segment.
    processes: Processes,
    failed: Option<io::Error>,
    dumps: Dumps,
    /// Whether it was told that less is kept than was asked for.
    told_short: bool,
}

/// The open segment.
struct Writing {
    writer: Writer<Open>,
    begin: Time,
    /// Events, and bytes, that it began with.
    opening: (u64, u64),
}

impl Writing {
    fn bytes(&self) -> u64 {
        self.writer.written().bytes
    }

    fn events(&self) -> u64 {
        self.writer.written().events - self.opening.0
    }
}

impl Flight {
    /// Will keep the last so long of an observation.
    ///
    /// # Errors
    /// When there is no place for it, or for recordings.
    pub(super) fn prepare(args: &FlightArgs, request: &Request, keep: Duration) -> Result<Self> {
        let limits = Limits { keep: Nanos(keep.as_nanos() as u64), size: args.size() };
        let store = args.keep_dir.as_deref().map_or(Ok(Store::Memory), Store::dir)?;
        Ok(Self {
            ring: Ring::new(limits),
            store,
            capture: record::capture(request),
            header: Header::default(),
            open: None,
            next: Instant::now(),
            processes: Processes::default(),
            failed: None,
            dumps: Dumps::prepare(args)?,
            told_short: false,
        })
    }

    /// The observation begins.
    ///
    /// # Errors
    /// When nothing can be written.
    pub(super) fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        let harvest = live.harvest(live.start)?;
        self.header = Header { capture: Some(probed(&self.capture, live)), ..record::header(live.target, live.start)? };
        self.dumps.begin();
        self.turn(&harvest, live.census, live.start).context("failed to begin to keep what is observed")
    }

    /// Takes an event.
    pub(super) fn take(&mut self, event: &Event) {
        self.processes.take(event);
        // After a failure nothing more is written; the next poll tells it.
        if let (Some(open), None) = (&mut self.open, &self.failed) {
            self.failed = open.writer.event(event).err();
        }
    }

    /// Writes what it is time for, and makes a recording if one is wanted: `asked` by a signal, or otherwise. Returns what is to be told.
    ///
    /// # Errors
    /// When the kernel side's sums cannot be read.
    pub(super) fn poll(&mut self, now: Time, live: &mut Live<'_>, alerts: &SoFar, asked: bool) -> Result<String> {
        let mut text = self.dumps.poll(now, alerts, live.deadlocks.len(), asked);
        // What observes goes on without it.
        match self.write(now, live) {
            Ok(told) => text += &told,
            Err(error) => {
                self.open = None;
                text += &shown_lines(&format!("lockbpf: the flight recorder has stopped: {error:#}"));
                text.push('\n');
            }
        }
        Ok(text)
    }

    fn write(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        if self.open.is_none() {
            return Ok(self.dumps.refuse());
        }
        let failed = "failed to write a segment";
        self.failed.take().map_or(Ok(()), Err).context(failed)?;
        let capture = Some(probed(&self.capture, live));
        if let (true, Some(open)) = (capture != self.header.capture, &mut self.open) {
            self.header.capture = capture;
            open.writer.header(&self.header).context(failed)?;
        }
        let is_due = self.open.as_ref().is_some_and(|open| {
            self.ring.is_due(open.begin, open.opening.1, open.bytes(), now) || self.dumps.is_due(now)
        });
        let began = Instant::now();
        if is_due {
            let harvest = live.harvest(now)?;
            self.turn(&harvest, live.census, now).context(failed)?;
            self.pause(began);
        } else if began >= self.next {
            let harvest = live.harvest(now)?;
            if let Some(open) = &mut self.open {
                self.processes.write(&mut open.writer, live.census).context(failed)?;
                open.writer.checkpoint(&harvest, live.census.symbols(), now).context(failed)?;
            }
            self.pause(began);
        } else if let Some(open) = &mut self.open {
            open.writer.tick(now).context(failed)?;
        }
        // A recording is made before anything is dropped. The last segment alone may be larger than what is kept.
        let mut text = if self.dumps.is_due(now) { self.dump(now)? } else { String::new() };
        text += &self.trim(now);
        Ok(text)
    }

    fn pause(&mut self, began: Instant) {
        let every = if self.store.is_lasting() { LASTING } else { PASSING };
        self.next = Instant::now() + every.max(began.elapsed() * PART);
    }

    /// Completes the open segment, if there is one, and begins the next.
    fn turn(&mut self, harvest: &Harvest, census: &mut Census, now: Time) -> io::Result<()> {
        let Limits { keep, size } = self.ring.limits();
        let ends = self.open.as_ref().map_or(0, Writing::events);
        let number = self.ring.number() + u64::from(self.open.is_some());
        let since = self.header.kept.as_ref().map_or(now.0, |kept| kept.observed_since);
        let events_before = self.ring.events() + ends;
        let kept = Kept { number, observed_since: since, events_before, keep_ns: keep.0, keep_bytes: size };
        let wall = |header: &Header| header.wall_ns.map(|wall| wall + now.0.saturating_sub(header.start));
        self.header =
            Header { wall_ns: wall(&self.header), start: now.0, kept: Some(kept), ..std::mem::take(&mut self.header) };
        let next = self.store.create(number)?;
        let mut writer = match self.open.take() {
            None => Writer::new(next, &self.header, Compression::None)?,
            Some(mut open) => {
                self.processes.write(&mut open.writer, census)?;
                let begin = open.begin;
                let (done, bytes, writer) = open.writer.turn(next, &self.header, harvest, census.symbols(), now)?;
                self.ring.push(Segment { begin, end: now, events: ends, bytes, body: done.close() });
                writer
            }
        };
        writer.opening(harvest, now)?;
        for seen in census.processes().values() {
            writer.event(&Event::Process(seen.clone()))?;
        }
        self.processes.begin_anew();
        let opening = (writer.written().events, writer.written().bytes);
        self.open = Some(Writing { writer, begin: now, opening });
        Ok(())
    }

    /// Drops what is too old or too much. Returns what is to be told of that: once.
    fn trim(&mut self, now: Time) -> String {
        let Some(open) = &self.open else { return String::new() };
        let (begin, bytes) = (open.begin, open.bytes());
        self.ring.trim(bytes, now).into_iter().for_each(|segment| Store::drop(segment.body));
        let holding = self.ring.holds(begin, bytes, now);
        if !holding.is_short || self.told_short {
            return String::new();
        }
        self.told_short = true;
        let Limits { keep, size } = self.ring.limits();
        format!(
            "lockbpf: the flight recorder holds {} of the {keep} wanted: {} MiB are full (--keep-size)\n",
            holding.time,
            size >> 20
        )
    }

    /// Has a recording made of what is kept.
    fn dump(&mut self, by: Time) -> Result<String> {
        let held: io::Result<Vec<Held>> = self.ring.segments().map(|segment| segment.body.hold()).collect();
        Ok(self.dumps.make(held.context("failed to open a segment")?, by))
    }

    /// The observation ends. Returns what is to be told.
    pub(super) fn end(mut self, captured: &mut Captured) -> String {
        let mut text = String::new();
        let outcome = match self.failed.take() {
            Some(error) => Err(error),
            // In memory nobody will look at it.
            None if self.dumps.is_wanted() || self.store.is_lasting() => {
                self.close(&captured.harvest, &mut captured.census, captured.end)
            }
            None => Ok(()),
        };
        if let Err(error) = outcome {
            text += &format!("lockbpf: the flight recorder has not written the end: {error}\n");
        }
        while self.dumps.is_wanted() {
            match self.dump(Time(u64::MAX)) {
                Ok(told) => text += &told,
                Err(error) => {
                    text += &format!("lockbpf: no recording was made: {error:#}\n");
                    break;
                }
            }
        }
        text + &self.dumps.end()
    }

    fn close(&mut self, harvest: &Harvest, census: &mut Census, end: Time) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let (events, begin) = (open.events(), open.begin);
        self.processes.write(&mut open.writer, census)?;
        let (done, written) = open.writer.finish(harvest, census.symbols(), end)?;
        self.ring.push(Segment { begin, end, events, bytes: written.bytes, body: done.close() });
        Ok(())
    }
}
