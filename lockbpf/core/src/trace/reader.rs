//! Reading a recording.

use super::damage::{Damage, Ended};
use super::frame::{Frame, FrameReader, Kind, Step};
use super::header::{Checkpoint, Header, Losses, Modules};
use super::names::TraceNames;
use super::v1::accesses::Count;
use super::v1::decode::Decoder;
use super::v1::estimates::Told;
use super::v1::rows::Rows;
use super::v1::{VERSION, names};
use super::{Malformed, TraceError};
use crate::event::Event;
use crate::observation::Harvest;
use crate::units::Time;
use crate::untrusted::clean_json;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Read;

/// Bytes of a snapshot that is not complete yet, at most.
const MAX_PENDING: usize = 256 << 20;
/// Snapshots whose times are kept: those of ten days.
const MAX_PACE: usize = 1 << 20;
/// Processes whose modules are kept.
const MAX_MODULES: usize = lockbpf_common::config::MAX_PROCESSES as usize;

/// Reads a recording: an iterator of its events, in the order in which they were recorded, that passes over damage. Only
/// a source that fails ends it with an error. Names and sums are kept, one frame of events at a time is.
pub struct Reader<R: Read> {
    frames: FrameReader<R>,
    contents: Contents,
    ended: Option<Ended>,
}

