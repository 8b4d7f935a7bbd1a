//! What cannot be observed is refused in a sentence that says why, with exit status 2: never an empty table.

use crate::harness::build::Variant;
use crate::harness::observer::{Observer, Outcome, lockbpf, run, run_command};
use crate::harness::privilege::{skipped, unprivileged};
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
    run(&["--pid", &pid, "--counters"]).assert_error(&[&pid, "static", "symbol"]);
}

#[test]
fn a_program_without_a_c_library() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start_as("bare", Variant::Bare);
    let pid = workload.pid().to_string();
    run(&["--pid", &pid, "--functions", "io"]).assert_error(&[&pid, "pthread"]);
}

#[test]
fn a_command_that_does_not_exist() {
    let Some(_turn) = may_observe() else { return };
    run(&["--", "/no/such/command"]).assert_error(&["/no/such/command", "no such file"]);
}

#[test]
fn a_thread_of_another_process() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("counter 1 1 1");
    let (pid, tid) = (workload.pid().to_string(), std::process::id().to_string());
    run(&["--pid", &pid, "--tid", &tid]).assert_error(&["--tid", &tid, &pid]);
    // Beyond the highest there is.
    run(&["--pid", &pid, "--tid", "33554432"]).assert_error(&["--tid 33554432", "no such thread"]);
    run(&["--system-wide", "--duration", "1s", "--tid", "33554432"]).assert_error(&["no such thread"]);
}

