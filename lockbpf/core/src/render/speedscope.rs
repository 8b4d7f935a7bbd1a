//! speedscope's JSON: waiting by stack, once for those who waited and once for those to blame.
//! `jlfwong/speedscope:src/lib/file-format-spec.ts`.

use super::{Format, Renderer, name};
use crate::report::profile::{Profile, Sample};
use crate::report::schema::StackFrame;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use serde::Serialize;
use std::io::{self, Write};

/// The format.
pub(super) const SPEEDSCOPE: Format = Format {
    name: "speedscope",
    suffixes: &[".speedscope.json", ".speedscope"],
    about: "speedscope: stacks of those who waited and of those to blame",
    leaves_out: "speedscope shows sums by stack: how many waits there were, causes, threads and times are left out",
    renderer: Renderer::Profile(write),
};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    exporter: &'static str,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared<'a>,
    profiles: [Sampled; 2],
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

/// Frames are told apart by name, file and line.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames of each stack by their numbers, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

type Frames<'a> = IndexSet<Frame<'a>, FxBuildHasher>;

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let waiters = sampled("waited (by who waited)", &profile.waiters, &mut frames);
    let culprits = sampled("made others wait (by who is to blame)", &profile.culprits, &mut frames);
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: &profile.target,
        exporter: concat!("lockbpf ", env!("CARGO_PKG_VERSION")),
        active: 0,
        shared: Shared { frames: frames.into_iter().collect() },
        profiles: [waiters, culprits],
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn sampled<'a>(name: &'static str, samples: &'a [Sample], frames: &mut Frames<'a>) -> Sampled {
    let weights: Vec<u64> = samples.iter().map(|sample| sample.wait_ns.whole()).collect();
    let stacks = samples.iter().map(|sample| {
        let lock = Frame { name: format!("[{}]", sample.lock), file: None, line: None };
        sample.frames.iter().rev().map(frame).chain([lock]).map(|frame| frames.insert_full(frame).0).collect()
    });
    Sampled {
        r#type: "sampled",
        name,
        unit: "nanoseconds",
        start_value: 0,
        samples: stacks.collect(),
        end_value: weights.iter().sum(),
        weights,
    }
}

fn frame(frame: &StackFrame) -> Frame<'_> {
    Frame { name: name(frame), file: frame.file.as_deref(), line: frame.line }
}
