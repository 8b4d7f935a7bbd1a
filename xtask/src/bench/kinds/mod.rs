//! What an uncontended use of each kind of lock costs, bare and observed in full.

mod program;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use self::program::{PROGRAMS, Program};
use super::{
    observer::{Mode, Observation, Observers},
    pairs::Workload,
    stats::Spread,
};

/// One kind of use.
#[derive(Debug, Serialize)]
pub(super) struct Kind {
    /// What it is.
    pub(super) name: &'static str,
    /// CPU time of a use, ns, while nobody observes.
    pub(super) bare_ns: Spread,
    /// The same while observed in full, without a budget.
    pub(super) observed_ns: Spread,
}

/// Measures round by round until the time is used up, two rounds at least: each has a bare and an observed window of every kind.
/// Languages that are not installed are left out, and said.
///
/// # Errors
/// A workload cannot be built or fails, the observer fails, or the benchmark was interrupted.
pub(super) fn measure(observers: &Observers, window: Duration, time: Duration) -> Result<Vec<Kind>> {
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let mut running = Vec::new();
    for (number, program) in PROGRAMS.iter().enumerate() {
        let dir = dir.path().join(number.to_string());
        std::fs::create_dir(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        match program.start(&dir, window) {
            Ok(workload) => running.push(Measured::of(program, workload)),
            Err(why) => eprintln!("no rows for {}: {why:#}", program.language),
        }
    }
    let deadline = Instant::now() + time;
    for round in 0.. {
        if round >= 2 && Instant::now() > deadline {
            break;
        }
        for program in &mut running {
            program.round(observers)?;
        }
    }
    Ok(running.into_iter().flat_map(Measured::kinds).collect())
}

/// A program, and what was measured of it.
struct Measured {
    workload: Workload,
    uses: Vec<Samples>,
}

/// CPU times of a use, ns.
struct Samples {
    what: &'static str,
    name: &'static str,
    bare: Vec<f64>,
    observed: Vec<f64>,
}

impl Measured {
    fn of(program: &Program, workload: Workload) -> Self {
        let samples = |&(what, name)| Samples { what, name, bare: Vec::new(), observed: Vec::new() };
        Self { workload, uses: program.uses.iter().map(samples).collect() }
    }

    fn round(&mut self, observers: &Observers) -> Result<()> {
        for samples in &mut self.uses {
            samples.bare.push(per_use(&mut self.workload, samples.what)?);
        }
        let observation = Observation::start(observers, Mode::Described, self.workload.child.pid())?;
        let reading = observation.read()?;
        for samples in &mut self.uses {
            samples.observed.push(per_use(&mut self.workload, samples.what)?);
        }
        let used = reading.percent_until(&observation.read()?);
        observation.stop(used)?;
        Ok(())
    }

    fn kinds(self) -> impl Iterator<Item = Kind> {
        self.uses.into_iter().filter_map(|Samples { name, bare, observed, .. }| {
            Some(Kind { name, bare_ns: Spread::of(bare)?, observed_ns: Spread::of(observed)? })
        })
    }
}

/// CPU time of a use in one window, ns.
fn per_use(workload: &mut Workload, what: &str) -> Result<f64> {
    let window = workload.window(what)?;
    Ok(window.cpu_ns / window.made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workloads_know_every_use() {
        let dir = tempfile::tempdir().unwrap();
        let tried = PROGRAMS.iter().filter(|program| {
            let Ok(mut workload) = program.start(dir.path(), Duration::from_millis(2)) else { return false };
            for (what, _) in program.uses {
                assert!(per_use(&mut workload, what).unwrap() > 0.0, "{what}");
            }
            true
        });
        // There are compilers for C and Rust wherever this is compiled.
        assert!(tried.count() >= 2);
    }
}
