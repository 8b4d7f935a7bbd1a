//! What a report does not claim: that no lock is to blame where it cannot know, or that the target does what lockbpf makes it do.

use super::story::held;
use super::*;
use crate::graph::findings::Cause;
use crate::perturbation::{Perturbation, Taken};
use crate::quality::{FileHolder, KERNEL_LOCK, Unobserved, Unwatched};
use crate::report::combine;
use crate::report::schema::{Ns, UnwatchedEntry};
use lockbpf_common::kind::mutex_kind;

/// A lock that nobody waits for, and threads that wait 24 s for conditions at a site.
fn with_conditions(at: u64) -> Run {
    let mut o = observation();
    feed(&mut o, &section(0x1000, 11, 0x300, [1, 1, 2]), false);
    let idle = sums(&mut o, lock(0x9100), site(at), Via::CondWait);
    (idle.acquisitions, idle.mutex_kind) = (4, mutex_kind::IS_CONDVAR);
    (0..4).for_each(|_| idle.wait.add(Nanos(6_000 * MS)));
    o
}

/// The probes of a process that had no thread to keep them in place go a little after the end.
#[test]
fn no_time_is_unobserved_beyond_the_end() {
    let mut o = with_conditions(0x500);
    let end = o.duration().0;
    o.quality.unobserved.push(Unobserved { pid: 9, from_ns: end / 2, to_ns: Some(end + 1_000) });
    let r = report(&o);
    let [gap] = &r.quality.unobserved[..] else { panic!("{:?}", r.quality.unobserved) };
    assert_eq!((gap.from_ns, gap.to_ns), (Ns::new(end / 2), Some(Ns::new(end))));
    assert_eq!(crate::report::violations(&r), Vec::<String>::new());
}

#[test]
fn idle_workers_are_no_alarm() {
    let told = verdict(&with_conditions(0x500));
    let expected = "No thread waited for a lock: 1 acquisition of 1 lock in 10.0 s, none contended. Threads waited 24.0 s for conditions";
    assert!(
        told.starts_with(expected) && told.ends_with(": idle time, unless the program makes locks of conditions."),
        "{told}"
    );
    let sleep = report(&with_conditions(0x500)).quality.sleep.unwrap();
    assert_eq!((sleep.conditions_ns, sleep.parked_ns, sleep.unknown_ns), (ms(24_000), ms(0), ms(0)));
}

