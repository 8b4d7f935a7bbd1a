//! Locks that are not observed, of files, of System V and of the kernel: nobody is acquitted while threads wait for them.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as};
use std::process::{Command, Stdio};

#[test]
fn waits_for_locks_of_files_are_found() {
    let Some(_turn) = may_observe() else { return };
    for call in ["flock", "fcntl", "semop"] {
        let (truth, report) = observe_as(&format!("unwatched {call} 2000"), Variant::Plain, &[]);
        let [found] = report.quality.unwatched.as_slice() else { panic!("{:?}", report.quality.unwatched) };
        // Before they begin, they are looked at, too.
        assert!(found.call == call && (1.0..=3.0).contains(&found.threads) && found.looks >= 3, "{found:?}");
        let verdict = report.verdict.join(" ");
        assert!(verdict.contains("Cannot tell whether a lock holds"), "{verdict}");
        assert!(verdict.contains(&format!("of `unwatched` asleep in `{call}`")), "{verdict}");
        // Nothing tells who has a semaphore; locks of open files are nobody's.
        let is_file = call != "semop";
        assert_eq!(
            found.file.as_ref().map(|file| file.starts_with("/tmp/lockbpf-unwatched-")),
            is_file.then_some(true)
        );
        assert_eq!(verdict.contains("for the lock of `/tmp/lockbpf-unwatched-"), is_file, "{verdict}");
        let holder = found.holder.as_ref().map(|holder| holder.pid);
        assert_eq!(holder, (call == "flock").then_some(truth.pid), "{found:?}");
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

/// A server's parent that only waits for its workers uses no locks. Whoever observes it is told of the workers.
#[test]
fn processes_that_an_idle_one_has_started_are_named() {
    let Some(_turn) = may_observe() else { return };
    let mut parent = Command::new("sh").args(["-c", "cat; :"]).stdin(Stdio::piped()).spawn().expect("a shell");
    let report = Observer::start(&["--pid", &parent.id().to_string(), "--duration", "1s", "--format", "json"]).report();
    let named = |note: &String| note.contains("1 process that is not observed, named cat: `--system-wide --comm cat`");
    assert!(report.quality.notes.iter().any(named), "{:?}", report.quality.notes);
    drop(parent.stdin.take());
    parent.wait().expect("the shell ends");
}
