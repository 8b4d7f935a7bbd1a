//! Recordings as input: traces and event lines, told apart by their first bytes.

use super::{place, segments};
use crate::event::Event;
use crate::input;
use crate::lines::{self, LineError};
use crate::names::Names;
use crate::observation::Harvest;
use crate::quality::Quality;
use crate::trace::{self, AccessLines, Closing, Header, Modules};
use crate::units::Time;
use anyhow::{Context, Error, Result, bail};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Formats of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// [`crate::trace`].
    Trace,
    /// [`crate::lines`].
    Lines,
}

/// A recording that can be read, more than once.
pub(super) struct Input {
    name: String,
    file: File,
    format: Format,
    /// Whether its name says that it was not finished.
    is_part: bool,
}

/// What a recording is read from.
pub(super) enum Source {
    /// A trace.
    Trace(Box<trace::Reader<File>>),
    /// Event lines, whose times are counted in so many ticks per ns.
    Lines(Box<lines::Reader<BufReader<File>>>, u64),
}

/// What is known when the events have been read.
pub(super) struct Ending {
    /// What the recording says of itself. Event lines say nothing.
    pub header: Header,
    /// Sums, threads, waits, stacks and losses. Of event lines: stacks.
    pub harvest: Harvest,
    /// Names.
    pub names: Box<dyn Names>,
    /// Files that processes had mapped.
    pub modules: Vec<Modules>,
    /// When the recording ended, if it says so.
    pub end: Option<Time>,
    /// Access records that it holds beside, which [`Input::access_lines`] yields.
    pub access_records: u64,
    /// Acquisitions of locks up to some times, if it says so.
    pub pace: Vec<(Time, u64)>,
}

impl Input {
    /// Opens a recording; a directory is that of a flight recorder's segments; `-` is standard input, which is copied to a temporary file, since recordings are read twice.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = input::told(path);
        let mut file = if segments::is_dir(path) {
            let copied = || format!("failed to make a file of {name} in {}", std::env::temp_dir().display());
            segments::joined(path, tempfile::tempfile().with_context(copied)?)?.0
        } else {
            match input::open(path)? {
                input::Input::File(file) => file,
                input::Input::Pipe(pipe) => spool(pipe, &name)?,
            }
        };
        file.rewind().with_context(|| format!("failed to read {name}"))?;
        let mut first = Vec::new();
        let sniffed = file.by_ref().take(trace::MAGIC_BYTES as u64).read_to_end(&mut first);
        sniffed.with_context(|| format!("failed to read {name}"))?;
        if trace::is_cut(&first) {
            bail!("failed to read {name}: it is a trace of which only the first {} bytes are there", first.len());
        }
        let format = if trace::is_trace(&first) { Format::Trace } else { Format::Lines };
        let input = Self { name, file, format, is_part: place::is_part(path) };
        if format == Format::Lines && input.is_blank()? {
            bail!("{} is empty: it is neither a trace nor event lines nor access records", input.name);
        }
        Ok(input)
    }

    fn is_blank(&self) -> Result<bool> {
        for byte in self.lines()?.bytes() {
            if !byte.with_context(|| self.failed())?.is_ascii_whitespace() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What it is.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// What messages call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads it from the beginning, and gives every event to a `T` made for a source of so many ticks per ns. Event
    /// lines that turn out to have decimals are read again, with a new `T`.
    ///
    /// # Errors
    /// When it cannot be read, is not what its first bytes say, or `take` fails.
    pub(super) fn read<T>(
        &self,
        mut begin: impl FnMut(&Header) -> T,
        mut take: impl FnMut(&mut T, Event) -> Result<()>,
    ) -> Result<(T, Ending)> {
        let mut ticks = 1;
        loop {
            let mut source = self.source(ticks)?;
            let mut taker = begin(&source.header());
            let mut events = 0;
            let outcome = loop {
                match source.next() {
                    None => break Ok(()),
                    Some(Ok(event)) => {
                        events += 1;
                        take(&mut taker, event)?;
                    }
                    Some(Err(error)) => break Err(error),
                }
            };
            match outcome {
                Ok(()) => {
                    let mut ending = source.ending().with_context(|| self.failed())?;
                    if self.is_part && self.format == Format::Lines && !ending.harvest.quality.incomplete() {
                        // Traces have an end mark. Lines have not, and are mostly written to the end of one.
                        torn(&mut ending.harvest.quality, "were not finished, as the name of their file tells");
                    }
                    if events == 0 && ending.is_nothing() {
                        bail!("{}: nothing in it can be read as a recording", self.failed());
                    }
                    return Ok((taker, ending));
                }
                Err(error) if ticks == 1 && is_decimal(&error) => ticks = 1_000,
                Err(error) => return Err(error.context(self.failed())),
            }
        }
    }

    /// Reads it for everything but its events.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn ending(&self) -> Result<Ending> {
        Ok(self.read(|_| (), |(), _| Ok(()))?.1)
    }

    fn failed(&self) -> String {
        format!("failed to read {}", self.name)
    }

    /// Its events, from the beginning; times of event lines are counted in so many ticks per ns (0 means 1).
    ///
    /// # Errors
    /// When it cannot be read, or is not what its first bytes say.
    pub(super) fn source(&self, ticks: u64) -> Result<Source> {
        Ok(match self.format {
            Format::Trace => Source::Trace(Box::new(trace::Reader::new(self.begin()?).with_context(|| self.failed())?)),
            Format::Lines => Source::Lines(Box::new(lines::Reader::new(self.lines()?, ticks)), ticks),
        })
    }

    /// Its text, from the beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn lines(&self) -> Result<BufReader<File>> {
        Ok(BufReader::with_capacity(256 << 10, self.begin()?))
    }

    /// The access records in a trace, from the beginning.
    ///
    /// # Errors
    /// When it cannot be read, or is no trace.
    pub(super) fn access_lines(&self) -> Result<AccessLines<File>> {
        AccessLines::new(self.begin()?).with_context(|| self.failed())
    }

    fn begin(&self) -> Result<File> {
        let mut file = self.file.try_clone().with_context(|| self.failed())?;
        file.seek(SeekFrom::Start(0)).with_context(|| self.failed())?;
        Ok(file)
    }
}

