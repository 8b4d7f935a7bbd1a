//! Models of observed programs: what observing added is taken out, within its range.

use super::super::check::check;
use super::super::predict::predict;
use super::super::profile;
use super::super::schema::Input;
use super::super::script::Script;
use super::super::shadow::Shadow;
use super::super::summed::{self, Sums};
use super::super::what_if::{Oracle, Question, render};
use super::scripts::{PROCESS, Trace, lock};
use super::summed::transition;
use crate::estimate::{Coverage, Estimates, Figures, Interval, Subject};
use crate::id::Site;
use crate::perturbation::Prices;
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::Via;

/// A pair costs 2,000 ns, of which 900 fall into the hold.
const PRICES: Prices = Prices { hit_ns: 1_000, hold_bias_ns: 900, record_ns: 200, futex_ns: 300, spread_permille: 0 };
/// What the program does by itself: a section, the time after it, and a section inside of the first.
const HOLD: u64 = 500;
const LOCAL: u64 = 3_000;
const INNER: u64 = 200;
const ROUNDS: u64 = 100;

fn shadow() -> Shadow {
    Shadow::new(&PRICES).unwrap()
}

/// As observed, section by section.
fn script() -> Script {
    let (mut trace, mut now) = (Trace::default(), 0);
    for _ in 0..ROUNDS {
        let attempt = now + LOCAL + 1_100;
        let inner = attempt + HOLD / 2 + 900;
        let left = inner + INNER + 900;
        now = left + HOLD / 2 + 1_100;
        trace.section(1, 5, [attempt, attempt, now]);
        trace.section(1, 6, [inner, inner, left]);
    }
    trace.script()
}

fn by_events(shadow: Option<&Shadow>) -> Input {
    let script = script();
    profile::model(&script, shadow, |i| script.locks[i].addr.to_string(), |_| true).unwrap()
}

fn seen(contended: u64) -> (Vec<Transition>, KernelSums) {
    let visit = Transition {
        count: ROUNDS,
        local: Nanos(ROUNDS * (LOCAL + 1_100) + contended * 700),
        visits: ROUNDS,
        hold: Nanos(ROUNDS * (HOLD + INNER + 2_900)),
        squares: u128::from(ROUNDS * (HOLD + INNER + 2_900).pow(2)),
        ..transition(1, Some(5), Some(5), 10)
    };
    let site = Site { process: PROCESS, addr: 1 };
    let mut sums = KernelSums { lock: lock(5), site, via: Via::Lock, sums: lockbpf_common::sums::Sums::EMPTY };
    (sums.sums.acquisitions, sums.sums.contended, sums.sums.inner_hits) = (ROUNDS, contended, 2 * ROUNDS);
    (vec![visit], sums)
}

/// As the kernel side summed it up.
fn by_sums(shadow: Option<&Shadow>, contended: u64, estimates: Option<&Estimates>) -> Input {
    let (transitions, kernel) = seen(contended);
    let sums = Sums {
        transitions: &transitions,
        sums: &[kernel],
        period: (Time(0), Time(ROUNDS * 8_000)),
        pace: &[],
        windows: estimates.is_some(),
        estimates,
        shadow,
    };
    summed::model(&sums, |lock| lock.addr.to_string(), |_| true).unwrap()
}

#[track_caller]
fn assert_near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
}

#[test]
fn what_observing_added_is_taken_out() {
    let shadow = shadow();
    let own = (HOLD + INNER) as f64;
    for input in [by_events(Some(&shadow)), by_sums(Some(&shadow), 0, None), by_sums(Some(&shadow), 40, None)] {
        assert_near(input.locks[0].hold_ns.unwrap(), own);
        assert_near(input.local_ns[0][0], LOCAL as f64);
        let check = check(&input).unwrap().unwrap();
        assert!(check.recorded.without_observer);
        assert_near(check.predicted_per_ns, 1.0 / (own + LOCAL as f64));
        let [low, high] = check.predicted_interval_per_ns;
        // 0.6 to 1.5 times 4,000 ns (somewhat more where one waited) may have been added; not more than there was.
        assert!(low < 1.0 / 5_200.0 && high > 1.0 / 2_600.0, "{low} {high}");
        let said = predict(&input).unwrap().assumptions.join("\n");
        assert!(said.contains("What observing cost"), "{said}");
    }
}

