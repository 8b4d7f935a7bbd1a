//! What needs no chance: whole stretches, tight loops, processes that sleep, bounds.

use super::sim::{COSTS, Kernel, P, Random, lock, site};
use crate::estimate::{Estimator, Stretch, Subject};
use crate::governor::progress;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::Via;

const MS: u64 = 1_000_000;

fn stretch(at: u64, whole: bool) -> Stretch {
    Stretch {
        process: P,
        from: Time(at * 500 * MS),
        to: Time((at + 1) * 500 * MS),
        observed: Nanos(if whole { 500 } else { 20 } * MS),
        cpu: Nanos(500 * MS),
        observed_cpu: Nanos(if whole { 500 } else { 20 } * MS),
        cost: Nanos(0),
        observed_cost: Nanos(0),
        whole,
        ..Stretch::default()
    }
}

fn acquire(kernel: &mut Kernel, addr: u64, n: u64, hold: u64) {
    let sums = kernel.sums(addr);
    sums.acquisitions += n;
    sums.hold_ns += n * hold;
    sums.hold_max_ns = sums.hold_max_ns.max(hold);
    sums.hold_hist[lockbpf_common::sums::bucket(hold)] += n;
}

#[test]
fn what_was_observed_whole_is_not_estimated() {
    let mut estimator = Estimator::new(COSTS, None);
    let mut kernel = Kernel::default();
    for at in 0..4 {
        acquire(&mut kernel, 0, 100, 1_000);
        estimator.stretch(stretch(at, true));
        estimator.snapshot(&kernel.0);
    }
    let estimates = estimator.finish();
    assert!(!estimates.sampled() && estimates.figures.is_empty() && estimates.complete);
    assert_eq!(estimates.overall().observed_share(), 1.0);
    assert_eq!(estimates.overall().windows, 0);
}

#[test]
fn whole_stretches_count_as_they_are() {
    let mut estimator = Estimator::new(COSTS, None);
    let mut kernel = Kernel::default();
    for at in 0..20 {
        let whole = at >= 10;
        acquire(&mut kernel, 0, if whole { 10_000 } else { 40 }, 5_000);
        estimator.stretch(stretch(at, whole));
        estimator.snapshot(&kernel.0);
    }
    let estimates = estimator.finish();
    let figures = estimates.of(Subject::Lock(lock(0))).unwrap();
    assert_eq!(figures.acquisitions.value.round(), 100_000.0 + 10_000.0);
    assert!(figures.acquisitions.low >= 100_400.0);
    assert_eq!(estimates.of(Subject::Row(lock(0), site(0), Via::Lock)), Some(figures));
    assert_eq!(estimates.of(Subject::Site(site(0))), Some(figures));
    assert!((estimates.overall().observed_share() - 0.52).abs() < 1e-9);
    assert!((estimates.processes[0].factor - 110_000.0 / 100_400.0).abs() < 1e-9);
    // Less what observing adds to each.
    let holds = 110_000.0 * (5_000.0 - COSTS.hold_bias_ns) / (100_400.0 * 5_000.0);
    assert!((estimates.processes[0].hold_factor - holds).abs() < 1e-6, "{:?}", estimates.processes[0]);
}

/// Waits of 5 ms, so many of them.
fn wait(kernel: &mut Kernel, addr: u64, n: u64) {
    acquire(kernel, addr, n, 1_000);
    let sums = kernel.sums(addr);
    sums.contended += n;
    sums.wait_ns += n * 5 * MS;
    sums.wait_hist[lockbpf_common::sums::bucket(5 * MS)] += n;
}

/// Observing makes the program 50 times slower: a window stands for 50 times less work, and for as much time as ever.
#[test]
fn waiting_is_scaled_by_time() {
    let mut estimator = Estimator::new(COSTS, Some(0.03));
    let mut kernel = Kernel::default();
    for at in 0..20 {
        wait(&mut kernel, 0, 3);
        let cost = Nanos(20 * MS / 50 * 49);
        estimator.stretch(Stretch { cost, observed_cost: cost, ..stretch(at, false) });
        estimator.snapshot(&kernel.0);
    }
    let figures = *estimator.finish().of(Subject::Lock(lock(0))).unwrap();
    assert!(figures.acquisitions.value > 20.0 * 25.0 * 3.0 * 10.0, "{figures:?}");
    // One in three of them is hidden by the edges of windows of 20 ms.
    let shown = 20.0 * 3.0 * 5e6 * 25.0;
    assert!((1.2..1.7).contains(&(figures.wait_ns.value / shown)), "{:?}", figures.wait_ns);
    assert!(figures.wait_ns.high < 2.0 * shown && figures.wait_ns.low > shown, "{:?}", figures.wait_ns);
}

