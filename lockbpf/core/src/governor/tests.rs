//! The policy against programs whose cost and pace are known.

use super::{Action, Budget, LOOK, Policy, Reading, Sampled};
use crate::units::{Nanos, Time};

/// Of a simulated program, at a time in ns: the share of its CPU time that observing takes while the tier is open.
type Load = fn(u64) -> f64;

/// What became of a run.
#[derive(Debug, Default)]
struct Run {
    cost_share: f64,
    open_share: f64,
    windows: Vec<(u64, u64)>,
    /// The longest time for which a tier was open whose cost share was above a half.
    longest_dear_ns: u64,
}

/// What opening or closing takes, during which the probes cost as well; before it opening takes so long at no cost. In ns.
#[derive(Clone, Copy)]
struct Edge {
    dear: u64,
    free: u64,
}

/// Runs a program that uses one CPU for `seconds`; opening and closing take 5 ms each.
fn run(load: Load, seconds: u64, seed: u64) -> Run {
    run_with(load, Edge { dear: 5_000_000, free: 0 }, seconds, seed)
}

fn run_with(load: Load, edge: Edge, seconds: u64, seed: u64) -> Run {
    const STEP: u64 = 500_000;
    let budget = Budget::new(0.03).unwrap();
    let mut now = Reading { time: Time(1_000), ..Reading::default() };
    let mut policy = Policy::open(budget, now, 1, seed);
    let (mut wait, mut open, mut since, mut dear) = (Time(0), true, now.time.0, 0);
    let (mut out, mut open_ns) = (Run::default(), 0);
    let advance = |now: &mut Reading, ns: u64, probed: bool| {
        now.cpu += Nanos(ns);
        if probed {
            now.cost += Nanos((ns as f64 * load(now.time.0)) as u64);
        }
        now.time = now.time + Nanos(ns);
    };
    while now.time.0 < seconds * 1_000_000_000 {
        while now.time >= wait {
            match policy.look(now) {
                Action::Wait(until) => {
                    assert!(until > now.time && until.0 - now.time.0 < 20_000_000_000);
                    wait = until;
                }
                Action::Open => {
                    assert!(!open);
                    let began = now;
                    advance(&mut now, edge.free, false);
                    advance(&mut now, edge.dear, true);
                    policy.opened(began, now);
                    (open, since) = (true, now.time.0);
                }
                Action::Next => assert!(!open),
                Action::Close => {
                    assert!(open);
                    open = false;
                    out.windows.push((since, now.time.0));
                    open_ns += now.time.0 - since;
                    advance(&mut now, edge.dear, true);
                }
            }
            assert_eq!(policy.is_open(), open);
            assert!(open || !policy.stays_open());
        }
        dear = if open && load(now.time.0) > 0.5 { dear + STEP } else { 0 };
        out.longest_dear_ns = out.longest_dear_ns.max(dear);
        advance(&mut now, STEP, open);
    }
    if open {
        open_ns += now.time.0 - since;
    }
    out.cost_share = now.cost.0 as f64 / now.cpu.0 as f64;
    out.open_share = open_ns as f64 / now.time.0 as f64;
    out
}

#[test]
fn what_is_cheap_stays_open() {
    let out = run(|_| 0.015, 20, 1);
    assert!(out.windows.is_empty() && out.open_share > 0.999, "{out:?}");
}

/// A program that uses 2 % of a CPU, of which observing takes a quarter while the tier is open.
#[test]
fn who_sleeps_with_its_locks_is_seen_whole_unless_many_do() {
    for (processes, whole) in [(1, true), (100, false)] {
        let mut now = Reading { time: Time(1_000), ..Reading::default() };
        let mut policy = Policy::open(Budget::new(0.03).unwrap(), now, 1, 1);
        policy.shares_with(processes, 1.0);
        let (mut open, mut wait) = (0, Time(0));
        for _ in 0..20_000 {
            while now.time >= wait {
                match policy.look(now) {
                    Action::Wait(until) => wait = until,
                    Action::Open => policy.opened(now, now),
                    Action::Close | Action::Next => {}
                }
            }
            open += u64::from(policy.is_open());
            let cost = if policy.is_open() { 5_000 } else { 0 };
            now = Reading {
                time: now.time + Nanos(1_000_000),
                cpu: now.cpu + Nanos(20_000),
                cost: now.cost + Nanos(cost),
                ..now
            };
        }
        assert_eq!(open == 20_000, whole, "{processes} processes: open for {open} ms");
        assert!(whole || now.cost.0 as f64 <= 0.03 * now.cpu.0 as f64 + 2e6, "{processes} processes: {now:?}");
    }
}

#[test]
fn what_is_cheap_is_looked_at_seldom_but_no_burst_can_be_missed() {
    let (cpus, ms) = (4, |ms: u64| Nanos(ms * 1_000_000));
    let budget = Budget::new(0.03).unwrap();
    let mut policy = Policy::open(budget, Reading::default(), cpus, 1);
    let mut now = Reading::default();
    let mut longest = Nanos(0);
    while now.time.0 < 300_000_000_000 {
        let Action::Wait(until) = policy.look(now) else { panic!("closed at {now:?}") };
        let wait = until.since(now.time);
        longest = longest.max(wait);
        // A process that does nothing but hit probes on all its CPUs from now on is caught before it has spent more than it may.
        let all = Nanos(wait.0 * cpus as u64);
        let burst = Reading { time: until, cpu: now.cpu + all, cost: now.cost + all, ..now };
        assert!(wait <= ms(5) || policy.debt(burst) <= policy.credit(), "{wait:?} at {now:?}");
        now = Reading { time: until, cpu: now.cpu + wait, cost: now.cost + Nanos(wait.0 / 100), ..now };
    }
    assert_eq!(longest, ms(500));
}

