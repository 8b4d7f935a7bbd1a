//! Programs whose code another program translates, as valgrind and qemu do: they would die of probes.

use crate::harness::may_observe_alone;
use crate::harness::observer::{Observer, run};
use crate::harness::process::eventually;
use crate::harness::text::modified_bytes;
use crate::harness::workload::Workload;
use std::fs;
use std::process::{Child, Command};
use tempfile::TempDir;

/// Maps a file, all of it as code, and sleeps.
const TRANSLATOR: &str = "#include <fcntl.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
    int main(int argc, char **argv) { mmap(0, 2 << 20, 5, MAP_PRIVATE, open(argv[1], O_RDONLY), 0); sleep(60); }\n";

/// The C library that this process runs with.
fn c_library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("failed to read own mappings");
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.filter(|path| path.ends_with("/libc.so.6")).map(str::to_owned).next().expect("a C library")
}

/// A name alone stops nobody: what is called like a translator and runs its own code is observed like any program.
#[test]
fn a_program_that_is_only_called_like_a_translator() {
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = dir.path().join("qemu-x");
    fs::copy("/bin/sleep", &program).expect("failed to copy a program");
    let child = Command::new(&program).arg("60").spawn().expect("failed to start a program");
    await_c_library(&child);
    let outcome = run(&["--system-wide", "--budget", "off", "--duration", "1s"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_lives(child);
}

/// A program that seems to run under valgrind: its tools are installed and linked so, and have the C library of the program that they run in
/// their memory. Its directory lives as long as it.
fn under_valgrind() -> (Child, TempDir) {
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let valgrind = dir.path().join("valgrind");
    fs::create_dir(&valgrind).expect("failed to make a directory");
    let (source, tool) = (dir.path().join("tool.c"), valgrind.join("drd-amd64-linux"));
    fs::write(&source, TRANSLATOR).expect("failed to write a source text");
    let status = Command::new("gcc").args(["-static", "-o"]).args([&tool, &source]).status();
    assert!(status.expect("failed to run gcc").success());
    let child = Command::new(&tool).arg(c_library()).spawn().expect("failed to start a program");
    await_c_library(&child);
    (child, dir)
}

fn await_c_library(child: &Child) {
    eventually("it has mapped the library", || {
        fs::read_to_string(format!("/proc/{}/maps", child.id())).is_ok_and(|maps| maps.contains("libc.so.6"))
    });
}

fn assert_lives(mut child: Child) {
    assert!(child.try_wait().expect("it is ours").is_none(), "it lives on");
    child.kill().expect("failed to end a program");
    child.wait().expect("failed to collect a program");
}

/// None are placed in it.
#[test]
fn a_program_whose_code_is_translated() {
    let Some(_turn) = may_observe_alone() else { return };
    let (child, _dir) = under_valgrind();
    let pid = child.id().to_string();
    run(&["--pid", &pid, "--counters"]).assert_error(&[&pid, "valgrind", "--futex-only"]);
    let report = run(&["--pid", &pid, "--duration", "300ms"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    assert!(report.stdout.contains("valgrind"), "{}", report.stdout);
    assert_lives(child);
}

/// It is left out where every other program is observed, those that come later too.
#[test]
fn a_program_whose_code_is_translated_is_left_out() {
    let Some(_turn) = may_observe_alone() else { return };
    let (child, _dir) = under_valgrind();
    let mut old = Workload::start("counter 3 2 1000");
    let observer = Observer::start(&["--system-wide", "--budget", "off", "--format", "json"]);
    let mut new = Workload::start("counter 2 1 300");
    eventually("who came later has probes of its own", || modified_bytes(new.pid()) > 0);
    assert_eq!(modified_bytes(child.id()), 0, "its library is as it was");
    old.go();
    new.go();
    let truths = [&mut old, &mut new].map(Workload::truth);
    old.end();
    new.end();
    observer.interrupt();
    let report = observer.report();
    for truth in &truths {
        for lock in &truth.locks {
            assert_eq!(report.acquisitions_at(truth.pid, &lock.addr), lock.acquisitions, "{lock:?}");
        }
    }
    let pid = format!("pid {}", child.id());
    let left_out = report.quality.notes.iter().any(|note| note.contains(&pid) && note.contains("valgrind"));
    assert!(left_out, "{:?}", report.quality.notes);
    assert_lives(child);
}
