//! The service's configuration, in TOML. What cannot be meant is refused in a sentence that names the line.

use super::super::alert_args::AlertArgs;
use super::super::args::{CaptureArgs, Plan, Share, share};
use super::super::flight_args::{DumpOn, FlightArgs, SIZE};
use super::super::http::Listen;
use super::super::limits;
use super::args::AgentArgs;
use super::fields::{parsed, read, size};
use super::push::PushConfig;
use crate::metrics::Limits;
use crate::observe::{DEFAULT_STACK_WAIT, Target};
use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;

/// The budget, unless another is named.
const BUDGET: &str = "3%";
/// Bytes of a token at least: a shorter one can be tried out.
const SHORTEST_TOKEN: usize = 16;
/// Series of any sort at most: more would be no help to anybody.
const MOST: usize = 100_000;

/// Everything that can be said.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    /// Where metrics and profiles are served.
    pub listen: Listen,
    /// Whether whoever reaches an address that is not loopback may read without a token.
    pub allow_anyone: bool,
    /// A file with the token that requests must carry.
    pub token_file: Option<PathBuf>,
    /// How often a snapshot is taken.
    #[serde(deserialize_with = "interval")]
    pub interval: Duration,
    /// How often the observation is begun anew.
    #[serde(deserialize_with = "renew")]
    pub renew: Duration,
    /// Whom to observe, and how.
    pub observe: Observe,
    /// How much is told apart.
    pub limits: LimitsConfig,
    /// Where metrics and profiles are pushed.
    pub push: PushConfig,
}

/// Whom to observe, and how.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Observe {
    /// Everybody in this cgroup; without this and the next two: the whole system.
    pub cgroup: Option<Spanned<String>>,
    /// Everybody in this container.
    pub container: Option<Spanned<String>>,
    /// These processes.
    pub pids: Option<Spanned<Vec<u32>>>,
    /// Share of the programs' CPU time that observing may cost.
    #[serde(deserialize_with = "budget")]
    pub budget: Share,
    /// Whether no uprobes are placed.
    pub futex_only: bool,
    /// Whether waits for the kernel's own locks are told.
    pub kernel_locks: bool,
    /// Waits shorter than this are counted only.
    #[serde(deserialize_with = "time")]
    pub min_wait: Duration,
    /// Call stacks are taken of waits from this length on.
    #[serde(deserialize_with = "time")]
    pub stack_wait: Duration,
    /// Waits that last longer are told at once.
    #[serde(deserialize_with = "time")]
    pub wait_over: Duration,
    /// Holds that last longer are told at once, as far as they are seen.
    #[serde(deserialize_with = "time")]
    pub hold_over: Duration,
    /// The last so long is kept, for a recording when one is wanted.
    #[serde(deserialize_with = "keep")]
    pub keep: Duration,
    /// In so many bytes at most.
    #[serde(deserialize_with = "size")]
    pub keep_size: u64,
    /// In this directory, and not in memory.
    pub keep_dir: Option<PathBuf>,
    /// After which alerts recordings are made.
    pub dump_on: Vec<DumpOn>,
    /// Where they go.
    pub dump_to: Option<PathBuf>,
}

/// How much is told apart.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsConfig {
    /// Locks of each process.
    #[serde(deserialize_with = "number")]
    pub locks: usize,
    /// Culprits of each process.
    #[serde(deserialize_with = "number")]
    pub culprits: usize,
    /// Processes, by name, container, pod and unit.
    #[serde(deserialize_with = "number")]
    pub processes: usize,
    /// Locks, and culprits, in all.
    #[serde(deserialize_with = "number")]
    pub series: usize,
    /// Stacks in each profile.
    #[serde(deserialize_with = "number")]
    pub stacks: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            allow_anyone: false,
            token_file: None,
            interval: Duration::from_secs(10),
            renew: Duration::from_secs(30 * 60),
            observe: Observe::default(),
            limits: LimitsConfig::default(),
            push: PushConfig::default(),
        }
    }
}

