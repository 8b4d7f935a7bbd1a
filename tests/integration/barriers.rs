//! Barriers that are looked at in the middle of their rounds.

use crate::harness::may_observe;
use crate::harness::observer::Observer;
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
