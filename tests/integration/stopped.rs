//! lockbpf is stopped, in all the ways there are, while the target depends on it: the target runs on at its own speed, and what was not
//! seen is told.

use crate::harness::cgroup::{Cgroup, Quota};
use crate::harness::observer::{ENDED, Observer, lockbpf};
use crate::harness::privilege::skipped;
use crate::harness::process::{Running, eventually};
use crate::harness::text::modified_bytes;
use crate::harness::workload::Workload;
use crate::harness::{may_observe, may_observe_alone};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Generous: a second without a sign of life, and what a busy machine takes.
const SOON: Duration = Duration::from_secs(4);

/// Median speed of the `speed` workload from now on, lock/unlock pairs per second.
fn speed(workload: &mut Workload) -> u64 {
    let mut next = || workload.running.out.next().and_then(|line| line.parse().ok()).expect("speed prints numbers");
    // What was measured up to now.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(300) {
        next();
    }
    let mut speeds: Vec<u64> = (0..11).map(|_| next()).collect();
    speeds.sort_unstable();
    speeds[speeds.len() / 2]
}

/// Time until something holds.
fn time_until(what: &str, holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    eventually(what, holds);
    begin.elapsed()
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim().chars().next()
}

/// What was stopped is ended, and the target unharmed.
fn assert_ended(mut workload: Workload, before: u64, mut observer: Observer) {
    let took = time_until("no probe is left", || modified_bytes(workload.pid()) == 0);
    let after = speed(&mut workload);
    println!("{before} pairs per second before, {after} after; no probe after {took:?}");
    let status = observer.running.wait();
    assert_eq!(status.signal(), Some(libc_sigkill()), "{status}");
    let told = observer.running.err.rest();
    assert!(told.contains(ENDED), "{told}");
    assert!(took < SOON, "the probes stayed for {took:?}");
    assert!(after * 2 >= before, "{before} pairs per second before, {after} after");
    assert!(workload.running.is_alive());
}

fn libc_sigkill() -> i32 {
    Signal::SIGKILL as i32
}

#[test]
fn stopped_for_good_it_is_ended() {
    let Some(_turn) = may_observe_alone() else { return };
    for budget in ["off", "3%"] {
        let mut workload = Workload::start("speed 50");
        let before = speed(&mut workload);
        let observer = Observer::of(workload.pid(), &["--budget", budget]);
        observer.running.signal(Signal::SIGSTOP);
        assert_ended(workload, before, observer);
    }
}

#[test]
fn what_it_did_not_see_while_stopped_for_a_moment_is_told() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("steady 0 2 0");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    std::thread::sleep(Duration::from_millis(500));
    observer.running.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(300));
    observer.running.signal(Signal::SIGCONT);
    let truth = workload.finish();
    let report = observer.report();
    let (made, told) = (truth.lock("steady_lock").acquisitions, report.named("steady_lock").acquisitions);
    let expired = report.quality.lost.get("lease_expired").copied().unwrap_or(0);
    println!("{made} made, {told} told, {expired} operations not seen: {:?}", report.quality.notes);
    assert!(expired > 1_000, "{:?}", report.quality);
    assert!(report.quality.notes.iter().any(|note| note.contains("was stopped or did not get to run")));
    assert!(report.quality.impossible.is_empty(), "{:?}", report.quality);
    // Two operations each; one that was cut is half seen. The machine may be so busy that there were more lapses than one.
    let both = 2 * told + expired;
    assert!(both.abs_diff(2 * made) < 100, "{made} made, {told} told, {expired} operations not seen");
}

/// A call that is watched to its return, which comes after lockbpf goes on: it is not taken for a call that begins.
#[test]
fn a_call_that_returns_only_afterwards_is_left_out() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("exit_holding");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    // It waits for a second.
    std::thread::sleep(Duration::from_millis(300));
    observer.running.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(200));
    observer.running.signal(Signal::SIGCONT);
    let truth = workload.finish();
    let report = observer.report();
    assert_eq!(truth.lock("orphan_lock").timeouts, 1);
    assert_eq!(report.named("orphan_lock").timeouts, 0, "nobody knows what it did meanwhile");
    assert!(report.quality.incomplete && report.quality.lost.contains_key("lease_expired"), "{:?}", report.quality);
    assert_eq!(report.named("last_lock").acquisitions, 1);
    assert!(report.quality.impossible.is_empty(), "{:?}", report.quality);
    assert!(report.quality.notes.iter().any(|note| note.contains("was stopped or did not get to run")));
}

