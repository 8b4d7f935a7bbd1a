//! OpenTelemetry's profiles, as they are posted to `/v1development/profiles`: by the stacks of those who waited and of those to blame, time
//! and number of each. Alpha. `open-telemetry/opentelemetry-proto:opentelemetry/proto/profiles/v1development/profiles.proto`.
//!
//! A wait of which it is known when it was is a sample of its own. The format would let waits of one stack share a sample, but a known server
//! (`grafana/pyroscope:pkg/ingester/otlp/convert.go`) refuses samples with several values. Sums without times come in a profile of their own
//! of the same type, since the samples of a profile are to be of one shape.

use super::tables::{Tables, labels, mapping_of};
use super::{Format, Renderer};
use crate::otlp;
use crate::protobuf::Message;
use crate::report::profile::{Moment, Profile, Sample};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::io::{self, Write};

/// The format.
pub(super) const OTLP: Format = Format {
    name: "otlp",
    suffixes: &[".otlp", ".otlp.pb"],
    about: "OpenTelemetry profiles (alpha): stacks of those who waited and of those to blame",
    leaves_out: "OpenTelemetry's profiles are by stack here: for which thread each wait was is left out",
    renderer: Renderer::Timed(write),
};

/// Text attributes by numbers of key and value.
type Attributes = IndexSet<(usize, usize), FxBuildHasher>;
type Stacks = IndexSet<Vec<usize>, FxBuildHasher>;

struct Dictionary {
    tables: Tables,
    attributes: Attributes,
    stacks: Stacks,
}

/// The number of a row, behind the one that stands for nothing.
fn index(row: usize) -> u64 {
    row as u64 + 1
}

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&request(profile, &[("lockbpf.target", &profile.target)]))
}

/// Both profiles as one request to a server, with the attributes of the service that they are of.
pub(super) fn request(profile: &Profile, resource: &[(&str, &str)]) -> Vec<u8> {
    let mut dictionary =
        Dictionary { tables: Tables::new(), attributes: Attributes::default(), stacks: Stacks::default() };
    let mut profiles = Message::default();
    profiles.message(1, &otlp::scope());
    for (side, samples) in [("block", &profile.waiters), ("mutex", &profile.culprits)] {
        for (told, kind, unit) in [
            (Told::Waits, "delay", "nanoseconds"),
            (Told::Rest, "delay", "nanoseconds"),
            (Told::Number, "contentions", "count"),
        ] {
            let (encoded, is_empty) = dictionary.profile(profile, (side, kind, unit), samples, told);
            if told != Told::Waits || !is_empty {
                profiles.message(2, &encoded);
            }
        }
    }
    let mut of_resource = Message::default();
    of_resource.message(1, &otlp::resource(resource.iter().copied())).message(2, &profiles);
    let mut all = Message::default();
    all.message(1, &of_resource).message(2, &dictionary.encode(profile));
    all.as_bytes().to_vec()
}

/// What the samples of a profile tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Waits, with the times at which they began.
    Waits,
    /// Waiting of which it is not known when it was.
    Rest,
    /// How many waits.
    Number,
}

impl Told {
    /// Values of a sample, and when each was, in ns since 1970.
    fn values(self, started_ns: Option<u64>, sample: &Sample) -> Vec<(u64, Option<u64>)> {
        let moments = if started_ns.is_some() { sample.moments.as_slice() } else { &[] };
        match self {
            Self::Waits => {
                let at = |moment: &Moment| started_ns.map(|ns| ns.saturating_add(moment.since_start_ns.whole()));
                moments.iter().map(|moment| (moment.wait_ns.whole(), at(moment))).collect()
            }
            Self::Rest => {
                let timed: u64 = moments.iter().map(|moment| moment.wait_ns.whole()).sum();
                vec![(sample.wait_ns.whole().saturating_sub(timed), None)]
            }
            Self::Number => vec![(sample.count, None)],
        }
    }
}

impl Dictionary {
    /// A profile, and whether it has no samples.
    fn profile(
        &mut self,
        profile: &Profile,
        (side, kind, unit): (&str, &str, &str),
        samples: &[Sample],
        told: Told,
    ) -> (Message, bool) {
        let mut message = Message::default();
        let mut is_empty = true;
        message.message(1, &self.value_type(kind, unit));
        for sample in samples {
            let mut values = told.values(profile.started_ns, sample);
            values.retain(|&(value, _)| value > 0);
            if values.is_empty() {
                continue;
            }
            is_empty = false;
            let stack = self.tables.stack(sample);
            let stack = index(self.stacks.insert_full(stack).0);
            let mut attributes = Vec::new();
            for (key, value) in labels(sample) {
                // OpenTelemetry's conventions have a name for it.
                let key = if key == "thread" { "thread.name" } else { key };
                let attribute = (self.tables.string(key), self.tables.string(value));
                attributes.push(index(self.attributes.insert_full(attribute).0));
            }
            for (value, at) in values {
                let mut sample = Message::default();
                sample.number(1, stack).numbers(2, attributes.iter().copied()).numbers(4, [value]);
                if let Some(at) = at {
                    sample.fixed64s(5, [at]);
                }
                message.message(2, &sample);
            }
        }
        if let Some(started) = profile.started_ns {
            message.fixed64(3, started);
        }
        // Some servers name a profile after this.
        message.number(4, profile.duration_ns.whole()).message(5, &self.value_type(side, "count")).number(6, 1);
        (message, is_empty)
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.tables.string(kind) as u64).number(2, self.tables.string(unit) as u64);
        message
    }

    /// The tables. In each the first row stands for nothing.
    fn encode(mut self, profile: &Profile) -> Message {
        let nothing = Message::default();
        let mut message = Message::default();
        message.message(1, &nothing).message(2, &nothing).message(3, &nothing).message(4, &nothing);
        message.message(6, &nothing).message(7, &nothing);
        for mapping in &profile.mappings {
            let file = self.tables.string(&mapping.file) as u64;
            let mut encoded = Message::default();
            encoded.number(1, mapping.start).number(2, mapping.end).number(4, file);
            if let Some(build_id) = &mapping.build_id {
                let attribute = (self.tables.string("process.executable.build_id.gnu"), self.tables.string(build_id));
                encoded.numbers(5, [index(self.attributes.insert_full(attribute).0)]);
            }
            message.message(1, &encoded);
        }
        for location in &self.tables.locations {
            let mapping = mapping_of(&profile.mappings, location.address).map_or(0, index);
            let mut encoded = Message::default();
            encoded.number(1, mapping).number(2, location.address);
            for &(function, line) in &location.lines {
                encoded.message(3, Message::default().number(1, index(function)).number(2, line.into()));
            }
            message.message(2, &encoded);
        }
        for &(name, file) in &self.tables.functions {
            message.message(3, Message::default().number(1, name as u64).number(3, file as u64));
        }
        for &(key, value) in &self.attributes {
            let value = self.tables.strings.get_index(value).map_or("", String::as_str);
            message.message(6, Message::default().number(1, key as u64).message(2, &otlp::text(value)));
        }
        for stack in &self.stacks {
            message.message(7, Message::default().numbers(1, stack.iter().map(|&location| index(location))));
        }
        for text in &self.tables.strings {
            message.bytes(5, text.as_bytes());
        }
        message
    }
}
