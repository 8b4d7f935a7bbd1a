//! Locks that are not observed, of files and of System V: nobody is acquitted while threads wait for them.

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
        assert!(verdict.contains(&format!("in `{call}` of `unwatched`")), "{verdict}");
    }
}