impl Default for Observe {
    fn default() -> Self {
        Self {
            cgroup: None,
            container: None,
            pids: None,
            budget: share(BUDGET).unwrap_or_default(),
            futex_only: false,
            kernel_locks: false,
            min_wait: Duration::ZERO,
            stack_wait: DEFAULT_STACK_WAIT,
            wait_over: Duration::ZERO,
            hold_over: Duration::ZERO,
            keep: Duration::ZERO,
            keep_size: SIZE,
            keep_dir: None,
            dump_on: Vec::new(),
            dump_to: None,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let Limits { locks, culprits, workloads, series } = Limits::default();
        Self { locks, culprits, processes: workloads, series, stacks: 2_000 }
    }
}

impl Config {
    /// Reads what the command line names, or takes the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, or says what cannot be meant.
    pub(super) fn load(args: &AgentArgs) -> Result<Self> {
        let mut config = match &args.config {
            None => Self::default(),
            Some(path) => Self::parse(&read(path)?).map_err(|error| anyhow::anyhow!("{}, {error}", path.display()))?,
        };
        if let Some(listen) = &args.listen {
            config.listen = listen.clone();
        }
        if let Some(token) = &args.token_file {
            config.token_file = Some(token.clone());
        }
        if config.listen.is_open() && config.token_file.is_none() && !config.allow_anyone {
            bail!(
                "other machines reach {}, and nothing keeps them from reading names of functions there: name a token_file, or say \
                 allow_anyone = true",
                config.listen
            );
        }
        config.push.check()?;
        Ok(config)
    }

    /// The same again. What is wrong is said, and then nothing changes.
    pub(super) fn reloaded(&self, args: &AgentArgs) -> Option<(Self, Option<String>)> {
        let read = Self::load(args).and_then(|config| {
            let token = config.token()?;
            Ok((config, token))
        });
        match read {
            Ok(read) => {
                say!("lockbpf: read the configuration again; {}", read.0);
                Some(read)
            }
            Err(error) => {
                say!("lockbpf: the configuration stays as it was: {error:#}");
                None
            }
        }
    }

    /// The token that requests must carry, if one is wanted.
    ///
    /// # Errors
    /// When it cannot be read, or is too short.
    pub(super) fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let token = read(path)?.trim().to_owned();
        if token.len() < SHORTEST_TOKEN || !token.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "{}: a token has at least {SHORTEST_TOKEN} characters, without spaces: try `openssl rand -hex 32`",
                path.display()
            );
        }
        Ok(Some(token))
    }

    /// Whom to observe, and how.
    pub(super) fn plan(&self) -> Plan {
        let observe = &self.observe;
        let some = |time: Duration| Some(time).filter(|time| !time.is_zero());
        let capture = CaptureArgs {
            budget: observe.budget,
            futex_only: observe.futex_only,
            kernel_locks: observe.kernel_locks,
            min_wait: some(observe.min_wait),
            stack_wait: Some(observe.stack_wait),
            alert: AlertArgs {
                wait_over: some(observe.wait_over),
                hold_over: some(observe.hold_over),
                ..AlertArgs::default()
            },
            flight: FlightArgs {
                keep: some(observe.keep),
                keep_size: Some(observe.keep_size),
                keep_dir: observe.keep_dir.clone(),
                dump_on: observe.dump_on.clone(),
                dump_to: observe.dump_to.clone(),
                dump_max: None,
            },
            ..CaptureArgs::default()
        };
        Plan { target: observe.target(), follow_forks: observe.pids.is_some(), capture }
    }

    /// How many series there may be.
    pub(super) fn limits(&self) -> Limits {
        let LimitsConfig { locks, culprits, processes, series, .. } = self.limits;
        Limits { locks, culprits, workloads: processes, series }
    }

    /// Reads it.
    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| at(text, error.span(), error.message()))?;
        let Observe { cgroup, container, pids, .. } = &config.observe;
        let mut named: Vec<(Range<usize>, &str)> = Vec::new();
        named.extend(cgroup.iter().map(|given| (given.span(), "cgroup")));
        named.extend(container.iter().map(|given| (given.span(), "container")));
        named.extend(pids.iter().map(|given| (given.span(), "pids")));
        if let [(_, first), (span, second), ..] = named.as_slice() {
            return Err(at(text, Some(span.clone()), &format!("{first} and {second} exclude each other")));
        }
        if let Some(pids) = pids.as_ref().filter(|pids| pids.get_ref().is_empty()) {
            return Err(at(text, Some(pids.span()), "no process is named"));
        }
        let Observe { keep, keep_dir, dump_on, dump_to, .. } = &config.observe;
        if keep.is_zero() && (keep_dir.is_some() || dump_to.is_some() || !dump_on.is_empty()) {
            return Err(
                "keep_dir, dump_on and dump_to are of what is kept: say for how long that is with keep".to_owned()
            );
        }
        if config.renew < config.interval {
            return Err("an observation is begun anew (renew) before there is a snapshot (interval)".to_owned());
        }
        Ok(config)
    }
}