#[test]
fn nobody_is_acquitted_while_threads_wait_for_what_is_not_observed() {
    let unwatched = |threads| {
        let mut o = with_conditions(0x500);
        let found = Unwatched { pid: 1234, call: "flock".to_owned(), looks: 8, threads, ..Unwatched::default() };
        o.quality.unwatched = vec![found.clone(), Unwatched { call: "semop".to_owned(), threads: 0, ..found }];
        o
    };
    let told = verdict(&unwatched(20));
    let expected = "Cannot tell whether a lock holds server back: looks at the threads found on average 2.5 of `server` asleep in `flock` \
                    (8 looks); locks of files and semaphores of System V are not observed otherwise. No thread waited for a lock that was \
                    seen: 1 acquisition";
    assert!(told.starts_with(expected), "{told}");
    let one = report(&unwatched(20));
    assert_eq!(one.quality.unwatched.len(), 1);
    let two = combine::combine(vec![one.clone(), one], &combine::Options::default()).quality.unwatched;
    assert_eq!((two[0].looks, two[0].found, two[0].threads), (16, 40, 2.5));
    // Once is no evidence.
    assert!(verdict(&unwatched(1)).starts_with("No thread waited for a lock: "));
    let mut files = unwatched(20);
    let holder = FileHolder { pid: 7, comm: "backup".to_owned(), looks: 3, of_looks: 4 };
    let first =
        Unwatched { file: Some("/srv/lock".to_owned()), holder: Some(holder), ..files.quality.unwatched[0].clone() };
    files.quality.unwatched = vec![first.clone(), Unwatched { pid: 5, threads: 8, holder: None, ..first }];
    let mut quality = report(&files).quality;
    quality.unwatched[1].comm = quality.unwatched[0].comm.clone();
    let expected = "3.5 of `server` (2 processes) asleep in `flock` for the lock of `/srv/lock` (8 looks; backup (pid 7) had it most often)";
    let told = unwatched::found(&quality, 0.5).expect("they wait");
    assert!(told.contains(expected), "{told}");
    // Each file alone is little; one thread that was met once is nothing.
    let rows = quality.unwatched.clone();
    quality.unwatched[1].file = Some("/srv/other".to_owned());
    let told = unwatched::found(&quality, 3.0).expect("they wait");
    assert!(told.contains("for the locks of 2 files, most for that of `/srv/lock`"), "{told}");
    quality.unwatched = vec![UnwatchedEntry { found: 1, threads: 0.1, ..rows[0].clone() }];
    assert_eq!(unwatched::found(&quality, 0.01), None);
    let mut kernels = unwatched(20);
    kernels.quality.unwatched[0].call = KERNEL_LOCK.to_owned();
    let told = verdict(&kernels);
    assert!(
        told.contains(
            "2.5 of `server` asleep for locks of the kernel (8 looks), of which `--kernel-locks` tells more."
        ),
        "{told}"
    );
    let mut held = unwatched(20);
    feed(&mut held, &section(0x1000, 11, 0x300, [0, 0, 5_000]), true);
    feed(&mut held, &section(0x1000, 12, 0x400, [0, 5_000, 5_100]), true);
    let told = verdict(&held);
    assert!(told.contains("holds server back") && told.contains("Besides, looks at the threads found"), "{told}");
}

#[test]
fn who_had_just_been_woken_may_have_waited_for_work_otherwise() {
    // The waiter asks at 0x400, for 5 s; threads wait for a condition there, or elsewhere.
    let contended = |condition: u64| {
        let mut o = with_conditions(condition);
        feed(&mut o, &section(0x1000, 11, 0x300, [0, 0, 5_000]), true);
        feed(&mut o, &section(0x1000, 12, 0x400, [0, 5_000, 5_001]), true);
        report(&o)
    };
    let report = contended(0x400);
    let told = report.verdict.join(" ");
    assert!(told.contains("Most waited for is `global_1000` (mutex): 1 thread waited 5.00 s for it"), "{told}");
    let expected = "100 % of that waiting is of threads that a condition had just woken, and threads waited 24.0 s for conditions besides";
    assert!(told.contains(expected), "{told}");
    assert_eq!(report.locks[0].woken_wait_ns, ms(5_000));
    // Where the place of most of the waiting is not known, the rest speaks for it.
    let mut part = report.clone();
    part.locks[0].recorded_wait_ns = ms(20_000);
    let told = woken::sentence(&part, &part.locks[0]).unwrap();
    assert!(told.starts_with("100 % of that waiting, as far as its places are known (of 25 % of it), is"), "{told}");
    part.locks[0].recorded_wait_ns = ms(60_000);
    assert_eq!(woken::sentence(&part, &part.locks[0]), None);
    let report = contended(0x500);
    let told = report.verdict.join(" ");
    assert!(told.contains("`global_1000` (mutex) holds server back") && !told.contains("woken"), "{told}");
    assert!(report.locks[0].woken_wait_ns.is_zero());
}

#[test]
fn threads_that_a_runtime_parks_may_wait_for_its_locks() {
    let mut o = with_conditions(PARK);
    let expected = "Cannot tell whether a lock holds server back: threads slept 24.0 s in 10.0 s in `Parker::park";
    assert!(verdict(&o).starts_with(expected), "{}", verdict(&o));
    // Nor does a little waiting elsewhere acquit.
    feed(&mut o, &section(0x1000, 11, 0x300, [10, 10, 20]), true);
    feed(&mut o, &section(0x1000, 12, 0x400, [15, 20, 21]), true);
    let told = verdict(&o);
    assert!(told.starts_with(expected) && told.contains("Of the locks seen the most waited-for one"), "{told}");
    assert!(!told.contains("No lock holds"), "{told}");
    assert_eq!(report(&o).quality.sleep.unwrap().parked_ns, ms(24_000));
}

