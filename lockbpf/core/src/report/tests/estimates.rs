//! Figures from windows: scaled, marked, and with their intervals.

use super::*;
use crate::estimate::{self, Coverage, Estimates, Figures, Interval, Subject};
use crate::observation::Observation;
use crate::op::LockKind;
use crate::perturbation::{Perturbation, Taken};
use crate::report::combine::{self, combine};
use crate::report::estimated;
use crate::report::schema::LockEntry;
use crate::sums::SiteSums;
use lockbpf_common::kind::mutex_kind;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn around(value: f64, part: f64) -> Interval {
    Interval { value, low: value * (1.0 - part), high: value * (1.0 + part) }
}

fn figures(acquisitions: f64) -> Figures {
    Figures {
        acquisitions: around(acquisitions, 0.08),
        hold_mean_ns: around(20e6, 0.05),
        hold_p99_ns: Interval { value: 39e6, low: 33_554_432.0, high: 40e6 },
        contended_share: around(0.5, 0.1),
        wait_ns: Interval::default(),
    }
}

fn coverage() -> Coverage {
    Coverage {
        process: P,
        time: Nanos(10_000 * MS),
        observed: Nanos(310 * MS),
        cpu: Nanos(10_000 * MS),
        cost: Nanos(230 * MS),
        own_cpu: Nanos(9_770 * MS),
        observed_own_cpu: Nanos(200 * MS),
        windows: 61,
        whole: false,
        factor: 32.0,
        hold_factor: 2.0,
    }
}

/// The server, of which one lock was seen in windows and slept for 100 s in all.
fn sampled(complete: bool) -> Observation {
    asleep(complete, Nanos(2_000 * MS))
}

/// The same, with 50 sleeps as long as this.
fn asleep(complete: bool, each: Nanos) -> Observation {
    estimated(complete, 50, each, [3_200.0, 6_401.0].map(figures), figures(9_600.0))
}

/// The server, of which one lock slept this often, for `each`, with these figures of its two rows and of the lock.
fn estimated(complete: bool, sleeps: u64, each: Nanos, rows: [Figures; 2], all: Figures) -> Observation {
    slept(complete, sleeps, each, rows, all, &[])
}

/// The same. Waits for that lock were recorded: each entry is a place, and the ns waited there.
fn slept(
    complete: bool,
    sleeps: u64,
    each: Nanos,
    [first, second]: [Figures; 2],
    all: Figures,
    recorded: &[(u64, u64)],
) -> Observation {
    let mut o = server();
    let slept = sums(&mut o, lock(0x1000), site(0), Via::Futex);
    (slept.acquisitions, slept.mutex_kind) = (sleeps, mutex_kind::IS_FUTEX);
    (0..sleeps).for_each(|_| slept.wait.add(each));
    let row = |at| Subject::Row(lock(0x1000), site(at), Via::Lock);
    let mut figures = vec![
        (row(0x300), first),
        (row(0x400), second),
        (Subject::Lock(lock(0x1000)), all),
        (Subject::Site(site(0x300)), first),
    ];
    figures.retain(|_| complete);
    recorded_at(&o, complete, figures, recorded)
}

/// A run with these estimates.
fn with(o: &Run, complete: bool, figures: Vec<(Subject, Figures)>) -> Observation {
    recorded_at(o, complete, figures, &[])
}

/// The same, with such records of waits for one lock.
fn recorded_at(o: &Run, complete: bool, figures: Vec<(Subject, Figures)>, recorded: &[(u64, u64)]) -> Observation {
    let mut o = found(o);
    let estimates = Estimates {
        budget: Some(0.03),
        hold_bias_ns: Interval { value: 900.0, low: 540.0, high: 1_350.0 },
        processes: vec![coverage()],
        figures,
        beyond: 0,
        complete,
    };
    let recorded = |of: Lock| {
        let here = recorded.iter().filter(|_| of == lock(0x1000));
        here.map(|&(at, ns)| (site(at), Nanos(ns))).collect()
    };
    estimate::apply(&estimates, &mut o.sums, &mut o.threads, &recorded);
    o.estimates = Some(estimates);
    o
}

