//! Which segments are kept: the newest, as many as fit into a time and a size.

use crate::units::{Nanos, Time};
use std::collections::VecDeque;

/// Segments that the time and the size are divided into: the oldest goes as a whole, so a sixteenth more time is kept than was asked for, and
/// up to a sixteenth of the size is free.
const PARTS: u64 = 16;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// This long.
    pub keep: Nanos,
    /// In this many bytes at most.
    pub size: u64,
}

/// A segment that is complete.
#[derive(Clone, Debug)]
pub struct Segment<B> {
    /// When it began.
    pub begin: Time,
    /// When the next one began.
    pub end: Time,
    /// Its events.
    pub events: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where these are.
    pub body: B,
}

/// What was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Segments.
    pub segments: u64,
    /// Their events.
    pub events: u64,
    /// Segments that were younger than the time that is wanted, and had to go since the size was full.
    pub for_size: u64,
}

/// What is kept at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Since when.
    pub since: Time,
    /// For how long.
    pub time: Nanos,
    /// In how many bytes.
    pub bytes: u64,
    /// Whether that is less than was wanted, since the size is full.
    pub is_short: bool,
}

/// The newest segments of an observation, and an open one behind them that the caller writes.
#[derive(Debug)]
pub struct Ring<B> {
    limits: Limits,
    segments: VecDeque<Segment<B>>,
    /// Bytes of the segments that are kept.
    bytes: u64,
    dropped: Dropped,
    /// Whether the last one dropped was younger than wanted.
    is_full: bool,
}

impl<B> Ring<B> {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, segments: VecDeque::new(), bytes: 0, dropped: Dropped::default(), is_full: false }
    }

    /// How much is kept.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether the open segment is to be completed. It began at `begin` with `opening` bytes of sums, and has `bytes` now.
    #[must_use]
    pub fn is_due(&self, begin: Time, opening: u64, bytes: u64, now: Time) -> bool {
        let part = (self.limits.size / PARTS).max(opening.saturating_mul(2)).min(self.limits.size / 2);
        now.since(begin).0 >= self.limits.keep.0 / PARTS || bytes >= part
    }

    /// Keeps a segment that is complete.
    pub fn push(&mut self, segment: Segment<B>) {
        self.bytes += segment.bytes;
        self.segments.push_back(segment);
    }

    /// Drops what is older than is wanted, and what is too much beside an open segment of `open` bytes. Returns it, oldest first.
    pub fn trim(&mut self, open: u64, now: Time) -> Vec<Segment<B>> {
        let mut gone = Vec::new();
        while let Some(oldest) = self.segments.front() {
            let is_old = now.since(oldest.end) >= self.limits.keep;
            // The open segment grows until the next look.
            let is_too_much = self.bytes + open + self.limits.size / PARTS > self.limits.size;
            if !is_old && !is_too_much {
                break;
            }
            self.is_full = !is_old;
            self.bytes -= oldest.bytes;
            self.dropped.segments += 1;
            self.dropped.events += oldest.events;
            self.dropped.for_size += u64::from(!is_old);
            gone.extend(self.segments.pop_front());
        }
        gone
    }

    /// The segments that are kept, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = &Segment<B>> {
        self.segments.iter()
    }

    /// What was dropped so far.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Segments there have been.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.dropped.segments + self.segments.len() as u64
    }

    /// Events of all segments there have been.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.dropped.events + self.segments.iter().map(|segment| segment.events).sum::<u64>()
    }

    /// What is kept, with an open segment that began at `begin` and has `open` bytes.
    #[must_use]
    pub fn holds(&self, begin: Time, open: u64, now: Time) -> Holding {
        let since = self.segments.front().map_or(begin, |oldest| oldest.begin);
        let time = now.since(since);
        Holding { since, time, bytes: self.bytes + open, is_short: self.is_full && time < self.limits.keep }
    }
}
