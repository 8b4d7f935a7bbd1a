//! Targets with a root directory, a C library or a pid namespace of their own.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::{assert_complete, assert_locks};
use crate::harness::observer::Observer;
use crate::harness::privilege::{is_root, skipped};
use crate::harness::workload::{Workload, command};
use crate::harness::{Turn, may_observe, may_observe_alone};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The turn of a test that sets up containers, which only root may do.
pub(crate) fn may_contain() -> Option<Turn> {
    if_root(may_observe)
}

fn if_root<T>(turn: fn() -> Option<T>) -> Option<T> {
    if is_root() {
        return turn();
    }
    skipped("not root: no chroot and no namespaces");
    None
}

/// The files that a dynamic program maps, itself included, as `ldd` tells them.
fn files_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("failed to run ldd");
    let libraries = String::from_utf8_lossy(&output.stdout).into_owned();
    libraries.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Makes a root directory with a workload (as `/workload`) and its libraries, each placed there by `place`.
fn make_root(root: &Path, program: &Path, place: impl Fn(&Path, &Path)) {
    install(root, program, "workload", place);
}

/// Adds a program to a root directory, under a name, and its libraries, each placed there by `place`.
pub(crate) fn install(root: &Path, program: &Path, name: &str, place: impl Fn(&Path, &Path)) {
    for file in files_of(program) {
        let target = root.join(file.strip_prefix("/").expect("ldd tells absolute paths"));
        fs::create_dir_all(target.parent().expect("a file has a directory")).expect("failed to make a directory");
        place(&file, &target);
    }
    fs::copy(program, root.join(name)).expect("failed to copy a program");
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("failed to copy a library");
}

fn start_in(root: &Path, arguments: &[&str]) -> Workload {
    Workload::launch(Command::new("chroot").arg(root).arg("/workload").args(arguments))
}

#[test]
fn a_c_library_of_its_own() {
    let Some(_turn) = may_contain() else { return };
    let root = tempfile::tempdir().expect("failed to make a directory");
    make_root(root.path(), &compile("counter", Variant::Plain), copy);
    let mut workload = start_in(root.path(), &["3", "2", "1000"]);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    assert_locks(&truth, truth.pid, &report);
}

#[test]
fn one_library_under_two_names_is_counted_once() {
    let Some(_turn) = if_root(may_observe_alone) else { return };
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("failed to make a directory"));
    let program = compile("counter", Variant::Plain);
    make_root(first.path(), &program, copy);
    make_root(second.path(), &program, |file, to| {
        let copied = first.path().join(file.strip_prefix("/").expect("ldd tells absolute paths"));
        fs::hard_link(copied, to).expect("failed to link a library");
    });
    let mut workloads = [
        start_in(first.path(), &["2", "2", "1000"]),
        start_in(second.path(), &["2", "1", "700"]),
        Workload::start("counter 1 1 50"),
    ];
    let observer = Observer::start(&["--system-wide", "--format", "json"]);
    workloads.iter_mut().for_each(Workload::go);
    let truths = workloads.each_mut().map(Workload::finish);
    observer.interrupt();
    let report = observer.report();
    for truth in &truths {
        assert_locks(truth, truth.pid, &report);
    }
}

#[test]
fn a_pid_namespace_of_its_own() {
    let Some(_turn) = may_contain() else { return };
    let inner = command("culprit 5", Variant::Plain);
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(inner.get_program()).args(inner.get_args());
    let mut workload = Workload::launch(&mut unshare);
    let pid = only_child(workload.pid());
    let observer = Observer::of(pid, &[]);
    workload.go();
    let truth = workload.finish();
    assert_eq!(truth.pid, 1, "the first process of its namespace");
    let report = observer.report();
    assert_complete(&report);
    assert_locks(&truth, pid, &report);
    let holder = report.named("cache_lock").holders.first().and_then(|holder| holder.function.as_deref());
    assert_eq!(holder, Some("slow_holder"), "owner words are tids of the inner namespace");
}

/// The pid of the one child of a process.
fn only_child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("failed to list children");
    children.trim().parse().unwrap_or_else(|_| panic!("not one child: {children:?}"))
}
