//! The tests, by what is expected of the kernel.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use vm_tests::{
    expectation::Expectation,
    plan::{Plan, Selection},
};

use crate::{
    check, counters, filtered, functions,
    hotplug::Removable,
    lockbpf::{self, Observer},
    machine,
    workload::Workload,
};

/// The oldest kernel that lockbpf supports, as its refusal of an older one must name it.
const MINIMUM: &str = "5.15";
/// Where lockbpf mounts tracefs.
const TRACEFS: &str = "/sys/kernel/tracing";

/// A named test.
pub(crate) struct Test {
    pub(crate) name: String,
    /// Returns what it measured, if it does.
    pub(crate) run: Box<dyn FnOnce() -> Result<Option<String>>>,
}

/// A workload, and whether its contention is exact, too.
struct Case {
    line: &'static str,
    contention: bool,
}

const CASES: [Case; 12] = [
    Case { line: "counter 4 3 500", contention: false },
    Case { line: "counter 4 2 500 try", contention: false },
    Case { line: "threads 4 10 100", contention: false },
    Case { line: "trylock 100 50", contention: true },
    Case { line: "timeouts 6 4", contention: false },
    Case { line: "nesting 8 5", contention: true },
    Case { line: "hold 5 3 2000", contention: true },
    Case { line: "condvar 5 5 3", contention: true },
    Case { line: "holder sleep 3", contention: true },
    Case { line: "holder preempted 2", contention: true },
    Case { line: "orders 10", contention: true },
    Case { line: "late 4 3", contention: true },
];

/// How lockbpf says that it places probes.
const PERF_EVENTS: &str = "(uprobes as perf events)";
const LINKS: &str = "(uprobe links)";
const SESSIONS: &str = "(uprobe sessions)";

/// The tests of a plan.
pub(crate) fn of(plan: Plan) -> Vec<Test> {
    if plan.expectation == Expectation::Refused {
        return vec![
            test("an observation is refused", || refused(&["--pid", "1"])),
            test("futex-only is refused", || refused(&["--futex-only", "--pid", "1"])),
            test("doctor tells why", doctor_tells_why),
        ];
    }
    let ways: &[Way] = match plan.expectation {
        Expectation::Sessions => &[(SESSIONS, &[]), (PERF_EVENTS, &["--plain-uprobes"])],
        Expectation::Links | Expectation::LinksKillFiltered => &[(LINKS, &[]), (PERF_EVENTS, &["--plain-uprobes"])],
        Expectation::PerfEvents | Expectation::Refused => &[(PERF_EVENTS, &[])],
    };
    match plan.selection {
        Selection::All => [core(plan, ways), counted(plan)].into_iter().flatten().collect(),
        Selection::Counters => counted(plan),
        Selection::Core => core(plan, ways),
        Selection::Few => few(ways),
    }
}