/// An empty report would say that there is nothing wrong.
#[test]
fn what_is_no_recording_makes_no_report() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let magic = b"\x89LBT\r\n\x1a\n".to_vec();
    let foreign: [(&str, Vec<u8>); 7] = [
        ("empty", Vec::new()),
        ("blank", b"\n \n\n".to_vec()),
        ("object", b"{}\n".to_vec()),
        ("report.json", b"{\n  \"schema\": \"lockbpf.report/1\",\n  \"locks\": []\n}\n".to_vec()),
        ("program", fs::read("/bin/true").expect("failed to read a program")),
        ("magic", magic.clone()),
        ("torn", [magic, vec![1, 0, 0, 0], vec![7; 300]].concat()),
    ];
    let good = dir.path().join("good.jsonl");
    let line = r#"{"t":1,"tid":1,"op":"attempt","lock":"L","site":"S"}"#;
    fs::write(&good, format!("{line}\n")).expect("failed to write a recording");
    let good = good.to_str().expect("a path in UTF-8");
    for (name, bytes) in foreign {
        for suffix in ["bin", "jsonl"] {
            let file = dir.path().join(format!("{name}.{suffix}"));
            fs::write(&file, &bytes).expect("failed to write a file");
            let file = file.to_str().expect("a path in UTF-8");
            let to = dir.path().join("to.jsonl");
            let written = to.to_str().expect("a path in UTF-8");
            for command in [
                &["report", "--from", file][..],
                &["report", "--from", good, file],
                &["diff", good, file],
                &["diff", file, good],
                &["what-if", "--from", file, "--auto"],
                &["predict", "--from", file],
                &["predict", "--model", file],
                &["advise", "--from", file],
                &["advise", "--from", good, "--trace", file],
                &["access", "--from", file, "--to", written],
                &["export", "--from", file, "--to", written],
            ] {
                let outcome = run(command);
                assert_eq!(outcome.code, Some(2), "{command:?}: {}{}", outcome.stdout, outcome.stderr);
                outcome.assert_error(&["lockbpf: "]);
                assert!(
                    outcome.stderr.contains(file) || command.contains(&"advise"),
                    "{command:?}: {}",
                    outcome.stderr
                );
                assert!(!to.exists(), "{command:?} has written something");
            }
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let mut workload = Workload::start_lingering("heap 10 300");
    let pid = workload.pid().to_string();
    let recording = dir.path().join("t.bin");
    let recording = recording.to_str().expect("a path in UTF-8");
    let observer = Observer::start(&["export", "--all-events", "--pid", &pid, "--to", recording]);
    workload.go();
    workload.truth();
    observer.interrupt();
    assert_eq!(observer.outcome().code, Some(0));
    let (full, nowhere) = ("/dev/full", "/no/such/directory/t.bin");
    for arguments in [
        &["export", "--pid", &pid, "--duration", "100ms", "--as", "bin"][..],
        &["export", "--pid", &pid, "--duration", "100ms", "--as", "jsonl"],
        &["export", "--from", recording, "--as", "bin"],
        &["export", "--from", recording, "--as", "jsonl"],
    ] {
        for to in [full, nowhere] {
            // Without an event there is nothing to write as lines.
            if to == full && arguments.contains(&"jsonl") && arguments.contains(&"--pid") {
                continue;
            }
            let outcome = run(&[arguments, &["--to", to]].concat());
            outcome.assert_error(&[to, if to == full { "no space left" } else { "no such file" }]);
        }
    }
    run(&["predict", "--from", recording, "--emit-model", nowhere]).assert_error(&[nowhere]);
    run(&["predict", "--from", recording, "--emit-model", full]).assert_error(&[full, "no space left"]);
    // Nothing is observed, and nobody held up, for a result that cannot be kept.
    let (dir, lines) = (dir.path().to_str().expect("a path in UTF-8"), "/no/such/directory/t.jsonl");
    for arguments in [
        &["export", "--pid", &pid, "--to", lines][..],
        &["export", "--pid", &pid, "--as", "jsonl", "--to", dir],
        &["export", "--pid", &pid, "--as", "bin", "--to", dir],
        &["access", "--pid", &pid, "--to", lines],
        &["access", "--pid", &pid, "--to", dir],
        &["advise", "--pid", &pid, "--keep", nowhere],
        &["predict", "--pid", &pid, "--emit-model", lines],
        &["predict", "--pid", &pid, "--emit-model", dir],
    ] {
        let outcome = run(arguments);
        outcome.assert_error(&[arguments[arguments.len() - 1]]);
        assert!(!outcome.stderr.contains("observing"), "{arguments:?}: {}", outcome.stderr);
    }
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
        (&["--pid", "1", "--comm", ""], "name is empty"),
        (&["--pid", "1", "--comm", "sixteen_bytes_of"], "15 bytes"),
        (&["--pid", "1", "--top", "0"], "1 or more"),
        (&["report", "--from", "t.bin", "--top", "0"], "1 or more"),
        (&["diff", "a.bin", "b.bin", "--top", "0"], "1 or more"),
        (&["access", "--pid", "1", "--top", "0"], "1..=256"),
        (&["--pid", "1", "--duration", "0s"], "less than 1ms"),
        (&["--pid", "1", "--duration", "1000000000years"], "longer than a year"),
        (&["--pid", "1", "--duration", "-5s"], "-5"),
        (&["--pid", "1", "--min-wait", "1000000000years"], "longer than a year"),
        (&["--pid", "1", "--stack-wait", "584years"], "longer than a year"),
        (&["access", "--pid", "1", "--timing", "0s"], "less than 1ms"),
        (&["access", "--pid", "1", "--duration", "1000000000years"], "longer than a year"),
        (&["advise", "--pid", "1", "--timing", "1000000000years"], "longer than a year"),
        (&["predict", "--pid", "1", "--duration", "0ms"], "less than 1ms"),
        (&["--kill-after", "1s", "--pid", "1"], "--kill-after"),
        (&["--user", "root", "--system-wide"], "--user"),
        (&["export", "--user", "root", "--from", "t.bin", "--to", "t.jsonl"], "--user"),
        (&["predict", "--kill-after", "1s", "--from", "t.bin"], "--kill-after"),
        (&["--kill-after", "1000000000years", "--", "true"], "longer than a year"),
        (&["--tid", "1", "--", "true"], "--tid"),
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