/// A signal for a thread in the kernel's verifier ends the verifier's work: the programs are loaded anew, and by the same means.
#[test]
fn stopped_and_continued_while_it_begins_it_begins_all_the_same() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("steady 0 1 0");
    let args = ["--pid", &workload.pid().to_string(), "--format", "json"];
    let mut running = Running::start(lockbpf().args(args));
    let (pid, begins) = (Pid::from_raw(running.pid().cast_signed()), AtomicBool::new(true));
    let begun = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The verifier needs a tenth of a second for some programs, and more on a busy machine: it gets longer and longer.
            for round in (1..).take_while(|_| begins.load(Ordering::Relaxed)) {
                for (signal, ms) in [(Signal::SIGSTOP, 2), (Signal::SIGCONT, 10 * round)] {
                    kill(pid, signal).expect("its end is not waited for yet");
                    std::thread::sleep(Duration::from_millis(ms));
                }
            }
        });
        let begun = running.err.find(|line| line.starts_with("observing ") || line.contains("perf events"));
        begins.store(false, Ordering::Relaxed);
        begun.unwrap_or_else(|| panic!("it ended before it observed: {}", running.err.rest()))
    });
    assert!(begun.starts_with("observing "), "{begun}");
    workload.go();
    let truth = workload.finish();
    let report = Observer { running }.report();
    assert!(truth.lock("steady_lock").acquisitions > 0 && report.named("steady_lock").acquisitions > 0);
    assert!(report.quality.impossible.is_empty(), "{:?}", report.quality);
}

#[test]
fn estimates_leave_out_what_was_not_seen() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("steady 2000 3 0");
    let observer = Observer::of(workload.pid(), &["--budget", "3%"]);
    workload.go();
    std::thread::sleep(Duration::from_secs(1));
    observer.running.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(500));
    observer.running.signal(Signal::SIGCONT);
    let truth = workload.finish();
    let report = observer.report();
    let observed = report.observed(truth.pid);
    let made = truth.lock("steady_lock").acquisitions as f64;
    println!("{observed:?}, {made} made: {:?}", report.quality.notes);
    assert!(observed.observed_share < 0.95, "half a second of three was not seen: {observed:?}");
    report.named("steady_lock").stated_acquisitions().assert_near(made, 0.1, "acquisitions");
}

#[test]
fn ctrl_z_removes_the_probes_first_and_then_it_goes_on() {
    let Some(_turn) = may_observe() else { return };
    for budget in ["off", "3%"] {
        let mut workload = Workload::start("speed 50");
        let before = speed(&mut workload);
        let mut command = lockbpf();
        command.args(["--pid", &workload.pid().to_string(), "--format", "json", "--budget", budget]);
        // As a shell with job control does; the kernel stops no orphaned group.
        let mut observer = Observer::launch(command.process_group(0));
        observer.running.signal(Signal::SIGTSTP);
        let took = time_until("it is stopped", || state(observer.running.pid()) == Some('T'));
        assert_eq!(modified_bytes(workload.pid()), 0, "probes are left");
        let after = speed(&mut workload);
        println!("{before} pairs per second before, {after} while stopped; stopped after {took:?}");
        assert!(after * 2 >= before, "{before} pairs per second before, {after} while stopped");
        // Longer than a guardian would wait.
        std::thread::sleep(Duration::from_millis(2000));
        assert!(observer.running.is_alive(), "nothing depended on it");
        observer.running.signal(Signal::SIGCONT);
        eventually("probes are there again", || modified_bytes(workload.pid()) > 0);
        std::thread::sleep(Duration::from_millis(500));
        observer.interrupt();
        let report = observer.report();
        assert!(report.named("tight_lock").acquisitions > 0);
        assert!(report.quality.notes.iter().any(|note| note.contains("was stopped")), "{:?}", report.quality.notes);
        eventually("probes are gone", || modified_bytes(workload.pid()) == 0);
    }
}

