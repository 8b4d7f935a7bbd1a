//! One recording of the segments that are there.

use super::difference::Base;
use super::recorded::Recorded;
use crate::event::Event;
use crate::observation::Harvest;
use crate::trace::{Closing, Compression, Header, Kept, Modules, Reader, TraceError, TraceNames, Writer, Written};
use crate::units::{Nanos, Time};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read, Write};

/// A segment that can be read, more than once.
pub trait Part {
    /// Its bytes, from the first one.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self) -> io::Result<Box<dyn Read + '_>>;
}

impl<T: AsRef<[u8]>> Part for T {
    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.as_ref()))
    }
}

/// Why no recording could be made.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no segment, or none whose beginning can be read.
    #[error("the flight recorder has kept nothing that can be read yet")]
    Nothing,
    /// A segment.
    #[error("failed to read what the flight recorder has kept")]
    Read(#[from] TraceError),
    /// A segment.
    #[error("failed to open what the flight recorder has kept")]
    Open(#[source] io::Error),
    /// The recording.
    #[error("failed to write the recording")]
    Write(#[source] io::Error),
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Joined {
    /// What the recording says of itself.
    pub header: Header,
    /// When it begins.
    pub start: Time,
    /// When it ends.
    pub end: Time,
    /// What was written.
    pub written: Written,
    /// Which part of the observation it is, in a sentence.
    pub stretch: String,
    /// Segments that could not be read, or were not there.
    pub missing: u64,
}

/// Makes one recording of segments, oldest first: their events, and what was summed from the beginning of the first to the end of the last.
/// The recording tells `remarks`, and which parts of the segments cannot be read.
///
/// # Errors
/// When none can be read, or the recording cannot be written.
pub fn join<W: Write>(
    parts: &[impl Part],
    remarks: &[String],
    out: W,
    compression: Compression,
) -> Result<(W, Joined), JoinError> {
    // Without what a segment began with it is not known what was summed in it.
    let mut unreadable = 0;
    let mut rest = parts.iter();
    let (first, (header, opening)) = loop {
        let part = rest.next().ok_or(JoinError::Nothing)?;
        match Reader::opening(part.open().map_err(JoinError::Open)?) {
            Ok(Some(opening)) => break (part, opening),
            Ok(None) | Err(_) => unreadable += 1,
        }
    };
    let kept = header.kept.clone().unwrap_or_default();
    let start = Time(header.start);
    let base = Base::new(opening, start, Time(kept.observed_since));
    let mut writer = Writer::new(out, &header, compression).map_err(JoinError::Write)?;
    let mut joining = Joining { missing: unreadable, expected: kept.number, ..Joining::default() };
    for part in std::iter::once(first).chain(rest) {
        joining.take(part, &base, &mut writer)?;
    }
    let Joining { recorded, harvest, names, modules, missing, damaged, torn, end, .. } = joining;
    let mut names = names;
    let mut harvest = base.until(harvest, &recorded);
    harvest.quality.undecodable.extend(torn);
    let stretch = sentence(&kept, start, end);
    harvest.quality.notes.push(stretch.clone());
    if missing > 0 {
        harvest.quality.undecodable.insert("trace_segments_missing", missing);
        harvest.quality.notes.push(format!("{missing} of the flight recorder's segments cannot be read."));
    }
    harvest.quality.notes.extend(damaged);
    harvest.quality.notes.extend_from_slice(remarks);
    for modules in modules.values() {
        writer.modules(modules).map_err(JoinError::Write)?;
    }
    let (out, written) = writer.finish(&harvest, &mut names, end).map_err(JoinError::Write)?;
    Ok((out, Joined { header, start, end, written, stretch, missing }))
}

/// What was read so far.
#[derive(Default)]
struct Joining {
    recorded: Recorded,
    /// At the last snapshot.
    harvest: Harvest,
    names: TraceNames,
    modules: BTreeMap<u32, Modules>,
    /// Processes that were told.
    met: HashSet<u32>,
    /// The number of the next segment.
    expected: u64,
    missing: u64,
    /// What could not be read, in sentences, and in counts.
    damaged: Vec<String>,
    torn: BTreeMap<&'static str, u64>,
    end: Time,
}

impl Joining {
    fn take<W: Write>(&mut self, part: &impl Part, base: &Base, writer: &mut Writer<W>) -> Result<(), JoinError> {
        let mut reader = match Reader::new(part.open().map_err(JoinError::Open)?) {
            Ok(reader) => reader,
            // Killed before its first frame was written, or damaged there.
            Err(_) => {
                self.missing += 1;
                return Ok(());
            }
        };
        for event in &mut reader {
            let mut event = event?;
            match &mut event {
                // Each segment tells them all.
                Event::Process(seen) if !self.met.insert(seen.process.0) => continue,
                Event::ThreadExit(totals) => base.thread(totals, &self.recorded),
                event => self.recorded.take(event, base.start()),
            }
            writer.event(&event).map_err(JoinError::Write)?;
        }
        let Closing { header, mut harvest, names, modules, end, ended, damage, pace, .. } = reader.into_closing()?;
        if let Some(kept) = &header.kept {
            self.missing = self.missing.saturating_add(kept.number.saturating_sub(self.expected));
            self.expected = kept.number.saturating_add(1);
        }
        // The recording tells damage once, for all segments.
        let sentences = damage.sentences(ended);
        let notes = &mut harvest.quality.notes;
        notes.truncate(notes.len().saturating_sub(sentences.len()));
        self.damaged.extend(sentences);
        for (name, count) in damage.counts(ended) {
            harvest.quality.undecodable.remove(name);
            let torn = self.torn.entry(name).or_default();
            *torn = torn.saturating_add(count);
        }
        self.names.add(names);
        self.modules.extend(modules.into_iter().map(|modules| (modules.process, modules)));
        self.end = self.end.max(end);
        // One that was killed before its first snapshot has nothing to say of sums.
        let mut stacks = std::mem::take(&mut self.harvest.stacks);
        stacks.extend(std::mem::take(&mut harvest.stacks));
        if !pace.is_empty() {
            self.harvest = harvest;
        }
        self.harvest.stacks = stacks;
        Ok(())
    }
}

/// Which part of an observation was kept, and what was dropped.
fn sentence(kept: &Kept, start: Time, end: Time) -> String {
    let lasted = end.since(start);
    let before = start.since(Time(kept.observed_since));
    if kept.number == 0 {
        return format!("A flight recorder's recording, from the beginning of the observation: {lasted}.");
    }
    let short = if lasted.0 < kept.keep_ns {
        let (keep, size) = (Nanos(kept.keep_ns), kept.keep_bytes >> 20);
        format!(", less than the {keep} wanted, since {size} MiB are full")
    } else {
        String::new()
    };
    format!(
        "A flight recorder's last {lasted}{short}: what began before is told without what was before. The {before} of the observation before it, with {} events, \
         were dropped.",
        kept.events_before
    )
}
