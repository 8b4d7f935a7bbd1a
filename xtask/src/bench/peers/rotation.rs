//! Measures a workload under one tool after the other, again and again: each window lies between two bare ones, so that
//! slow drifts of the machine cancel.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    attached::{Attached, Use},
    result::{Measured, Row, noise},
    started::Started,
    tool::{Tool, Way},
    workload::Starter,
};
use crate::bench::{
    build::Lockbpf,
    interrupt,
    server::{self, Loaded, Window},
    stats::{Spread, ratio},
    usage::peak_rss,
    wrapper::Wrapper,
};

/// A budget is kept over seconds, not at every moment: under it windows are so many times as long.
const BUDGET_WINDOWS: u32 = 3;

/// How long windows are, and how long a workload is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Length of a window.
    pub(super) window: Duration,
    /// Time for all rotations of a workload; one is always finished.
    pub(super) time: Duration,
}

/// What was seen of one tool.
#[derive(Default)]
struct Samples {
    visits: Vec<(Window, Use, usize)>,
    failed: Option<String>,
}

/// Measures until the time is used up.
///
/// # Errors
/// The workload by itself fails, or the benchmark was interrupted. A tool that fails is a result.
pub(super) fn measure(starter: &Starter, lockbpf: &Lockbpf, tools: &[Tool], plan: Plan) -> Result<Measured> {
    let mut samples: BTreeMap<Tool, Samples> = tools.iter().map(|&tool| (tool, Samples::default())).collect();
    let mut loaded = starter.start(&Wrapper::none())?;
    // Caches fill and pools of threads grow.
    server::window(loaded.as_mut(), plan.window)?;
    let mut instances = BTreeMap::new();
    for &tool in tools.iter().filter(|tool| tool.way() == Way::Start) {
        match Started::start(tool, starter).and_then(|mut started| started.window(plan.window).map(|_| started)) {
            Ok(started) => drop(instances.insert(tool, started)),
            Err(error) => fail(&mut samples, tool, &error)?,
        }
    }
    let begin = Instant::now();
    let mut bare = vec![server::window(loaded.as_mut(), plan.window)?];
    let mut rotation_took = Duration::ZERO;
    // One rotation at least, and none once every tool has failed.
    while rotation_took.is_zero() || begin.elapsed() + rotation_took <= plan.time {
        let rotation = Instant::now();
        if samples.values().all(|samples| samples.failed.is_some()) {
            break;
        }
        for tool in order(tools) {
            if samples.get(&tool).is_none_or(|samples| samples.failed.is_some()) {
                continue;
            }
            let visit = match instances.get_mut(&tool) {
                Some(started) => started.window(plan.window),
                None => visit(loaded.as_mut(), lockbpf, tool, plan.window),
            };
            match visit {
                Ok((window, used)) => {
                    samples.entry(tool).or_default().visits.push((window, used, bare.len()));
                    bare.push(server::window(loaded.as_mut(), plan.window)?);
                }
                Err(error) => {
                    fail(&mut samples, tool, &error)?;
                    instances.remove(&tool);
                }
            }
        }
        rotation_took = rotation.elapsed();
    }
    let bare_memory = peak_rss(loaded.pid())?;
    Ok(Measured {
        workload: starter.workload,
        load: loaded.load(),
        window_s: plan.window.as_secs_f64(),
        per_s: Spread::of(bare.iter().map(|window| window.throughput)),
        cpu_ns: Spread::of(bare.iter().map(|window| window.cpu_ns)),
        noise: noise(&bare.iter().map(|window| window.throughput).collect::<Vec<_>>()),
        cpu_noise: noise(&bare.iter().map(|window| window.cpu_ns).collect::<Vec<_>>()),
        rows: samples.iter().map(|(&tool, samples)| row(tool, samples, &bare, bare_memory)).collect(),
    })
}

/// One rotation. Small effects need the most windows: the tools that are to have none come twice.
fn order(tools: &[Tool]) -> Vec<Tool> {
    let subtle = tools.iter().copied().filter(|tool| [Tool::FutexOnly, Tool::Default].contains(tool));
    tools.iter().copied().chain(subtle).collect()
}