impl Observe {
    fn target(&self) -> Target {
        match self {
            Self { cgroup: Some(cgroup), .. } => Target::Cgroup(cgroup.get_ref().clone()),
            Self { container: Some(container), .. } => Target::Container(container.get_ref().clone()),
            Self { pids: Some(pids), .. } => Target::Pids(pids.get_ref().clone()),
            _ => Target::SystemWide,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = match self.observe.target() {
            Target::Cgroup(path) => format!("cgroup {path}"),
            Target::Container(id) => format!("container {id}"),
            Target::Pids(pids) => format!("{} named processes", pids.len()),
            Target::SystemWide | Target::Command(_) => "the whole system".to_owned(),
        };
        let every = humantime::format_duration(self.interval);
        let renew = humantime::format_duration(self.renew);
        let pushed = self.push.told();
        write!(f, "{whom}, a snapshot each {every}, begun anew each {renew}, served at {}{pushed}", self.listen)
    }
}

/// A mistake, with its line.
fn at(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    match span.and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, |text| match limits::span(text)? {
        short if short < Duration::from_secs(1) => {
            Err("nobody scrapes more than once a second: 1s or more is expected".to_owned())
        }
        interval => Ok(interval),
    })
}

fn renew<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, |text| match limits::span(text)? {
        short if short < Duration::from_secs(10) => {
            Err("an observation that lasts less than 10s is mostly beginning and ending".to_owned())
        }
        span => Ok(span),
    })
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, limits::time)
}

fn keep<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parsed(from, |text| match limits::time(text)? {
        none if none.is_zero() => Ok(none),
        _ => limits::keep(text),
    })
}

fn budget<'de, D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
    parsed(from, share)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    match usize::deserialize(from)? {
        number @ 1..=MOST => Ok(number),
        other => Err(de::Error::custom(format!("{other} is no number from 1 to {MOST}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is documented.
    const EXAMPLE: &str = include_str!("../../../../deploy/agent.toml");

    #[test]
    fn the_example_says_what_goes_without_saying() {
        assert_eq!(Config::parse(EXAMPLE).unwrap(), Config::default());
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn each_option_of_the_example_is_one() {
        // What is commented out there is an example, too: of each alternative by itself.
        for line in EXAMPLE.lines().filter_map(|line| line.strip_prefix("#: ")) {
            let is_one_of = |keys: &[&str]| keys.iter().any(|key| line.starts_with(key));
            let table = match () {
                () if is_one_of(&["cgroup", "container", "pids"]) => "[observe]\n",
                () if is_one_of(&["otlp_", "pyroscope", "parca"]) => "[push]\n",
                () => "",
            };
            let config = Config::parse(&format!("{table}{line}")).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_ne!(config, Config::default(), "{line}");
        }
    }

    #[test]
    fn a_mistake_is_a_sentence_with_its_line() {
        for (text, expected) in [
            ("listen = \"127.0.0.1:1\"\nintervall = \"10s\"", "line 2: unknown field `intervall`"),
            ("[observe]\n\nbudget = \"3\"", "line 3: a percentage like 3%, or off, is expected"),
            ("interval = \"200ms\"", "line 1: nobody scrapes"),
            ("renew = \"1s\"", "line 1: an observation that lasts"),
            ("interval = 10", "line 1: invalid type: integer `10`, expected a string"),
            ("listen = \"localhost:1\"", "line 1: \"localhost:1\" is no address"),
            ("[observe]\ncgroup = \"/a\"\npids = [1]", "line 3: cgroup and pids exclude each other"),
            ("[observe]\npids = []", "line 2: no process is named"),
            ("[limits]\nlocks = 0", "line 2: 0 is no number from 1 to"),
            ("[observe]\nkeep = \"10ms\"", "line 2: less than 1s is not worth keeping"),
            ("[observe]\nkeep_size = \"1K\"", "line 2: less than 1M"),
            ("[observe]\ndump_on = [\"pain\"]", "line 2: unknown variant `pain`"),
            ("[observe]\ndump_on = [\"wait\"]", "keep_dir, dump_on and dump_to are of what is kept"),
            ("[push]\ninterval = \"100ms\"", "line 2: nobody takes more"),
            ("[push]\npyroscope = {}", "line 2: missing field `url`"),
            ("[push]\nparca = {url = \"https://a\"}", "line 2: \"https://a\": lockbpf speaks no TLS"),
            ("[push.otlp_metrics]\nurl = \"http://a\"\ntokenfile = \"/a\"", "line 3: unknown field `tokenfile`"),
            (
                "[push.parca]\nurl = \"http://a\"\nheaders = {\"a b\" = \"c\"}",
                "line 3: \"a b\" with \"c\" is no header",
            ),
            ("interval = \"1h\"\nrenew = \"1m\"", "an observation is begun anew"),
            ("a = ", "line 1: "),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
