//! Observing from a program that is not the command line: these tests.

use crate::harness::build::{Variant, compile};
use crate::harness::observer::lockbpf;
use crate::harness::workload::Workload;
use crate::harness::{may_observe, may_observe_alone};
use lockbpf::observe::{self, Audience, Collector, Request, Target};
use lockbpf::report;
use std::cell::RefCell;
use std::fs;
use std::process::Command;
use std::slice;
use std::time::{Duration, Instant};

/// Lets workloads begin once they are observed, and may have enough before that ends.
struct Starter<'a> {
    workloads: &'a mut [Workload],
    /// How long they are observed, if the audience is to end that.
    enough: Option<Duration>,
    end: Option<Instant>,
    heard: RefCell<Vec<String>>,
    events: RefCell<u64>,
}

impl<'a> Starter<'a> {
    fn of(workloads: &'a mut [Workload], enough: Option<Duration>) -> Self {
        // What parses files is lockbpf, not the tests.
        lockbpf::helper::set_program(env!("CARGO_BIN_EXE_lockbpf").into());
        Self { workloads, enough, end: None, heard: RefCell::default(), events: RefCell::default() }
    }
}

impl Audience for Starter<'_> {
    async fn enough(&mut self) {
        match self.end {
            Some(end) => tokio::time::sleep_until(end.into()).await,
            None => std::future::pending().await,
        }
    }

    fn tell(&self, text: &str) {
        self.heard.borrow_mut().extend(text.lines().map(str::to_owned));
    }

    fn begins(&mut self, _duration: Option<Duration>) {
        self.workloads.iter_mut().for_each(Workload::go);
        self.end = self.enough.map(|time| Instant::now() + time);
    }

    fn goes_on(&self, _elapsed: Duration, events: u64) {
        *self.events.borrow_mut() = events;
    }
}

/// All the time, so that nothing is measured on a helper, which would be this program.
fn all_the_time(pid: u32) -> Request {
    Request { budget: None, ..Request::of_pid(pid) }
}

#[test]
fn a_program_finds_the_culprit_by_the_library() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("culprit 5");
    let request = all_the_time(workload.pid());
    let mut starter = Starter::of(slice::from_mut(&mut workload), None);
    let mut collector = Collector::default();
    let captured = observe::observe(&request, &mut collector, &mut starter).expect("it is observed");
    let (heard, events) = (starter.heard.take(), starter.events.take());
    assert!(heard.iter().any(|line| line.starts_with("observing pid ")), "{heard:?}");
    let observed = collector.finish(captured, request.futex_only);
    let (report, incomplete) = observe::conclude(observed, &report::Options::default()).expect("a report");
    observe::settle(&|_| {});
    let truth = workload.finish();
    assert!(!incomplete && events > 0, "{:?}", report.quality);
    let lock = report.locks.iter().find(|lock| lock.label == "cache_lock").expect("the lock");
    assert_eq!(lock.acquisitions, Some(truth.lock("cache_lock").acquisitions));
}

#[test]
fn an_audience_may_have_enough() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("culprit 5");
    let request = all_the_time(workload.pid());
    let began = Instant::now();
    let mut starter = Starter::of(slice::from_mut(&mut workload), Some(Duration::from_millis(300)));
    let captured = observe::observe(&request, &mut Collector::default(), &mut starter).expect("it is observed");
    let lasted = Duration::from_nanos(captured.end.since(captured.start).0);
    assert!(lasted >= Duration::from_millis(300) && lasted < began.elapsed(), "{lasted:?}");
    observe::settle(&|_| {});
    workload.end();
}

/// They are known by their names, and by their parent, which is this program.
#[test]
fn helpers_of_who_observes_the_whole_system_are_left_out() {
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut workloads = ["lockbpf-helps", "helps-nobody"].map(|name| {
        let program = dir.path().join(name);
        fs::copy(compile("culprit", Variant::Plain), &program).expect("a copy");
        Workload::launch(Command::new(program).arg("5").env("LINGER", "1"))
    });
    let [helper, other] = [0, 1].map(|i| workloads[i].pid());
    let request = Request { futex_only: true, ..Request::of(Target::SystemWide) };
    let mut collector = Collector::default();
    let mut starter = Starter::of(&mut workloads, Some(Duration::from_secs(1)));
    let captured = observe::observe(&request, &mut collector, &mut starter).expect("all are observed");
    let observed = collector.finish(captured, request.futex_only);
    let (report, _) = observe::conclude(observed, &report::Options::default()).expect("a report");
    observe::settle(&|_| {});
    workloads.iter_mut().for_each(Workload::end);
    let waits_of = |pid| report.locks.iter().filter(|lock| lock.pid == Some(pid)).count();
    assert!(waits_of(other) > 0 && waits_of(helper) == 0, "{} and {}", waits_of(other), waits_of(helper));
}

#[test]
fn it_does_not_block_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = runtime.block_on(async { observe::report(&Request::of_pid(1)) }).expect_err("it would block");
    assert!(refused.to_string().contains("asynchronous runtime"), "{refused:#}");
}

/// A helper that is none would begin to observe, with helpers that do.
#[test]
fn what_was_started_as_a_helper_does_nothing_else() {
    for arguments in [&["--pid", "1"][..], &["guard"], &["remover", "nobody"], &[]] {
        let output = lockbpf().args(arguments).env(lockbpf::helper::VARIABLE, "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains("helper"), "{said}");
    }
}
