//! OpenTelemetry's profiles, as they are posted to `/v1development/profiles`: by the stacks of those who waited and of those to blame, time
//! and number of each. Alpha. `open-telemetry/opentelemetry-proto:opentelemetry/proto/profiles/v1development/profiles.proto`.

use super::protobuf::Message;
use super::tables::{Tables, labels, mapping_of};
use super::{Format, Renderer};
use crate::report::profile::{Profile, Sample};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::io::{self, Write};

/// The format.
pub(super) const OTLP: Format = Format {
    name: "otlp",
    suffixes: &[".otlp", ".otlp.pb"],
    about: "OpenTelemetry profiles (alpha): stacks of those who waited and of those to blame",
    leaves_out: "OpenTelemetry's profiles are sums by stack here: which thread waited when and for whom is left out",
    renderer: Renderer::Profile(write),
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
    let mut dictionary =
        Dictionary { tables: Tables::new(), attributes: Attributes::default(), stacks: Stacks::default() };
    let mut scope = Message::default();
    scope.bytes(1, b"lockbpf").bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut profiles = Message::default();
    profiles.message(1, &scope);
    let delay: fn(&Sample) -> u64 = |sample| sample.wait_ns.whole();
    let contentions: fn(&Sample) -> u64 = |sample| sample.count;
    for (side, samples) in [("block", &profile.waiters), ("mutex", &profile.culprits)] {
        for (kind, unit, value) in [("delay", "nanoseconds", delay), ("contentions", "count", contentions)] {
            let encoded = dictionary.profile(profile, (side, kind, unit), samples, value);
            profiles.message(2, &encoded);
        }
    }
    let mut target = Message::default();
    target.bytes(1, b"lockbpf.target").message(2, Message::default().bytes(1, profile.target.as_bytes()));
    let mut of_resource = Message::default();
    of_resource.message(1, Message::default().message(1, &target)).message(2, &profiles);
    let mut all = Message::default();
    all.message(1, &of_resource).message(2, &dictionary.encode(profile));
    out.write_all(all.as_bytes())
}

impl Dictionary {
    fn profile(
        &mut self,
        profile: &Profile,
        (side, kind, unit): (&str, &str, &str),
        samples: &[Sample],
        value: fn(&Sample) -> u64,
    ) -> Message {
        let mut message = Message::default();
        message.message(1, &self.value_type(kind, unit));
        for told in samples.iter().filter(|sample| value(sample) > 0) {
            let stack = self.tables.stack(told);
            let stack = index(self.stacks.insert_full(stack).0);
            let mut attributes = Vec::new();
            for (key, value) in labels(told) {
                let attribute = (self.tables.string(key), self.tables.string(value));
                attributes.push(index(self.attributes.insert_full(attribute).0));
            }
            let mut sample = Message::default();
            sample.number(1, stack).numbers(2, attributes).numbers(4, [value(told)]);
            message.message(2, &sample);
        }
        if let Some(started) = profile.started_ns {
            message.fixed64(3, started);
        }
        // Some servers name a profile after this.
        message.number(4, profile.duration_ns.whole()).message(5, &self.value_type(side, "count")).number(6, 1);
        message
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
            let mut encoded = Message::default();
            encoded.number(1, key as u64).message(2, Message::default().bytes(1, value.as_bytes()));
            message.message(6, &encoded);
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
