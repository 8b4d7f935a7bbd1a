//! Barriers: looked at in the middle of their rounds, and those that languages make of other things.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as};
use crate::harness::workload::Workload;

const ATTACHES: usize = 5;

#[test]
fn the_slow_thread_is_the_culprit_whenever_observing_begins() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("rounds 4 30 25000");
    workload.go();
    for options in [&[][..], &["--budget", "3%"]] {
        attach_in_the_middle(&workload, options);
    }
    workload.running.signal(nix::sys::signal::Signal::SIGKILL);
}

fn attach_in_the_middle(workload: &Workload, options: &[&str]) {
    let mut told = 0.0;
    let mut lasted = 0.0;
    for _ in 0..ATTACHES {
        let report = Observer::of(workload.pid(), &[&["--duration", "1s"], options].concat()).report();
        let culprit = report.culprits.first().expect("somebody is waited for");
        assert_eq!((culprit.function.as_deref(), culprit.name.as_str()), (Some("slow_part"), "meeting"));
        assert!(culprit.share > 0.8, "{options:?}: {culprit:?}");
        let barrier = report.named("meeting");
        told += barrier.wait_ns.sum;
        lasted += report.quality.duration_ns as f64;
    }
    // Four threads wait nearly all the time, but in the rounds in progress when observing begins and ends.
    let rate = told / lasted;
    assert!((3.0..=4.0).contains(&rate), "{options:?}: {rate} s of waiting a second");
}

#[test]
fn barriers_of_languages_are_known_by_their_sleepers() {
    let Some(_turn) = may_observe() else { return };
    for line in ["meeting 12", "meeting_rust"] {
        for options in [&[][..], &["--futex-only"]] {
            let (truth, report) = observe_as(line, Variant::Plain, options);
            assert_complete(&report);
            let told: Vec<_> = report.locks.iter().filter(|lock| lock.kind == "barrier").collect();
            let waited: f64 = told.iter().map(|lock| lock.harm_ns).sum();
            let share = waited / truth.fact("waited_ns") as f64;
            // C++'s threads yield four times before they sleep, which takes up to 12 of the 200 ms where others want the CPUs.
            assert!((0.9..1.01).contains(&share), "{line} {options:?}: {share} of {truth:?}");
            let [culprit, ..] = report.culprits.as_slice() else { panic!("{line}: {:?}", report.verdict) };
            let named = culprit.function.as_deref().is_some_and(|function| function.contains("come_late"));
            assert!(named && culprit.share_of_all > 0.9, "{line} {options:?}: {culprit:?}");
            let verdict = report.verdict.join(" ");
            assert!(verdict.contains("of all waiting: 3 threads wait at barrier `"), "{verdict}");
            assert!(verdict.contains("come_late") && verdict.contains("the last to arrive"), "{verdict}");
        }
    }
}
