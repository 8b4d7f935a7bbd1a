//! Access records: so many lines before this frame, then whole lines of an access record file.

use super::super::Malformed;
use super::super::varint::{Cursor, put};

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(in super::super) struct AccessEncoder {
    lines: Vec<u8>,
    waiting: u64,
    before: u64,
}

impl AccessEncoder {
    /// Takes a line, without its end.
    pub(in super::super) fn push(&mut self, line: &[u8]) {
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
        self.waiting += 1;
    }

    /// Bytes that wait.
    pub(in super::super) fn waiting(&self) -> usize {
        self.lines.len()
    }

    /// Lines taken in all.
    pub(in super::super) fn total(&self) -> u64 {
        self.before + self.waiting
    }

    /// The payload of a frame of what waits, which then waits no more; `None` if nothing does.
    pub(in super::super) fn payload(&mut self) -> Option<Vec<u8>> {
        if self.waiting == 0 {
            return None;
        }
        let mut out = Vec::with_capacity(self.lines.len() + 10);
        put(&mut out, self.before);
        out.append(&mut self.lines);
        self.before += std::mem::take(&mut self.waiting);
        Some(out)
    }
}

/// Which lines were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Count {
    /// Lines up to the end of the last frame, read or not.
    ordinal: u64,
    /// Lines read.
    pub read: u64,
    /// Lines that were written and not read.
    pub lost: u64,
}

impl Count {
    /// The lines in a payload, each with its end.
    pub(in super::super) fn take<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let mut from = Cursor(payload);
        let before = from.number()?;
        let lines = from.0;
        if lines.last() != Some(&b'\n') {
            return Err(Malformed::Truncated);
        }
        let count = memchr::memchr_iter(b'\n', lines).count() as u64;
        let ordinal = before.checked_add(count).ok_or(Malformed::TooLarge)?;
        self.up_to(before);
        self.ordinal = ordinal;
        self.read += count;
        Ok(lines)
    }

    /// There were so many lines so far: what of them was not read is lost.
    pub(in super::super) fn up_to(&mut self, total: u64) {
        self.lost = self.lost.saturating_add(total.saturating_sub(self.ordinal));
        self.ordinal = self.ordinal.max(total);
    }
}
