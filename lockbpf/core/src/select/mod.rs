//! Which sizes of a workload expose a synchronization bottleneck (SyncProf §3.1): those for which it runs longer than at
//! the size before, though it does not use the CPUs more, and leaves them idle in part. Statistics only: the runs come
//! from the caller.
#![forbid(unsafe_code)]

pub mod rank_test;
pub mod table;

use crate::units::Nanos;
use rank_test::p_larger;
use serde::Serialize;

/// Value of [`Selection::schema`].
pub const SCHEMA: &str = "lockbpf.selection/1";

/// One run of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// From its start to its exit.
    pub wall: Nanos,
    /// CPU time, user and system, of all its processes and threads.
    pub cpu: Nanos,
}

/// The runs at one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The size as it was typed.
    pub size: String,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// How many of these did not end with exit status 0.
    pub failed: u64,
}

/// When a size counts as exposing a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Criteria {
    /// Level of significance: a difference counts if its p-value is not higher.
    pub alpha: f64,
    /// Mean CPU use must be below this, as a share of 1.
    pub max_cpu_use: f64,
    /// CPUs available to the workload; all of them in use are a CPU use of 1.
    pub cores: f64,
}

/// All sizes, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command, with `{size}` where the size goes.
    pub command: Vec<String>,
    /// The criteria.
    #[serde(flatten)]
    pub criteria: Criteria,
    /// In the order in which they were given.
    pub sizes: Vec<Size>,
    /// The sizes that expose a bottleneck.
    pub selected: Vec<String>,
}

/// One size, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Size {
    /// As it was typed.
    pub size: String,
    /// How often it was run.
    pub runs: u64,
    /// How many of these runs did not end with exit status 0.
    pub failed_runs: u64,
    /// Run times, ns.
    pub wall_ns: Sample,
    /// CPU use: CPU time over run time and CPUs available; a share of 1.
    pub cpu_use: Sample,
    /// Against the size before; nothing for the first.
    #[serde(flatten)]
    pub step: Option<Step>,
    /// Whether mean CPU use is below the bound.
    pub cpu_idle: bool,
    /// Whether it exposes a synchronization bottleneck.
    pub selected: bool,
}

/// A size against the one before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// p-value of the run times being no longer.
    pub longer_p: f64,
    /// Whether it runs significantly longer.
    pub longer: bool,
    /// p-value of the CPU use being no larger.
    pub cpu_larger_p: f64,
    /// Whether CPU use is significantly larger.
    pub cpu_larger: bool,
}

/// Several measurements of one thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (n − 1); 0 for fewer than two.
    pub sd: f64,
    /// Middle one, or the mean of the two in the middle.
    pub median: f64,
    /// All of them, in the order in which they were made.
    pub values: Vec<f64>,
}

impl Sample {
    /// Describes measurements; zeros if there are none.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Self {
        let n = values.len() as f64;
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let sd = if values.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() };
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = &sorted[(sorted.len() - 1) / 2..=sorted.len() / 2];
        Self { mean, sd, median: middle.iter().sum::<f64>() / middle.len() as f64, values }
    }
}

/// Judges each size against the one before it in the list.
#[must_use]
pub fn select(command: Vec<String>, all: &[Runs], criteria: Criteria) -> Selection {
    let mut sizes: Vec<Size> = Vec::with_capacity(all.len());
    for runs in all {
        let size = judge(runs, sizes.last(), &criteria);
        sizes.push(size);
    }
    let selected = sizes.iter().filter(|s| s.selected).map(|s| s.size.clone()).collect();
    Selection { schema: SCHEMA.to_owned(), command, criteria, sizes, selected }
}

fn judge(runs: &Runs, before: Option<&Size>, criteria: &Criteria) -> Size {
    let wall_ns = Sample::of(runs.runs.iter().map(|run| run.wall.0 as f64).collect());
    let cpu_use = Sample::of(runs.runs.iter().map(|run| use_of(*run, criteria.cores)).collect());
    let step = before.map(|before| {
        let longer_p = p_larger(&wall_ns.values, &before.wall_ns.values);
        let cpu_larger_p = p_larger(&cpu_use.values, &before.cpu_use.values);
        let significant = |p: f64| p <= criteria.alpha;
        Step { longer_p, longer: significant(longer_p), cpu_larger_p, cpu_larger: significant(cpu_larger_p) }
    });
    let cpu_idle = cpu_use.mean < criteria.max_cpu_use;
    Size {
        size: runs.size.clone(),
        runs: runs.runs.len() as u64,
        failed_runs: runs.failed,
        wall_ns,
        cpu_use,
        selected: cpu_idle && step.is_some_and(|step| step.longer && !step.cpu_larger),
        step,
        cpu_idle,
    }
}

/// The share of the CPU time available during a run that it used.
fn use_of(run: Run, cores: f64) -> f64 {
    let available = run.wall.0 as f64 * cores;
    if available > 0.0 { run.cpu.0 as f64 / available } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRITERIA: Criteria = Criteria { alpha: 0.05, max_cpu_use: 0.9, cores: 4.0 };

    /// Ten runs of about this many ms with about this CPU use of four cores.
    pub(super) fn runs(size: &str, wall_ms: u64, percent: u64) -> Runs {
        let run = |i: u64| {
            let wall = wall_ms * 1_000_000 + i * 7_919;
            Run { wall: Nanos(wall), cpu: Nanos(wall / 100 * 4 * percent + i * i % 5 * 1_000) }
        };
        Runs { size: size.to_owned(), runs: (0..10).map(run).collect(), failed: 0 }
    }

    fn selected(all: &[Runs]) -> Vec<String> {
        select(vec!["work".to_owned()], all, CRITERIA).selected
    }

    #[test]
    fn longer_without_more_cpu_use_is_selected() {
        let all = [runs("1", 100, 50), runs("2", 200, 50), runs("4", 400, 40)];
        assert_eq!(selected(&all), ["2", "4"]);
    }

    #[test]
    fn each_criterion_excludes() {
        // Not longer; with more CPU use; with the CPUs busy.
        assert!(selected(&[runs("1", 100, 50), runs("2", 100, 50)]).is_empty());
        assert!(selected(&[runs("1", 100, 50), runs("2", 200, 70)]).is_empty());
        assert!(selected(&[runs("1", 100, 95), runs("2", 200, 95)]).is_empty());
        assert!(selected(&[runs("1", 100, 50)]).is_empty(), "there is nothing to compare the first with");
    }

    #[test]
    fn a_size_is_compared_with_the_one_before() {
        // 4 runs no longer than 2, whatever 1 did.
        let all = [runs("1", 100, 50), runs("2", 200, 50), runs("4", 200, 50), runs("8", 300, 50)];
        assert_eq!(selected(&all), ["2", "8"]);
    }

    #[test]
    fn samples_are_described() {
        let odd = Sample::of(vec![5.0, 1.0, 3.0]);
        assert_eq!((odd.mean, odd.median, odd.sd), (3.0, 3.0, 2.0));
        assert_eq!(Sample::of(vec![4.0, 1.0]).median, 2.5);
        assert_eq!(Sample::of(vec![7.0]).sd, 0.0);
        assert_eq!(Sample::of(Vec::new()), Sample::default());
    }

    #[test]
    fn cpu_use_counts_all_cores() {
        let run = Run { wall: Nanos(1_000), cpu: Nanos(1_000) };
        assert_eq!(use_of(run, 1.0), 1.0);
        assert_eq!(use_of(run, 4.0), 0.25);
        assert_eq!(use_of(Run { wall: Nanos(0), cpu: Nanos(0) }, 1.0), 0.0);
    }
}
