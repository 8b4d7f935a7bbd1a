//! What cannot be observed is refused in a sentence that says why, with exit status 2: never an empty table.

use crate::harness::build::Variant;
use crate::harness::observer::{Outcome, lockbpf, run, run_command};
use crate::harness::privilege::{skipped, unprivileged};
use crate::harness::process::eventually;
use crate::harness::workload::Workload;
use crate::harness::{may_observe, turn};
use std::fs::{self, OpenOptions};
use std::process::Command;

const PF_KTHREAD: u64 = 0x0020_0000;

/// The flags of a process, field 9 of its `stat` file.
fn flags(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
}

#[test]
fn no_such_process() {
    let Some(_turn) = may_observe() else { return };
    let mut gone = Command::new("true").spawn().expect("failed to run true");
    let pid = gone.id().to_string();
    gone.wait().expect("failed to wait for true");
    run(&["--pid", &pid]).assert_error(&[&pid, "no such process"]);
}

#[test]
fn a_kernel_thread() {
    let Some(_turn) = may_observe() else { return };
    let processes = fs::read_dir("/proc").expect("failed to list /proc");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let Some(pid) = pids.into_iter().find(|&pid| flags(pid).is_some_and(|flags| flags & PF_KTHREAD != 0)) else {
        return skipped("no process in /proc has PF_KTHREAD set: a pid namespace hides the kernel's threads");
    };
    let pid = pid.to_string();
    run(&["--pid", &pid]).assert_error(&[&pid, "kernel thread"]);
}

#[test]
fn a_static_program_without_symbols() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start_as("counter 1 1 1", Variant::StaticStripped);
    let pid = workload.pid().to_string();
    run(&["--pid", &pid]).assert_error(&[&pid, "static", "symbol"]);
}

#[test]
fn a_program_without_a_c_library() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start_as("bare", Variant::Bare);
    let pid = workload.pid().to_string();
    run(&["--pid", &pid]).assert_error(&[&pid, "pthread"]);
}

/// A program under a translator of code dies of the breakpoints in it, so none are placed.
#[test]
fn a_program_whose_code_is_translated() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let valgrind = dir.path().join("valgrind");
    fs::create_dir(&valgrind).expect("failed to make a directory");
    // As valgrind's tools are installed.
    let tool = valgrind.join("drd-amd64-linux");
    fs::copy("/bin/sleep", &tool).expect("failed to copy a program");
    let mut child = Command::new(&tool).arg("60").spawn().expect("failed to start a program");
    let pid = child.id().to_string();
    eventually("the program runs", || {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("drd-amd64-linux"))
    });
    run(&["--pid", &pid]).assert_error(&[&pid, "valgrind", "--futex-only"]);
    run(&["--system-wide", "--budget", "off", "--duration", "1s"]).assert_error(&[&pid, "valgrind"]);
    child.kill().expect("failed to end a program");
    child.wait().expect("failed to collect a program");
}

#[test]
fn a_command_that_does_not_exist() {
    let Some(_turn) = may_observe() else { return };
    run(&["--", "/no/such/command"]).assert_error(&["/no/such/command", "no such file"]);
}

#[test]
fn a_device_that_is_full() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("counter 1 1 1");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("failed to open /dev/full");
    let output = lockbpf()
        .args(["--pid", &workload.pid().to_string(), "--duration", "100ms"])
        .stdout(full)
        .output()
        .expect("failed to run lockbpf");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Outcome { code: output.status.code(), stdout: String::new(), stderr }.assert_error(&["no space left"]);
}

#[test]
fn bad_usage() {
    let _turn = turn();
    for (arguments, named) in [
        (&["--pid", "many"][..], "many"),
        (&["--pid", "0"], "0"),
        (&["--pid", "1", "--duration", "5parsecs"], "5parsecs"),
        (&["--pid", "1", "--format", "papyrus"], "papyrus"),
        (&["--pid", "1", "--system-wide"], "--system-wide"),
        (&["--no-such-option"], "--no-such-option"),
        (&[], "--pid"),
    ] {
        run(arguments).assert_error(&[named]);
    }
}

#[test]
fn missing_rights_are_named() {
    let _turn = turn();
    let Some((_dir, mut command)) = unprivileged() else { return };
    let workload = Workload::start("counter 1 1 1");
    run_command(command.args(["--pid", &workload.pid().to_string()])).assert_error(&["CAP_BPF", "CAP_PERFMON"]);
}

#[test]
fn missing_rights_for_the_whole_system_are_named() {
    let _turn = turn();
    let Some((_dir, mut command)) = unprivileged() else { return };
    run_command(command.arg("--system-wide")).assert_error(&["CAP_BPF", "CAP_PERFMON"]);
}

#[test]
fn the_doctor_works_without_rights() {
    let _turn = turn();
    let Some((_dir, mut command)) = unprivileged() else { return };
    let outcome = run_command(command.arg("doctor"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("CAP_BPF"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("pthread_mutex_lock"), "{}", outcome.stdout);
}
