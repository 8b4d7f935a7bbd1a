//! Texts, functions and locations by their numbers, as pprof's and OpenTelemetry's profiles have them.

use super::name;
use crate::report::profile::{Mapping, Sample};
use crate::report::schema::StackFrame;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Texts by their numbers, in the order in which they were first asked for.
pub(super) type Strings = IndexSet<String, FxBuildHasher>;

/// The number of a text.
pub(super) fn number(strings: &mut Strings, text: &str) -> usize {
    match strings.get_index_of(text) {
        Some(index) => index,
        None => strings.insert_full(text.to_owned()).0,
    }
}

/// A code address and the functions there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Location {
    /// 0 where there is none.
    pub(super) address: u64,
    /// Functions by their numbers, and lines in them (0: not known): what was inlined first.
    pub(super) lines: Vec<(usize, u32)>,
}

/// Each table's rows are numbered from 0, in the order in which they were first asked for.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The first is empty.
    pub(super) strings: Strings,
    /// Numbers of a function's name and of its file's.
    pub(super) functions: IndexSet<(usize, usize), FxBuildHasher>,
    pub(super) locations: IndexSet<Location, FxBuildHasher>,
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut tables = Self::default();
        tables.string("");
        tables
    }

    pub(super) fn string(&mut self, text: &str) -> usize {
        number(&mut self.strings, text)
    }

    /// The locations of a stack, innermost first. The lock is the innermost, as a frame of its own.
    pub(super) fn stack(&mut self, sample: &Sample) -> Vec<usize> {
        let lock = StackFrame { function: Some(format!("[{}]", sample.lock)), ..StackFrame::default() };
        let mut stack = vec![self.location(&[lock])];
        // What was inlined is part of the location of the function that it was inlined into.
        let calls = sample.frames.split_inclusive(|frame| !frame.inlined);
        stack.extend(calls.map(|frames| self.location(frames)));
        stack
    }

    fn location(&mut self, frames: &[StackFrame]) -> usize {
        let address = frames.last().and_then(|frame| address(&frame.address)).unwrap_or(0);
        let lines = frames.iter().map(|frame| (self.function(frame), frame.line.unwrap_or(0))).collect();
        self.locations.insert_full(Location { address, lines }).0
    }

    fn function(&mut self, frame: &StackFrame) -> usize {
        let names = (self.string(&name(frame)), self.string(frame.file.as_deref().unwrap_or_default()));
        self.functions.insert_full(names).0
    }
}

/// A sample's labels: names and values.
pub(super) fn labels(sample: &Sample) -> impl Iterator<Item = (&'static str, &str)> {
    let labels = [
        ("lock", sample.lock.as_str()),
        ("kind", &sample.kind),
        ("thread", &sample.thread),
        ("waited_for", sample.waited_for.as_deref().unwrap_or_default()),
        ("cause", sample.cause.unwrap_or_default()),
        ("blame", if sample.inferred { "inferred in part" } else { "" }),
    ];
    let more = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
    labels.into_iter().filter(|(_, value)| !value.is_empty()).chain(more)
}

/// The file that an address lies in, by its place among these.
pub(super) fn mapping_of(mappings: &[Mapping], address: u64) -> Option<usize> {
    mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&address))
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
