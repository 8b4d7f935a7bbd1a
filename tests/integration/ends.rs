//! How observations end: by signals, by time, with commands that do not want to end, and before they have begun.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::assert_exact;
use crate::harness::observer::{Observer, Outcome, lockbpf, run_command};
use crate::harness::process::{Running, eventually};
use crate::harness::report::Report;
use crate::harness::text::modified_bytes;
use crate::harness::workload::Workload;
use crate::harness::{may_observe, may_observe_alone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// From here on a signal is a second one.
const SECOND: Duration = Duration::from_millis(300);

fn exists(pid: u32) -> bool {
    // One that nobody has waited for yet has ended all the same.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The pid that the workload `stubborn` prints.
fn stubborn(running: &mut Running) -> u32 {
    let line = running.out.find(|line| line.starts_with("stubborn ")).expect("the command runs");
    line.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("a pid")
}

/// The report on a stdout that does not end yet.
fn report_so_far(running: &mut Running) -> Report {
    let mut text = String::new();
    running.out.find(|line| line == "{").expect("a report begins");
    text.push_str("{\n");
    while let Some(line) = running.out.next() {
        text.push_str(&line);
        text.push('\n');
        if line == "}" {
            return Report::parse(&text);
        }
    }
    panic!("the report does not end: {text}");
}

#[test]
fn a_hangup_ends_with_the_report_as_a_termination_does() {
    let Some(_turn) = may_observe() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut workload = Workload::start_lingering("counter 4 2 1000");
        let observer = Observer::of(workload.pid(), &[]);
        workload.go();
        let truth = workload.truth();
        observer.running.signal(signal);
        assert_exact(&truth, &observer.report());
        assert!(workload.running.is_alive());
    }
}

#[test]
fn who_ignores_a_hangup_outlives_it() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let mut command = Command::new("nohup");
    command.arg(lockbpf().get_program()).env("LOCKBPF_BUDGET", "off");
    command.args(["--pid", &workload.pid().to_string(), "--format", "json"]);
    let mut running = Running::start(&mut command);
    running.err.find(|line| line.starts_with("observing ")).expect("it observes");
    running.signal(Signal::SIGHUP);
    workload.go();
    let truth = workload.truth();
    running.signal(Signal::SIGINT);
    assert_exact(&truth, &Observer { running }.report());
}

/// `timeout` sends its signal to the process and to its group.
#[test]
fn the_same_signal_twice_at_once_is_one() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    observer.running.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(1));
    observer.running.signal(Signal::SIGTERM);
    assert_exact(&truth, &observer.report());
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_nothing_in_the_target() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("heap 3000 1");
    // Nobody reads the report, which is more than a pipe holds: without a second signal this lasts for ever.
    let mut child = lockbpf()
        .args(["--pid", &workload.pid().to_string(), "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("failed to start lockbpf");
    let pid = Pid::from_raw(child.id().cast_signed());
    eventually("it observes", || modified_bytes(workload.pid()) > 0);
    std::thread::sleep(Duration::from_millis(500));
    workload.go();
    workload.truth();
    kill(pid, Signal::SIGINT).expect("failed to send a signal");
    eventually("the probes are gone", || modified_bytes(workload.pid()) == 0);
    std::thread::sleep(SECOND);
    assert!(child.try_wait().expect("failed to look at a child").is_none(), "the report is waiting for its reader");
    kill(pid, Signal::SIGTERM).expect("failed to send a signal");
    let begin = Instant::now();
    let status = child.wait().expect("failed to wait for lockbpf");
    assert_eq!(status.code(), Some(128 + Signal::SIGTERM as i32));
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    assert!(workload.running.is_alive());
    assert_eq!(modified_bytes(workload.pid()), 0);
}

/// While perf events are removed, which takes longest, the second signal comes at some moment of it.
#[test]
fn a_second_signal_while_probes_are_removed() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 50");
    for more in [0, 20, 60, 120] {
        let observer = Observer::of(workload.pid(), &["--plain-uprobes"]);
        observer.interrupt();
        std::thread::sleep(Duration::from_millis(255 + more));
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(observer.running.pid().cast_signed()), Signal::SIGINT);
        let outcome = observer.outcome();
        assert!(matches!(outcome.code, Some(0 | 130)), "{:?}: {}", outcome.code, outcome.stderr);
        eventually("the probes are gone", || modified_bytes(workload.pid()) == 0);
        assert!(workload.running.is_alive());
    }
}

