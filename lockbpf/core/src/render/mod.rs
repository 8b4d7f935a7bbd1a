//! Recordings in the formats of viewers that people have already: one file a format, and a line in [`FORMATS`].
//!
//! A renderer is fed with what the report made of a recording: waiting by stack ([`Profile`]), or every wait and hold in time ([`Timeline`]).
//! So each format adds up to the report's figures. Names come from the programs that were observed: each renderer escapes them as its format wants.
#![forbid(unsafe_code)]

mod firefox;
mod flame;
mod folded;
mod html;
mod lanes;
mod markup;
mod otlp;
mod perfetto;
mod pprof;
mod speedscope;
mod svg;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub use html::comparison;

use crate::advice::Advice;
use crate::model::sliders::Sliders;
use crate::report::Report;
use crate::report::pictures::Pictures;
use crate::report::profile::Profile;
use crate::report::schema::StackFrame;
use crate::report::timeline::Timeline;
use std::io::{self, Write};

/// A format of a viewer.
#[derive(Debug)]
pub struct Format {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Ends of file names that mean it.
    pub suffixes: &'static [&'static str],
    /// What it is and who reads it, in a line.
    pub about: &'static str,
    /// What of a recording it has no place for, in a sentence.
    pub leaves_out: &'static str,
    /// How it is written.
    pub renderer: Renderer,
}

/// How a format is written: from what, and by what.
#[derive(Clone, Copy, Debug)]
pub enum Renderer {
    /// From waiting by stack.
    Profile(fn(&Profile, &mut dyn Write) -> io::Result<()>),
    /// From waiting by stack, with the times of waits.
    Timed(fn(&Profile, &mut dyn Write) -> io::Result<()>),
    /// From every wait and hold in time.
    Timeline(fn(&Timeline, &mut dyn Write) -> io::Result<()>),
    /// From the report and everything that pictures of it are drawn from.
    Page(fn(&Page, &mut dyn Write) -> io::Result<()>),
}

/// A report to look at.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The report, with all its locks.
    pub report: Report,
    /// What its pictures are drawn from.
    pub pictures: Pictures,
    /// When the recording began, ns since 1970 (UTC), if that is known.
    pub started_ns: Option<u64>,
    /// What changes would gain.
    pub what_if: Answer<Sliders>,
    /// What to do about locks, where the recording tells what their sections read and write.
    pub advice: Answer<Advice>,
}

/// What a recording was asked beside its report.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T> {
    /// What came of it.
    Asked(T),
    /// Why it was not asked, as a sentence; empty where there is nothing to say.
    NotAsked(String),
}

impl<T> Answer<T> {
    /// The answer, and why there is none.
    fn parts(&self) -> (Option<&T>, Option<&str>) {
        match self {
            Self::Asked(answer) => (Some(answer), None),
            Self::NotAsked(why) => (None, Some(why)),
        }
    }
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self::NotAsked(String::new())
    }
}

impl Format {
    /// Whether it tells waits one by one, for which the wait graph itself is kept in memory.
    #[must_use]
    pub fn is_timeline(&self) -> bool {
        matches!(self.renderer, Renderer::Timed(_) | Renderer::Timeline(_) | Renderer::Page(_))
    }
}

/// All formats of viewers. Where several suffixes fit a name, the longest counts.
pub const FORMATS: &[Format] = &[
    folded::WAITERS,
    folded::CULPRITS,
    pprof::BLOCK,
    pprof::MUTEX,
    speedscope::SPEEDSCOPE,
    svg::SVG,
    otlp::OTLP,
    perfetto::PERFETTO,
    firefox::FIREFOX,
    html::HTML,
];

/// Waiting by stack as it is posted to a server of OpenTelemetry's profiles (`ExportProfilesServiceRequest`); `resource` tells whose it is, by name and
/// value.
#[must_use]
pub fn otlp_request(profile: &Profile, resource: &[(&str, &str)]) -> Vec<u8> {
    otlp::request(profile, resource)
}

/// The format that a file's name means.
#[must_use]
pub fn by_suffix(file: &str) -> Option<&'static Format> {
    let file = file.to_ascii_lowercase();
    let fits = |format: &Format| format.suffixes.iter().filter(|suffix| file.ends_with(*suffix)).map(|s| s.len()).max();
    let fitting = FORMATS.iter().filter_map(|format| Some((fits(format)?, format)));
    fitting.max_by_key(|&(length, _)| length).map(|(_, format)| format)
}

/// What a frame is called: its function, else its file and offset, else its address.
pub(crate) fn name(frame: &StackFrame) -> String {
    match (&frame.function, &frame.module, &frame.offset) {
        (Some(function), ..) => function.clone(),
        (None, Some(module), Some(offset)) => format!("{module}+{offset}"),
        _ => frame.address.clone(),
    }
}
