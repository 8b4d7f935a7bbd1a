//! A trace written while the observation runs.

use super::cpus;
use super::processes::Processes;
use super::request::Request;
use super::sink::{Captured, Live, Sink};
use crate::capture::attach::ProbeSite;
use crate::capture::placer::Mechanism;
use crate::capture::session;
use crate::event::Event;
use crate::trace::{Capture, Compression, Header, Probe, Writer, Written};
use crate::units::{Nanos, Time};
use anyhow::{Context, Result, anyhow};
use nix::sys::utsname::uname;
use nix::time::{ClockId, clock_gettime};
use std::io::{self, Write};

/// How often sums, losses and names are written: a bit less than the second that may be lost.
const CHECKPOINT: Nanos = Nanos(900_000_000);

/// Writes what is observed to a trace.
pub struct Recorder<W: Write> {
    /// Until it begins.
    sink: Option<W>,
    /// What messages call that.
    name: String,
    compression: Compression,
    capture: Capture,
    writer: Option<Writer<W>>,
    failed: Option<io::Error>,
    header: Header,
    checkpoint: Time,
    processes: Processes,
}

impl<W: Write> Recorder<W> {
    /// Will write to `sink`, which messages call `name`, once the observation begins that is asked for by `request`.
    pub fn new(sink: W, name: String, compression: Compression, request: &Request) -> Self {
        Self {
            sink: Some(sink),
            name,
            compression,
            capture: capture(request),
            writer: None,
            failed: None,
            header: Header::default(),
            checkpoint: Time(0),
            processes: Processes::default(),
        }
    }

    /// Writes the end.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, captured: Captured) -> Result<(W, Written)> {
        let Captured { mut harvest, census, end, .. } = captured;
        self.result()?;
        let mut writer = self.writer.take().ok_or_else(|| anyhow!("the observation has not begun"))?;
        self.processes.write(&mut writer, &census).with_context(|| failed(&self.name))?;
        let (_, mut symbols) = census.into_parts();
        // Names are looked up here, and what goes wrong with them is known after that; most problems are known before.
        harvest.quality.notes.extend(symbols.problems().map(|problem| format!("{problem}.")));
        writer.finish(&harvest, &mut symbols, end).with_context(|| failed(&self.name))
    }

    fn result(&mut self) -> Result<()> {
        match self.failed.take() {
            Some(error) => Err(error).with_context(|| failed(&self.name)),
            None => Ok(()),
        }
    }

    fn describe(&self, live: &Live<'_>) -> Header {
        Header { capture: Some(probed(&self.capture, live)), ..self.header.clone() }
    }
}

/// How an observation is captured, with the probes that are in place by now.
pub(crate) fn probed(capture: &Capture, live: &Live<'_>) -> Capture {
    let how = match live.session.mechanism() {
        Mechanism::Session => "session",
        Mechanism::Link => "link",
        Mechanism::PerfEvents => "perf_event",
    };
    let probe = |site: &ProbeSite| Probe {
        function: site.function.symbol.to_owned(),
        file: site.display.clone(),
        offset: site.file_offset,
        how: how.to_owned(),
    };
    let probes = live.sites.iter().map(probe).collect();
    let counters = live.session.events().to_vec();
    Capture { probes, counters, ..capture.clone() }
}

/// How an observation is to be captured.
pub(crate) fn capture(request: &Request) -> Capture {
    Capture {
        min_wait_ns: u64::try_from(request.min_wait.as_nanos()).unwrap_or(u64::MAX),
        all_events: request.all_events,
        transitions: request.transitions,
        futex_only: request.futex_only,
        kernel_locks: request.kernel_locks,
        cpus: cpus::of_target(&request.target),
        comm: request.comm.clone(),
        tids: request.tids.clone(),
        counters: Vec::new(),
        probes: Vec::new(),
    }
}

impl<W: Write> Sink for Recorder<W> {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        self.header = header(live.target, live.start)?;
        self.header = self.describe(live);
        let sink = self.sink.take().ok_or_else(|| anyhow!("the observation has begun already"))?;
        let failed = || failed(&self.name);
        let mut writer = Writer::new(sink, &self.header, self.compression).with_context(failed)?;
        // Those that were there before the observation are told by no event.
        for seen in live.census.processes().values() {
            writer.event(&Event::Process(seen.clone())).with_context(failed)?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.processes.take(&event);
        // After a failure nothing more is written; the next poll tells it.
        if let (Some(writer), None) = (&mut self.writer, &self.failed) {
            self.failed = writer.event(&event).err();
        }
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        self.result()?;
        let header = self.describe(live);
        let Some(writer) = &mut self.writer else { return Ok(String::new()) };
        let failed = || failed(&self.name);
        if header != self.header {
            writer.header(&header).with_context(failed)?;
            self.header = header;
        }
        writer.tick(now).with_context(failed)?;
        if now.since(self.checkpoint) < CHECKPOINT {
            return Ok(String::new());
        }
        self.checkpoint = now;
        let harvest = live.harvest(now)?;
        self.processes.write(writer, live.census).with_context(failed)?;
        writer.checkpoint(&harvest, live.census.symbols(), now).with_context(failed)?;
        Ok(String::new())
    }
}

fn failed(name: &str) -> String {
    format!("failed to write {name}")
}

/// What a recording of `target` on this machine says of itself, but for how it was captured.
///
/// # Errors
/// When the kernel does not tell its name.
pub(crate) fn header(target: &str, start: Time) -> Result<Header> {
    let machine = uname().context("failed to read the kernel's name")?;
    let text = |s: &std::ffi::OsStr| s.to_string_lossy().into_owned();
    Ok(Header {
        lockbpf: env!("CARGO_PKG_VERSION").to_owned(),
        host: text(machine.nodename()),
        kernel: text(machine.release()),
        arch: text(machine.machine()),
        target: target.to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start: start.0,
        wall_ns: wall_time(start),
        ticks_per_ns: 1,
        capture: None,
        kept: None,
    })
}

/// A time of the monotonic clock in ns since 1970.
fn wall_time(time: Time) -> Option<u64> {
    let real = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
    let ns = u64::try_from(real.tv_sec()).ok()?.checked_mul(1_000_000_000)?.checked_add(real.tv_nsec() as u64)?;
    ns.checked_sub(session::now().since(time).0)
}