#[test]
fn a_command_that_does_not_end_does_not_hold_up_the_report() {
    let Some(_turn) = may_observe() else { return };
    let mut command = lockbpf();
    command.args(["--duration", "1s", "--format", "json", "--"]).arg(compile("stubborn", Variant::Plain));
    let mut running = Running::start(&mut command);
    let pid = stubborn(&mut running);
    let begin = Instant::now();
    let report = report_so_far(&mut running);
    assert!(report.named("shared_lock").acquisitions > 0);
    assert_eq!(running.wait().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(30), "it took {:?}", begin.elapsed());
    assert!(exists(pid), "the command was let be");
    assert_eq!(modified_bytes(pid), 0);
    // By the end of its input, which was lockbpf's.
    running.close_stdin();
    eventually("the command ends", || !exists(pid));
    let stderr = running.err.rest();
    assert!(stderr.contains(&format!("(pid {pid}) did not end at SIGTERM, and goes on")), "{stderr}");
}

#[test]
fn a_command_that_does_not_end_can_be_killed() {
    let Some(_turn) = may_observe() else { return };
    let mut command = lockbpf();
    command.args(["--duration", "1s", "--kill-after", "200ms", "--format", "json", "--"]);
    let mut running = Running::start(command.arg(compile("stubborn", Variant::Plain)));
    let pid = stubborn(&mut running);
    let report = report_so_far(&mut running);
    assert!(report.named("shared_lock").acquisitions > 0);
    let stderr = running.err.rest();
    assert_eq!(running.wait().code(), Some(0), "{stderr}");
    assert!(!exists(pid), "the command was killed");
    assert!(stderr.contains(&format!("(pid {pid}) did not end at SIGTERM: it is killed")), "{stderr}");
}

/// A child of this process that a tracer has stopped.
fn stopped_child(parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").expect("failed to list /proc");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.starts_with(&format!("t {parent} "))
    };
    pids.into_iter().find(is_it)
}

#[test]
fn a_signal_during_the_start_leaves_no_command_behind() {
    let Some(_turn) = may_observe() else { return };
    let program = compile("stubborn", Variant::Plain);
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGKILL] {
        let mut running = Running::start(lockbpf().args(["--budget", "3%", "--"]).arg(&program).arg("meek"));
        let parent = running.pid();
        let mut child = None;
        eventually("the command waits at its exec", || {
            child = stopped_child(parent);
            child.is_some()
        });
        running.signal(signal);
        let status = running.wait();
        eventually("the command is gone", || !exists(child.expect("it was found")));
        let (stdout, stderr) = (running.out.rest(), running.err.rest());
        if signal != Signal::SIGKILL {
            Outcome { code: status.code(), stdout, stderr }.assert_error(&[signal.as_str(), "before"]);
        }
    }
}

#[test]
fn a_file_that_could_not_be_begun_is_not_left_behind() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let to = dir.path().join("t.bin");
    let program = compile("stubborn", Variant::Plain);
    let mut running = Running::start(lockbpf().args(["export", "--to"]).arg(&to).arg("--").arg(&program).arg("meek"));
    let parent = running.pid();
    eventually("the command waits at its exec", || stopped_child(parent).is_some());
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(2), "{}", running.err.rest());
    assert_eq!(fs::read_dir(dir.path()).expect("failed to list a directory").count(), 0);
}

#[test]
fn as_whom_a_command_runs_is_said_and_can_be_chosen() {
    let Some(_turn) = may_observe() else { return };
    if !crate::harness::privilege::is_root() {
        return crate::harness::privilege::skipped("not root: cannot become another user");
    }
    let id = ["--", "sh", "-c", "id -u; id -g; echo $HOME $USER $LOGNAME"];
    let sudo = || {
        let mut command = lockbpf();
        command.env("SUDO_USER", "nobody").env("SUDO_UID", "65534").env("HOME", "/root").env("USER", "root");
        command
    };
    let outcome = run_command(sudo().args(id));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("sh runs as root; with --user nobody"), "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("0\n0\n/root root"), "SUDO_UID is not used silently: {}", outcome.stdout);
    let outcome = run_command(sudo().args(["--user", "nobody"]).args(id));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("sh runs as nobody"), "{}", outcome.stderr);
    let user = nix::unistd::User::from_name("nobody").expect("failed to read the users").expect("nobody is a user");
    let home = Path::new(&user.dir).display().to_string();
    let wanted = format!("{}\n{}\n{home} nobody nobody\n", user.uid, user.gid);
    assert!(outcome.stdout.starts_with(&wanted), "{wanted}{}", outcome.stdout);
    let status = run_command(lockbpf().args(["--user", "nobody", "--", "cat", "/proc/self/status"])).stdout;
    let groups = status.lines().find(|line| line.starts_with("Groups:")).expect("cat has printed it");
    assert_eq!(groups.split_whitespace().skip(1).collect::<Vec<_>>(), [user.gid.to_string()]);
    run_command(lockbpf().args(["--user", "no such user", "--", "true"])).assert_error(&["no such user"]);
    run_command(lockbpf().args(["--user", "nobody", "--", "/root/secret"])).assert_error(&["/root/secret"]);
    run_command(lockbpf().args(["--user", "nobody", "--pid", "1"])).assert_error(&["--user"]);
}