fn built(o: &Observation) -> Report {
    build(o, &mut FakeNames, &Options::default()).unwrap()
}

/// A Java monitor that virtual threads waited for 30 times, which probes without a gate saw, and others as often as windows say, if any did.
fn monitor(in_windows: bool) -> Report {
    let mut o = server();
    let row = |o: &mut Run, via, waits: u64| {
        let row = sums(o, lock(0x7000), site(0x300), via);
        (row.acquisitions, row.contended, row.unseen, row.first) = (waits, waits, waits, Time(1));
        (0..waits).for_each(|_| row.wait.add(Nanos(MS)));
    };
    row(&mut o, Via::VirtualMonitor, 30);
    let mut of_windows = Vec::new();
    if in_windows {
        row(&mut o, Via::JavaMonitor, 2);
        let all = figures(100.0);
        let subject = Subject::Row(lock(0x7000), site(0x300), Via::JavaMonitor);
        of_windows = vec![(subject, all), (Subject::Lock(lock(0x7000)), all)];
    }
    built(&with(&o, true, of_windows))
}

#[test]
fn what_no_gate_closes_is_exact_beside_what_windows_show() {
    let of = |report: &Report| {
        let found = report.locks.iter().find(|l| l.lock.ends_with("0x7000")).unwrap();
        (found.contended, found.wait_ns.sum)
    };
    let in_windows = "are seen in windows only";
    let exact = monitor(false);
    assert_eq!(of(&exact), (30, ms(30)));
    assert!(!text(&exact).contains(in_windows), "{}", text(&exact));
    let both = monitor(true);
    assert_eq!(of(&both), (32, ms(32)));
    assert!(text(&both).contains(in_windows), "{}", text(&both));
}

#[test]
fn locks_tell_estimates() {
    let r = built(&sampled(true));
    let hot = r.locks.iter().find(|l| l.name == "global_1000").unwrap();
    assert_eq!((hot.acquisitions, hot.contended, hot.estimates), (Some(9_600), 4_800, Some(figures(9_600.0))));
    let hold = hot.hold_ns.unwrap();
    assert_eq!((hold.sum, hold.mean, hold.p99), (ms(192_000), ms(20), ms(39)));
    // All waits, from the futex tier; windows saw two sites wait, and say in which proportion.
    assert_eq!((hot.wait_ns.sum, hot.contended_wait_ns.max), (ms(100_000), ms(2_000)));
    // Fifty slept; that 4,800 were contended is an estimate.
    assert_eq!(hot.contended_wait_ns.mean, ms(2_000));
    assert!(hot.contended_wait_ns.p50 > ms(1_000) && hot.contended_wait_ns.p99 <= ms(2_000), "{hot:?}");
    let site = |at: &str| r.sites.iter().find(|s| s.site.ends_with(at)).unwrap();
    assert_eq!((site("300").instances, site("300").wait_ns, site("400").wait_ns), (3_200, ms(0), ms(100_000)));
    assert_eq!(site("300").estimates, Some(figures(3_200.0)));
    let worker = r.threads.iter().find(|t| t.tid == 12).unwrap();
    assert!(worker.estimated && worker.acquisitions == 3_200 && worker.held_sum_ns == ms(8_000), "{worker:?}");
    // 3.1 % of the time was observed, but no thread waits longer than there was time.
    assert_eq!(worker.wait_ns, ms(10_000), "{worker:?}");
    // What no window showed stays as it is.
    let cool = r.locks.iter().find(|l| l.name.contains("fn6") && l.contended == 1).unwrap();
    assert_eq!((cool.estimates, cool.acquisitions), (None, Some(2)));
}

