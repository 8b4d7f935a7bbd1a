//! What a report does not claim: that no lock is to blame where it cannot know, or that the target does what lockbpf makes it do.

use super::*;
use crate::perturbation::Perturbation;
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

#[test]
fn idle_workers_are_no_alarm() {
    let told = verdict(&with_conditions(0x500));
    let expected = "No thread waited for a lock: 1 acquisition of 1 lock in 10.0 s, none contended. Threads waited 24.0 s for conditions";
    assert!(told.starts_with(expected) && told.ends_with("which is idle time, not contention."), "{told}");
    let sleep = report(&with_conditions(0x500)).quality.sleep.unwrap();
    assert_eq!((sleep.conditions_ns, sleep.parked_ns, sleep.unknown_ns), (ms(24_000), ms(0), ms(0)));
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
            cost_ns: (cost_share * 1e10) as u64,
            hold_bias_ns: 900_000,
            target_cpu_ns: Some(10_000_000_000),
            measured: true,
            ..Perturbation::default()
        });
        o
    };
    let told = verdict(&perturbed(0.75));
    let expected = "Observed at 75 % of its CPU time: contention of short sections (`global_1000`) is lockbpf's own, and about 900 µs \
                    of each of their holds; the default budget shows";
    assert!(told.contains(expected), "{told}");
    let told = verdict(&perturbed(0.02));
    assert!(told.contains("more than a fifth of the median hold of `global_1000`"), "{told}");
    let distrust = report(&perturbed(0.75)).quality.distrust.unwrap();
    assert_eq!((distrust.cost_share, distrust.lengthened[0].median_hold_ns), (Some(0.75), Ns::new(100_000)));
    assert_eq!(report(&o).quality.distrust, None);
}
