//! The part of `lockbpf doctor` that measures: how programs are attached on this machine, and what they cost.

use super::output::{right, table};
use crate::capture::btf::Btf;
use crate::capture::calibrate::{Calibration, SELF, Setup, calibrate};
use crate::capture::feature::Feature;
use crate::capture::placer::Mechanism;
use crate::costs::Costs;
use crate::observe::cost_cache::{self, Entry, Key};
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How programs are attached, and at which price.
#[derive(Debug, Serialize)]
pub struct ProbingReport {
    /// How uprobes are placed; `None` if that could not be found out.
    pub mechanism: Option<Mechanism>,
    /// What is counted, and what each costs.
    pub costs: Costs,
    /// Whether the costs were measured; else they are cautious guesses.
    pub measured: bool,
    /// Why they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the kernel says of each program for functions that it refuses: their locks are seen as waits at best.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Time to place the probes of one file in one process, ms.
    pub attach_ms: Option<f64>,
    /// Time to remove all probes and programs of an observation, ms.
    pub detach_ms: Option<f64>,
    /// Time that measuring took, ms: the start of an observation with a budget takes as long, unless it was measured before.
    pub calibration_ms: f64,
    /// Where it is kept for observations; `None` where there is no place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptReport>,
}

/// The file in which costs are kept, so that an observation need not measure them.
#[derive(Debug, Serialize)]
pub struct KeptReport {
    /// The file.
    pub path: String,
    /// How long before this measurement the one was made that observations would have used, s; `None` if there was none.
    pub previous_age_s: Option<u64>,
    /// Why the file that was there was not to be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether other programs disturbed this measurement: it is then used for some minutes at most, and does not replace a better one.
    pub disturbed: bool,
    /// Whether it was kept.
    pub kept: bool,
    /// Why it could not be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl KeptReport {
    /// Keeps what was measured just now.
    fn keep(setup: &Setup<'_>, costs: Costs) -> Option<Self> {
        let path = cost_cache::path()?;
        let key = Key::here(setup);
        let (previous, refused) = match cost_cache::load_for(&path, &key) {
            Ok(previous) => (previous, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let new = Entry::new(key, costs);
        let disturbed = new.is_disturbed();
        let kept = cost_cache::keep(&path, new);
        Some(Self {
            previous_age_s: previous.and_then(|entry| entry.age()).map(|age| age.as_secs()),
            refused,
            disturbed,
            kept: matches!(kept, Ok(true)),
            failed: kept.err().map(|error| error.to_string()),
            path: path.display().to_string(),
        })
    }
}

impl ProbingReport {
    /// Measures on a child, and keeps what came of it.
    pub(super) fn measure(features: &[Feature]) -> Self {
        let begin = Instant::now();
        let outcome = setup(features).and_then(|setup| Ok((calibrate(Path::new(SELF), &setup)?, setup)));
        let calibration_ms = milliseconds(begin);
        match outcome {
            Ok((Calibration { costs, mechanism, attach, session }, setup)) => {
                let refused = session.refused_programs();
                let begin = Instant::now();
                drop(session);
                Self {
                    mechanism: Some(mechanism),
                    costs,
                    measured: true,
                    reason: None,
                    refused,
                    attach_ms: Some(attach.as_secs_f64() * 1e3),
                    detach_ms: Some(milliseconds(begin)),
                    calibration_ms,
                    kept: KeptReport::keep(&setup, costs),
                }
            }
            Err(error) => Self {
                mechanism: None,
                costs: Costs::default(),
                measured: false,
                reason: Some(format!("{error:#}")),
                refused: Vec::new(),
                attach_ms: None,
                detach_ms: None,
                calibration_ms,
                kept: None,
            },
        }
    }
}

/// What observing costs.
///
/// # Errors
/// When nothing can be observed here.
pub(super) fn measure(features: &[Feature]) -> Result<Calibration> {
    Ok(calibrate(Path::new(SELF), &setup(features)?)?)
}

fn setup(features: &[Feature]) -> Result<Setup<'static>> {
    let types = Btf::kernel()?;
    let tracefs = features.iter().any(|feature| feature.name == "tracefs" && feature.support.is_supported());
    let task_offsets = types.task_offsets()?;
    let (plain_uprobes, all_events, transitions) = (false, false, false);
    Ok(Setup { types, task_offsets, tracefs, plain_uprobes, events: &[], all_events, transitions })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

impl fmt::Display for ProbingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mechanism {
            Some(Mechanism::Session) => {
                write!(
                    f,
                    "Probes: uprobe sessions, one link a file and process; uncontended locks decline the return half"
                )?;
            }
            Some(Mechanism::Link) => write!(f, "Probes: uprobe links, one a file, process and half")?,
            Some(Mechanism::PerfEvents) => write!(f, "Probes: a perf event for each function and half")?,
            None => write!(f, "Probes: not tried")?,
        }
        if let (Some(attach), Some(detach)) = (self.attach_ms, self.detach_ms) {
            write!(f, "; placed in {attach:.1} ms, removed in {detach:.0} ms")?;
        }
        match &self.reason {
            None => writeln!(f, ".\nMeasured on a child of lockbpf's own in {:.0} ms:", self.calibration_ms)?,
            Some(reason) => writeln!(f, ".\nNot measured, so guessed with caution ({reason}):")?,
        }
        let mut table = table(["cost", "ns", "of what"]);
        let Costs { bare_pair_ns, hit_ns, user_ns, hold_bias_ns, record_ns, futex_ns, switch_ns, spread } = self.costs;
        for (name, ns, meaning) in [
            ("bare pair", bare_pair_ns, "an uncontended lock and unlock, not observed"),
            ("hit", hit_ns, "one probed call of those"),
            ("own code", user_ns, "the part of a hit that samples take for the program's own code"),
            ("hold", hold_bias_ns, "by how much a measured hold is too long"),
            ("record", record_ns, "a section that waited or was waited for, at its release"),
            ("futex", futex_ns, "one futex call of an observed process"),
            ("switch", switch_ns, "one switch of an observed thread"),
        ] {
            table.add_row([name.to_owned(), format!("{ns:.0}"), meaning.to_owned()]);
        }
        right(&mut table, &[1]);
        write!(f, "{table}\n  Quartiles of a hit are {:.0} % around its median.", spread * 100.0)?;
        self.refused
            .iter()
            .try_for_each(|refused| write!(f, "\n  This kernel does not take all programs: {refused}"))?;
        self.kept.as_ref().map_or(Ok(()), |kept| write!(f, "\n  {kept}"))
    }
}

impl fmt::Display for KeptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.failed {
            Some(why) => write!(f, "Not kept in {path} ({why}), so each observation measures anew")?,
            None if !self.kept => write!(f, "Not kept in {path}, where a quieter measurement is")?,
            None if self.disturbed => {
                write!(f, "Kept in {path}, for some minutes only, since other programs disturbed it")?;
            }
            None => write!(f, "Kept in {path}: observations start without measuring")?,
        }
        match (&self.refused, self.previous_age_s) {
            (Some(why), _) => write!(f, "; what was there was not to be used ({why}).")?,
            (None, Some(age)) => {
                let age = humantime::format_duration(Duration::from_secs(age));
                write!(f, "; the measurement there was {age} old.")?;
            }
            (None, None) => write!(f, "; there was none before.")?,
        }
        Ok(())
    }
}