#[test]
fn what_observing_did_is_said_at_once() {
    let mut o = observation();
    (0..100).for_each(|i| feed(&mut o, &section(0x1000, 11, 0x300, [i * 10, i * 10, i * 10 + 1]), false));
    let perturbed = |cost_share: f64| {
        let mut o = o.clone();
        o.quality.perturbation = Some(Perturbation {
            taken: Taken { hits: 1, ..Taken::default() },
            cost_ns: (cost_share * 1e10) as u64,
            hold_bias_ns: 900_000,
            target_cpu_ns: Some(10_000_000_000),
            measured: true,
            ..Perturbation::default()
        });
        o
    };
    let told = verdict(&perturbed(0.25));
    let expected = "Observed at 25 % of its CPU time, 25 % of a CPU: about 900 µs of each hold is lockbpf's own; the default budget shows";
    assert!(told.contains(expected), "{told}");
    // A program that does nearly nothing: a great part of that is no reason to distrust what nobody waited for.
    let mut idle = perturbed(0.6);
    idle.quality.perturbation.iter_mut().for_each(|p| (p.cost_ns, p.target_cpu_ns) = (20_000_000, Some(33_333_333)));
    let idle = report(&idle);
    assert!(
        idle.verdict.join(" ").contains("Observed at 60 % of its CPU time, 0.2 % of a CPU: about"),
        "{:?}",
        idle.verdict
    );
    assert!(!idle.quality.distrust.is_some_and(|distrust| distrust.unranked));
    let told = verdict(&perturbed(0.02));
    assert!(told.contains("more than a fifth of the median hold of `global_1000`"), "{told}");
    assert!(report(&perturbed(0.02)).verdict[1].starts_with("Observing makes each section about"), "{told}");
    let distrust = report(&perturbed(0.25)).quality.distrust.unwrap();
    assert_eq!((distrust.cost_share, distrust.lengthened[0].median_hold_ns), (Some(0.25), Ns::new(100_000)));
    assert_eq!(report(&o).quality.distrust, None);
}

