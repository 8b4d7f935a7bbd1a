//! Frames: what a trace consists of. Each has a header with a checksum of its own and a checksum of its payload, so that
//! damage is found, and costs no more than the frames it hits.

use super::Malformed;
use std::io::{self, BufReader, Read, Write};

/// First bytes of every trace. Neither text nor any other format; a transfer that mends line ends breaks it at once.
pub(super) const MAGIC: [u8; 8] = *b"\x89LBT\r\n\x1a\n";
/// First bytes of every frame: where reading goes on after a damaged header.
const MARK: [u8; 4] = *b"\xf5LbF";
/// Bytes before the first frame: magic, version, checksum of both.
const PREAMBLE: usize = 16;
/// Bytes of a frame's header.
pub(super) const HEADER: usize = 28;
/// Bytes of a payload at most, as stored and when decompressed. No writer comes near it.
pub(super) const MAX_PAYLOAD: usize = 16 << 20;
/// Flag: the payload is compressed with zstd.
const ZSTD: u8 = 1;
/// Flag: the payload needs no definition from an earlier frame of its kind.
const FRESH: u8 = 2;

/// What a frame contains. Kinds that a reader does not know are left out, and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// [`super::Header`] as JSON.
    Header = 1,
    /// Events.
    Events = 2,
    /// Names of addresses and locks, and what the input itself called things.
    Names = 3,
    /// Files that a process has mapped, as JSON.
    Modules = 4,
    /// Rows of a snapshot.
    Rows = 5,
    /// A snapshot is complete: its time and the losses so far, as JSON.
    Checkpoint = 6,
    /// The recording ended here, and nothing is missing.
    End = 7,
    /// What was estimated, and from how much.
    Estimates = 10,
    /// Access records, as lines.
    Accesses = 9,
}

impl Kind {
    fn from_u8(raw: u8) -> Option<Self> {
        use Kind::{Accesses, Checkpoint, End, Estimates, Events, Header, Modules, Names, Rows};
        let all = [Header, Events, Names, Modules, Rows, Checkpoint, End, Estimates, Accesses];
        all.into_iter().find(|&kind| kind as u8 == raw)
    }
}

fn preamble(version: u32) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    kind: u8,
    flags: u8,
    /// Number of the frame, from 0.
    sequence: u32,
    /// Bytes stored.
    stored: u32,
    /// Bytes of the payload when decompressed.
    length: u32,
    /// Checksum of the bytes stored.
    checksum: u32,
}

impl FrameHeader {
    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = self.kind;
        bytes[5] = self.flags;
        for (at, number) in [(8, self.sequence), (12, self.stored), (16, self.length), (20, self.checksum)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are no header, or none that a writer has written.
    fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        if !bytes.starts_with(&MARK) {
            return None;
        }
        let number = |at: usize| {
            let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).unwrap_or_default();
            u32::from_le_bytes(four)
        };
        let header = Self {
            kind: bytes[4],
            flags: bytes[5],
            sequence: number(8),
            stored: number(12),
            length: number(16),
            checksum: number(20),
        };
        let possible = header.stored as usize <= MAX_PAYLOAD && header.length as usize <= MAX_PAYLOAD;
        (possible && number(24) == crc32fast::hash(&bytes[..24])).then_some(header)
    }
}

/// Whether bytes end with an end mark, which is a header and nothing else.
pub(super) fn is_end(bytes: &[u8]) -> bool {
    let header = bytes.last_chunk().and_then(FrameHeader::from_bytes);
    header.is_some_and(|header| header.kind == Kind::End as u8 && header.stored == 0)
}

/// Writes frames. Each is written at once and whole: no byte of it waits in a buffer of this process.
pub(super) struct FrameWriter<W> {
    sink: W,
    sequence: u32,
    bytes: u64,
    compressor: zstd::bulk::Compressor<'static>,
    compress_events: bool,
    buffer: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a trace. Frames of events are compressed if wanted; others always are: they are few, and recur.
    pub(super) fn new(mut sink: W, version: u32, compress_events: bool) -> io::Result<Self> {
        let compressor = zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)?;
        sink.write_all(&preamble(version))?;
        Ok(Self { sink, sequence: 0, bytes: PREAMBLE as u64, compressor, compress_events, buffer: Vec::new() })
    }

    /// Writes one frame.
    pub(super) fn write(&mut self, kind: Kind, fresh: bool, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_PAYLOAD {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a frame of a trace would be too long"));
        }
        let compress = self.compress_events || kind != Kind::Events;
        let compressed = compress.then(|| self.compressor.compress(payload)).transpose()?;
        let (stored, zstd) = match &compressed {
            Some(short) if short.len() < payload.len() => (short.as_slice(), ZSTD),
            _ => (payload, 0),
        };
        let header = FrameHeader {
            kind: kind as u8,
            flags: zstd | if fresh { FRESH } else { 0 },
            sequence: self.sequence,
            stored: stored.len() as u32,
            length: payload.len() as u32,
            checksum: crc32fast::hash(stored),
        };
        self.buffer.clear();
        self.buffer.extend_from_slice(&header.to_bytes());
        self.buffer.extend_from_slice(stored);
        self.sink.write_all(&self.buffer)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Whether frames of events are compressed.
    pub(super) fn compresses_events(&self) -> bool {
        self.compress_events
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands the sink back.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }
}