#[test]
fn what_was_recorded_is_told_as_parts_of_what_the_kernel_counted() {
    let hot = |r: &Report| r.locks.iter().find(|l| l.name == "global_1000").unwrap().clone();
    let seen = hot(&report(&server()));
    // Half of what was recorded, as where waits are recorded for others; and more, as where some were lost.
    for (part, recorded) in [(0.5, 0.5), (1.5, 1.0)] {
        let r = built(&asleep(true, Nanos((seen.recorded_wait_ns.as_f64() * part / 50.0) as u64)));
        let told = hot(&r);
        let share = told.recorded_wait_ns.as_f64() / seen.recorded_wait_ns.as_f64();
        assert!((share - recorded).abs() < 1e-6, "{share} of what was recorded, {recorded} wanted");
        assert!((told.harm_ns.as_f64() / seen.recorded_wait_ns.as_f64() - part).abs() < 1e-6, "{told:?}");
        // Who is to blame for which part stays as it was, and as many waits.
        let shares = |l: &LockEntry| l.holders.iter().map(|h| (h.share * 1e6).round()).collect::<Vec<_>>();
        let waits = |l: &LockEntry| l.waiters.iter().map(|w| w.count).sum::<u64>();
        assert_eq!((shares(&told), waits(&told)), (shares(&seen), waits(&seen)));
        let site = |r: &Report| r.sites.iter().map(|s| s.apwt_ns.as_f64()).sum::<f64>();
        let others = site(&report(&server())) - seen.recorded_wait_ns.as_f64() + seen.unattributed_ns.as_f64();
        let charged = (told.recorded_wait_ns - told.unattributed_ns).as_f64();
        assert!((site(&r) - others - charged).abs() < 100.0, "{} {others} {charged}", site(&r));
        // The threads waited as long as there was waiting, but for some that are not listed.
        let waited: f64 = r.threads.iter().map(|t| (t.wait_ns - t.kernel_wait_ns).as_f64()).sum();
        let all = r.totals.harm_ns.as_f64();
        assert!((0.99..1.000_001).contains(&(waited / all)), "{waited} by threads, {all} in all");
        assert_eq!(crate::report::violations(&r), Vec::<String>::new());
    }
}

#[test]
fn recorded_waits_stand_for_all_where_windows_alone_show_them() {
    // As for a lock that a runtime takes inline: no futex call names it.
    let mut o = found(&server());
    let rows = o.sums.iter().filter(|s| s.lock == lock(0x1000));
    let of_row = |s: &SiteSums| Figures {
        wait_ns: around(30.0 * s.wait.sum.0 as f64, 0.2),
        ..figures(30.0 * s.acquisitions as f64)
    };
    let estimates = Estimates {
        processes: vec![coverage()],
        figures: rows.map(|s| (Subject::Row(s.lock, s.site, s.via), of_row(s))).collect(),
        complete: true,
        ..Estimates::default()
    };
    estimate::apply(&estimates, &mut o.sums, &mut o.threads, &|_| BTreeMap::new());
    o.estimates = Some(estimates);
    let seen = report(&server());
    let of = |r: &Report| r.locks.iter().find(|l| l.name == "global_1000").unwrap().clone();
    let (told, seen) = (of(&built(&o)), of(&seen));
    assert!(told.harm_ns.as_f64() > 1.5 * seen.harm_ns.as_f64(), "{} {}", told.harm_ns, seen.harm_ns);
    let (waited, sum) = (told.wait_estimate.unwrap(), told.wait_ns.sum.as_f64());
    assert!(waited.value == sum && (waited.low..waited.high).contains(&sum), "{waited:?}");
    assert!(built(&o).verdict.iter().any(|s| s.contains(&estimated::time(&waited))), "{:?}", built(&o).verdict);
    // Sections are blamed, and locks charged, for all of it.
    let apwt = |r: &Report| r.sites.iter().map(|s| s.apwt_ns.as_f64()).sum::<f64>();
    assert!(apwt(&built(&o)) > 1.5 * apwt(&report(&server())) && told.aplt_ns > seen.aplt_ns);
    // What was known of a part is known of all, but less surely.
    let known = |l: &LockEntry| 1.0 - l.attribution.unknown_ns.share_of(l.harm_ns);
    assert!((known(&told) - known(&seen)).abs() < 0.02, "{} {}", known(&told), known(&seen));
    assert!(told.attribution.exact_ns <= seen.attribution.exact_ns + Ns::new(9), "{:?}", told.attribution);
    assert!(told.attribution.inferred_ns > Ns::default());
    let share = |l: &LockEntry| l.holders.iter().map(|h| h.share).fold(0.0, f64::max);
    assert!((share(&told) - share(&seen)).abs() < 0.02);
    assert_eq!(crate::report::violations(&built(&o)), Vec::<String>::new());
}

