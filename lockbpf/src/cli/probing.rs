//! The part of `lockbpf doctor` that measures: how programs are attached on this machine, and what they cost.

use super::doctor::{right, table};
use crate::capture::btf::Btf;
use crate::capture::calibrate::{Calibration, SELF, Setup, calibrate};
use crate::capture::feature::Feature;
use crate::capture::placer::Mechanism;
use crate::costs::Costs;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Instant;

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
    /// Time to place the probes of one file in one process, ms.
    pub attach_ms: Option<f64>,
    /// Time to remove all probes and programs of an observation, ms.
    pub detach_ms: Option<f64>,
    /// Time that measuring took, ms: each start of an observation with a budget takes as long.
    pub calibration_ms: f64,
}

impl ProbingReport {
    /// Measures on a child.
    pub(super) fn measure(features: &[Feature]) -> Self {
        let begin = Instant::now();
        let outcome = measure(features);
        let calibration_ms = milliseconds(begin);
        match outcome {
            Ok(Calibration { costs, mechanism, attach, session }) => {
                let begin = Instant::now();
                drop(session);
                Self {
                    mechanism: Some(mechanism),
                    costs,
                    measured: true,
                    reason: None,
                    attach_ms: Some(attach.as_secs_f64() * 1e3),
                    detach_ms: Some(milliseconds(begin)),
                    calibration_ms,
                }
            }
            Err(error) => Self {
                mechanism: None,
                costs: Costs::default(),
                measured: false,
                reason: Some(format!("{error:#}")),
                attach_ms: None,
                detach_ms: None,
                calibration_ms,
            },
        }
    }
}

/// What observing costs.
///
/// # Errors
/// When nothing can be observed here.
pub(super) fn measure(features: &[Feature]) -> Result<Calibration> {
    let types = Btf::kernel()?;
    let tracefs = features.iter().any(|feature| feature.name == "tracefs" && feature.support.is_supported());
    let setup = Setup { types, task_offsets: types.task_offsets()?, tracefs, plain_uprobes: false, events: &[] };
    Ok(calibrate(Path::new(SELF), &setup)?)
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
        let Costs { bare_pair_ns, hit_ns, hold_bias_ns, record_ns, futex_ns, switch_ns, spread } = self.costs;
        for (name, ns, meaning) in [
            ("bare pair", bare_pair_ns, "an uncontended lock and unlock, not observed"),
            ("hit", hit_ns, "one probed call of those"),
            ("hold", hold_bias_ns, "by how much a measured hold is too long"),
            ("record", record_ns, "a section that waited or was waited for, at its release"),
            ("futex", futex_ns, "one futex call of an observed process"),
            ("switch", switch_ns, "one switch of an observed thread"),
        ] {
            table.add_row([name.to_owned(), format!("{ns:.0}"), meaning.to_owned()]);
        }
        right(&mut table, &[1]);
        write!(f, "{table}\n  Quartiles of a hit are {:.0} % around its median.", spread * 100.0)
    }
}