/// The process that guards this one.
fn guardian_of(pid: u32) -> u32 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<u32> = children.flat_map(|c| c.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    let is_guardian = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split('\0').nth(1) == Some("guard"))
    };
    all.into_iter().find(is_guardian).expect("there is a guardian")
}

/// An observer that is in a cgroup of its own.
fn observer_in(cgroup: &Cgroup, pid: u32) -> Observer {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&cgroup.dir);
    command.arg(env!("CARGO_BIN_EXE_lockbpf")).args(["--budget", "off", "--format", "json", "--pid", &pid.to_string()]);
    Observer::launch(&mut command)
}

/// As `systemctl kill` and `docker kill` do.
#[test]
fn killed_with_its_cgroup_it_leaves_no_probe() {
    let Some(_turn) = may_observe_alone() else { return };
    let Some(cgroup) = Cgroup::make(&format!("lockbpf-killed-{}", std::process::id())) else { return };
    let kill = cgroup.dir.join("cgroup.kill");
    if !kill.exists() {
        return skipped("a cgroup has no cgroup.kill: the kernel is older than 5.14");
    }
    let mut workload = Workload::start("speed 50");
    let before = speed(&mut workload);
    let mut observer = observer_in(&cgroup, workload.pid());
    assert!(modified_bytes(workload.pid()) > 0, "it observes");
    let guardian = guardian_of(observer.running.pid());
    fs::write(kill, "1").expect("failed to kill a cgroup");
    assert_eq!(observer.running.wait().signal(), Some(libc_sigkill()));
    let took = time_until("no probe is left", || modified_bytes(workload.pid()) == 0);
    assert!(took < SOON, "the probes stayed for {took:?}");
    eventually("the guardian has ended", || !matches!(state(guardian), Some(state) if state != 'Z'));
    let after = speed(&mut workload);
    assert!(after * 2 >= before, "{before} pairs per second before, {after} after");
    assert!(workload.running.is_alive());
}

#[test]
fn frozen_by_its_cgroup_it_is_ended() {
    let Some(_turn) = may_observe() else { return };
    let Some(cgroup) = Cgroup::make(&format!("lockbpf-frozen-{}", std::process::id())) else { return };
    let mut workload = Workload::start("speed 50");
    let before = speed(&mut workload);
    let observer = observer_in(&cgroup, workload.pid());
    let inside =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains("lockbpf-frozen-"));
    assert!(inside(observer.running.pid()) && !inside(guardian_of(observer.running.pid())), "the guardian has left");
    fs::write(cgroup.dir.join("cgroup.freeze"), "1").expect("failed to freeze a cgroup");
    assert_ended(workload, before, observer);
}

/// The class of a thread of a process, by its name: 0 of all, 1 of those that run before all (`man 7 sched`).
fn class_of(pid: u32, name: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()
}

/// A quota stops lockbpf for most of each tenth of a second, though not threads of real-time classes.
#[test]
fn throttled_by_a_quota_it_renews_no_lease() {
    let Some(_turn) = may_observe_alone() else { return };
    let Some(quota) = Quota::make(&format!("lockbpf-quota-{}", std::process::id())) else { return };
    let mut workload = Workload::start("steady 0 2 0");
    let observer = observer_in(quota.cgroup(), workload.pid());
    let pid = observer.running.pid();
    // lockbpf alone hardly needs as much as the least of quotas.
    let busy = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    quota.cgroup().take_in(busy.pid());
    let class = || class_of(pid, "lease").expect("a thread renews the lease");
    assert_eq!(class(), 1, "before all others: nothing stops it alone");
    quota.set(Some(5_000));
    eventually("it is stopped with the rest", || class() == 0);
    workload.go();
    std::thread::sleep(Duration::from_secs(1));
    quota.set(None);
    eventually("it runs before all others again", || class() == 1);
    workload.finish();
    let report = observer.report();
    assert!(report.quality.notes.iter().any(|note| note.contains("was stopped or did not get to run")));
}