#[test]
fn without_a_window_waits_are_at_least_those_seen() {
    let mut estimator = Estimator::new(COSTS, Some(0.03));
    let mut kernel = Kernel::default();
    wait(&mut kernel, 0, 100);
    for at in 0..4 {
        estimator.stretch(Stretch { observed: Nanos(0), observed_cpu: Nanos(0), ..stretch(at, at == 0) });
        estimator.snapshot(&kernel.0);
    }
    let seen = 100.0 * 5e6;
    let told = estimator.finish().of(Subject::Lock(lock(0))).unwrap().wait_ns;
    assert_eq!((told.value, told.low), (seen, seen));
    assert!(told.high > 1_000.0 * seen, "{told:?}");
}

/// A loop that does nothing but lock and unlock takes 12 ns a pair, and 1,012 while it is observed.
#[test]
fn a_tight_loop_is_scaled_by_its_own_work() {
    for dearer in [0.9, 1.0, 1.3] {
        let mut estimator = Estimator::new(COSTS, Some(0.03));
        let mut kernel = Kernel::default();
        let (pair, cost) = (12.0, 2.0 * COSTS.hit_ns);
        let mut truth = 0.0;
        for at in 0..40u64 {
            let seen = (15.0 + (at % 7) as f64) * 1e6 / (pair + cost * dearer);
            let observed = seen * (pair + cost * dearer);
            acquire(&mut kernel, 0, seen as u64, 300 + at);
            truth += (500e6 - observed) / pair + seen;
            estimator.stretch(Stretch {
                observed: Nanos(observed as u64),
                observed_cpu: Nanos(observed as u64),
                cost: Nanos((seen * cost) as u64),
                observed_cost: Nanos((seen * cost) as u64),
                ..stretch(at, false)
            });
            estimator.snapshot(&kernel.0);
        }
        let estimates = estimator.finish();
        let made = estimates.of(Subject::Lock(lock(0))).unwrap().acquisitions;
        assert!(made.low <= truth && truth <= made.high, "{truth} {made:?}");
        // By time it would be a hundredth.
        let seen = kernel.0[0].sums.acquisitions as f64;
        assert!(made.low > seen * 25.0 * 1.5, "{seen} {made:?}");
    }
}

/// A program that loops tightly for 100 ms of each second, and takes its time in between; where it is, in ns of its own
/// time without observation.
struct Slowed {
    at: f64,
    taken: f64,
}

const PAIR: f64 = 12.0;
const QUIET_GAP: f64 = 500_000.0;

impl Slowed {
    fn is_loud(&self) -> bool {
        self.at % 1e9 < 100e6
    }

    /// Runs for some time. Returns acquisitions, and CPU time used.
    fn run(&mut self, time: f64, cost: f64) -> (f64, f64) {
        let (mut left, mut seen, mut cpu) = (time, 0.0, 0.0);
        while left > 1e-6 {
            let (loud, phase) = (self.is_loud(), self.at % 1e9);
            let rest = if loud { 100e6 - phase } else { 1e9 - phase };
            let slow = if loud { (PAIR + cost) / PAIR } else { 1.0 };
            let own = (left / slow).min(rest.max(1.0));
            let n = own / if loud { PAIR } else { QUIET_GAP };
            (seen, cpu) = (seen + n, cpu + if loud { own * slow } else { own * 0.3 + n * cost });
            (self.at, left) = (self.at + own, left - own * slow);
        }
        self.taken += seen;
        (seen, cpu)
    }

    /// Runs unobserved until it has got so far. Returns the CPU time used.
    fn advance(&mut self, target: f64) -> f64 {
        let (mut used, mut time) = (0.0, 0.0);
        while progress(used, time) < target {
            used += self.run(1e5, 0.0).1;
            time += 1e5;
        }
        used
    }
}

