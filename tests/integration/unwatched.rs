//! Locks that are not observed, of files, of System V and of the kernel: nobody is acquitted while threads wait for them.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;

#[test]
fn waits_for_locks_of_files_are_found() {
    let Some(_turn) = may_observe() else { return };
    for call in ["flock", "fcntl", "semop"] {
        let (_, report) = observe_as(&format!("unwatched {call} 2000"), Variant::Plain, &[]);
        let [found] = report.quality.unwatched.as_slice() else { panic!("{:?}", report.quality.unwatched) };
        // Before they begin, they are looked at, too.
        assert!(found.call == call && (1.0..=3.0).contains(&found.threads) && found.looks >= 3, "{found:?}");
        let verdict = report.verdict.join(" ");
        assert!(verdict.contains("Cannot tell whether a lock holds"), "{verdict}");
        assert!(verdict.contains(&format!("of `unwatched` asleep in `{call}`")), "{verdict}");
    }
}

#[test]
fn waits_for_kernel_locks_are_found_and_left_out_where_these_are_observed() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("kernel_mmap 6 30000", Variant::Plain, &[]);
    let [found] = report.quality.unwatched.as_slice() else { panic!("{:?}", report.quality.unwatched) };
    assert!(found.call == "kernel lock" && found.threads > 0.1, "{found:?}");
    let verdict = report.verdict.join(" ");
    assert!(
        verdict.contains("asleep for locks of the kernel") && verdict.contains("`--kernel-locks` tells more"),
        "{verdict}"
    );
    let (_, report) = observe_as("kernel_mmap 6 5000", Variant::Plain, &["--kernel-locks"]);
    assert!(report.quality.unwatched.is_empty(), "{:?}", report.quality.unwatched);
}
