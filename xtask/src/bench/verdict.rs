//! The figures to reach, whether they are, and what limits them.

use std::fmt;

use serde::Serialize;

use super::{
    observer::Mode,
    pairs::Pairs,
    result::of_mode,
    server::Server,
    stats::{Spread, ratio},
};

/// What an observed uncontended lock/unlock pair may take, ns.
const PAIR_NS: f64 = 1500.0;
/// What counting an event may add to a lock operation, ns.
const EVENT_NS: f64 = 150.0;
/// Events of [`Mode::Counters`], the clock included.
const EVENTS: f64 = 5.0;
/// How many times as much a pair with entry-placed probes must take.
const PLACEMENT_GAIN: f64 = 20.0;
/// The part of its throughput that a server must keep under the futex tier.
const FUTEX_SHARE: f64 = 0.99;
/// The interval of fewer samples is their range, which says little.
const MIN_SAMPLES: usize = 6;

/// One figure to reach.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// What is measured.
    figure: String,
    /// The bound.
    target: f64,
    /// Which side of it is wanted.
    bound: Bound,
    /// What was measured.
    measured: Spread,
    /// Whether the median keeps the bound.
    reached: bool,
    /// Whether the whole interval lies on one side of the bound, and there are enough samples for it to mean something.
    certain: bool,
}

/// Which side of a figure is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Bound {
    /// The figure itself or less.
    AtMost,
    /// The figure itself or more.
    AtLeast,
}

impl Verdict {
    /// Judges what was measured.
    pub(super) fn new(figure: String, bound: Bound, target: f64, measured: Spread) -> Self {
        let keeps = |value: f64| match bound {
            Bound::AtMost => value <= target,
            Bound::AtLeast => value >= target,
        };
        // To the thousandth: noise may be part of it.
        let target = (target * 1e3).round() / 1e3;
        let certain = measured.samples >= MIN_SAMPLES && keeps(measured.low) == keeps(measured.high);
        Self { figure, target, bound, measured, reached: keeps(measured.median), certain }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.target < 10.0 { 3 } else { 0 };
        let Spread { median, low, high, samples } = self.measured;
        let word = if self.reached { "reached" } else { "NOT reached" };
        let sign = if self.bound == Bound::AtMost { "≤" } else { "≥" };
        write!(
            f,
            "{word}: {}: {median:.digits$} (95 %: {low:.digits$}–{high:.digits$}, {samples} samples), target {sign} {}",
            self.figure, self.target
        )?;
        if !self.certain {
            write!(f, "; uncertain: only more windows or a quieter machine can tell")?;
        }
        Ok(())
    }
}

/// The verdicts on an uncontended pair.
pub(super) fn on_pairs(pairs: &Pairs) -> Vec<Verdict> {
    let Some(full) = of_mode(&pairs.observed, Mode::Full) else { return Vec::new() };
    let full = full.row.pair_cpu_ns;
    let mut verdicts =
        vec![Verdict::new("ns of CPU time for an observed uncontended pair".to_owned(), Bound::AtMost, PAIR_NS, full)];
    if let Some(entry) = of_mode(&pairs.observed, Mode::EntryPlacement) {
        let entry = entry.row.pair_cpu_ns;
        // The widest interval that both allow.
        let gain = Spread {
            median: entry.median / full.median,
            low: entry.low / full.high,
            high: entry.high / full.low,
            samples: entry.samples.min(full.samples),
        };
        let figure = "entry-placed probes cost so many times as much".to_owned();
        verdicts.push(Verdict::new(figure, Bound::AtLeast, PLACEMENT_GAIN, gain));
    }
    if let Some(counters) = of_mode(&pairs.observed, Mode::Counters) {
        let counters = counters.row.pair_cpu_ns;
        // Two operations; the widest interval that both allow.
        let each = |ns: f64| ns / 2.0 / EVENTS;
        let cost = Spread {
            median: each(counters.median - full.median),
            low: each(counters.low - full.high),
            high: each(counters.high - full.low),
            samples: counters.samples.min(full.samples),
        };
        let figure = "ns that counting adds to an operation for each of five events".to_owned();
        verdicts.push(Verdict::new(figure, Bound::AtMost, EVENT_NS, cost));
    }
    verdicts
}

/// The verdict on a server.
pub(super) fn on_server(server: &Server) -> Option<Verdict> {
    let futex = of_mode(&server.observed, Mode::FutexOnly)?;
    let figure = format!("throughput kept under --futex-only: {}", server.name);
    Some(Verdict::new(figure, Bound::AtLeast, FUTEX_SHARE, futex.ratio))
}