/// How probes are placed, as lockbpf tells it, and the options that make it so.
pub(crate) type Way = (&'static str, &'static [&'static str]);

fn core(plan: Plan, ways: &[Way]) -> Vec<Test> {
    let killed = plan.expectation == Expectation::LinksKillFiltered;
    let mut tests = vec![test("doctor is content", doctor_is_content), test("tracefs is mounted", tracefs_is_mounted)];
    for &way in ways {
        tests.push(test(format!("exact counts {}", way.0), move || exact(way)));
        tests.push(test(format!("exact counts, system-wide {}", way.0), move || system_wide(way)));
        tests.push(measured(format!("calls of the C library {}", way.0), move || functions::exact(way)));
        let name = format!("a process that filters its system calls {}", way.0);
        tests.push(test(name, move || if killed { filtered::spared(way) } else { filtered::exact(way) }));
    }
    tests.push(test("exact waits, futex-only", futex_only));
    tests.push(test("kernel locks, or why not", kernel_locks));
    tests.push(test("deadlocks are told at once", deadlocks));
    tests
}

/// Loading takes most of the time, so there are few: all programs as they are usually, and as they are where events are counted, when
/// the verifier has most to do.
fn few(ways: &[Way]) -> Vec<Test> {
    let usual = |&way: &Way| test(format!("exact counts {}", way.0), move || exact(way));
    ways.iter().map(usual).chain([faults()]).collect()
}

fn faults() -> Test {
    test("a preempted holder's own page faults", page_faults)
}

fn counted(plan: Plan) -> Vec<Test> {
    match plan.cycles_per_instruction {
        Some(cycles) => vec![
            faults(),
            measured("sections of known length", move || counters::known_sections(cycles)),
            measured("a preempted holder's own instructions", counters::preempted_sections),
            measured("events that take turns", move || counters::multiplexed_sections(cycles)),
            measured("calls that execute a loop of known length", move || functions::counted(cycles)),
        ],
        None => vec![faults(), test("a processor without counters", counters::no_pmu)],
    }
}

fn test(name: impl Into<String>, run: impl FnOnce() -> Result<()> + 'static) -> Test {
    Test { name: name.into(), run: Box::new(|| run().map(|()| None)) }
}

fn measured(name: impl Into<String>, run: impl FnOnce() -> Result<String> + 'static) -> Test {
    Test { name: name.into(), run: Box::new(|| run().map(Some)) }
}

fn refused(args: &[&str]) -> Result<()> {
    let run = lockbpf::run(args)?;
    ensure!(run.status.code() == Some(2), "exit status is not 2 but {}: {}", run.status, run.stderr);
    ensure!(run.stdout.is_empty(), "a refusal prints a report: {}", run.stdout);
    ensure!(run.stderr.contains(MINIMUM), "the refusal does not name {MINIMUM}: {}", run.stderr);
    Ok(())
}

/// What keeps lockbpf from observing, and the programs that the kernel refuses.
fn doctor() -> Result<Vec<String>> {
    let run = lockbpf::run(&["doctor", "--format", "json"])?;
    ensure!(run.status.success(), "doctor ended with {}: {}", run.status, run.stderr);
    let told: serde_json::Value = serde_json::from_str(&run.stdout).context("failed to read what doctor says")?;
    let mut obstacles: Vec<String> =
        serde_json::from_value(told["obstacles"].clone()).context("doctor names no obstacles")?;
    let refused = told["probing"].get("refused").into_iter().flat_map(serde_json::Value::as_array).flatten();
    obstacles.extend(refused.map(serde_json::Value::to_string));
    Ok(obstacles)
}

fn doctor_tells_why() -> Result<()> {
    let obstacles = doctor()?;
    ensure!(obstacles.iter().any(|obstacle| obstacle.contains(MINIMUM)), "{MINIMUM} is not in {obstacles:?}");
    Ok(())
}

fn doctor_is_content() -> Result<()> {
    let obstacles = doctor()?;
    ensure!(obstacles.is_empty(), "{obstacles:?}");
    Ok(())
}

/// Nobody has mounted tracefs before the first observation, and lockbpf says that it does.
fn tracefs_is_mounted() -> Result<()> {
    let place = Path::new(TRACEFS);
    ensure!(!machine::is_mounted("tracefs", place)?, "it is mounted before lockbpf ran");
    let workload = Workload::start("counter 1 1 1")?;
    let observer = Observer::start(&["--pid", &workload.pid().to_string()])?;
    ensure!(machine::is_mounted("tracefs", place)?, "lockbpf did not mount it: {}", observer.said());
    ensure!(observer.said().contains(TRACEFS), "lockbpf did not say that it mounted it: {}", observer.said());
    check::exact(&workload.finish()?, &observer.report()?, false)
}

/// Observes all workloads at once, since most of the time goes into loading the programs; they work one after the other.
fn exact(way: Way) -> Result<()> {
    let workloads = CASES.iter().map(|case| Workload::start(case.line)).collect::<Result<Vec<_>>>()?;
    let pids: Vec<String> = workloads.iter().map(|workload| workload.pid().to_string()).collect();
    let target: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let observer = observe(&target, way)?;
    let truths = workloads.into_iter().map(Workload::finish).collect::<Result<Vec<_>>>()?;
    let report = observer.report()?;
    CASES.iter().zip(&truths).try_for_each(|(case, truth)| {
        check::exact(truth, &report, case.contention).with_context(|| format!("the workload {}", case.line))
    })
}

fn system_wide(way: Way) -> Result<()> {
    let workloads = [Workload::start("counter 2 2 300")?, Workload::start("hold 3 2 2000")?];
    let observer = observe(&["--system-wide"], way)?;
    let truths = workloads.map(Workload::finish);
    observer.interrupt()?;
    let report = observer.report()?;
    truths.into_iter().try_for_each(|truth| check::exact(&truth?, &report, false))
}

/// Starts lockbpf, which must place its probes in the way expected.
pub(crate) fn observe(target: &[&str], (told, options): Way) -> Result<Observer> {
    let observer = Observer::start(&[target, options].concat())?;
    let summary = observer.summary().unwrap_or_default();
    ensure!(summary.contains(told), "probes are not placed as expected {told}, but: {summary}");
    Ok(observer)
}

/// Events counted in sections are their thread's own, however many the thread has with which it shares a CPU, and even if that has been
/// away.
fn page_faults() -> Result<()> {
    const EVENT: &str = "page-faults";
    const ROUNDS: u64 = 5;
    // One more comes first, without faults.
    const MADE: u64 = ROUNDS + 1;
    let workload = Workload::start("counted 5 3 5 crowd")?;
    let mut observer = Observer::start(&["--counters", EVENT, "--pid", &workload.pid().to_string()])?;
    if let Some(cpu) = Removable::find() {
        cpu.away_and_back(&mut observer)?;
        cpu.confine(workload.pid())?;
    }
    workload.finish()?;
    let report = observer.report()?;
    for (function, each) in [("outer_section", 8), ("inner_section", 5), ("idle_section", 0)] {
        let told = report.counters.sites.iter().find(|site| site.symbol.starts_with(function));
        let told = told.with_context(|| format!("nothing was counted in {function}: {:?}", report.counters))?;
        let (sections, counted) = (told.sections, told.hold.get(EVENT).copied().unwrap_or(-1.0));
        ensure!(sections == MADE, "{MADE} sections of {function} were made, {sections} are counted");
        let made = (each * ROUNDS) as f64;
        ensure!(counted == made, "{made} page faults in {function}, {counted} are told");
        // Readings are made around the two times between which a section lies, by another clock: an idle one is as short as they are.
        let (counted, held) = (told.on_cpu_ns + told.preempted_ns, told.hold_ns);
        ensure!(each == 0 || counted <= 2.0 * held, "{function} was held for {held} ns, {counted} ns are counted");
    }
    check::complete(&report).map(drop)
}

/// Without uprobes only waits are seen; how many is exact here.
fn futex_only() -> Result<()> {
    let workload = Workload::start("hold 5 3 2000")?;
    let observer = Observer::start(&["--futex-only", "--pid", &workload.pid().to_string()])?;
    let truth = workload.finish()?;
    let report = observer.report()?;
    let skipped = check::complete(&report)?;
    for lock in &truth.locks {
        let id = format!("{}:{}", truth.pid, lock.addr);
        let told = report.locks.iter().find(|told| told.lock == id).with_context(|| format!("no lock {id}"))?;
        if let Some(fault) = check::contended(lock, told, skipped) {
            bail!(fault);
        }
    }
    Ok(())
}

/// Exact where the kernel tells of its locks, else refused with the version from which on they do.
fn kernel_locks() -> Result<()> {
    const OPTIONS: [&str; 2] = ["--futex-only", "--kernel-locks"];
    // The workload makes a directory there.
    std::fs::create_dir_all("/tmp").context("failed to create /tmp")?;
    let workload = Workload::start("kernel_held 3 5000")?;
    let target = ["--pid", &workload.pid().to_string()].map(str::to_owned);
    let args: Vec<&str> = OPTIONS.into_iter().chain(target.iter().map(String::as_str)).collect();
    if !Path::new(TRACEFS).join("events/lock/contention_begin").is_dir() {
        let run = lockbpf::run(&args)?;
        ensure!(run.status.code() == Some(2), "exit status is not 2 but {}: {}", run.status, run.stderr);
        ensure!(run.stderr.contains("5.19"), "the refusal does not name 5.19: {}", run.stderr);
        return workload.finish().map(drop);
    }
    let observer = Observer::start(&args)?;
    workload.finish()?;
    let report = observer.report()?;
    for name in ["kernel:pipe->mutex", "kernel:directory i_rwsem"] {
        let told = report.locks.iter().find(|lock| lock.name == name);
        let names = || report.locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>().join(", ");
        let told = told.with_context(|| format!("no {name} among {}", names()))?;
        ensure!(told.contended == 3, "3 waits for {name} were made, {} are told", told.contended);
    }
    check::complete(&report).map(drop)
}

/// One that forms while it is observed, and one that is there already. Without uprobes, since those take long to load here.
fn deadlocks() -> Result<()> {
    let (mut early, mut late) = (Workload::start("stuck deadlock")?, Workload::start("stuck deadlock")?);
    early.work()?;
    let pids = [&early, &late].map(|workload| workload.pid().to_string());
    let mut observer = Observer::start(&["--futex-only", "--pid", &pids[0], "--pid", &pids[1]])?;
    observer.listen_for(&format!("lockbpf: deadlock in process {}, there before", pids[0]))?;
    late.work()?;
    observer.listen_for(&format!("lockbpf: deadlock in process {}:", pids[1]))?;
    observer.interrupt()?;
    observer.report()?;
    early.dismiss()?;
    late.dismiss()
}

#[cfg(test)]
mod unit_tests {
    use vm_tests::place::WORKLOAD_NAMES;

    use super::*;

    #[test]
    fn the_machine_has_every_workload() {
        for case in CASES {
            let name = case.line.split(' ').next().unwrap();
            assert!(WORKLOAD_NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        for expectation in Expectation::ALL {
            for cycles_per_instruction in [None, Some(1)] {
                let plan = Plan { expectation, selection: Selection::All, cycles_per_instruction };
                let mut names: Vec<_> = of(plan).into_iter().map(|test| test.name).collect();
                let count = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), count);
            }
        }
    }
}