/// What a recording yields beside its events.
#[derive(Debug)]
pub struct Closing {
    /// Who recorded what and how.
    pub header: Header,
    /// Sums, threads, waits, stacks and losses at the last complete snapshot, with what could not be read.
    pub harvest: Harvest,
    /// Names.
    pub names: TraceNames,
    /// Files that processes had mapped.
    pub modules: Vec<Modules>,
    /// When the recording ended, as far as it is readable.
    pub end: Time,
    /// How it ended.
    pub ended: Ended,
    /// What could not be read.
    pub damage: Damage,
    /// Events read.
    pub events: u64,
    /// Lines of access records passed over: [`super::AccessLines`] reads them.
    pub access_lines: u64,
    /// Acquisitions of locks up to each of the recorder's snapshots.
    pub pace: Vec<(Time, u64)>,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// When this is no trace, one of a later version, or unreadable.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let mut reader = Self { frames: open(source)?, contents: Contents::default(), ended: None };
        // What comes before the first events: the header.
        while reader.ended.is_none() && reader.contents.header.is_none() && !reader.contents.has_events {
            reader.advance()?;
        }
        Ok(reader)
    }

    /// Reads what was summed before the recording began ([`super::Writer::opening`]), and what it says of itself; `None` if that cannot be
    /// read.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn opening(source: R) -> Result<Option<(Header, Harvest)>, TraceError> {
        let mut reader = Self::new(source)?;
        while reader.ended.is_none() && reader.contents.pace.is_empty() && !reader.contents.has_events {
            reader.advance()?;
        }
        let Contents { header, pace, damage, .. } = &reader.contents;
        if header.is_none() || pace.is_empty() || damage.any() {
            return Ok(None);
        }
        let Closing { header, harvest, .. } = reader.contents.close(Ended::Clean);
        Ok(Some((header, harvest)))
    }

    /// What the recording says of itself; empty if that could not be read.
    #[must_use]
    pub fn header(&self) -> Header {
        self.contents.header.clone().unwrap_or_default()
    }

    /// How the recording ended; `None` until its end was reached.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// What could not be read so far.
    #[must_use]
    pub fn damage(&self) -> Damage {
        self.contents.damage
    }

    /// The names read so far.
    pub fn names(&mut self) -> &mut TraceNames {
        &mut self.contents.names
    }

    /// Reads the rest, if any, and hands over everything but the events.
    ///
    /// # Errors
    /// When the source fails.
    pub fn into_closing(mut self) -> Result<Closing, TraceError> {
        for event in &mut self {
            event?;
        }
        let at = self.frames.position();
        let ended = self.ended.unwrap_or(Ended::Torn { at, within_frame: false });
        Ok(self.contents.close(ended))
    }

    /// Reads one frame.
    fn advance(&mut self) -> Result<(), TraceError> {
        let buffer = self.contents.decoder.take_buffer();
        let step = self.frames.next(buffer);
        let at = self.frames.position();
        match step.map_err(|source| TraceError::Read { at, source })? {
            Step::Frame(Frame { kind: Kind::End, .. }) => self.ended = Some(Ended::Clean),
            Step::Frame(frame) => {
                let kind = frame.kind;
                if self.contents.take(frame).is_err() {
                    self.contents.lost(Some(kind));
                }
            }
            Step::Damaged => self.contents.lost(None),
            Step::Foreign => self.contents.damage.foreign += 1,
            Step::Passed(bytes) => self.contents.damage.bytes += bytes,
            Step::Missing(frames) => {
                self.contents.missing();
                self.contents.damage.missing += u64::from(frames);
            }
            Step::End => self.ended = Some(Ended::Torn { at, within_frame: false }),
            Step::Torn(at) => self.ended = Some(Ended::Torn { at, within_frame: true }),
        }
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.contents.decoder.next() {
                Some(Ok(event)) => {
                    self.contents.read += 1;
                    self.contents.latest = self.contents.latest.max(event.time());
                    return Some(Ok(event));
                }
                Some(Err(_)) => self.contents.lost(Some(Kind::Events)),
                None if self.ended.is_some() => return None,
                None => {
                    if let Err(error) = self.advance() {
                        let at = self.frames.position();
                        self.ended = Some(Ended::Torn { at, within_frame: true });
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

/// What was read, in version 1.
#[derive(Default)]
struct Contents {
    header: Option<Header>,
    decoder: Decoder,
    has_events: bool,
    read: u64,
    latest: Time,
    names: TraceNames,
    modules: BTreeMap<u32, Modules>,
    /// How often the recording tells of a process that the reader has no room for.
    unplaced: u64,
    rows: Rows,
    estimates: Told,
    accesses: Count,
    /// Rows of a snapshot that is not complete, and whether each frame begins a whole one.
    pending: Vec<(bool, Vec<u8>)>,
    pending_bytes: usize,
    /// Whether a part of the pending snapshot was lost.
    pending_damaged: bool,
    checkpoint: Checkpoint,
    pace: Vec<(Time, u64)>,
    damage: Damage,
}

impl Contents {
    fn take(&mut self, frame: Frame) -> Result<(), Malformed> {
        let Frame { kind, fresh, payload } = frame;
        match kind {
            Kind::Header => self.header = Some(json(&payload)?),
            Kind::Events => {
                self.has_events = true;
                match self.decoder.load(payload, fresh) {
                    Ok(unread) => self.damage.events += unread,
                    Err(Malformed::Undefined) => self.damage.orphaned += 1,
                    Err(other) => return Err(other),
                }
            }
            Kind::Names => names::read(&payload, &mut self.names)?,
            Kind::Modules => {
                let modules: Modules = json(&payload)?;
                if self.modules.len() >= MAX_MODULES && !self.modules.contains_key(&modules.process) {
                    if !modules.modules.is_empty() {
                        return Err(Malformed::TooMany);
                    }
                    // A recorder may write any number of processes with a cgroup and no files. The reader leaves those beyond its bound out.
                    self.unplaced += 1;
                    return Ok(());
                }
                self.modules.insert(modules.process, modules);
            }
            Kind::Rows => {
                self.pending_bytes += payload.len();
                if self.pending_bytes > MAX_PENDING {
                    self.pending.clear();
                    return Err(Malformed::TooMany);
                }
                self.pending.push((fresh, payload));
            }
            Kind::Checkpoint => {
                self.checkpoint = json(&payload)?;
                if self.pace.len() < MAX_PACE {
                    self.pace.push((Time(self.checkpoint.time), self.checkpoint.acquisitions));
                }
                self.commit()?;
            }
            Kind::Estimates => self.estimates.read(&payload, fresh)?,
            Kind::Accesses => drop(self.accesses.take(&payload)?),
            Kind::End => {}
        }
        Ok(())
    }

    /// A snapshot is complete.
    fn commit(&mut self) -> Result<(), Malformed> {
        let damaged = std::mem::take(&mut self.pending_damaged);
        self.pending_bytes = 0;
        let mut result = Ok(());
        for (fresh, payload) in self.pending.drain(..) {
            if fresh {
                self.rows.clear();
                self.damage.stale_sums = false;
            }
            result = result.and(self.rows.read(&payload));
        }
        self.damage.stale_sums |= damaged;
        result
    }

    /// A frame could not be read; its kind, if that is known.
    fn lost(&mut self, kind: Option<Kind>) {
        self.damage.frames += 1;
        match kind {
            None => self.missing(),
            Some(Kind::Events) => self.decoder.broken(),
            Some(Kind::Rows) => self.pending_damaged = true,
            Some(Kind::Checkpoint) => self.damage.stale_sums = true,
            Some(Kind::Names) => self.damage.names = true,
            Some(Kind::Estimates) => self.estimates.broken(),
            Some(Kind::Header | Kind::Modules | Kind::Accesses | Kind::End) => {}
        }
    }

    /// A frame of unknown kind is not there.
    fn missing(&mut self) {
        self.decoder.broken();
        self.pending_damaged = true;
        self.damage.names = true;
        self.estimates.broken();
    }

    fn close(mut self, ended: Ended) -> Closing {
        self.damage.header |= self.header.is_none();
        self.damage.stale_sums |= self.pending_damaged;
        // Only a later snapshot knows of events lost at the very end.
        self.damage.events += self.checkpoint.events.saturating_sub(self.decoder.ordinal());
        self.accesses.up_to(self.checkpoint.accesses);
        self.damage.accesses = self.accesses.lost;
        let Checkpoint { time, quality, .. } = self.checkpoint;
        let mut harvest = self.rows.harvest();
        harvest.estimates = self.estimates.estimates();
        let counters = self.header.as_ref().and_then(|header| header.capture.as_ref()).map(|c| c.counters.clone());
        harvest.counted.events = counters.unwrap_or_default();
        harvest.quality = Losses::quality(quality);
        harvest.quality.events = self.read;
        self.damage.report(ended, &mut harvest.quality);
        if self.unplaced > 0 {
            let (n, ies) = (self.unplaced, if self.unplaced == 1 { "y" } else { "ies" });
            harvest.quality.notes.push(format!(
                "{n} entr{ies} of processes beyond the first {MAX_MODULES} were left out: tables do not tell their containers and units."
            ));
        }
        Closing {
            header: self.header.unwrap_or_default(),
            harvest,
            names: self.names,
            modules: self.modules.into_values().collect(),
            end: self.latest.max(Time(time)),
            ended,
            damage: self.damage,
            events: self.read,
            access_lines: self.accesses.read,
            pace: self.pace,
        }
    }
}

/// The frames of a trace.
pub(super) fn open<R: Read>(source: R) -> Result<FrameReader<R>, TraceError> {
    let opened = FrameReader::open(source).map_err(|source| TraceError::Read { at: 0, source })?;
    let (frames, version) = opened.map_err(|malformed| match malformed {
        Malformed::Truncated => TraceError::DamagedStart,
        _ => TraceError::NotATrace,
    })?;
    // The one place that tells versions apart: each has a module that makes events, rows and names of its frames.
    match version {
        VERSION => Ok(frames),
        other => Err(TraceError::Version(other)),
    }
}

pub(super) fn json<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Malformed> {
    let mut value = serde_json::from_slice(payload).map_err(|_| Malformed::Json)?;
    clean_json(&mut value);
    serde_json::from_value(value).map_err(|_| Malformed::Json)
}
