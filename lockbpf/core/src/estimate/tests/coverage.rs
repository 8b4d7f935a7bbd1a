//! Simulated programs: stated 95 % intervals hold the truth in at least 90 % of seeded runs, and are narrow enough to be of use.

use super::sim::{Looks, MS, Program, Random, S, lock, look};
use super::workloads::{Arrivals, Holds, bursty, periodic, poisson};
use crate::estimate::{Figures, Interval, Subject};

const RUNS: u64 = 200;

/// How often each interval held the truth, and how wide they were, half.
#[derive(Debug, Default)]
struct Score {
    runs: f64,
    held: [f64; FIGURES],
    widths: [Vec<f64>; FIGURES],
}

const FIGURES: usize = 5;
const NAMES: [&str; FIGURES] = ["acquisitions", "hold mean", "hold p99", "contended share", "wait"];

fn truth(program: &Program, addr: u64) -> [f64; FIGURES] {
    let (mut holds, mut sum, mut contended, mut wait) = (Vec::new(), 0.0, 0.0, 0.0);
    for s in program.sections.iter().filter(|s| s.lock == addr) {
        holds.push(s.hold);
        sum += s.hold;
        contended += f64::from(u8::from(s.contended));
        wait += if s.contended { s.wait } else { 0.0 };
    }
    let n = holds.len() as f64;
    let rank = ((0.99 * n).ceil() as usize).saturating_sub(1);
    let (_, &mut p99, _) = holds.select_nth_unstable_by(rank, f64::total_cmp);
    [n, sum / n, p99, contended / n, wait]
}

fn intervals(f: &Figures) -> [Interval; FIGURES] {
    [f.acquisitions, f.hold_mean_ns, f.hold_p99_ns, f.contended_share, f.wait_ns]
}

impl Score {
    fn add(&mut self, truth: [f64; FIGURES], figures: &Figures) {
        self.runs += 1.0;
        for (i, interval) in intervals(figures).into_iter().enumerate() {
            assert!(interval.low <= interval.value && interval.value <= interval.high, "{} {interval:?}", NAMES[i]);
            // To the ns, and a little for rounding.
            let slack = truth[i] * 1e-3 + if i == 0 { 0.5 } else { 0.0 };
            self.held[i] += f64::from(interval.low - slack <= truth[i] && truth[i] <= interval.high + slack);
            self.widths[i].push(interval.half_width());
        }
    }
}

/// Scores of so many locks, from 0 on.
fn scores(seed: u64, looks: Looks, locks: u64, program: impl Fn(&mut Random) -> Program) -> Vec<Score> {
    let mut scores: Vec<Score> = (0..locks).map(|_| Score::default()).collect();
    for run in 0..RUNS {
        let mut random = Random(seed * 1_000_003 + run);
        let program = program(&mut random);
        let estimates = look(&program, &looks, &mut random);
        for (addr, score) in (0..).zip(&mut scores) {
            if let Some(figures) = estimates.of(Subject::Lock(lock(addr))) {
                score.add(truth(&program, addr), figures);
            }
        }
    }
    scores
}

fn score(seed: u64, looks: Looks, program: impl Fn(&mut Random) -> Program) -> Score {
    scores(seed, looks, 1, program).pop().unwrap()
}

/// Checks the coverage of all, and the median half-widths.
fn check(name: &str, score: &mut Score, widths: [f64; FIGURES]) {
    for i in 0..FIGURES {
        let held = score.held[i] / score.runs;
        score.widths[i].sort_by(f64::total_cmp);
        let width = score.widths[i][score.widths[i].len() / 2];
        eprintln!("{name}: {} held in {held:.2}, ±{:.1} %", NAMES[i], width * 100.0);
        assert!(held >= 0.9, "{name}: {} held in {held}", NAMES[i]);
        assert!(width <= widths[i], "{name}: {} ±{width}", NAMES[i]);
    }
}

const ANY: f64 = f64::INFINITY;

#[test]
fn poisson_of_any_distribution() {
    let kinds = [
        ("constant", Holds::Constant(8_000.0)),
        ("exponential", Holds::Exponential(8_000.0)),
        ("lognormal", Holds::Lognormal(4_000.0, 1.2)),
    ];
    for (seed, (name, holds)) in kinds.into_iter().enumerate() {
        let mut score = score(seed as u64, Looks::default(), |random| {
            poisson(15.0 * S, &[Arrivals::new(0, 2_000.0, holds)], random)
        });
        check(name, &mut score, [0.1, 0.2, 0.8, 0.2, 0.3]);
    }
}

