//! What is pushed at one time, as each destination wants it.

use super::super::shared::{Published, Shared, Side, pprof};
use super::config::Protocol;
use crate::metrics::Stacks;
use crate::render;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::utsname::uname;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;

/// What profiles say they are of.
const SERVICE: &str = "lockbpf";
/// The variable that names this machine.
const HOST: &str = "LOCKBPF_HOST";

/// What has come since the batch before: stacks by how much they have grown; and all metrics as they are.
pub(super) struct Batch<'a> {
    shared: &'a Shared,
    stacks: Stacks,
    /// The name of this machine.
    host: String,
    from_ns: u64,
    until_ns: u64,
}

/// How far it has been told.
pub(super) struct Mark {
    published: Arc<Published>,
    at_ns: u64,
}

impl Mark {
    /// Everything that has been seen so far has been told.
    pub(super) fn new(shared: &Shared, at_ns: u64) -> Self {
        Self { published: shared.published(), at_ns }
    }
}

impl<'a> Batch<'a> {
    /// All that there is now and was not told before. Returns how far it tells, too.
    pub(super) fn since(mark: &Mark, shared: &'a Shared, now_ns: u64) -> (Self, Mark) {
        let next = Mark::new(shared, now_ns);
        let stacks = next.published.stacks().since(mark.published.stacks());
        let batch = Self { shared, stacks, host: host(), from_ns: mark.at_ns.min(now_ns), until_ns: now_ns };
        (batch, next)
    }

    /// As a destination wants it; `None` if there is nothing to tell.
    ///
    /// # Errors
    /// When it cannot be compressed.
    pub(super) fn encode(&self, protocol: Protocol) -> io::Result<Option<Vec<u8>>> {
        if protocol == Protocol::OtlpMetrics {
            let request = self.shared.otlp_request(&self.teller(), self.until_ns);
            return gzip(&request).map(Some);
        }
        if self.stacks.is_empty() {
            return Ok(None);
        }
        let profile = self.stacks.profile(SERVICE, Some(self.from_ns), self.until_ns - self.from_ns);
        let encoded = match protocol {
            Protocol::OtlpMetrics | Protocol::OtlpProfiles => gzip(&render::otlp_request(&profile, &self.teller()))?,
            Protocol::Pyroscope => self.pyroscope(|side| STANDARD.encode(pprof(side, &profile))),
            Protocol::Parca => self.parca(|side| STANDARD.encode(pprof(side, &profile))),
        };
        Ok(Some(encoded))
    }

    /// Who tells, by OpenTelemetry's names.
    fn teller(&self) -> [(&str, &str); 4] {
        [
            ("service.name", SERVICE),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", &self.host),
            ("host.name", &self.host),
        ]
    }

    /// A `PushRequest` (`grafana/pyroscope:api/push/v1/push.proto`). Its profiles are no sums since the start: that they are not to be
    /// subtracted from one another is told by `__delta__`.
    fn pyroscope(&self, profile: impl Fn(Side) -> String) -> Vec<u8> {
        let series = Side::ALL.map(|side| {
            let labels = self.labels(side, &[("__delta__", "false"), ("instance", &self.host)]);
            json!({"labels": labels, "samples": [{"ID": uuid(), "rawProfile": profile(side)}]})
        });
        json!({"series": series}).to_string().into_bytes()
    }

    /// A `WriteRawRequest` (`parca-dev/parca:proto/parca/profilestore/v1alpha1/profilestore.proto`). That its profiles are no sums since the start is
    /// told by their duration.
    fn parca(&self, profile: impl Fn(Side) -> String) -> Vec<u8> {
        let series = Side::ALL.map(|side| {
            let labels = self.labels(side, &[("instance", &self.host), ("node", &self.host)]);
            json!({"labels": {"labels": labels}, "samples": [{"rawProfile": profile(side)}]})
        });
        json!({"series": series}).to_string().into_bytes()
    }

    fn labels(&self, side: Side, more: &[(&str, &str)]) -> Vec<Value> {
        let labels = [("__name__", side.name()), ("service_name", SERVICE)];
        let label = |(name, value): &(&str, &str)| json!({"name": name, "value": value});
        labels.iter().chain(more).map(label).collect()
    }
}

/// The name of this machine. A container has another one than the machine that it is on.
fn host() -> String {
    let named = std::env::var(HOST).ok().filter(|host| !host.is_empty());
    let own = || uname().map(|machine| machine.nodename().to_string_lossy().into_owned());
    named.unwrap_or_else(|| own().unwrap_or_default())
}

/// A new name for a profile (RFC 9562, version 4): one that arrives twice can be told.
fn uuid() -> String {
    let random = fastrand::u128(..) & !(0xf << 76 | 0b11 << 62) | 4 << 76 | 0b10 << 62;
    let hex = format!("{random:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes)?;
    gzip.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_new_and_as_specified() {
        let names: HashSet<String> = (0..100).map(|_| uuid()).collect();
        assert_eq!(names.len(), 100);
        for name in names {
            let parts: Vec<&str> = name.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{name}");
            assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{name}");
        }
    }
}
