//! Metrics as they are posted to a server of OpenTelemetry's (`ExportMetricsServiceRequest`), cumulative.
//! `open-telemetry/opentelemetry-proto:opentelemetry/proto/metrics/v1/metrics.proto`.
//!
//! Names are those of the text formats with dots, without unit and `_total`: `lockbpf_lock_wait_seconds` is `lockbpf.lock.wait` in `s`. So a Prometheus
//! that takes them makes the same names of them again, and what was written for one way to it fits the other.

use super::family::{Families, Kind, Label, Value, unit};
use crate::otlp::{attribute, resource, scope};
use crate::protobuf::Message;
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// Sums since the start (`AGGREGATION_TEMPORALITY_CUMULATIVE`).
const CUMULATIVE: u64 = 2;
/// Labels that tell what a process runs in: whoever enriches data looks for them by these names, among the attributes of the resource.
const RESOURCE: [(&str, &str); 2] = [("container_id", "container.id"), ("pod_uid", "k8s.pod.uid")];

/// The container and the pod of a resource, by their names in [`RESOURCE`].
type Place = Vec<(&'static str, String)>;

/// Collects families of metrics.
pub(super) struct Request<'a> {
    /// Attributes of lockbpf itself: the service, its version, the machine.
    teller: &'a [(&'a str, &'a str)],
    at_ns: u64,
    since_ns: u64,
    families: Vec<Family>,
    /// Samples, by the place that they are of and by family.
    samples: IndexMap<Place, BTreeMap<usize, Vec<Message>>>,
}

struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

impl<'a> Request<'a> {
    /// An empty request, with samples of this time, ns since 1970 (UTC).
    pub(super) fn new(teller: &'a [(&'a str, &'a str)], at_ns: u64) -> Self {
        Self { teller, at_ns, since_ns: at_ns, families: Vec::new(), samples: IndexMap::new() }
    }

    /// The whole message.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut all = Message::default();
        for (place, families) in &self.samples {
            let mut of_scope = Message::default();
            of_scope.message(1, &scope());
            for (&family, samples) in families {
                of_scope.message(2, &self.families[family].encode(samples));
            }
            let place = place.iter().map(|(key, value)| (*key, value.as_str()));
            let mut of_resource = Message::default();
            of_resource.message(1, &resource(self.teller.iter().copied().chain(place))).message(2, &of_scope);
            all.message(1, &of_resource);
        }
        all.as_bytes().to_vec()
    }

    fn push(&mut self, labels: &[Label<'_>], sample: Message) {
        let told = |&(label, name): &(&str, &'static str)| {
            labels.iter().find(|(key, _)| *key == label).map(|(_, value)| (name, (*value).to_owned()))
        };
        let place = RESOURCE.iter().filter_map(told).collect();
        // Whoever pushes a sample has begun a family.
        let family = self.families.len().saturating_sub(1);
        self.samples.entry(place).or_default().entry(family).or_default().push(sample);
    }

    /// A sample's time, and since when it is counted, by the numbers of their fields.
    fn times(&self, sample: &mut Message) {
        sample.fixed64(2, self.since_ns.min(self.at_ns)).fixed64(3, self.at_ns);
    }
}

impl Families for Request<'_> {
    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.families.push(Family { name, kind, help });
    }

    fn since(&mut self, ns: u64) {
        self.since_ns = ns;
    }

    fn sample(&mut self, labels: &[Label<'_>], value: Value) {
        let mut sample = Message::default();
        self.times(&mut sample);
        match value {
            Value::Whole(number) => sample.fixed64(6, number),
            Value::Seconds(ns) => sample.fixed64(4, seconds(ns)),
            Value::Decimal(number) => sample.fixed64(4, number.to_bits()),
        };
        for (key, value) in labels {
            sample.message(7, &attribute(key, value));
        }
        self.push(labels, sample);
    }

    fn histogram(&mut self, labels: &[Label<'_>], bounds_ns: &[u64], cumulative: &[u64], sum_ns: u64) {
        let mut sample = Message::default();
        self.times(&mut sample);
        sample.fixed64(4, cumulative.last().copied().unwrap_or(0)).fixed64(5, seconds(sum_ns));
        let below = std::iter::once(0).chain(cumulative.iter().copied());
        let counts = cumulative.iter().zip(below).map(|(upto, below)| upto.saturating_sub(below));
        sample.fixed64s(6, counts).fixed64s(7, bounds_ns.iter().map(|&ns| seconds(ns)));
        for (key, value) in labels {
            sample.message(9, &attribute(key, value));
        }
        self.push(labels, sample);
    }
}

impl Family {
    fn encode(&self, samples: &[Message]) -> Message {
        let (name, unit) = match self.kind {
            Kind::Info => (format!("{}_info", self.name), None),
            _ => {
                let (name, unit) = unit(self.name);
                (name.to_owned(), unit)
            }
        };
        // As UCUM has them.
        let unit = unit.map(|unit| match unit {
            "seconds" => "s",
            "bytes" => "By",
            _ => "1",
        });
        let mut data = Message::default();
        for sample in samples {
            data.message(1, sample);
        }
        let mut message = Message::default();
        message.bytes(1, name.replace('_', ".").as_bytes()).bytes(2, self.help.as_bytes());
        if let Some(unit) = unit {
            message.bytes(3, unit.as_bytes());
        }
        match self.kind {
            Kind::Gauge | Kind::Info => message.message(5, &data),
            Kind::Counter => message.message(7, data.number(2, CUMULATIVE).number(3, 1)),
            Kind::Histogram => message.message(9, data.number(2, CUMULATIVE)),
        };
        message
    }
}

/// Seconds as the bits of a `double`.
fn seconds(ns: u64) -> u64 {
    (ns as f64 / 1e9).to_bits()
}