fn fail(samples: &mut BTreeMap<Tool, Samples>, tool: Tool, error: &anyhow::Error) -> Result<()> {
    interrupt::check()?;
    eprintln!("{} failed: {error:#}", tool.name());
    samples.entry(tool).or_default().failed = Some(format!("{error:#}"));
    Ok(())
}

fn visit(loaded: &mut dyn Loaded, lockbpf: &Lockbpf, tool: Tool, length: Duration) -> Result<(Window, Use)> {
    let length = if tool == Tool::Default { length * BUDGET_WINDOWS } else { length };
    if tool.shows_by_locks() {
        loaded.resume()?;
    }
    let observed = Attached::start(lockbpf, tool, loaded.pid()).and_then(|attached| {
        let window = server::window(loaded, length)?;
        Ok((window, attached.stop()?))
    });
    if observed.is_err() {
        loaded.pause()?;
    }
    observed
}

/// The row of a tool out of its visits, each of which lies between two bare windows.
fn row(tool: Tool, samples: &Samples, bare: &[Window], bare_memory: u64) -> Row {
    let visits = &samples.visits;
    let around = |index: usize, value: fn(&Window) -> f64| {
        Some(f64::midpoint(value(bare.get(index.checked_sub(1)?)?), value(bare.get(index)?)))
    };
    let compared = |share: fn(f64, f64) -> Option<f64>, value: fn(&Window) -> f64| {
        Spread::of(visits.iter().filter_map(|(window, _, after)| share(around(*after, value)?, value(window))))
    };
    let used = |value: fn(&Use) -> Option<f64>| Spread::of(visits.iter().filter_map(|(_, used, _)| value(used)));
    let memory = used(|used| used.memory_bytes).map(|spread| spread.high);
    let inside = tool.way() == Way::Start && tool != Tool::Lttng;
    Row {
        tool,
        slow_down: compared(ratio, |window| window.throughput),
        cpu_ratio: compared(|bare, observed| ratio(observed, bare), |window| window.cpu_ns),
        recorded_bytes: used(|used| used.recorded_bytes),
        own_cpu_percent: used(|used| used.cpu_percent),
        memory_bytes: memory.map(|bytes| if inside { (bytes - bare_memory as f64).max(0.0) } else { bytes }),
        lost: visits.iter().filter_map(|(_, used, _)| used.lost).reduce(|sum, lost| sum + lost),
        failed: samples.failed.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(throughput: f64) -> Window {
        Window::of_throughput(throughput)
    }

    #[test]
    fn a_window_is_compared_with_the_bare_ones_around_it() {
        let bare = [100.0, 120.0, 140.0].map(window);
        let used = Use { memory_bytes: Some(50.0), lost: Some(2), ..Use::default() };
        let samples = Samples { visits: vec![(window(55.0), used, 1), (window(65.0), used, 2)], failed: None };
        let row = row(Tool::Full, &samples, &bare, 10);
        let slow_down = row.slow_down.unwrap();
        assert_eq!((slow_down.low, slow_down.high, slow_down.samples), (2.0, 2.0, 2));
        assert_eq!((row.memory_bytes, row.lost), (Some(50.0), Some(4)));
        assert!((row.cpu_ratio.unwrap().median - 1.98).abs() < 0.02, "{:?}", row.cpu_ratio);
    }

    #[test]
    fn a_tool_inside_of_the_program_takes_what_the_program_alone_does_not() {
        let used = Use { memory_bytes: Some(50.0), ..Use::default() };
        let samples = Samples { visits: vec![(window(1.0), used, 1)], failed: None };
        assert_eq!(row(Tool::Drd, &samples, &[window(1.0), window(1.0)], 10).memory_bytes, Some(40.0));
    }

    #[test]
    fn small_effects_get_more_windows() {
        let order = order(&[Tool::FutexOnly, Tool::Full]);
        assert_eq!(order, [Tool::FutexOnly, Tool::Full, Tool::FutexOnly]);
    }
}