impl Ending {
    /// Whether a recording without events tells nothing else either, not even of itself.
    fn is_nothing(&self) -> bool {
        self.header.lockbpf.is_empty() && self.harvest.sums.is_empty() && self.access_records == 0
    }
}

/// Event lines whose writer was killed: how that is known.
fn torn(quality: &mut Quality, how: &str) {
    quality.undecodable.insert("lines_torn", 1);
    quality.notes.push(format!("the event lines {how}: what came later is missing."));
}

impl Source {
    /// What the recording says of itself. Event lines say nothing.
    pub(super) fn header(&self) -> Header {
        match self {
            Self::Trace(reader) => reader.header(),
            Self::Lines(_, ticks_per_ns) => Header { ticks_per_ns: *ticks_per_ns, ..Header::default() },
        }
    }

    fn ending(self) -> Result<Ending> {
        let header = self.header();
        Ok(match self {
            Self::Trace(reader) => {
                let Closing { header, harvest, names, modules, end, pace, access_lines, .. } = reader.into_closing()?;
                let (names, end, access_records) = (Box::new(names), Some(end), access_lines);
                Ending { header, harvest, names, modules, end, access_records, pace }
            }
            Self::Lines(reader, _) => {
                let mut quality = Quality::default();
                if reader.is_torn() {
                    torn(&mut quality, "break off in the middle of the last one");
                }
                let labels = reader.into_labels();
                let harvest = Harvest { stacks: labels.stacks(), quality, ..Harvest::default() };
                Ending {
                    header,
                    harvest,
                    names: Box::new(labels),
                    modules: Vec::new(),
                    end: None,
                    access_records: 0,
                    pace: Vec::new(),
                }
            }
        })
    }
}

impl Iterator for Source {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Trace(reader) => Some(reader.next()?.map_err(Error::new)),
            Self::Lines(reader, _) => Some(reader.next()?.map_err(Error::new)),
        }
    }
}

fn is_decimal(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(LineError::Decimal { .. }))
}

/// A pipe can be read only once: its contents in a file that has no name.
fn spool(mut pipe: impl Read, name: &str) -> Result<File> {
    let copied = || format!("failed to copy {name} to a file in {}", std::env::temp_dir().display());
    let mut file = tempfile::tempfile().with_context(copied)?;
    io::copy(&mut pipe, &mut file).with_context(copied)?;
    file.seek(SeekFrom::Start(0)).with_context(copied)?;
    Ok(file)
}