#[test]
fn bursts_of_a_thousand_times_the_rate() {
    for (seed, (burst, cpu)) in [(100.0, (0.05, 1.0)), (100.0, (0.5, 0.5)), (50.0, (0.01, 1.0))].into_iter().enumerate()
    {
        let looks = Looks { window: (20.0 * MS, 40.0 * MS), ..Looks::default() };
        let quiet = Arrivals::new(0, 15.0, Holds::Exponential(20_000.0));
        let mut score = score(10 + seed as u64, looks, |random| bursty(20.0 * S, burst * MS, &quiet, cpu, random));
        check(&format!("burst {burst} {cpu:?}"), &mut score, [1.5, 0.8, ANY, 0.8, ANY]);
    }
}

#[test]
fn windows_that_bursts_close_early() {
    let looks = Looks { window: (20.0 * MS, 40.0 * MS), most: 30, ..Looks::default() };
    let quiet = Arrivals::new(0, 15.0, Holds::Exponential(20_000.0));
    let mut score = score(60, looks, |random| bursty(20.0 * S, 100.0 * MS, &quiet, (0.05, 1.0), random));
    check("closed early", &mut score, [1.5, 1.0, ANY, 1.0, ANY]);
}

#[test]
fn a_period_that_is_the_spacing_of_windows() {
    let busy = Arrivals::new(0, 5_000.0, Holds::Exponential(30_000.0));
    let looks = Looks { window: (10.0 * MS, 20.0 * MS), ..Looks::default() };
    let mut score = score(20, looks, |random| periodic(20.0 * S, &busy, random));
    check("periodic", &mut score, [0.6, 0.4, ANY, 0.6, ANY]);
}

#[test]
fn holds_that_windows_cut() {
    for (seed, holds) in [Holds::Constant(5.0 * MS), Holds::Exponential(6.0 * MS)].into_iter().enumerate() {
        let looks = Looks { window: (5.0 * MS, 60.0 * MS), ..Looks::default() };
        let long = Arrivals { contended: 0.5, wait: 2.0 * MS, ..Arrivals::new(0, 60.0, holds) };
        let mut score = score(30 + seed as u64, looks, |random| poisson(30.0 * S, std::slice::from_ref(&long), random));
        check(&format!("cut {holds:?}"), &mut score, [0.6, 0.8, ANY, 1.0, 1.0]);
    }
}

#[test]
fn rare_locks_beside_a_busy_one() {
    let locks = |random: &mut Random| {
        let busy = Arrivals::new(0, 1_500.0, Holds::Exponential(5_000.0));
        let rare = Arrivals::new(1, 3.0, Holds::Exponential(50_000.0));
        let seldom = Arrivals::new(2, 20.0, Holds::Lognormal(50_000.0, 0.8));
        poisson(20.0 * S, &[busy, rare, seldom], random)
    };
    for (addr, score) in scores(40, Looks::default(), 3, locks).iter_mut().enumerate() {
        check(&format!("lock {addr}"), score, [if addr == 0 { 0.15 } else { ANY }, ANY, ANY, ANY, ANY]);
    }
}

#[test]
fn windows_of_any_length() {
    for (seed, window) in [(5.0, 5.0), (5.0, 100.0), (100.0, 100.0)].into_iter().enumerate() {
        let looks = Looks { window: (window.0 * MS, window.1 * MS), ..Looks::default() };
        let arrivals = [Arrivals::new(0, 1_000.0, Holds::Exponential(40_000.0))];
        let mut score = score(50 + seed as u64, looks, |random| poisson(10.0 * S, &arrivals, random));
        check(&format!("windows {window:?}"), &mut score, [0.4, 0.4, ANY, ANY, ANY]);
    }
}

#[test]
fn samples_of_the_clock_take_nothing_away() {
    let looks = Looks { sampled: true, ..Looks::default() };
    let mut steady =
        score(70, looks, |random| poisson(15.0 * S, &[Arrivals::new(0, 2_000.0, Holds::Exponential(8_000.0))], random));
    check("sampled", &mut steady, [0.1, 0.2, 0.8, 0.2, 0.3]);
    let quiet = Arrivals::new(0, 15.0, Holds::Exponential(20_000.0));
    let looks = Looks { window: (20.0 * MS, 40.0 * MS), ..looks };
    for (seed, (burst, cpu)) in [(100.0, (0.05, 1.0)), (100.0, (0.5, 0.5)), (50.0, (0.01, 1.0))].into_iter().enumerate()
    {
        let mut bursts = score(80 + seed as u64, looks, |random| bursty(20.0 * S, burst * MS, &quiet, cpu, random));
        check(&format!("sampled burst {burst} {cpu:?}"), &mut bursts, [1.5, 0.8, ANY, 0.8, ANY]);
    }
}