#[test]
fn the_budget_holds_whatever_it_costs() {
    for (load, least) in [((|_| 0.999) as Load, 0.004), (|_| 0.5, 0.01), (|_| 0.1, 0.08), (|_| 0.04, 0.2)] {
        let out = run(load, 20, 2);
        assert!(out.cost_share < 0.03, "{out:?}");
        assert!(out.open_share > least && out.windows.len() > 20, "{out:?}");
    }
}

/// Windows are as long as what is around them makes worth while, and waiting for the kernel costs nothing.
#[test]
fn windows_are_as_long_as_their_edges_are_dear() {
    let mean = |run: &Run| run.windows.iter().map(|(from, to)| to - from).sum::<u64>() / run.windows.len() as u64;
    let with = |dear: u64, free: u64| run_with(|_| 0.99, Edge { dear, free }, 60, 9);
    let (cheap, dear, slow) = (with(500_000, 0), with(20_000_000, 0), with(500_000, 200_000_000));
    for out in [&cheap, &dear, &slow] {
        assert!(out.cost_share < 0.03, "{out:?}");
    }
    assert!(mean(&dear) > 3 * mean(&cheap) / 2, "{} and {} ns", mean(&dear), mean(&cheap));
    assert!(cheap.open_share > 2.0 * dear.open_share, "{cheap:?} {dear:?}");
    assert!(slow.open_share > 0.5 * cheap.open_share, "{slow:?} {cheap:?}");
}

#[test]
fn a_burst_is_over_soon() {
    // A thousandfold for 100 ms in each second.
    let out = run(|ns| if ns % 1_000_000_000 < 100_000_000 { 0.99 } else { 0.001 }, 30, 3);
    assert!(out.cost_share < 0.03, "{out:?}");
    assert!(out.longest_dear_ns <= 100_000_000, "{out:?}");
}

#[test]
fn a_storm_that_never_ends_and_a_calm_after_it() {
    let out = run(|ns| if ns < 5_000_000_000 { 0.95 } else { 0.001 }, 60, 4);
    assert!(out.cost_share < 0.03, "{out:?}");
    assert!(out.longest_dear_ns <= 60_000_000, "{out:?}");
    assert!(out.open_share > 0.4, "it opens again for good: {out:?}");
}

#[test]
fn windows_are_at_random_places() {
    let out = run(|_| 0.6, 60, 5);
    // Phases within the usual cycle, in eight parts: all are visited.
    let mut parts = [0u32; 8];
    for (from, _) in &out.windows[1..] {
        parts[(from % 500_000_000 * 8 / 500_000_000) as usize] += 1;
    }
    let mean = (out.windows.len() - 1) as u32 / 8;
    assert!(parts.iter().all(|&n| n > mean / 3 && n < mean * 3), "{parts:?}");
}

#[test]
fn seeds_make_runs_repeatable() {
    let (a, b, c) = (run(|_| 0.6, 10, 7), run(|_| 0.6, 10, 7), run(|_| 0.6, 10, 8));
    assert_eq!(a.windows, b.windows);
    assert_ne!(a.windows, c.windows);
}

#[test]
fn budgets_are_shares() {
    assert!([0.0, 1.0, -0.1, f64::NAN, 3.0].into_iter().all(|share| Budget::new(share).is_none()));
    assert!(Budget::new(0.03).is_some_and(|b| b.share() == 0.03) && LOOK.as_millis() < 200);
}

#[test]
fn a_window_that_nobody_saw_to_its_end_is_not_reopened() {
    let budget = Budget::new(0.03).unwrap();
    let at = |ms: u64, cost: u64| Reading {
        time: Time(ms * 1_000_000),
        cpu: Nanos(ms * 1_000_000),
        cost: Nanos(cost * 1_000_000),
        ..Reading::default()
    };
    let mut policy = Policy::open(budget, at(0, 0), 1, 1);
    // Always open: it may be opened again at once.
    assert!(!policy.cut());
    assert_eq!(policy.look(at(10, 0)), Action::Open);
    policy.opened(at(10, 0), at(10, 0));
    assert_eq!(policy.look(at(500, 400)), Action::Close);
    // Windows: the cycle goes on without.
    let mut now = 500;
    while policy.look(at(now, 400)) != Action::Open {
        now += 20;
    }
    policy.opened(at(now, 400), at(now, 400));
    assert!(policy.is_open() && policy.cut() && !policy.is_open());
    assert!(matches!(policy.look(at(now + 10, 401)), Action::Wait(_)));
}

#[test]
fn what_was_used_in_between_lies_between_readings() {
    let reading = |time, cpu, cost| {
        let sampled = Sampled { samples: cpu, user: cost, hits: 2 * cpu };
        Reading { time: Time(time), cpu: Nanos(cpu), cost: Nanos(cost), sampled }
    };
    let (a, b) = (reading(100, 10, 1), reading(200, 30, 5));
    assert_eq!(a.towards(b, Time(150)), reading(150, 20, 3));
    assert_eq!((a.towards(b, Time(100)), a.towards(b, Time(200))), (a, b));
    assert_eq!(a.towards(b, Time(900)).cpu, b.cpu, "no more than was used");
}