/// A lock with a median hold that observing doubled, and one long hold for which somebody waited: that wait is not of observing.
#[test]
fn contention_that_long_holds_make_is_not_said_to_be_of_observing() {
    let mut o = observation();
    (0..100).for_each(|i| feed(&mut o, &section(0x1000, 11, 0x300, [i * 10, i * 10, i * 10 + 1]), false));
    feed(&mut o, &section(0x1000, 11, 0x300, [2_000, 2_000, 7_000]), true);
    feed(&mut o, &section(0x1000, 12, 0x400, [2_001, 7_000, 7_001]), true);
    let perturbed = |cost_ns: u64, target_cpu_ns: u64, o: &Run| {
        let mut o = o.clone();
        o.quality.perturbation = Some(Perturbation {
            taken: Taken { hits: 1, ..Taken::default() },
            cost_ns,
            hold_bias_ns: 500_000,
            target_cpu_ns: Some(target_cpu_ns),
            measured: true,
            ..Perturbation::default()
        });
        o
    };
    let told = verdict(&perturbed(600_000_000, 2_000_000_000, &o));
    let expected = "Observed at 30 % of its CPU time: about 500 µs of each hold of `global_1000` is lockbpf's own, but hardly any of the \
                    waiting for it; the default";
    assert!(told.contains(expected), "{told}");
    // Beside one for which nobody waits that long.
    (0..100).for_each(|i| feed(&mut o, &section(0x2000, 13, 0x500, [i * 10, i * 10, i * 10 + 1]), false));
    let told = verdict(&perturbed(600_000_000, 2_000_000_000, &o));
    let expected = "contention of short sections (`lock in fn5 (work.c:5)`) is in part lockbpf's own, and about 500 µs of each hold of \
                    `global_1000`, `lock in fn5 (work.c:5)`; the default";
    assert!(told.contains(expected), "{told}");
    let told = report(&perturbed(600_000_000, 2_000_000_000, &o)).quality.distrust.unwrap();
    assert_eq!(told.lengthened.iter().map(|lock| lock.may_make_wait).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn what_waits_dwarf_made_none_of_them() {
    // Half of the CPU time, but 10 ms beside 7.2 s of waiting.
    let little = |hold_bias_ns| {
        let mut o = waited_for(0.5, hold_bias_ns);
        o.quality.perturbation.iter_mut().for_each(|p| (p.cost_ns, p.target_cpu_ns) = (10_000_000, Some(20_000_000)));
        o
    };
    let said =
        "Observed at 50 % of its CPU time; threads waited 720 times as long as that took, so waits are not of that.";
    let mut o = little(900);
    let told = report(&o);
    let distrust = told.quality.distrust.as_ref().unwrap();
    assert_eq!((distrust.cost_share, distrust.times_waited, distrust.unranked), (Some(0.5), Some(720), false));
    assert_eq!(told.verdict[1], said);
    assert!(text(&told).contains("Critical sections by"));
    // Holds are longer all the same.
    let longer = &report(&little(10_000_000)).verdict[1];
    assert!(
        longer.starts_with(said)
            && longer
                .contains("About 10.0 ms of each hold of `global_1000`, `lock in fn6 (work.c:6)` is lockbpf's own"),
        "{longer}"
    );
    o.quality.perturbation.iter_mut().for_each(|p| (p.cost_ns, p.target_cpu_ns) = (1_000_000_000, Some(2_000_000_000)));
    assert!(report(&o).quality.distrust.is_some_and(|distrust| distrust.unranked));
}

#[test]
fn what_is_waited_for_sleepers_is_not_of_observing() {
    let told = |asleep| {
        let mut o = held(&[(Cause::Sleeping, asleep, None), (Cause::Running, 6_000 - asleep, None)]);
        o.quality.perturbation = waited_for(0.6, 900).quality.perturbation;
        report(&o)
    };
    let ranked = told(5_700);
    let distrust = ranked.quality.distrust.as_ref().unwrap();
    assert_eq!((distrust.off_cpu_share, distrust.times_waited, distrust.unranked), (Some(0.95), None, false));
    let said = "Observed at 60 % of its CPU time; during 95 % of the waiting whoever is to blame was asleep or blocked, so that is not of \
                observing.";
    assert!(ranked.verdict.iter().any(|sentence| sentence.starts_with(said)), "{:?}", ranked.verdict);
    let distrust = told(5_300).quality.distrust.unwrap();
    assert_eq!((distrust.off_cpu_share, distrust.unranked), (None, true));
}

/// 100 holds of 40 ms, for each of which others wait; what observing took, and added to each hold.
fn waited_for(cost_share: f64, hold_bias_ns: u64) -> Run {
    let mut o = server();
    o.quality.perturbation = Some(Perturbation {
        taken: Taken { hits: 1, ..Taken::default() },
        cost_ns: (cost_share * 1e10) as u64,
        hold_bias_ns,
        target_cpu_ns: Some(10_000_000_000),
        measured: true,
        ..Perturbation::default()
    });
    o
}

#[test]
fn waits_and_holds_are_told_as_seen_and_without_the_observer() {
    let report = report(&waited_for(0.05, 4_000_000));
    let lock = &report.locks[0];
    let left = lock.corrected.unwrap();
    // 300 holds are too long by 4 ms; 200 waits at least as much.
    assert_eq!((lock.hold_ns.unwrap().sum, left.hold_ns), (ms(6_800), ms(5_600)));
    assert!(left.wait_ns <= ms(6_400) && left.wait_ns > ms(5_000) && left.contended == 200, "{left:?}");
    assert_eq!(lock.wait_ns.sum, ms(7_200));
    let text = text(&report);
    assert!(text.contains("Without") && text.contains("lockbpf"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["sites"][0]["corrected"]["hold_ns"].as_f64() < json["sites"][0]["hold_ns"].as_f64());
    // Where it changes next to nothing, there is no column for it.
    assert!(!self::text(&self::report(&waited_for(0.05, 900))).contains("Without"));
    assert_eq!(self::report(&server()).locks[0].corrected, None);
}

#[test]
fn sections_that_observing_made_are_not_ranked() {
    let report = report(&waited_for(0.4, 900));
    assert!(report.quality.distrust.as_ref().unwrap().unranked);
    let told = report.verdict.join(" ");
    assert!(
        told.contains("sections are not ranked. Observe within the default budget instead, without `--budget off`."),
        "{told}"
    );
    assert!(!told.contains("caused by") && !text(&report).contains("Critical sections by"), "{told}");
    assert!(!self::report(&waited_for(0.3, 900)).quality.distrust.unwrap().unranked);
    // By cautious prices it is not known to be so much.
    let cautious = |cost_share| {
        let mut o = waited_for(cost_share, 900);
        o.quality.perturbation.iter_mut().for_each(|p| p.measured = false);
        self::report(&o).quality.distrust.unwrap().unranked
    };
    assert_eq!([0.4, 0.7].map(cautious), [false, true]);
}

/// Records that were lost, so that most of the waiting was not recorded.
#[test]
fn an_unknown_culprit_is_said_to_be_so_and_what_would_tell() {
    let mut o = observation();
    for i in 0..20 {
        let t = i * 400;
        feed(&mut o, &section(0x1000, 11, 0x300, [t, t, t + 200]), i < 5);
        feed(&mut o, &section(0x1000, 12, 0x400, [t + 100, t + 200, t + 300]), i < 5);
    }
    o.quality.counters.insert("ring_full", 30);
    let expected = "The culprit is not known yet: who caused 75 % of all waiting was not seen. What would tell: an observation that loses no \
                    records (see the quality line). 25 % of all waiting is caused by `fn3` holding `global_1000` at work.c:3; what it did \
                    meanwhile is not known. `global_1000` is waited for in fn4 (work.c:4).";
    assert!(verdict(&o).starts_with(expected), "{}", verdict(&o));
    let report = report(&o);
    assert_eq!(report.totals.attribution.unknown_ns, ms(1_500));
    assert!((report.culprits[0].share_of_all - 0.25).abs() < 1e-9 && report.culprits[0].share > 0.99);
}

#[test]
fn sleep_that_outweighs_the_waiting_for_locks_is_told_besides_or_at_first() {
    let waited_and_slept = |ms: u64, slept: u64| {
        let mut o = observation();
        feed(&mut o, &section(0x1000, 11, 0x300, [0, 0, ms]), true);
        feed(&mut o, &section(0x1000, 12, 0x500, [0, ms, ms]), true);
        let word = sums(&mut o, lock(0xa000), site(0), Via::Futex);
        (word.acquisitions, word.mutex_kind) = (1, mutex_kind::IS_FUTEX);
        word.wait.add(Nanos(slept * MS));
        o.events.push(Event::FutexWait(futex_wait(0xa000, 14, 0, 13, slept)));
        verdict(&o)
    };
    let waited = |ms| waited_and_slept(ms, 4_000);
    let besides = "Besides, threads slept 4.00 s in 10.0 s in ";
    assert!(waited(500).contains("holds server back: 1 thread waited 500 ms") && waited(500).contains(besides));
    // The threads slept 19 and 21 times as long as they waited for locks.
    let verdicts = [310, 290].map(|ms| waited_and_slept(ms, 6_000));
    assert!(verdicts[0].contains("holds server back"), "{}", verdicts[0]);
    assert!(
        verdicts[1].starts_with("Cannot tell whether a lock holds server back: threads slept 6.00 s"),
        "{}",
        verdicts[1]
    );
    assert!(!waited(2_000).contains(besides), "{}", waited(2_000));
}