#[test]
fn a_guardian_that_was_killed_is_replaced() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("speed 50");
    let before = speed(&mut workload);
    let mut observer = Observer::of(workload.pid(), &[]);
    let first = guardian_of(observer.running.pid());
    nix::sys::signal::kill(Pid::from_raw(first.cast_signed()), Signal::SIGKILL).expect("it runs");
    assert!(observer.running.err.find(|line| line.contains("guardian was ended")).is_some());
    assert_ne!(guardian_of(observer.running.pid()), first);
    observer.running.signal(Signal::SIGSTOP);
    assert_ended(workload, before, observer);
}

/// The CPUs that each thread of a process may run on.
fn affinities(pid: u32) -> Vec<CpuSet> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    tids.map(|tid| sched_getaffinity(Pid::from_raw(tid)).expect("it runs")).collect()
}

/// Whether a thread of a process is traced, and whether one is stopped by that.
fn traced(pid: u32) -> (bool, bool) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let mut found = (false, false);
    for status in tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()) {
        found.0 |= !status.lines().any(|line| line.trim_end() == "TracerPid:\t0");
        found.1 |= status.lines().any(|line| line.starts_with("State:\tt"));
    }
    found
}

fn follow(pid: u32) -> Running {
    let mut command = lockbpf();
    command.args(["access", "--pid", &pid.to_string(), "--timing", "200ms", "--samples", "1000000", "--budget", "60%"]);
    let mut running = Running::start(command.process_group(0));
    running.err.find(|line| line.starts_with("following ")).expect("it begins");
    eventually("a thread is traced", || traced(pid).0);
    running
}

/// Sections done a second, from now on.
fn sections(workload: &mut Workload) -> u64 {
    let mut next = || workload.running.out.next().and_then(|line| line.parse().ok()).expect("it prints numbers");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(300) {
        next();
    }
    next()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_target_does_not_wait_for_a_profiler_that_is_stopped() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("accesses nested 3");
    let pid = workload.pid();
    let before = affinities(pid);
    let mut longest = Duration::ZERO;
    let mut ended = 0;
    for round in 0..3_u64 {
        let mut running = follow(pid);
        for _ in 0..20 {
            assert_eq!(affinities(pid), before, "who is followed runs where it may");
        }
        std::thread::sleep(Duration::from_millis(5 + 43 * round));
        running.signal(Signal::SIGSTOP);
        let begin = Instant::now();
        // Between two samples nobody is traced, and nothing depends on it.
        eventually("nobody is traced", || !traced(pid).0);
        longest = longest.max(begin.elapsed());
        assert!(begin.elapsed() < Duration::from_secs(2), "traced for {:?}", begin.elapsed());
        assert!(sections(&mut workload) > 0, "the target hangs");
        running.signal(Signal::SIGKILL);
        ended += u64::from(running.err.rest().contains(ENDED));
        running.wait();
    }
    println!("ended {ended} of 3 times; traced for {longest:?} at most");
    workload.running.close_stdin();
    let last = workload.running.out.find(|line| line.starts_with("sum ")).expect("it sums up");
    assert!(last.starts_with("sum ok") && workload.running.wait().success(), "{last}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn ctrl_z_lets_every_thread_go_first() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("accesses nested 3");
    let pid = workload.pid();
    let mut running = follow(pid);
    for round in 0..3 {
        std::thread::sleep(Duration::from_millis(40 + 31 * round));
        running.signal(Signal::SIGTSTP);
        eventually("it is stopped", || state(running.pid()) == Some('T'));
        assert_eq!(traced(pid), (false, false));
        assert!(sections(&mut workload) > 0, "the target hangs");
        assert!(running.is_alive());
        running.signal(Signal::SIGCONT);
        eventually("it goes on", || traced(pid).0);
    }
    running.signal(Signal::SIGINT);
    assert!(running.wait().success(), "{}", running.err.rest());
    workload.running.close_stdin();
    assert!(workload.running.wait().success());
}
