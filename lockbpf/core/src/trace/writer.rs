//! Writing a recording.

use super::frame::{FrameWriter, Kind};
use super::header::{Checkpoint, Header, Losses, Modules};
use super::tracker::Tracker;
use super::v1::accesses::AccessEncoder;
use super::v1::encode::Encoder;
use super::v1::names::NamesEncoder;
use super::v1::{VERSION, estimates, rows};
use crate::event::Event;
use crate::names::Names;
use crate::observation::Harvest;
use crate::units::{Nanos, Time};
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

/// Bytes of a frame from which on it is written.
const FRAME: usize = 256 << 10;
/// Events do not wait longer than this to be written (by the times that the caller passes).
pub const FLUSH_AFTER: Nanos = Nanos(250_000_000);
/// Every so many snapshots, one tells everything: what a damaged one costs at most.
const WHOLE_EVERY: u32 = 64;
/// Addresses named in one snapshot at most (but at the end, all are): naming takes time, in which records pile up.
const NAMES_AT_ONCE: usize = 1_024;

/// Whether frames of events are compressed. Sums and names always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// They are not.
    #[default]
    None,
    /// With zstd, where that makes them shorter.
    Zstd,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// Steps that the events stand for: attempts, acquisitions, releases, failures, departures from the CPU and returns.
    pub steps: u64,
    /// Bytes of frames of events, headers included.
    pub event_bytes: u64,
    /// All bytes.
    pub bytes: u64,
}

/// Writes a recording as it comes. Frames are written whole, at once: what was written survives the writer.
pub struct Writer<W: Write> {
    frames: FrameWriter<W>,
    events: Encoder,
    accesses: AccessEncoder,
    tracker: Tracker,
    names: NamesEncoder,
    /// By key, a hash of the row as it was written last.
    rows: HashMap<rows::Key, u64>,
    checkpoints: u32,
    flushed: Time,
    written: Written,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn new(sink: W, header: &Header, compression: Compression) -> io::Result<Self> {
        let mut writer = Self {
            frames: FrameWriter::new(sink, VERSION, compression == Compression::Zstd)?,
            events: Encoder::default(),
            accesses: AccessEncoder::default(),
            tracker: Tracker::default(),
            names: NamesEncoder::default(),
            rows: HashMap::new(),
            checkpoints: 0,
            flushed: Time(0),
            written: Written::default(),
        };
        writer.header(header)?;
        Ok(writer)
    }

