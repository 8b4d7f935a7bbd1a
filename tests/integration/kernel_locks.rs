//! Locks of the kernel's own: against a workload that decides for how long one is held, and against the kernel's own trace
//! buffer.

use crate::harness::build::Variant;
use crate::harness::observer::{Observer, lockbpf, observe_as, run, run_command};
use crate::harness::report::{Lock, Report};
use crate::harness::tracefs::{Instance, LockEvent, What};
use crate::harness::workload::{Truth, Workload, command};
use crate::harness::{may_observe, may_observe_alone};
use std::collections::BTreeMap;

const HELD: &str = "kernel_held 5 5000";
const KERNEL_LOCKS: &str = "--kernel-locks";

/// The lock of that name: exactly as many waits as the workload made, each as long as it made it.
#[track_caller]
fn assert_held<'a>(truth: &Truth, report: &'a Report, name: &str, kind: &str, fact: &str) -> &'a Lock {
    let lock = report.named(name);
    assert_eq!((lock.kernel, lock.kind.as_str()), (true, kind), "{lock:?}");
    assert!(lock.lock.starts_with("kernel:0x"), "{lock:?}");
    assert_eq!((lock.contended, lock.acquisitions, lock.hold_ns.sum), (truth.fact("rounds"), 0, 0.0), "{lock:?}");
    let bounds = truth.fact(&format!("{fact}_wait_min_ns")) as f64..truth.fact(&format!("{fact}_call_ns")) as f64;
    assert!(bounds.contains(&lock.wait_ns.sum), "{bounds:?}: {lock:?}");
    // The kernel named the holder: nothing is left to nobody.
    assert!(lock.unattributed_ns < 0.05 * lock.wait_ns.sum, "{lock:?}");
    lock
}

#[track_caller]
fn assert_all_held(truth: &Truth, report: &Report) {
    let pipe = assert_held(truth, report, "kernel:pipe->mutex", "mutex", "pipe");
    let directory = assert_held(truth, report, "kernel:directory i_rwsem", "rwsem", "directory");
    let writer = report.threads.iter().find(|t| u64::from(t.tid) == truth.fact("writer")).expect("no writer");
    let waited = pipe.wait_ns.sum + directory.wait_ns.sum;
    assert!((writer.kernel_wait_ns as f64 - waited).abs() < 0.1 * waited + 1e6, "{writer:?}, {waited}");
    assert!(writer.wait_ns >= writer.kernel_wait_ns, "{writer:?}");
}

#[test]
fn a_kernel_lock_that_is_held_on_purpose() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as(HELD, Variant::Plain, &[KERNEL_LOCKS]);
    assert_all_held(&truth, &report);
    // Who waits for the mutex waits because its holder waits for the kernel.
    let outer = report.named("outer");
    assert_eq!((outer.kernel, outer.contended), (false, truth.lock("outer").contended), "{outer:?}");
    let by_reader = outer.holders.iter().filter(|holder| holder.function.as_deref() == Some("reader"));
    let share: f64 = by_reader.map(|holder| holder.share).sum();
    assert!(share > 0.8, "{share}: {outer:?}");
    assert_holder(&report);
    let first = &report.verdict[0];
    let calls = ["read", "getdents64", "syscall"];
    assert!(first.contains("`reader` holding `kernel:") && first.contains("(inferred)"), "{first}");
    assert!(calls.iter().any(|call| first.contains(&format!(" in {call}"))), "{first}");
    assert!(report.quality.notes.iter().any(|n| n.contains("only the waiting is seen")), "{:?}", report.quality.notes);
}

/// Who holds a kernel lock that it got at once is known by its place in the program, and by what it does there.
#[track_caller]
fn assert_holder(report: &Report) {
    for name in ["kernel:pipe->mutex", "kernel:directory i_rwsem"] {
        let lock = report.named(name);
        let holder = &lock.holders[0];
        assert_eq!(holder.function.as_deref(), Some("reader"), "{lock:?}");
        assert!(holder.line.is_some() && holder.wait_ns > 0.8 * lock.wait_ns.sum, "{lock:?}");
    }
    let culprit = report.culprits.iter().find(|c| c.name.starts_with("kernel:")).expect("a holder of a kernel lock");
    assert_eq!(culprit.function.as_deref(), Some("reader"), "{culprit:?}");
    let causes = culprit.causes.as_ref().expect("the culprit's causes");
    assert!(causes["blocked"] + causes["sleeping"] > 0.8 * causes.values().sum::<f64>(), "{causes:?}");
}