#[test]
fn json_has_intervals_and_what_was_observed() {
    let r = built(&sampled(true));
    let json = serde_json::to_value(&r).unwrap();
    let hot = json["locks"].as_array().unwrap().iter().find(|l| l["name"] == "global_1000").unwrap();
    assert_eq!(hot["estimates"]["acquisitions"]["value"], 9_600.0);
    assert_eq!(hot["estimates"]["contended_share"]["high"], 0.55);
    let observed = &json["quality"]["observed"];
    assert_eq!((&observed["budget"], &observed["windows"]), (&0.03.into(), &61.into()));
    assert_eq!(observed["processes"][0]["pid"], 1234);
    assert_eq!(observed["hold_bias_ns"], serde_json::json!({"value": 900.0, "low": 540.0, "high": 1_350.0}));
    assert!((observed["time_share"].as_f64().unwrap() - 0.031).abs() < 1e-9);
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), r);
    let exact = serde_json::to_value(report(&server())).unwrap();
    assert!(exact["quality"].get("observed").is_none() && exact["locks"][0].get("estimates").is_none());
    assert!(exact["threads"][0].get("estimated").is_none());
}

/// 3,200 holds of 20 ms are more than the 10 s that there were, of 2 ms they are not. Readers hold a lock together.
#[test]
fn one_thread_at_a_time_has_a_mutex() {
    let held = |mean: f64, kind: LockKind| {
        let mut o = sampled(true);
        o.sums.iter_mut().filter(|row| row.via != Via::Futex).for_each(|row| row.kind = kind);
        let mine = |subject: &Subject| *subject == Subject::Site(site(0x300));
        let figures = o.estimates.as_mut().unwrap().figures.iter_mut().filter(|(subject, _)| mine(subject));
        figures.for_each(|(_, of)| of.hold_mean_ns = around(mean, 0.05));
        text(&built(&o)).lines().find(|line| line.starts_with("fn3 ")).unwrap().to_owned()
    };
    for (mean, kind, told) in
        [(20e6, LockKind::Mutex, " ~10.0"), (2e6, LockKind::Mutex, " ~6.40"), (20e6, LockKind::Rwlock, " ~64.0")]
    {
        assert!(held(mean, kind).contains(told), "{}", held(mean, kind));
    }
}

/// Half of the waiting that was recorded was at a place that no window saw.
#[test]
fn waiting_where_no_window_saw_a_section_is_told_alone() {
    let places = [(0x400, 30), (0x500, 30)];
    let r = built(&slept(true, 50, Nanos(2_000 * MS), [3_200.0, 6_401.0].map(figures), figures(9_600.0), &places));
    let at = |symbol: &str| r.sites.iter().find(|s| s.symbol.starts_with(symbol)).unwrap();
    let unseen = at("fn5 ");
    assert_eq!((unseen.instances, unseen.hold_ns, unseen.wait_ns), (0, None, Ns::new(50_000 * MS)), "{unseen:#?}");
    assert_eq!((at("fn3 ").wait_ns, at("fn4 ").wait_ns), (Ns::default(), Ns::new(50_000 * MS)));
    assert_eq!(crate::report::violations(&r), Vec::<String>::new());
}

