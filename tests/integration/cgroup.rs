//! Only the processes of a cgroup or a container: those that are there, those below, those that join, those born in it.

use crate::harness::build::{Variant, compile};
use crate::harness::cgroup::Cgroup;
use crate::harness::exact::assert_locks;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, run};
use crate::harness::workload::Workload;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

/// Long enough for a process that joins to be found, on a busy machine, too.
const LATER: Duration = Duration::from_secs(3);

/// A name that no other run of the tests uses.
fn unique(name: &str) -> String {
    format!("lockbpf-test-{}-{name}", std::process::id())
}

/// A workload that is born in a cgroup.
fn born_in(cgroup: &Cgroup, line: &str) -> Workload {
    let mut words = line.split_whitespace();
    let program = compile(words.next().expect("a workload has a name"), Variant::Plain);
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$0\" \"$@\"", cgroup.dir.display());
    Workload::launch(Command::new("sh").args(["-c", &script]).arg(program).args(words).env("LINGER", "1"))
}

/// Observes as `target` says; whoever is in the cgroup, or comes there, is told exactly, and nobody else.
fn check(cgroup: &Cgroup, target: &[&str], options: &[&str]) {
    let inner = cgroup.below("inner");
    let mut outside = Workload::start("counter 2 1 400");
    let mut there = born_in(cgroup, "counter 3 2 1000");
    let mut joins = Workload::start_lingering("counter 2 1 500");
    let observer = Observer::start(&[&["--format", "json"], target, options].concat());
    let mut below = born_in(&inner, "counter 2 2 700");
    cgroup.take_in(joins.pid());
    std::thread::sleep(LATER);
    for workload in [&mut outside, &mut there, &mut joins, &mut below] {
        workload.go();
    }
    let stranger = outside.finish();
    // They work for milliseconds only, and what is over before it is looked at has no names.
    let truths = [&mut there, &mut joins, &mut below].map(Workload::truth);
    std::thread::sleep(LATER);
    for workload in [&mut there, &mut joins, &mut below] {
        workload.end();
    }
    observer.interrupt();
    let report = observer.report();
    for truth in &truths {
        assert_locks(truth, truth.pid, &report);
    }
    assert!(report.locks.iter().all(|lock| lock.pid != stranger.pid), "a process outside of the cgroup was observed");
    let known: Vec<u32> = truths.iter().map(|truth| truth.pid).collect();
    assert!(report.locks.iter().all(|lock| known.contains(&lock.pid)), "{:?}", report.names());
}

#[test]
fn by_path() {
    let Some(_turn) = may_observe() else { return };
    let name = unique("path");
    let Some(cgroup) = Cgroup::make(&name) else { return };
    check(&cgroup, &["--cgroup", &format!("/{name}")], &[]);
}

#[test]
fn by_number_with_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    let Some(cgroup) = Cgroup::make(&unique("number")) else { return };
    let id = std::fs::metadata(&cgroup.dir).expect("the cgroup is there").ino().to_string();
    check(&cgroup, &["--cgroup", &id], &["--plain-uprobes"]);
}

#[test]
fn more_processes_than_have_probes_of_their_own() {
    let Some(_turn) = may_observe() else { return };
    let name = unique("many");
    let Some(cgroup) = Cgroup::make(&name) else { return };
    let mut inside: Vec<Workload> = (0..20).map(|_| born_in(&cgroup, "counter 1 1 200")).collect();
    let mut outside = Workload::start("counter 2 1 400");
    let observer = Observer::start(&["--format", "json", "--cgroup", &name]);
    inside.iter_mut().chain([&mut outside]).for_each(Workload::go);
    let truths: Vec<_> = inside.iter_mut().map(Workload::finish).collect();
    let stranger = outside.finish();
    observer.interrupt();
    let report = observer.report();
    for truth in &truths {
        assert_locks(truth, truth.pid, &report);
    }
    assert!(report.locks.iter().all(|lock| lock.pid != stranger.pid));
    assert!(report.quality.impossible.values().all(|&n| n == 0), "{:?}", report.quality.impossible);
}

/// An id whose first digits are those of this process.
fn container_id(last: char) -> String {
    format!("{:012x}{}", std::process::id(), last.to_string().repeat(52))
}

#[test]
fn by_container_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    let id = container_id('1');
    let Some(cgroup) = Cgroup::make(&format!("docker-{id}.scope")) else { return };
    let mut outside = Workload::start("ticker 500 2");
    let mut inside = born_in(&cgroup, "ticker 500 2");
    let observer = Observer::start(&["--container", &id[..12], "--budget", "50%", "--format", "json"]);
    outside.go();
    inside.go();
    let (stranger, truth) = (outside.finish(), inside.finish());
    observer.interrupt();
    let report = observer.report();
    let told = report.named("ticking_lock");
    assert_eq!(told.pid, truth.pid);
    told.stated_acquisitions().assert_near(truth.lock("ticking_lock").acquisitions as f64, 0.0, "acquisitions");
    assert!(report.locks.iter().all(|lock| lock.pid != stranger.pid));
}

#[test]
fn recorded() {
    let Some(_turn) = may_observe() else { return };
    let name = unique("recorded");
    let Some(cgroup) = Cgroup::make(&name) else { return };
    let mut outside = Workload::start("counter 2 1 400");
    let mut inside = born_in(&cgroup, "counter 2 1 600");
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let file = dir.path().join("t.bin").display().to_string();
    let observer = Observer::start(&["export", "--cgroup", &name, "--to", &file]);
    outside.go();
    inside.go();
    outside.finish();
    let truth = inside.finish();
    observer.interrupt();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = run(&["report", "--from", &file, "--format", "json"]).report();
    assert_locks(&truth, truth.pid, &report);
    assert!(report.locks.iter().all(|lock| lock.pid == truth.pid));
}

#[test]
fn what_is_not_one_cgroup_is_told() {
    let Some(_turn) = may_observe() else { return };
    run(&["--cgroup", "/no/such/cgroup"]).assert_error(&["/no/such/cgroup", "version 2"]);
    run(&["--container", "web"]).assert_error(&["web", "no container id", "hexadecimal"]);
    run(&["--container", "0123456789abcdef"]).assert_error(&["0123456789abcdef", "cgroups below"]);
    for other in [&["--", "true"][..], &["--pid", "1"], &["--system-wide"]] {
        let mut command = lockbpf();
        let output = command.args(["--cgroup", "/"]).args(other).output().expect("failed to run lockbpf");
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("--cgroup") && stderr.contains("cannot be used with"), "{stderr}");
    }
    let ids = ['2', '3'].map(container_id);
    let Some(_one) = Cgroup::make(&format!("libpod-{}.scope", ids[0])) else { return };
    let Some(_other) = Cgroup::make(&format!("cri-containerd-{}.scope", ids[1])) else { return };
    run(&["--container", &ids[0][..12]]).assert_error(&["more than one", &ids[0], &ids[1]]);
}
