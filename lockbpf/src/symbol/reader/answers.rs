//! Answers as they travel, and what is believed of them: the process that gives them may have been taken over by what it read.

use super::super::elf::{Layout, Segment};
use super::Listed;
use crate::demangle::clip;
use crate::names::Frame;
use crate::untrusted::{cleaned, shown};
use serde::{Deserialize, Serialize};

/// Functions at one address.
const MAX_FRAMES: usize = 256;
/// Bytes of one name.
const MAX_NAME: usize = 16 << 10;
/// Segments of a file.
const MAX_SEGMENTS: usize = 4_096;
/// Bytes of a build id.
const MAX_BUILD_ID: usize = 64;
/// Bytes of a file's name.
const MAX_FILE_NAME: usize = 255;
/// Bytes of the shortest line of a perf map that lists a function.
const SHORTEST_LINE: u64 = 6;
/// Problems of one answer.
const MAX_PROBLEMS: usize = 4;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) function: Option<String>,
    pub(super) location: Option<(String, u32)>,
    pub(super) inlined: bool,
}

/// A static variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct StaticName {
    /// What symbols call it, without an offset.
    pub(in super::super) symbol: String,
    /// Bytes from its beginning.
    pub(in super::super) offset: u64,
    /// With what debug information adds.
    pub(in super::super) told: String,
}

/// A text within bounds, that cannot write on a terminal.
pub(super) fn name(text: String) -> String {
    let end = text.floor_char_boundary(MAX_NAME);
    cleaned(if end < text.len() { text.get(..end).unwrap_or_default().to_owned() } else { text })
}

pub(super) fn frames(all: Vec<Named>) -> Vec<Frame> {
    let frame = |named: Named| Frame {
        function: named.function.map(name),
        location: named.location.map(|(file, line)| (name(file), line)),
        inlined: named.inlined,
        ..Frame::default()
    };
    all.into_iter().take(MAX_FRAMES).map(frame).collect()
}

pub(super) fn variable(told: StaticName) -> StaticName {
    StaticName { symbol: name(told.symbol), told: name(told.told), ..told }
}

pub(super) fn problems(all: Vec<String>) -> impl Iterator<Item = String> {
    all.into_iter().take(MAX_PROBLEMS).map(name)
}

/// Headers, if they are within bounds.
pub(super) fn layout(told: Layout) -> Option<Layout> {
    let short = |id: &Vec<u8>| id.len() <= MAX_BUILD_ID;
    let is_name = |name: &std::ffi::OsString| name.len() <= MAX_FILE_NAME;
    let fits = told.segments.len() <= MAX_SEGMENTS
        && told.build_id.as_ref().is_none_or(short)
        && told.debug_link.as_ref().is_none_or(|(name, _)| is_name(name))
        && told.shared_link.as_ref().is_none_or(|(name, id)| name.len() <= 4 * MAX_FILE_NAME && short(id))
        && told.segments.iter().all(is_possible);
    fits.then_some(told)
}

/// What a part of a perf map lists. It is believed if a part of this many `bytes` can list it.
pub(super) fn listed(told: Listed, bytes: u64) -> Option<Listed> {
    let fits = told.whole <= bytes
        && told.functions.len() as u64 <= told.whole / SHORTEST_LINE
        && told.functions.iter().all(|(start, end, name)| start < end && !name.is_empty());
    let functions = told.functions.into_iter().map(|(start, end, name)| (start, end, shown(clip(&name)).into_owned()));
    fits.then(|| Listed { functions: functions.collect(), ..told })
}

/// Whether a segment can be in a file and in memory.
fn is_possible(segment: &Segment) -> bool {
    segment.offset.checked_add(segment.file_size).is_some() && segment.addr.checked_add(segment.mem_size).is_some()
}