/// A frame that was read, checked and decompressed.
#[derive(Debug)]
pub(super) struct Frame {
    /// What it contains.
    pub kind: Kind,
    /// Whether it needs no definition from an earlier frame of its kind.
    pub fresh: bool,
    /// The contents.
    pub payload: Vec<u8>,
}

/// What comes next in a file.
#[derive(Debug)]
pub(super) enum Step {
    /// A frame.
    Frame(Frame),
    /// A frame that does not match its checksum, or does not decompress.
    Damaged,
    /// A frame of a kind that this version does not know.
    Foreign,
    /// Bytes that are no frame were passed over.
    Passed(u64),
    /// Some frames are not there, by their numbers.
    Missing(u32),
    /// The file ends here.
    End,
    /// The file ends in the middle of something that began at this byte.
    Torn(u64),
}

/// Reads frames.
pub(super) struct FrameReader<R> {
    source: BufReader<R>,
    position: u64,
    expected: u32,
    /// A header that was read, and whose payload comes next.
    ahead: Option<FrameHeader>,
    stored: Vec<u8>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl<R: Read> FrameReader<R> {
    /// Reads the preamble; the result includes the version of the format.
    pub(super) fn open(source: R) -> io::Result<Result<(Self, u32), Malformed>> {
        let mut source = BufReader::with_capacity(64 << 10, source);
        let mut bytes = [0; PREAMBLE];
        let got = fill(&mut source, &mut bytes)?;
        if !bytes.starts_with(&MAGIC) {
            return Ok(Err(Malformed::Unknown("first bytes")));
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if got < PREAMBLE || preamble(version) != bytes {
            return Ok(Err(Malformed::Truncated));
        }
        let position = PREAMBLE as u64;
        let reader = Self { source, position, expected: 0, ahead: None, stored: Vec::new(), decompressor: None };
        Ok(Ok((reader, version)))
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next step; after `End` or `Torn` nothing more comes. The payload is read into `buffer`, whose memory is used
    /// again.
    pub(super) fn next(&mut self, buffer: Vec<u8>) -> io::Result<Step> {
        let begin = self.position - if self.ahead.is_some() { HEADER as u64 } else { 0 };
        let header = match self.ahead.take() {
            Some(header) => header,
            None => match self.header()? {
                Found::Header(header, 0) => header,
                Found::Header(header, passed) => {
                    self.ahead = Some(header);
                    return Ok(Step::Passed(passed));
                }
                Found::End => return Ok(Step::End),
                Found::Torn => return Ok(Step::Torn(begin)),
            },
        };
        let missing = header.sequence.wrapping_sub(self.expected);
        if missing != 0 {
            self.ahead = Some(header);
            self.expected = header.sequence;
            return Ok(Step::Missing(missing));
        }
        self.expected = header.sequence.wrapping_add(1);
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        // Grows with the bytes that come, not with those that are promised.
        let got = self.source.by_ref().take(u64::from(header.stored)).read_to_end(&mut stored)?;
        self.position += got as u64;
        let step = if got < header.stored as usize {
            Step::Torn(begin)
        } else if crc32fast::hash(&stored) != header.checksum {
            Step::Damaged
        } else {
            match Kind::from_u8(header.kind) {
                None => Step::Foreign,
                Some(kind) => match self.unpack(&header, &stored, buffer) {
                    Some(payload) => Step::Frame(Frame { kind, fresh: header.flags & FRESH != 0, payload }),
                    None => Step::Damaged,
                },
            }
        };
        self.stored = stored;
        Ok(step)
    }

    /// The next header; bytes before it that are none are passed over and counted.
    fn header(&mut self) -> io::Result<Found> {
        let mut bytes = [0; HEADER];
        let got = fill(&mut self.source, &mut bytes)?;
        self.position += got as u64;
        match got {
            0 => return Ok(Found::End),
            HEADER => {}
            _ => return Ok(Found::Torn),
        }
        let mut passed = 0;
        loop {
            if let Some(header) = FrameHeader::from_bytes(&bytes) {
                return Ok(Found::Header(header, passed));
            }
            // One byte further, or to where the mark may begin.
            let shift = bytes[1..].iter().position(|&b| b == MARK[0]).map_or(HEADER, |at| at + 1);
            bytes.copy_within(shift.., 0);
            let got = fill(&mut self.source, &mut bytes[HEADER - shift..])?;
            self.position += got as u64;
            if got < shift {
                return Ok(Found::Torn);
            }
            passed += shift as u64;
        }
    }

    /// The payload; `None` if it is not as long as its header says.
    fn unpack(&mut self, header: &FrameHeader, stored: &[u8], mut buffer: Vec<u8>) -> Option<Vec<u8>> {
        buffer.clear();
        if header.flags & ZSTD == 0 {
            buffer.extend_from_slice(stored);
        } else {
            if self.decompressor.is_none() {
                self.decompressor = zstd::bulk::Decompressor::new().ok();
            }
            // Never more than the memory set aside, which is bounded, whatever the compressed bytes say.
            buffer.reserve_exact(header.length as usize);
            self.decompressor.as_mut()?.decompress_to_buffer(stored, &mut buffer).ok()?;
        }
        (buffer.len() == header.length as usize).then_some(buffer)
    }
}

enum Found {
    Header(FrameHeader, u64),
    End,
    Torn,
}

/// Reads until the buffer is full or the source ends; returns the bytes read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