#[test]
fn the_table_marks_estimates() {
    let text = text(&built(&sampled(true)));
    for part in [
        "holds server back: 2 threads or more waited 100 s for it",
        "~9.60 k ±8 %",
        "~20.0 ms ±5 %",
        "~50 %",
        "Fully observed 3.1 % of the time (61 windows); observing cost 2.3 % of the target's CPU time (budget 3.0 %).",
        "are estimates from windows",
        "the rest was outside the windows",
    ] {
        assert!(text.contains(part) || text.replace('\n', " ").contains(part), "{part}\n{text}");
    }
}

#[test]
fn what_observing_took_is_told_once() {
    let taken = Taken { hits: 1_200, stepped: 3, records: 50, record_bytes: 3_200, futex_calls: 7, ..Taken::default() };
    let perturbation = Perturbation {
        taken,
        cost_ns: 20_000_000,
        hold_bias_ns: 900,
        target_cpu_ns: Some(1_000_000_000),
        measured: true,
        ..Perturbation::default()
    };
    let told = |target_cpu_ns, measured, sampled_too: bool| {
        let mut observation = if sampled_too { sampled(true) } else { Observation::clone(&server()) };
        observation.quality.perturbation = Some(Perturbation { target_cpu_ns, measured, ..perturbation });
        let report = built(&observation);
        text(&report).replace('\n', " ")
    };
    let rest = "1,200 probe hits (3 single-stepped), 7 futex calls and 50 records, for which 3,200 bytes were written.";
    for (text, wanted) in [
        (
            told(Some(1_000_000_000), true, false),
            format!("Observing cost about 2.0 % of the target's CPU time: {rest}"),
        ),
        (told(None, false, false), format!("Observing cost the target about 20.0 ms, by cautious prices: {rest}")),
        (told(Some(1_000_000_000), true, true), format!("Observing took {rest}")),
    ] {
        assert!(text.contains(&wanted), "{wanted}\n{text}");
    }
}

#[test]
fn thinned_waits_and_a_floor_above_the_budget_are_told() {
    let mut observation = sampled(true);
    let note =
        |observation: &Observation, part: &str| built(observation).quality.notes.iter().any(|n| n.contains(part));
    let (thinned, floor) = ("1 of 8 was recorded, weighted", "by itself, more than the budget of 3.0 %");
    assert!(!note(&observation, "was recorded, weighted") && !note(&observation, floor));
    observation.quality.counters.extend([("thinned", 700), ("futex_records", 100)]);
    let perturbation = |futex_cost_ns| Perturbation {
        taken: Taken { hits: 1, ..Taken::default() },
        cost_ns: 90_000_000,
        futex_cost_ns,
        target_cpu_ns: Some(1_000_000_000),
        measured: true,
        ..Perturbation::default()
    };
    observation.quality.perturbation = Some(perturbation(20_000_000));
    assert!(note(&observation, thinned) && !note(&observation, floor));
    observation.quality.perturbation = Some(perturbation(60_000_000));
    assert!(note(&observation, floor) && text(&built(&observation)).contains("700 waits thinned"));
}

#[test]
fn a_recording_that_broke_off_says_that_it_was_not_scaled() {
    let r = built(&sampled(false));
    let hot = r.locks.iter().find(|l| l.name == "global_1000").unwrap();
    assert_eq!((hot.acquisitions, hot.estimates), (Some(300), None));
    assert!(r.quality.notes.iter().any(|n| n.contains("has no estimates (it broke off")));
    assert_eq!(r.quality.observed.as_ref().unwrap().overall.windows, 61);
}