    /// Tells anew what the recording is of: the last header counts.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn header(&mut self, header: &Header) -> io::Result<()> {
        self.json(Kind::Header, header)
    }

    /// Tells which files a process has mapped, and its cgroup: what was told of it last counts.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn modules(&mut self, modules: &Modules) -> io::Result<()> {
        self.json(Kind::Modules, modules)
    }

    /// Records an event.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        if self.events.push(event) {
            self.tracker.event(event);
        }
        self.written.steps += steps(event);
        if self.events.waiting() >= FRAME { self.write_events() } else { Ok(()) }
    }

    /// Records what a critical section accessed: a line of an access record file, without its end.
    ///
    /// # Errors
    /// When the sink fails, or this is not one line, or longer than a frame (16 MiB).
    pub fn access_line(&mut self, line: &[u8]) -> io::Result<()> {
        if memchr::memchr(b'\n', line).is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an access record would be more than one line"));
        }
        if self.accesses.waiting() + line.len() >= FRAME {
            self.write_accesses()?;
        }
        self.accesses.push(line);
        Ok(())
    }

    /// Writes what has waited long enough, now that it is this late.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn tick(&mut self, now: Time) -> io::Result<()> {
        if now.since(self.flushed) >= FLUSH_AFTER {
            self.flushed = now;
            self.write_events()?;
        }
        Ok(())
    }

    /// Writes everything that waits, what of the harvest has changed since the last time, and names of what was
    /// mentioned since. To be called once a second.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn checkpoint(&mut self, harvest: &Harvest, names: &mut dyn Names, now: Time) -> io::Result<()> {
        self.snapshot(harvest, names, now, NAMES_AT_ONCE)
    }

    /// Writes what was summed before the recording began, whole: what is summed in it is the difference. Nothing is named for that.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn opening(&mut self, harvest: &Harvest, now: Time) -> io::Result<()> {
        self.flushed = now;
        self.write_sums(harvest, now)
    }

    /// Ends this recording as a checkpoint would, and begins one that goes on where it ends, to `next`: that one names what this one has not
    /// named yet. Hands the sink back, with the bytes written to it.
    ///
    /// # Errors
    /// When a sink fails.
    pub fn turn(
        mut self,
        next: W,
        header: &Header,
        harvest: &Harvest,
        names: &mut dyn Names,
        now: Time,
    ) -> io::Result<(W, u64, Self)> {
        self.snapshot(harvest, names, now, NAMES_AT_ONCE)?;
        self.frames.write(Kind::End, true, &[])?;
        let compression = if self.frames.compresses_events() { Compression::Zstd } else { Compression::None };
        let mut successor = Self::new(next, header, compression)?;
        successor.tracker.inherit(self.tracker);
        let bytes = self.frames.bytes();
        Ok((self.frames.finish()?, bytes, successor))
    }

    /// Writes the last snapshot, all names, and the end mark. Hands the sink back.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(mut self, harvest: &Harvest, names: &mut dyn Names, now: Time) -> io::Result<(W, Written)> {
        self.snapshot(harvest, names, now, usize::MAX)?;
        self.frames.write(Kind::End, true, &[])?;
        let written = self.written();
        Ok((self.frames.finish()?, written))
    }

    /// What was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        Written { events: self.events.events(), bytes: self.frames.bytes(), ..self.written }
    }

    fn snapshot(&mut self, harvest: &Harvest, names: &mut dyn Names, now: Time, limit: usize) -> io::Result<()> {
        self.flushed = now;
        self.write_events()?;
        self.write_accesses()?;
        self.tracker.harvest(harvest);
        self.write_sums(harvest, now)?;
        self.write_names(harvest, names, limit)
    }

    /// Writes what of the harvest has changed since the last time.
    fn write_sums(&mut self, harvest: &Harvest, now: Time) -> io::Result<()> {
        self.write_rows(harvest)?;
        if let Some(estimates) = &harvest.estimates {
            for (at, payload) in estimates::payloads(estimates).iter().enumerate() {
                self.frames.write(Kind::Estimates, at == 0, payload)?;
            }
        }
        let mut quality = Losses::from(&harvest.quality);
        if self.tracker.beyond() > 0 {
            let beyond = self.tracker.beyond();
            quality
                .note(format!("there are too many locks or places to name them all: {beyond} mentions lack a name."));
        }
        self.json(
            Kind::Checkpoint,
            &Checkpoint {
                time: now.0,
                events: self.events.events(),
                acquisitions: harvest.acquisitions(),
                accesses: self.accesses.total(),
                quality,
            },
        )
    }

    fn write_events(&mut self) -> io::Result<()> {
        if let Some((payload, fresh)) = self.events.payload() {
            let before = self.frames.bytes();
            self.frames.write(Kind::Events, fresh, payload)?;
            self.written.event_bytes += self.frames.bytes() - before;
            self.events.clear();
        }
        Ok(())
    }

    fn write_accesses(&mut self) -> io::Result<()> {
        self.accesses.payload().map_or(Ok(()), |payload| self.frames.write(Kind::Accesses, true, &payload))
    }

    /// Writes the rows that are not as they were written last, and those that are no more.
    fn write_rows(&mut self, harvest: &Harvest) -> io::Result<()> {
        let whole = self.checkpoints.is_multiple_of(WHOLE_EVERY);
        self.checkpoints = self.checkpoints.wrapping_add(1);
        let mut before = std::mem::take(&mut self.rows);
        if whole {
            before.clear();
        }
        let mut out = Vec::new();
        let mut first = whole;
        for (key, row) in rows::of(harvest, |stack| self.tracker.mentions(stack)) {
            let begin = out.len();
            rows::put_row(&mut out, &key, &row);
            let mut hasher = DefaultHasher::new();
            out.get(begin..).hash(&mut hasher);
            let hash = hasher.finish();
            if before.remove(&key) == Some(hash) {
                out.truncate(begin);
            } else if out.len() >= FRAME {
                self.frames.write(Kind::Rows, first, &out)?;
                first = false;
                out.clear();
            }
            self.rows.insert(key, hash);
        }
        for key in before.keys() {
            rows::put_gone(&mut out, key);
        }
        if first || !out.is_empty() { self.frames.write(Kind::Rows, first, &out) } else { Ok(()) }
    }

    fn write_names(&mut self, harvest: &Harvest, names: &mut dyn Names, limit: usize) -> io::Result<()> {
        let frames = &mut self.frames;
        let mut write = |out: &mut NamesEncoder, from: usize| {
            if out.waiting() >= from {
                frames.write(Kind::Names, true, out.payload())?;
                out.clear();
            }
            io::Result::Ok(())
        };
        self.tracker.name(&harvest.stacks, names, limit, &mut self.names, |out| write(out, FRAME))?;
        write(&mut self.names, 1)
    }

    fn json(&mut self, kind: Kind, value: &impl Serialize) -> io::Result<()> {
        self.frames.write(kind, true, &serde_json::to_vec(value)?)
    }
}

/// Steps that an event stands for.
fn steps(event: &Event) -> u64 {
    match event {
        Event::Section(s) if s.acquired() => 3,
        Event::Section(_) | Event::OffCpu(_) | Event::FutexWait(_) => 2,
        Event::Wake(_) | Event::Op(_) | Event::Step(_) | Event::ThreadExit(_) => 1,
        Event::Process(_) => 0,
    }
}
