//! Names of locks, one for each place that a lock can be in: those that the workloads say, and the same in every run.

use crate::harness::build::{Variant, compile};
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as};
use crate::harness::privilege::{installed, is_root, skipped};
use crate::harness::report::Report;
use crate::harness::workload::{Truth, Workload, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Observes a workload; its names are those that it says, which do not depend on the run. Yields the names of all locks.
fn once(mut command: Command, check: impl Fn(&Truth, &Report)) -> Vec<String> {
    let mut workload = Workload::launch(&mut command);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    check(&truth, &report);
    let mut names: Vec<_> = report.names().into_iter().map(str::to_owned).collect();
    names.sort();
    names
}

/// The same in two runs: also locks that are not the workload's own have the same names.
fn twice(command: impl Fn() -> Command, check: impl Fn(&Truth, &Report)) {
    assert_eq!(once(command(), &check), once(command(), &check));
}

/// Demands that every lock has the name that the workload says.
fn assert_names(truth: &Truth, report: &Report) {
    for lock in &truth.locks {
        let found = report.at(truth.pid, &lock.addr);
        assert_eq!(Some(&found.name), lock.symbol.as_ref(), "{:?}", report.names());
        assert_eq!(found.acquisitions, lock.acquisitions, "{}", found.name);
    }
    assert!(!truth.locks.is_empty());
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads").join(name)
}

fn tool(program: &Path, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().expect("failed to run a tool");
    assert!(output.status.success(), "{program:?} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_storage_class_in_c() {
    let Some(_turn) = may_observe() else { return };
    twice(|| command("names", Variant::Plain), assert_names);
    for variant in [Variant::Fixed, Variant::Static] {
        once(command("names", variant), assert_names);
    }
}

#[test]
fn cpp_members() {
    let Some(_turn) = may_observe() else { return };
    let Some(compiler) = installed("g++") else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = dir.path().join("names");
    let options = ["-O2", "-g", "-pthread", "-o"].map(Path::new);
    tool(&compiler, &[&options[..], &[&program, &source("names.cc")]].concat());
    twice(|| Command::new(&program), assert_names);
}

#[test]
fn rust_members() {
    let Some(_turn) = may_observe() else { return };
    let Some(compiler) = installed("rustc") else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = dir.path().join("names");
    let options = ["-O", "-g", "--crate-name", "names", "-o"].map(Path::new);
    tool(&compiler, &[&options[..], &[&program, &source("names.rs")]].concat());
    let check = |truth: &Truth, report: &Report| {
        for name in truth.locks.iter().filter_map(|lock| lock.symbol.as_deref()) {
            assert_eq!(report.named(name).pid, truth.pid);
        }
    };
    // Which of the runtime's own futex words are waited for depends on the run.
    once(Command::new(&program), check);
    once(Command::new(&program), check);
}

/// A stripped workload in a directory, and its debug file beside it.
fn stripped(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let (objcopy, strip) = (installed("objcopy")?, installed("strip")?);
    let (program, debug) = (dir.join("names"), dir.join("names.debug"));
    fs::copy(compile("names", Variant::Plain), &program).expect("failed to copy a workload");
    tool(&objcopy, &[Path::new("--only-keep-debug"), &program, &debug]);
    tool(&strip, &[&program]);
    let link = PathBuf::from(format!("--add-gnu-debuglink={}", debug.display()));
    tool(&objcopy, &[&link, &program]);
    Some((program, debug))
}

#[test]
fn a_debug_file_beside_a_stripped_program() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let Some((program, _)) = stripped(dir.path()) else { return };
    once(Command::new(&program), assert_names);
}

/// The directory is one of the target's own mount namespace: outside of it is nothing.
#[test]
fn a_debug_file_by_its_build_id() {
    let Some(_turn) = may_observe() else { return };
    if !is_root() {
        return skipped("not root: no mount namespaces");
    }
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let Some((program, debug)) = stripped(dir.path()) else { return };
    let Some(readelf) = installed("readelf") else { return };
    let notes = Command::new(readelf).arg("-n").arg(&program).output().expect("failed to run readelf");
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let id = notes.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a build id");
    let moved = dir.path().join("elsewhere");
    fs::rename(&debug, &moved).expect("failed to move a debug file");
    let place = format!("/usr/lib/debug/.build-id/{}", &id[..2]);
    let script = format!(
        "set -e; mkdir -p /usr/lib/debug; mount -t tmpfs none /usr/lib/debug; mkdir -p {place}; cp {} {place}/{}.debug; exec {}",
        moved.display(),
        &id[2..],
        program.display()
    );
    let mut enter = Command::new("unshare");
    enter.args(["-m", "sh", "-c", &script]);
    once(enter, assert_names);
    assert!(!Path::new(&format!("{place}/{}.debug", &id[2..])).exists());
}

/// Nothing tells where its functions begin but unwind information.
#[test]
fn functions_of_a_stripped_program() {
    let Some(_turn) = may_observe() else { return };
    for options in [&["--budget", "off"][..], &["--budget", "3%"], &["--futex-only"]] {
        let (truth, report) = observe_as("nameless 300", Variant::Stripped, options);
        let name = |fact| format!("nameless+{:#x}", truth.fact(fact));
        let lock = report.at(truth.pid, &truth.locks[0].addr);
        let holders: Vec<_> = lock.holders.iter().map(|holder| (holder.symbol.clone(), holder.share)).collect();
        let share = |name| holders.iter().find(|(symbol, _)| *symbol == name).map_or(0.0, |(_, share)| *share);
        let (two, one) = (share(name("in_two_ways")), share(name("in_one_way")));
        assert!(two > 0.55 && one > 0.05, "{options:?}: {holders:?} of {truth:?}");
        let of = |name| holders.iter().filter(|(symbol, _)| *symbol == name).count();
        assert_eq!((of(name("in_two_ways")), of(name("in_one_way"))), (1, 1), "{options:?}: {holders:?}");
        assert!(two + one > 0.9, "{options:?}: {holders:?}");
    }
}