/// Where the time of a pair goes, in sentences.
pub(super) fn explain_pairs(pairs: &Pairs) -> Vec<String> {
    let mut lines = Vec::new();
    let pair = |mode| of_mode(&pairs.observed, mode).map(|row| row.row.pair_least_cpu_ns);
    let bare = pairs.bare.pair_least_cpu_ns;
    if let (Some(full), Some(empty)) = (pair(Mode::Full), pair(Mode::Empty)) {
        lines.push(format!(
            "where least disturbed: of {full:.0} ns for an observed pair, {bare:.0} are the pair itself, {:.0} two \
             probe hits whose programs return at once ({:.0} each, nearly all the kernel's), {:.0} lockbpf's work",
            empty - bare,
            (empty - bare) / 2.0,
            full - empty
        ));
        if let Some(entry) = pair(Mode::EntryPlacement) {
            lines.push(format!(
                "at the entry the kernel single-steps: {:.0} ns more for each hit; if its programs returned at once, \
                 entry placement would cost {:.1} times as much, which is a ceiling",
                (entry - full) / 2.0,
                entry / empty
            ));
        }
    }
    if let (Some(full), Some(clock), Some(all)) = (pair(Mode::Full), pair(Mode::Clock), pair(Mode::Counters)) {
        lines.push(format!(
            "counting the clock alone adds {:.0} ns to an operation, each further event {:.0}",
            (clock - full) / 2.0,
            (all - clock) / 2.0 / (EVENTS - 1.0)
        ));
    }
    if let Some(programs) = pairs.programs {
        lines.push(format!(
            "the kernel counted {:.2} program runs for each pair, {:.0} ns each (its clock readings included)",
            programs.runs_per_pair, programs.run_ns
        ));
    }
    if let Some(more) = more_per_call(pairs) {
        lines.push(format!(
            "while the futex tracepoints are on, each system call of any process takes {more:.0} ns more ({:.0} bare)",
            pairs.bare.call_cpu_ns.median
        ));
    }
    lines
}

/// What each system call costs more under the futex tier, ns.
fn more_per_call(pairs: &Pairs) -> Option<f64> {
    let futex = of_mode(&pairs.observed, Mode::FutexOnly)?;
    Some(futex.row.call_cpu_ns.median - pairs.bare.call_cpu_ns.median)
}

/// What explains a server's loss, in sentences; `pairs` if they were measured in the same run.
pub(super) fn explain_server(server: &Server, pairs: Option<&Pairs>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(noise) = server.bare.noise {
        lines.push(format!(
            "noise: bare windows differ from the ones before by a factor of {:.3}–{:.3} (95 % for the median)",
            noise.low, noise.high
        ));
    }
    let bare = server.bare.cpu_ns.median;
    let more = |mode| Some(of_mode(&server.observed, mode)?.cpu_ratio.median * bare - bare);
    if let Some(more) = more(Mode::FutexOnly) {
        let calls = pairs.and_then(more_per_call).and_then(|per_call| Some((ratio(more, per_call)?, per_call)));
        let calls = calls.filter(|(count, _)| *count > 0.0).map(|(count, per_call)| {
            format!(", as much as {count:.1} system calls cost that take {per_call:.0} ns more each")
        });
        lines.push(format!(
            "--futex-only: {more:+.0} ns of CPU time for a request of {bare:.0} ns{}",
            calls.unwrap_or_default()
        ));
    }
    let per_request = |mode| of_mode(&server.observed, mode)?.acquisitions_per_request;
    if let (Some(acquisitions), Some(more)) = (per_request(Mode::Full), more(Mode::Full)) {
        let predicted = pairs.and_then(|pairs| {
            let full = of_mode(&pairs.observed, Mode::Full)?.row.pair_cpu_ns.median;
            let each = full - pairs.bare.pair_cpu_ns.median;
            Some(format!("; at {each:.0} ns for an uncontended pair that makes {:.0} ns", acquisitions.median * each))
        });
        lines.push(format!(
            "lockbpf: {:.2} lock acquisitions for a request; {more:+.0} ns of CPU time for a request of {bare:.0} ns{}",
            acquisitions.median,
            predicted.unwrap_or_default()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(low: f64, median: f64, high: f64) -> Spread {
        Spread { median, low, high, samples: 9 }
    }

    #[test]
    fn a_bound_is_kept_by_the_median_and_certain_by_the_interval() {
        let verdict = |measured| Verdict::new("f".to_owned(), Bound::AtLeast, 0.99, measured);
        let clear = verdict(spread(0.991, 0.995, 1.0));
        assert!(clear.reached && clear.certain);
        let narrow = verdict(spread(0.98, 0.995, 1.0));
        assert!(narrow.reached && !narrow.certain);
        let missed = verdict(spread(0.90, 0.95, 0.98));
        assert!(!missed.reached && missed.certain);
        assert!(missed.to_string().starts_with("NOT reached: f: 0.950 (95 %: 0.900–0.980"), "{missed}");
        assert!(narrow.to_string().contains("uncertain"), "{narrow}");
    }

    #[test]
    fn upper_bounds_are_the_other_way_round() {
        let verdict = Verdict::new("f".to_owned(), Bound::AtMost, 1500.0, spread(1000.0, 1100.0, 1200.0));
        assert!(verdict.reached && verdict.certain);
        assert!(verdict.to_string().ends_with("target ≤ 1500"), "{verdict}");
    }
}