#[test]
fn who_holds_a_kernel_lock_is_told_in_all_modes() {
    let Some(_turn) = may_observe() else { return };
    for options in [&["--budget", "3%"][..], &["--budget", "off"], &["--futex-only"], &["--unwind", "dwarf"]] {
        let (_, report) = observe_as(HELD, Variant::Plain, &[&[KERNEL_LOCKS], options].concat());
        assert_holder(&report);
        assert!(report.quality.lost.is_empty() && report.quality.impossible.is_empty(), "{:?}", report.quality);
    }
}

#[test]
fn without_copies_of_stacks_only_the_holding_thread_is_told() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as(HELD, Variant::Plain, &[KERNEL_LOCKS, "--unwind", "fp"]);
    let pipe = report.named("kernel:pipe->mutex");
    assert!(pipe.holders[0].function.is_none(), "{pipe:?}");
}

#[test]
fn kernel_locks_are_left_alone_unless_asked_for() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("kernel_held 2 2000", Variant::Plain, &[]);
    assert!(report.locks.iter().all(|lock| !lock.kernel));
    assert!(report.threads.iter().all(|thread| thread.kernel_wait_ns == 0));
}

#[test]
fn kernel_locks_in_recordings() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let file = |name: &str| dir.path().join(name).to_str().expect("a path that is text").to_owned();
    let (trace, lines) = (file("held.bin"), file("held.jsonl"));
    let mut workload = Workload::start(HELD);
    let pid = workload.pid().to_string();
    let observer = Observer::start(&["export", "--pid", &pid, KERNEL_LOCKS, "--to", &trace]);
    workload.go();
    let truth = workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = run(&["report", "--from", &trace, "--format", "json"]).report();
    assert_all_held(&truth, &report);
    assert_holder(&report);
    let diff = run(&["diff", &trace, &trace]);
    assert_eq!(diff.code, Some(0), "{}", diff.stderr);
    // Event lines have the waits; that they are of the kernel is in their names.
    let converted = run(&["export", "--from", &trace, "--to", &lines]);
    assert_eq!(converted.code, Some(0), "{}", converted.stderr);
    let text = std::fs::read_to_string(&lines).expect("failed to read the lines");
    let attempts = text.lines().filter(|line| line.contains(r#""kind":"kernel mutex""#)).count() as u64;
    assert_eq!(attempts, truth.fact("rounds"));
}

#[test]
fn kernel_locks_of_a_command() {
    let Some(_turn) = may_observe() else { return };
    let program = command(HELD, Variant::Plain);
    let mut lockbpf = lockbpf();
    lockbpf.args([KERNEL_LOCKS, "--budget", "3%", "--format", "json", "--"]).arg(program.get_program());
    let outcome = run_command(lockbpf.args(program.get_args()).env("GO", "1"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let json = outcome.stdout.lines().skip_while(|line| !line.starts_with("{\"workload\""));
    let truth = json.clone().find_map(Truth::parse).expect("the workload's truth");
    let report = Report::parse(&json.skip(1).collect::<Vec<_>>().join("\n"));
    assert_all_held(&truth, &report);
}

#[test]
fn kernel_locks_of_the_whole_system() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start(HELD);
    let observer = Observer::start(&["--system-wide", KERNEL_LOCKS, "--format", "json"]);
    workload.go();
    let truth = workload.finish();
    observer.interrupt();
    let report = observer.report();
    // Others may wait for such locks, too.
    let longest = truth.fact("pipe_wait_min_ns") as f64;
    let held = |l: &&Lock| l.name.starts_with("kernel:pipe->mutex") && l.wait_ns.sum >= longest;
    let pipe = report.locks.iter().find(held).expect("no pipe's mutex");
    assert_eq!(pipe.contended, truth.fact("rounds"), "{pipe:?}");
}

/// Ends of waits by lock, that got it and were not an interrupt's.
fn got(events: &[LockEvent]) -> BTreeMap<&str, u64> {
    let mut got = BTreeMap::new();
    for event in events.iter().filter(|e| !e.in_interrupt && e.what == What::End(true)) {
        *got.entry(event.lock.as_str()).or_default() += 1;
    }
    got
}

/// How long each thread waited, without what was inside of another wait.
fn waited(events: &[LockEvent]) -> BTreeMap<u32, u64> {
    let mut waiting: BTreeMap<u32, (&str, u64)> = BTreeMap::new();
    let mut waited = BTreeMap::new();
    for event in events.iter().filter(|e| !e.in_interrupt) {
        match (&event.what, waiting.get(&event.tid)) {
            (What::Begin(_), None) => drop(waiting.insert(event.tid, (&event.lock, event.time_ns))),
            (What::End(_), Some(&(lock, since))) if lock == event.lock => {
                waiting.remove(&event.tid);
                *waited.entry(event.tid).or_default() += event.time_ns - since;
            }
            _ => {}
        }
    }
    waited
}

#[test]
fn counts_agree_with_the_kernels_own_trace() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("kernel_mmap 4 1000");
    // The kernel calls observers in the order in which they came. The first takes as long at both ends of a wait; what lockbpf takes
    // at the beginning, which copies a stack, is more than at the end.
    let Some(instance) = Instance::watching(workload.pid()) else { return };
    let observer = Observer::of(workload.pid(), &[KERNEL_LOCKS, "--no-focus"]);
    instance.forget();
    workload.go();
    workload.finish();
    let report = observer.report();
    let events = instance.events();
    let got = got(&events);
    let mut sleeping: Vec<&str> = Vec::new();
    for event in &events {
        if matches!(&event.what, What::Begin(flags) if flags.contains("MUTEX") || !flags.contains("SPIN")) {
            sleeping.push(&event.lock);
        }
    }
    sleeping.sort_unstable();
    sleeping.dedup();
    let told: BTreeMap<&str, &Lock> =
        report.locks.iter().filter_map(|l| Some((l.lock.strip_prefix("kernel:")?, l))).collect();
    assert!(!sleeping.is_empty(), "nobody waited for mmap_lock");
    let early = report.quality.edges.get("kernel_wait_of_new_or_exiting_thread").copied().unwrap_or(0);
    let skipped = report.quality.notes.iter().find(|n| n.contains("came while another was being handled"));
    let skipped: u64 = skipped.map_or(0, |n| n.split(' ').next().and_then(|n| n.parse().ok()).expect("how many"));
    // All but those before a thread was known or while it exits, and those that the kernel itself left out.
    let agrees = |what: &dyn Fn(&str) -> bool, apart: u64| {
        let (mut seen, mut expected) = (0, 0);
        for (&lock, &count) in got.iter().filter(|(lock, _)| what(lock)) {
            let told = told.get(lock).map_or(0, |l| l.contended);
            assert!(told <= count, "{lock}: {told} of {count}");
            (seen, expected) = (seen + told, expected + count);
        }
        assert!(
            seen + early + skipped + apart >= expected,
            "{seen}, {early} at the edges, {skipped} skipped and {apart} apart of {expected}: {:?}",
            report.quality
        );
    };
    agrees(&|lock| sleeping.contains(&lock), 0);
    // An interrupt that spins is told from its thread by different marks there and here: those that are an interrupt's here only
    // are what is counted here beyond what is an interrupt's in both.
    let in_interrupts = events.iter().filter(|e| e.in_interrupt && e.what == What::End(true)).count() as u64;
    let only_here = report.quality.kernel_in_interrupts.saturating_sub(in_interrupts);
    agrees(&|lock| !sleeping.contains(&lock), only_here);
    let mmap_lock = report.named("kernel:mmap_lock");
    assert!(mmap_lock.contended > 0 && mmap_lock.kind == "rwsem", "{mmap_lock:?}");
    for lock in told.values().filter(|l| l.kind == "spin") {
        assert!(lock.contended <= got.get(lock.lock.trim_start_matches("kernel:")).copied().unwrap_or(0), "{lock:?}");
    }
    for (tid, expected) in waited(&events) {
        let Some(thread) = report.threads.iter().find(|t| t.tid == tid) else { continue };
        let (seen, expected) = (thread.kernel_wait_ns as f64, expected as f64);
        assert!((seen - expected).abs() < 0.1 * expected + 1e6, "{thread:?}, {expected}");
    }
    assert!(report.quality.lost.is_empty() && report.quality.impossible.is_empty(), "{:?}", report.quality);
}