#[test]
fn what_a_window_slows_counts_for_the_work_that_it_would_have_done() {
    let mut ratios = 0.0;
    for seed in 0..20 {
        let mut random = Random(seed);
        let (mut estimator, mut kernel) = (Estimator::new(COSTS, Some(0.03)), Kernel::default());
        let mut program = Slowed { at: random.unit() * 1e9, taken: 0.0 };
        let cost = 2.0 * COSTS.hit_ns;
        // What the program gets done in 500 ms, on average.
        let step = progress(0.37, 1.0) * 500e6;
        for at in 0..60 {
            let (window, place) = (30e6, random.unit() * step);
            let before = program.advance(place);
            let (seen, during) = program.run(window, cost);
            let after = program.advance(step - place);
            acquire(&mut kernel, 0, seen as u64, 400);
            estimator.stretch(Stretch {
                observed: Nanos(window as u64),
                cpu: Nanos((before + during + after) as u64),
                observed_cpu: Nanos(during as u64),
                cost: Nanos((seen * cost) as u64),
                observed_cost: Nanos((seen * cost) as u64),
                ..stretch(at, false)
            });
            estimator.snapshot(&kernel.0);
        }
        let made = estimator.finish().of(Subject::Lock(lock(0))).unwrap().acquisitions;
        assert!(made.low <= program.taken && program.taken <= made.high, "{} {made:?}", program.taken);
        ratios += made.value / program.taken / 20.0;
    }
    assert!((0.8..1.25).contains(&ratios), "{ratios}");
}

#[test]
fn a_process_that_uses_no_cpu_time_is_scaled_by_time() {
    let mut estimator = Estimator::new(COSTS, None);
    let mut kernel = Kernel::default();
    for at in 0..20 {
        acquire(&mut kernel, 0, 10, 5_000);
        let idle = Stretch { cpu: Nanos(0), observed_cpu: Nanos(0), ..stretch(at, false) };
        estimator.stretch(idle);
        estimator.snapshot(&kernel.0);
    }
    let made = estimator.finish();
    assert_eq!(made.of(Subject::Lock(lock(0))).unwrap().acquisitions.value.round(), 20.0 * 10.0 * 25.0);
}

#[test]
fn sums_wait_for_the_stretch_that_they_belong_to() {
    let mut estimator = Estimator::new(COSTS, None);
    let mut kernel = Kernel::default();
    acquire(&mut kernel, 0, 10, 5_000);
    // Somebody else's stretch is over: this window is still open.
    estimator.snapshot(&kernel.0);
    acquire(&mut kernel, 0, 10, 5_000);
    estimator.stretch(stretch(0, false));
    estimator.snapshot(&kernel.0);
    let made = estimator.finish();
    assert_eq!(made.of(Subject::Lock(lock(0))).unwrap().acquisitions.value.round(), 20.0 * 25.0);
}

#[test]
fn nothing_makes_a_figure_that_is_no_number() {
    for (cpu, cost, observed) in [(0, 0, 0), (1, u64::MAX / 4, 1), (u64::MAX / 4, 1, 500 * MS), (5, 5, 0)] {
        let mut estimator = Estimator::new(COSTS, None);
        let mut kernel = Kernel::default();
        for at in 0..3 {
            let sums = kernel.sums(0);
            (sums.cut, sums.cut_ns) = (sums.cut + 1, u64::MAX / 8);
            sums.contended += 3;
            let s = Stretch { cpu: Nanos(cpu), observed_cpu: Nanos(cpu), ..stretch(at, false) };
            let s = Stretch { cost: Nanos(cost), observed_cost: Nanos(cost), observed: Nanos(observed), ..s };
            estimator.stretch(s);
            estimator.snapshot(&kernel.0);
        }
        let made = estimator.finish();
        for (_, f) in &made.figures {
            for i in [f.acquisitions, f.hold_mean_ns, f.hold_p99_ns, f.contended_share] {
                assert!(i.value.is_finite() && i.low <= i.value && i.value <= i.high && i.high.is_finite(), "{f:?}");
            }
        }
    }
}
