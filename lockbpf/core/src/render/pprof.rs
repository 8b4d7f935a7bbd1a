//! pprof's profiles, gzipped, with the types of Go's own: *block* by the stacks of those who waited, *mutex* by the stacks of those to
//! blame. `google/pprof:proto/profile.proto`; types as in `golang/go:src/runtime/pprof/pprof.go`.

use super::tables::{Tables, labels, mapping_of};
use super::{Format, Renderer};
use crate::protobuf::Message;
use crate::report::profile::{Profile, Sample};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

const LEAVES_OUT: &str = "pprof profiles are sums by stack: when each wait was, and for which thread, is left out, as is how long locks are held";

/// By stack of those who waited.
pub(super) const BLOCK: Format = Format {
    name: "pprof-block",
    suffixes: &[".pb.gz", ".pprof"],
    about: "pprof's block profile: stacks of those who waited",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Timed(|profile, out| write(profile, &profile.waiters, "stacks of those who waited", out)),
};

/// By stack of those to blame.
pub(super) const MUTEX: Format = Format {
    name: "pprof-mutex",
    suffixes: &["mutex.pb.gz", "mutex.pprof", "culprits.pb.gz", "culprits.pprof"],
    about: "pprof's mutex profile: stacks of those who made others wait",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Timed(|profile, out| {
        write(profile, &profile.culprits, "stacks of those who made others wait", out)
    }),
};

fn write(profile: &Profile, samples: &[Sample], what: &str, out: &mut dyn Write) -> io::Result<()> {
    let encoded = encode(profile, samples, what);
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(encoded.as_bytes())?;
    gzip.finish()?;
    Ok(())
}

/// The number of a row, which begin with 1 here.
fn id(row: usize) -> u64 {
    row as u64 + 1
}

fn encode(profile: &Profile, samples: &[Sample], what: &str) -> Message {
    let mut tables = Tables::new();
    let mut message = Message::default();
    let contentions = value_type(&mut tables, "contentions", "count");
    let delay = value_type(&mut tables, "delay", "nanoseconds");
    message.message(1, &contentions).message(1, &delay);
    for told in samples {
        let mut sample = Message::default();
        sample.numbers(1, tables.stack(told).into_iter().map(id)).numbers(2, [told.count, told.wait_ns.whole()]);
        for (key, value) in labels(told) {
            let mut label = Message::default();
            label.number(1, tables.string(key) as u64).number(2, tables.string(value) as u64);
            sample.message(3, &label);
        }
        message.message(2, &sample);
    }
    mappings(profile, &mut tables, &mut message);
    for (row, location) in tables.locations.iter().enumerate() {
        let mut encoded = Message::default();
        encoded.number(1, id(row)).number(3, location.address);
        if let Some(mapping) = mapping_of(&profile.mappings, location.address) {
            encoded.number(2, id(mapping));
        }
        for &(function, line) in &location.lines {
            let mut of_line = Message::default();
            of_line.number(1, id(function)).number(2, line.into());
            encoded.message(4, &of_line);
        }
        message.message(4, &encoded);
    }
    for (row, &(name, file)) in tables.functions.iter().enumerate() {
        let mut function = Message::default();
        function.number(1, id(row)).number(2, name as u64).number(3, name as u64).number(4, file as u64);
        message.message(5, &function);
    }
    if let Some(started) = profile.started_ns {
        message.number(9, started);
    }
    message.number(10, profile.duration_ns.whole()).message(11, &contentions).number(12, 1);
    let comment = tables.string(&format!("lockbpf: {what}; {}", profile.target));
    message.number(13, comment as u64).number(14, tables.string("delay") as u64);
    for text in &tables.strings {
        message.bytes(6, text.as_bytes());
    }
    message
}

fn value_type(tables: &mut Tables, kind: &str, unit: &str) -> Message {
    let mut message = Message::default();
    message.number(1, tables.string(kind) as u64).number(2, tables.string(unit) as u64);
    message
}

/// All of them have names: so pprof does not look for them in files of its own machine.
fn mappings(profile: &Profile, tables: &mut Tables, message: &mut Message) {
    for (row, mapping) in profile.mappings.iter().enumerate() {
        let file = tables.string(&mapping.file) as u64;
        let build_id = tables.string(mapping.build_id.as_deref().unwrap_or_default()) as u64;
        let mut encoded = Message::default();
        encoded.number(1, id(row)).number(2, mapping.start).number(3, mapping.end).number(5, file).number(6, build_id);
        encoded.number(7, 1).number(8, 1).number(9, 1).number(10, 1);
        message.message(3, &encoded);
    }
}
