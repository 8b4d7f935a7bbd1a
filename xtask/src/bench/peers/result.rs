//! What a comparison found: the shape of its JSON.

use serde::Serialize;

use super::{tool::Tool, workload::Workload};
use crate::bench::{
    machine::Machine,
    stats::{self, Quartiles, Spread},
    verdict::Verdict,
};

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
pub(super) const SCHEMA: &str = "lockbpf.bench-peers/1";

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    /// [`SCHEMA`].
    pub(super) schema: &'static str,
    /// What it was measured on.
    pub(super) machine: Machine,
    /// Whether windows were short and few.
    pub(super) quick: bool,
    /// A tool that cannot be used here, and why.
    pub(super) missing: Vec<(Tool, String)>,
    /// By workload.
    pub(super) measured: Vec<Measured>,
    /// What failed to be measured, and why.
    pub(super) failed: Vec<String>,
    /// The figures to reach, and whether they are.
    pub(super) verdicts: Vec<Verdict>,
}

/// What was measured of a workload.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// Which one.
    pub(super) workload: Workload,
    /// What it does, in words.
    pub(super) load: &'static str,
    /// Length of a window, s.
    pub(super) window_s: f64,
    /// Units of work per second, bare.
    pub(super) per_s: Option<Spread>,
    /// CPU time of a unit of work, bare, ns.
    pub(super) cpu_ns: Option<Spread>,
    /// Slow-down of bare windows, compared with the bare ones before and after: half of all comparisons lie in it.
    pub(super) noise: Option<Quartiles>,
    /// The same of the CPU time of a unit of work.
    pub(super) cpu_noise: Option<Quartiles>,
    /// By tool.
    pub(super) rows: Vec<Row>,
}

/// What was measured of a workload under a tool.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The tool.
    pub(super) tool: Tool,
    /// Work per time of the bare windows before and after, by that of the observed one.
    pub(super) slow_down: Option<Spread>,
    /// CPU time of a unit of work by that in the bare windows before and after.
    pub(super) cpu_ratio: Option<Spread>,
    /// What it wrote in a window, bytes.
    pub(super) recorded_bytes: Option<Spread>,
    /// Its CPU time, % of one core; `None` where it works inside of the program.
    pub(super) own_cpu_percent: Option<Spread>,
    /// Memory at most, bytes; inside of the program: what the program takes more than by itself.
    pub(super) memory_bytes: Option<f64>,
    /// What it says that it lost, in all windows.
    pub(super) lost: Option<u64>,
    /// Why it could not be measured (any more).
    pub(super) failed: Option<String>,
}

impl Measured {
    /// The row of a tool.
    pub(super) fn row(&self, tool: Tool) -> Option<&Row> {
        self.rows.iter().find(|row| row.tool == tool)
    }

    /// How much one comparison of bare windows is off, either way.
    pub(super) fn noise_half_width(&self) -> f64 {
        half_width(self.noise)
    }

    /// The same of CPU time.
    pub(super) fn cpu_noise_half_width(&self) -> f64 {
        half_width(self.cpu_noise)
    }
}

fn half_width(noise: Option<Quartiles>) -> f64 {
    noise.map_or(0.0, |noise| f64::midpoint(noise.high, -noise.low))
}

/// Slow-down of each bare window, as if something had been observed in it.
pub(super) fn noise(bare_per_s: &[f64]) -> Option<Quartiles> {
    let slow_downs = bare_per_s.windows(3).filter_map(|three| match *three {
        [before, between, after] => stats::ratio(f64::midpoint(before, after), between),
        _ => None,
    });
    Quartiles::of(slow_downs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_how_bare_windows_differ_from_their_neighbours() {
        let steady = noise(&[100.0, 110.0, 120.0, 130.0]).unwrap();
        assert_eq!((steady.low, steady.high), (1.0, 1.0));
        let noisy = noise(&[100.0, 50.0, 100.0, 50.0, 100.0, 50.0]).unwrap();
        assert_eq!((noisy.low, noisy.high), (0.5, 2.0));
        assert_eq!(noise(&[100.0, 100.0]), None);
    }
}
