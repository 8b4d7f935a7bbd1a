//! The access records in a recording, as the lines that they would be in a file of their own.

use super::damage::{Damage, Ended};
use super::frame::{Frame, FrameReader, Kind, Step};
use super::header::Checkpoint;
use super::v1::accesses::Count;
use super::{Malformed, TraceError, reader};
use std::io::{self, BufRead, Read};

/// Reads the lines of access records of a recording, and passes over everything else and over damage. At the end
/// [`AccessLines::damage`] and [`AccessLines::ended`] tell what is missing.
pub struct AccessLines<R: Read> {
    frames: FrameReader<R>,
    /// The payload of a frame, of which the lines from `at` on are yet to be read.
    payload: Vec<u8>,
    at: usize,
    count: Count,
    /// Lines according to the last snapshot.
    total: u64,
    damage: Damage,
    ended: Option<Ended>,
    has_events: bool,
}

impl<R: Read> AccessLines<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// When this is no trace, one of a later version, or unreadable.
    pub fn new(source: R) -> Result<Self, TraceError> {
        Ok(Self {
            frames: reader::open(source)?,
            payload: Vec::new(),
            at: 0,
            count: Count::default(),
            total: 0,
            damage: Damage::default(),
            ended: None,
            has_events: false,
        })
    }

    /// What could not be read so far; whether names and events are missing is not told.
    #[must_use]
    pub fn damage(&self) -> Damage {
        Damage { accesses: self.count.lost, ..self.damage }
    }

    /// How the recording ended; `None` until its end was reached.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether lines may be missing before the end that was reached.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        self.damage().any() || self.ended != Some(Ended::Clean)
    }

    /// Whether events came so far, too.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    fn advance(&mut self) -> io::Result<()> {
        let step = self.frames.next(std::mem::take(&mut self.payload))?;
        self.at = 0;
        match step {
            Step::Frame(frame) => {
                if self.take(frame).is_err() {
                    self.damage.frames += 1;
                }
            }
            Step::Damaged => self.damage.frames += 1,
            Step::Foreign => self.damage.foreign += 1,
            Step::Passed(bytes) => self.damage.bytes += bytes,
            Step::Missing(frames) => self.damage.missing += u64::from(frames),
            Step::End => self.end(Ended::Torn { at: self.frames.position(), within_frame: false }),
            Step::Torn(at) => self.end(Ended::Torn { at, within_frame: true }),
        }
        Ok(())
    }

    fn take(&mut self, Frame { kind, payload, .. }: Frame) -> Result<(), Malformed> {
        match kind {
            Kind::Accesses => {
                let lines = self.count.take(&payload)?.len();
                self.at = payload.len() - lines;
                self.payload = payload;
            }
            Kind::Checkpoint => self.total = reader::json::<Checkpoint>(&payload)?.accesses,
            Kind::End => self.end(Ended::Clean),
            Kind::Events => self.has_events = true,
            Kind::Header | Kind::Names | Kind::Modules | Kind::Rows | Kind::Estimates => {}
        }
        Ok(())
    }

    fn end(&mut self, how: Ended) {
        // Only a later snapshot knows of lines lost at the very end.
        self.count.up_to(self.total);
        self.ended = Some(how);
    }
}

impl<R: Read> BufRead for AccessLines<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at >= self.payload.len() && self.ended.is_none() {
            self.advance()?;
        }
        Ok(self.payload.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.payload.len());
    }
}

impl<R: Read> Read for AccessLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
