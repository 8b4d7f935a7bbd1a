//! What begins, or is loaded, while an observation runs: how soon it is seen is told by counts. A workload that locks at a steady rate
//! for three seconds must be missing less than half of its acquisitions, however busy the machine; how long it took is printed.

use crate::harness::build::{Variant, compile};
use crate::harness::may_observe_alone;
use crate::harness::observer::Observer;
use crate::harness::privilege::{is_root, skipped};
use crate::harness::process::Running;
use crate::harness::report::Report;
use crate::harness::workload::{Truth, Workload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WORKLOAD: [&str; 2] = ["500", "3"];
/// Acquisitions in a second.
const RATE: f64 = 500.0;
/// The programs' locks are known by name, since pids differ between namespaces.
const LOCK: &str = "ticking_lock";

/// The C library that workloads use.
fn c_library() -> PathBuf {
    let output = Command::new("ldd").arg(compile("ticker", Variant::Plain)).output().expect("failed to run ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().find(|word| word.ends_with("/libc.so.6")).expect("a workload has a C library").into()
}

/// A root directory with the workload, as `/workload`, and copies of its libraries: files that nobody else maps.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("failed to make a directory");
    let program = compile("ticker", Variant::Plain);
    let output = Command::new("ldd").arg(&program).output().expect("failed to run ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for file in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.path().join(&file[1..]);
        fs::create_dir_all(to.parent().expect("a file has a directory")).expect("failed to make a directory");
        fs::copy(file, to).expect("failed to copy a library");
    }
    fs::copy(program, root.path().join("workload")).expect("failed to copy a workload");
    root
}

/// A container, nearly: processes, mounts and files of its own.
fn container(root: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(root).arg("/workload").args(WORKLOAD);
    command
}

fn assert_seen_soon(truth: &Truth, report: &Report) {
    let (made, told) = (truth.lock(LOCK).acquisitions as f64, report.named(LOCK).stated_acquisitions());
    println!("seen after {:.2} s", (made - told.value) / RATE);
    assert!(told.low <= made * 1.01 && told.high >= made / 2.0, "{told:?} of {made}; {:?}", report.quality.notes);
}

/// Starts the command while the whole system is observed.
fn check(options: &[&str], command: &mut Command) {
    let observer = Observer::start(&[&["--system-wide", "--format", "json"], options].concat());
    let mut workload = Workload::launch(command);
    workload.go();
    let truth = workload.finish();
    observer.interrupt();
    assert_seen_soon(&truth, &observer.report());
}

#[test]
fn a_new_container() {
    let Some(_turn) = may_observe_alone() else { return };
    if !is_root() {
        return skipped("not root: no chroot and no namespaces");
    }
    let root = root();
    check(&[], &mut container(root.path()));
}

#[test]
fn a_new_container_within_a_budget() {
    let Some(_turn) = may_observe_alone() else { return };
    if !is_root() {
        return skipped("not root: no chroot and no namespaces");
    }
    let root = root();
    check(&["--budget", "50%"], &mut container(root.path()));
}

#[test]
fn a_new_static_program() {
    let Some(_turn) = may_observe_alone() else { return };
    check(&[], Command::new(compile("ticker", Variant::Static)).args(WORKLOAD));
}

#[test]
fn a_library_that_is_loaded_later() {
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let library = dir.path().join("libc.so.6");
    fs::copy(c_library(), &library).expect("failed to copy a library");
    let start = || {
        let mut command = Command::new(compile("ticker", Variant::Plain));
        Workload::launch(command.args(WORKLOAD).arg(&library))
    };
    let mut workload = start();
    let observer = Observer::start(&["--system-wide", "--format", "json"]);
    workload.go();
    let truth = workload.finish();
    observer.interrupt();
    assert_seen_soon(&truth, &observer.report());

    let mut workload = start();
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    assert_seen_soon(&truth, &observer.report());
}

#[test]
fn a_container_that_an_observed_process_starts() {
    let Some(_turn) = may_observe_alone() else { return };
    if !is_root() {
        return skipped("not root: no chroot and no namespaces");
    }
    let root = root();
    let script = format!("read go; chroot {} /workload {}; :", root.path().display(), WORKLOAD.join(" "));
    let mut shell = Running::start(Command::new("sh").args(["-c", &script]));
    let observer = Observer::of(shell.pid(), &["--follow-forks"]);
    shell.tell("\n");
    shell.out.find(|line| line == "ready").expect("the workload did not get ready");
    shell.tell("g");
    let line = shell.out.find(|line| Truth::parse(line).is_some()).expect("the workload ended without its truth");
    let truth = Truth::parse(&line).expect("the line was found for being the truth");
    shell.close_stdin();
    shell.wait();
    assert_seen_soon(&truth, &observer.report());
}

#[test]
fn a_program_and_a_library_that_are_gone() {
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let (program, library) = (dir.path().join("ticker"), dir.path().join("libc.so.6"));
    fs::copy(compile("ticker", Variant::Plain), &program).expect("failed to copy a workload");
    fs::copy(c_library(), &library).expect("failed to copy a library");
    let mut command = Command::new(&program);
    let mut workload = Workload::launch(command.args(["500", "1"]).env("LD_LIBRARY_PATH", dir.path()));
    fs::remove_file(&program).expect("failed to remove a file");
    // Replaced, as by an update: another file of the same name.
    fs::remove_file(&library).expect("failed to remove a file");
    fs::write(&library, "no library").expect("failed to write a file");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    let told = report.at(truth.pid, &truth.lock(LOCK).addr);
    assert_eq!(told.acquisitions, truth.lock(LOCK).acquisitions, "{:?}", report.quality.notes);
}