#[test]
fn what_was_not_measured_is_left_in() {
    for input in [by_events(None), by_sums(None, 0, None)] {
        assert_near(input.locks[0].hold_ns.unwrap(), (HOLD + INNER + 2_900) as f64);
        assert_near(input.local_ns[0][0], (LOCAL + 1_100) as f64);
        assert!(input.bounds.is_empty());
        assert!(!check(&input).unwrap().unwrap().recorded.without_observer);
    }
}

#[test]
fn no_time_becomes_nothing() {
    let dear = Shadow::new(&Prices { hit_ns: 50_000, hold_bias_ns: 40_000, ..PRICES }).unwrap();
    let input = by_sums(Some(&dear), 0, None);
    assert!(input.locks[0].hold_ns.unwrap() > 0.0 && input.local_ns[0][0] > 0.0);
    assert!(predict(&input).is_ok());
}

#[test]
fn windows_tell_of_the_rest() {
    let interval = Interval { value: 2_000.0, low: 1_500.0, high: 2_500.0 };
    let coverage = Coverage {
        process: PROCESS,
        time: Nanos(10_000_000),
        observed: Nanos(1_000_000),
        windows: 3,
        ..Coverage::default()
    };
    let estimates = Estimates {
        processes: vec![coverage],
        figures: vec![(Subject::Lock(lock(5)), Figures { acquisitions: interval, ..Figures::default() })],
        ..Estimates::default()
    };
    let recorded = by_sums(Some(&shadow()), 0, Some(&estimates)).recorded.unwrap();
    assert_eq!(recorded.threads, 1);
    assert_near(recorded.observed_per_ns, ROUNDS as f64 / 1e6);
    assert_near(recorded.estimated_per_ns.unwrap(), 2_000.0 / 1e7);
    assert_eq!(recorded.estimated_interval_per_ns, Some([1_500.0 / 1e7, 2_500.0 / 1e7]));
    let observed = by_sums(Some(&shadow()), 0, None).recorded.unwrap();
    assert_eq!((observed.estimated_per_ns, observed.observed_per_ns), (None, 1.0 / 8_000.0));
}

#[test]
fn gains_are_those_of_the_unobserved_program() {
    let script = script();
    let names = ["outer", "inner"].map(str::to_owned);
    let inner = Question::Shorten(vec![1], 0.5);
    let observed = Oracle::new(&script, &names, &names, 2);
    let seen = observed.answers(vec![observed.ask(&inner).unwrap()]);
    assert_eq!(seen.unobserved_ns, None);
    let oracle = Oracle::new(&script, &names, &names, 2).without(&shadow(), 0);
    let answers = oracle.answers(vec![oracle.ask(&inner).unwrap()]);
    let own = (ROUNDS * (HOLD + INNER) + (ROUNDS - 1) * LOCAL) as f64;
    assert_near(answers.unobserved_ns.unwrap(), own);
    let answer = &answers.answers[0];
    assert_near(answer.gain, (ROUNDS * INNER / 2) as f64 / own);
    assert_near(answer.run_time_ns, own - (ROUNDS * INNER / 2) as f64);
    // Observed, the inner section is five times as long.
    assert!(seen.answers[0].gain > 2.0 * answer.gain);
    let [low, high] = answer.gain_interval;
    assert!(low < 0.9 * answer.gain && high > 1.1 * answer.gain, "{low} {high}");
    let said = render(&answers, 200);
    assert!(said.contains("as recorded but unobserved") && said.contains("What observing cost"), "{said}");
}
