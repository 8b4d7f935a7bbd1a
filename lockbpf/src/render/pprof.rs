//! pprof's profiles, gzipped, with the types of Go's own: *block* by the stacks of those who waited, *mutex* by the stacks of those to
//! blame. `google/pprof:proto/profile.proto`; types as in `golang/go:src/runtime/pprof/pprof.go`.

use super::protobuf::Message;
use super::{Format, Renderer, name};
use crate::report::profile::{Profile, Sample};
use crate::report::schema::StackFrame;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use std::io::{self, Write};

const LEAVES_OUT: &str = "pprof profiles are sums by stack: which thread waited when and for whom is left out, as is how long locks are held";

/// By stack of those who waited.
pub(super) const BLOCK: Format = Format {
    name: "pprof-block",
    suffixes: &[".pb.gz", ".pprof"],
    about: "pprof's block profile: stacks of those who waited",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Profile(|profile, out| write(profile, &profile.waiters, "block", out)),
};

/// By stack of those to blame.
pub(super) const MUTEX: Format = Format {
    name: "pprof-mutex",
    suffixes: &["mutex.pb.gz", "mutex.pprof", "culprits.pb.gz", "culprits.pprof"],
    about: "pprof's mutex profile: stacks of those who made others wait",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Profile(|profile, out| write(profile, &profile.culprits, "mutex", out)),
};

fn write(profile: &Profile, samples: &[Sample], side: &str, out: &mut dyn Write) -> io::Result<()> {
    let encoded = Builder::new(profile).build(samples, side);
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(encoded.as_bytes())?;
    gzip.finish()?;
    Ok(())
}

/// A profile and its tables, whose entries are numbered from 1 (strings from 0).
struct Builder<'a> {
    profile: &'a Profile,
    message: Message,
    strings: FxHashMap<String, u64>,
    table: Vec<String>,
    functions: FxHashMap<(u64, u64), u64>,
    locations: FxHashMap<(u64, Vec<(u64, u64)>), u64>,
}

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile) -> Self {
        let mut builder = Self {
            profile,
            message: Message::default(),
            strings: FxHashMap::default(),
            table: Vec::new(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
        };
        builder.string("");
        builder
    }

    fn build(mut self, samples: &[Sample], side: &str) -> Message {
        let (contentions, count) = (self.string("contentions"), self.string("count"));
        let (delay, nanoseconds) = (self.string("delay"), self.string("nanoseconds"));
        let of = |kind: u64, unit: u64| {
            let mut message = Message::default();
            message.number(1, kind).number(2, unit);
            message
        };
        self.message.message(1, &of(contentions, count)).message(1, &of(delay, nanoseconds));
        for sample in samples.iter().filter(|sample| sample.wait_ns.whole() > 0 || sample.count > 0) {
            let sample = self.sample(sample);
            self.message.message(2, &sample);
        }
        self.mappings();
        let side = if side == "block" { "stacks of those who waited" } else { "stacks of those who made others wait" };
        let comment = self.string(&format!("lockbpf: {side}; {}", self.profile.target));
        self.message.number(13, comment).number(14, delay);
        self.message.message(11, &of(contentions, count)).number(12, 1);
        if let Some(started) = self.profile.started_ns {
            self.message.number(9, started);
        }
        self.message.number(10, self.profile.duration_ns.whole());
        for text in &self.table {
            self.message.bytes(6, text.as_bytes());
        }
        self.message
    }

    /// The lock is the leaf, as a frame of its own.
    fn sample(&mut self, sample: &Sample) -> Message {
        let lock = StackFrame { function: Some(format!("[{}]", sample.lock)), ..StackFrame::default() };
        let mut locations = vec![self.location(&[lock])];
        // What was inlined is part of the location of the function that it was inlined into.
        for frames in sample.frames.split_inclusive(|frame| !frame.inlined) {
            locations.push(self.location(frames));
        }
        let mut message = Message::default();
        message.numbers(1, locations).numbers(2, [sample.count, sample.wait_ns.whole()]);
        let waited_for = sample.waited_for.as_deref().unwrap_or_default();
        let labels = [
            ("lock", sample.lock.as_str()),
            ("kind", &sample.kind),
            ("waited_for", waited_for),
            ("cause", sample.cause.unwrap_or_default()),
            ("blame", if sample.inferred { "inferred in part" } else { "" }),
        ];
        for (key, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
            let mut label = Message::default();
            label.number(1, self.string(key)).number(2, self.string(value));
            message.message(3, &label);
        }
        message
    }

    fn location(&mut self, frames: &[StackFrame]) -> u64 {
        let addr = frames.last().and_then(|frame| address(&frame.address)).unwrap_or(0);
        let lines: Vec<(u64, u64)> =
            frames.iter().map(|frame| (self.function(frame), u64::from(frame.line.unwrap_or(0)))).collect();
        let key = (addr, lines);
        if let Some(&id) = self.locations.get(&key) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        let mut message = Message::default();
        message.number(1, id);
        if let Some(mapping) = self.profile.mappings.iter().position(|m| (m.start..m.end).contains(&addr)) {
            message.number(2, mapping as u64 + 1);
        }
        message.number(3, addr);
        for &(function, line) in &key.1 {
            let mut of_line = Message::default();
            of_line.number(1, function).number(2, line);
            message.message(4, &of_line);
        }
        self.message.message(4, &message);
        self.locations.insert(key, id);
        id
    }

    fn function(&mut self, frame: &StackFrame) -> u64 {
        let (name, file) = (self.string(&name(frame)), self.string(frame.file.as_deref().unwrap_or_default()));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            let mut message = Message::default();
            message.number(1, id).number(2, name).number(3, name).number(4, file);
            self.message.message(5, &message);
        }
        id
    }

    /// All of them have names: so pprof does not look for them in files of its own machine.
    fn mappings(&mut self) {
        let profile = self.profile;
        for (at, mapping) in profile.mappings.iter().enumerate() {
            let file = self.string(&mapping.file);
            let build_id = self.string(mapping.build_id.as_deref().unwrap_or_default());
            let mut message = Message::default();
            message.number(1, at as u64 + 1).number(2, mapping.start).number(3, mapping.end);
            message.number(5, file).number(6, build_id);
            message.number(7, 1).number(8, 1).number(9, 1).number(10, 1);
            self.message.message(3, &message);
        }
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.table.len() as u64;
        self.strings.insert(text.to_owned(), index);
        self.table.push(text.to_owned());
        index
    }
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
