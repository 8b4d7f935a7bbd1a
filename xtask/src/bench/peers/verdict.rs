//! The figures to reach in the comparison.

use super::{result::Measured, tool::Tool, workload::Workload};
use crate::bench::{
    stats::Spread,
    verdict::{Bound, Verdict},
};

/// The slow-down that the default budget allows.
const BUDGET: f64 = 1.03;
/// How many times as much bpftrace's pthread script must cost as full observation.
const CHEAPER: f64 = 5.0;
/// The same on the tight loop.
const CHEAPER_TIGHT: f64 = 50.0;

/// The verdicts on a workload.
pub(super) fn on(measured: &Measured) -> Vec<Verdict> {
    let name = measured.workload.name();
    let noise = measured.noise_half_width();
    let slow_down = |tool| measured.row(tool)?.slow_down;
    let cpu = |tool| measured.row(tool)?.cpu_ratio;
    // Other programs disturb CPU time less than throughput: told beside it, for busy machines.
    let in_cpu = |tool| cpu(tool).map_or_else(String::new, |cpu| format!("; CPU time {:.3}", cpu.median));
    let mut verdicts = Vec::new();
    if let Some(futex) = slow_down(Tool::FutexOnly) {
        let figure = format!(
            "{name}: slow-down under --futex-only, indistinguishable from bare (noise {noise:.3}{})",
            in_cpu(Tool::FutexOnly)
        );
        verdicts.push(Verdict::new(figure, Bound::AtMost, 1.0 + noise, futex));
    }
    if let Some(budget) = slow_down(Tool::Default) {
        let figure =
            format!("{name}: slow-down under the default budget (3 % + noise {noise:.3}{})", in_cpu(Tool::Default));
        verdicts.push(Verdict::new(figure, Bound::AtMost, BUDGET + noise, budget));
    }
    if let (Some(full), Some(script)) = (slow_down(Tool::Full), slow_down(Tool::BpftracePthread)) {
        let target = if measured.workload == Workload::Tight { CHEAPER_TIGHT } else { CHEAPER };
        let by_cpu = cpu(Tool::BpftracePthread).zip(cpu(Tool::Full)).map_or_else(String::new, |(script, full)| {
            let times = times_cheaper(script, full, measured.cpu_noise_half_width());
            format!(" (by CPU time {:.1})", times.median)
        });
        let figure = format!("{name}: bpftrace's pthread script adds so many times what full observation adds{by_cpu}");
        verdicts.push(Verdict::new(figure, Bound::AtLeast, target, times_cheaper(script, full, noise)));
    }
    verdicts
}

/// What one slow-down adds by what another one adds, with the widest interval that both allow. What is less than the
/// noise counts as the noise: the quotient is that at least.
fn times_cheaper(dear: Spread, cheap: Spread, noise: f64) -> Spread {
    let added = |slow_down: f64| (slow_down - 1.0).max(noise).max(f64::MIN_POSITIVE);
    Spread {
        median: (dear.median - 1.0) / added(cheap.median),
        low: (dear.low - 1.0) / added(cheap.high),
        high: (dear.high - 1.0) / added(cheap.low),
        samples: dear.samples.min(cheap.samples),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { median, low: median, high: median, samples: 9 }
    }

    #[test]
    fn costs_are_compared_by_what_they_add() {
        assert_eq!(times_cheaper(spread(11.0), spread(2.0), 0.1).median, 10.0);
        // Nothing measurable added: at least what the noise allows.
        assert_eq!(times_cheaper(spread(2.0), spread(1.0), 0.25).median, 4.0);
    }
}
