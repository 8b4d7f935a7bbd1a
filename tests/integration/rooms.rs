//! A lock of which the user has described only what its waiters call: they sleep in `poll`, so nothing else shows them.

use crate::harness::build::{Variant, compile};
use crate::harness::may_observe_alone;
use crate::harness::observer::Observer;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};
use std::fs;
use std::process::Command;

/// The rooms of `tests/workloads/rooms.c`: halls are one lock, of the other rooms each is one.
const ROOMS: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "door"
files = ["rooms"]
inside = ["room_*"]
[lock.name]
number = "lock"
size = 1
identifies = true
part = "lock+4"
names = ["hall", "room {}"]
[[lock.function]]
symbol = "room_wait"
does = "blocks"
lock = "*(arg0+8)"
owner = { at = "*(arg0+8)+8" }
instance = "*(arg0+8)"
fails = "nonzero"
[[lock.function]]
symbol = "room_hand"
does = "wakes"
lock = "arg1"
instance = "arg1"
"#;

/// The same, each known by its address.
const DOORS: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "door"
files = ["rooms"]
inside = ["room_*"]
name = { number = "lock+4", other = "room {}" }
function = [
    { symbol = "room_wait", does = "blocks", lock = "*(arg0+8)", fails = "nonzero" },
    { symbol = "room_hand", does = "wakes", lock = "arg1" },
]
"#;

/// Rooms by the names that reports have for them.
type Rooms = [(&'static str, &'static [u32])];
const BY_NUMBER: &Rooms = &[("hall", &[1, 2]), ("room 7", &[7]), ("room 8", &[8])];
const BY_ADDRESS: &Rooms = &[("room 1", &[1]), ("room 2", &[2]), ("room 7", &[7]), ("room 8", &[8])];

/// Guests who gave up, of each room one.
const IMPATIENT: u64 = 1;

fn observed(description: &str, arguments: &[&str], options: &[&str]) -> (Truth, Report) {
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let locks = dir.path().join("rooms.toml");
    fs::write(&locks, description).expect("failed to write a description");
    let mut command = Command::new(compile("rooms", Variant::Plain));
    let mut workload = Workload::launch(command.arg("20").args(arguments));
    let common = ["--system-wide", "--comm", "rooms", "--format", "json", "--locks", locks.to_str().unwrap()];
    let observer = Observer::start(&[&common[..], options].concat());
    workload.go();
    let truth = workload.finish();
    observer.interrupt();
    (truth, observer.report())
}

fn told<'a>(report: &'a Report, name: &str) -> &'a Lock {
    let all: Vec<_> = report.locks.iter().filter(|lock| lock.kind == "door" && lock.name == name).collect();
    let [lock] = all[..] else { panic!("{name}: {all:?}") };
    lock
}

fn assert_told(truth: &Truth, report: &Report, rooms: &Rooms) {
    for &(name, numbers) in rooms {
        let of = |fact: &str| numbers.iter().map(|n| truth.fact(&format!("{fact} of {n}"))).sum::<u64>();
        let lock = told(report, name);
        assert_eq!((lock.contended, lock.timeouts), (of("waits"), IMPATIENT * numbers.len() as u64), "{lock:?}");
        let waited = lock.contended_wait_ns.sum;
        assert!(waited >= of("wait_min_ns") as f64 && waited <= of("call_ns") as f64, "{lock:?}");
        // Guests wait for whoever keeps the room, and it is seen where that one leaves it.
        let keeps = lock.holders.iter().filter(|h| h.function.as_deref() == Some("keep"));
        let blamed: f64 = keeps.map(|h| h.wait_ns).sum();
        assert!(blamed >= 0.9 * of("wait_min_ns") as f64, "{lock:?}");
        let places: Vec<_> = lock.waiters.iter().map(|w| w.function.as_deref()).collect();
        assert!(places.iter().all(|place| *place == Some("visit")), "{lock:?}");
    }
}

/// They come to their probes only to wait, so these are there all the time, also within a budget.
#[test]
fn waits_that_are_described() {
    let Some(_turn) = may_observe_alone() else { return };
    for options in [&["--budget", "3%"][..], &["--budget", "off"], &["--budget", "off", "--plain-uprobes"]] {
        let (truth, report) = observed(ROOMS, &[], options);
        assert_told(&truth, &report, BY_NUMBER);
    }
}

#[test]
fn described_waits_for_locks_known_by_address() {
    let Some(_turn) = may_observe_alone() else { return };
    let (truth, report) = observed(DOORS, &[], &["--budget", "3%"]);
    assert_told(&truth, &report, BY_ADDRESS);
}

/// Each process has its own number for the room; what stands in the room makes it one lock.
#[test]
fn waits_of_processes_that_are_described() {
    let Some(_turn) = may_observe_alone() else { return };
    let (truth, report) = observed(ROOMS, &["processes"], &["--budget", "3%"]);
    assert_told(&truth, &report, BY_NUMBER);
}
