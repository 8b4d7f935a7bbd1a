//! The configuration's table `[push]`: where to, how often, and what waits where meanwhile.

use super::super::super::http::Url;
use super::super::super::limits;
use super::super::fields::{parsed, read, size};
use anyhow::{Result, bail};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be said.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in super::super) struct PushConfig {
    /// A server of OpenTelemetry's metrics.
    otlp_metrics: Option<Destination>,
    /// A server of OpenTelemetry's profiles.
    otlp_profiles: Option<Destination>,
    /// A Pyroscope.
    pyroscope: Option<Destination>,
    /// A Parca.
    parca: Option<Destination>,
    /// How often a batch is made.
    #[serde(deserialize_with = "interval")]
    pub(super) interval: Duration,
    /// Where batches wait until they are taken.
    pub(super) queue_dir: PathBuf,
    /// In so many bytes at most, for each destination.
    #[serde(deserialize_with = "size")]
    pub(super) queue_size: u64,
}

/// Where something is pushed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Destination {
    url: Url,
    /// A file with a token, which requests carry.
    token_file: Option<PathBuf>,
    /// What else requests carry.
    #[serde(default, deserialize_with = "headers")]
    headers: HeaderMap,
}

/// What is pushed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    OtlpMetrics,
    OtlpProfiles,
    Pyroscope,
    Parca,
}

impl Protocol {
    /// What it is called in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OtlpMetrics => "otlp_metrics",
            Self::OtlpProfiles => "otlp_profiles",
            Self::Pyroscope => "pyroscope",
            Self::Parca => "parca",
        }
    }

    /// Where a server takes it, unless told otherwise.
    fn path(self) -> &'static str {
        match self {
            Self::OtlpMetrics => "/v1/metrics",
            Self::OtlpProfiles => "/v1development/profiles",
            Self::Pyroscope => "/push.v1.PusherService/Push",
            Self::Parca => "/api/profiles/writeraw",
        }
    }

    /// Whether it is OpenTelemetry's, and so gzipped protobuf; else JSON.
    pub(super) fn is_otlp(self) -> bool {
        matches!(self, Self::OtlpMetrics | Self::OtlpProfiles)
    }
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            otlp_metrics: None,
            otlp_profiles: None,
            pyroscope: None,
            parca: None,
            interval: Duration::from_secs(60),
            queue_dir: PathBuf::from("/var/lib/lockbpf/push"),
            queue_size: 64 << 20,
        }
    }
}

impl PushConfig {
    /// All destinations.
    pub(super) fn destinations(&self) -> Vec<(Protocol, &Destination)> {
        let Self { otlp_metrics, otlp_profiles, pyroscope, parca, .. } = self;
        let named = [
            (Protocol::OtlpMetrics, otlp_metrics),
            (Protocol::OtlpProfiles, otlp_profiles),
            (Protocol::Pyroscope, pyroscope),
            (Protocol::Parca, parca),
        ];
        named.into_iter().filter_map(|(protocol, to)| Some((protocol, to.as_ref()?))).collect()
    }

    /// Where it is pushed and how often, in words; empty if nowhere.
    pub(in super::super) fn told(&self) -> String {
        let urls = self.destinations().into_iter().map(|(protocol, to)| to.url(protocol).to_string());
        match urls.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            urls => format!(", pushed each {} to {urls}", humantime::format_duration(self.interval)),
        }
    }

    /// Whether what it names can be had.
    ///
    /// # Errors
    /// When a token cannot be read, or is none.
    pub(in super::super) fn check(&self) -> Result<()> {
        self.destinations().into_iter().try_for_each(|(_, to)| to.headers().map(drop))
    }
}

impl Destination {
    /// Where it is posted.
    pub(super) fn url(&self, protocol: Protocol) -> Url {
        self.url.or_path(protocol.path())
    }

    /// What requests carry. The token is read each time: it may be renewed.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn headers(&self) -> Result<HeaderMap> {
        let mut headers = self.headers.clone();
        if let Some(path) = &self.token_file {
            let token = read(path)?;
            let token = token.trim();
            if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
                bail!("{}: a token is one word of ASCII characters", path.display());
            }
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Whether its token leaves this machine, which whoever is on the way can read.
    pub(super) fn exposes_token(&self) -> bool {
        self.token_file.is_some() && self.url.is_remote()
    }
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, |text| match limits::span(text)? {
        short if short < Duration::from_secs(1) => {
            Err("nobody takes more than one batch a second: 1s or more is expected".to_owned())
        }
        interval => Ok(interval),
    })
}

fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<HeaderMap, D::Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in BTreeMap::<String, String>::deserialize(from)? {
        let header = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        let (name, value) =
            header.ok_or_else(|| de::Error::custom(format!("{name:?} with {value:?} is no header of HTTP")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