#[test]
fn runs_with_estimates_combine() {
    let r = combine(vec![built(&sampled(true)), built(&sampled(true))], &combine::Options::default());
    let hot = r.locks.iter().find(|l| l.name == "global_1000").unwrap();
    let made = hot.estimates.unwrap().acquisitions;
    assert_eq!((hot.acquisitions, made.value), (Some(9_600), 9_600.0));
    assert!((made.half_width() - 0.08 / 2f64.sqrt()).abs() < 1e-6, "{made:?}");
    let observed = r.quality.observed.unwrap();
    assert_eq!((observed.overall.windows, observed.overall.estimated), (122, true));
    // Beside an exact run.
    let r = combine(vec![built(&sampled(true)), report(&server())], &combine::Options::default());
    let hot = r.locks.iter().find(|l| l.name == "global_1000").unwrap();
    assert_eq!(hot.estimates.unwrap().acquisitions.value, (9_600.0 + 300.0) / 2.0);
}

#[test]
fn nothing_contended_is_told_with_as_much_doubt() {
    let mut o = observation();
    feed(&mut o, &section(0x1000, 11, 0x300, [1, 1, 2]), false);
    o.estimates = Some(Estimates {
        processes: vec![coverage()],
        figures: vec![(Subject::Lock(lock(0x1000)), figures(32.0))],
        complete: true,
        ..Estimates::default()
    });
    let verdict = verdict(&o);
    assert!(verdict.contains("No thread waited for a lock: about 32 acquisitions of 1 lock in 10.0 s"), "{verdict}");
}

/// Figures of a row of which windows saw this many sections.
fn any_figures(seen: f64) -> impl Strategy<Value = Figures> {
    (1.0..1e4, 0.0..3.0, 0.0..=1.0, 0.0..1e7, 1.0..50.0).prop_map(move |(times, width, share, hold, tail)| {
        let wide = |value: f64| Interval { value, low: value / (1.0 + width), high: value * (1.0 + width) };
        Figures {
            acquisitions: wide(seen * times),
            hold_mean_ns: wide(hold),
            hold_p99_ns: wide(hold * tail),
            contended_share: Interval { value: share, low: 0.0, high: 1.0 },
            wait_ns: Interval::default(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_estimated_can_be(
        rows in [any_figures(200.0), any_figures(100.0)],
        sleeps in 0u64..300,
        each in 0u64..1 << 32,
    ) {
        let made = rows[0].acquisitions.value + rows[1].acquisitions.value;
        let mean = |f: &Figures| f.acquisitions.value * f.hold_mean_ns.value / made;
        let hold = around(mean(&rows[0]) + mean(&rows[1]), 0.1);
        let all = Figures { acquisitions: around(made, 0.2), hold_mean_ns: hold, ..rows[0] };
        let r = built(&estimated(true, sleeps, Nanos(each), rows, all));
        prop_assert_eq!(crate::report::violations(&r), Vec::<String>::new());
        let hot = r.locks.iter().find(|l| l.name == "global_1000").unwrap();
        prop_assert!(hot.recorded_wait_ns <= hot.harm_ns + Ns::new(1));
    }
}

/// The estimated sum of nine holds is less than the longest of them.
#[test]
fn all_holds_are_no_shorter_than_the_longest() {
    let few = |acquisitions| Figures {
        hold_mean_ns: around(1_000.0, 0.1),
        hold_p99_ns: around(1_500.0, 0.1),
        ..figures(acquisitions)
    };
    let o = estimated(true, 2, Nanos(MS), [3.1, 6.3].map(few), few(9.4));
    let report = build(&o, &mut FakeNames, &Options::default()).unwrap();
    let lock = report.locks.iter().find(|lock| lock.name == "global_1000").unwrap();
    let hold = lock.hold_ns.unwrap();
    let each = hold.sum.as_f64() / lock.acquisitions.unwrap() as f64;
    assert!(hold.sum >= hold.max && (hold.mean.as_f64() - each).abs() <= 1.0, "{hold:?} of {:?}", lock.acquisitions);
}
