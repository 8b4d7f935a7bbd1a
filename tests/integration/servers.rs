//! Real servers under load: results that can be checked against the servers' own counters.

mod mariadb;
mod memcached;
mod postgresql;

use crate::harness::exact::assert_complete;
use crate::harness::report::Report;
use crate::unwind::unwound;
use std::net::TcpListener;
use std::process::Command;

/// A TCP port of the loopback interface that nobody uses just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("failed to bind to the loopback interface");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Runs a command to its end and returns what it printed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("failed to run {command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed: {stdout}{stderr}");
    stdout.into_owned()
}

/// What holds for a server that has served so many requests while it was observed.
fn assert_believable(report: &Report, comm: &str, requests: u64) {
    assert_complete(report);
    let acquisitions = report.acquisitions();
    assert!(
        (requests..=1000 * requests).contains(&acquisitions),
        "{acquisitions} acquisitions for {requests} requests"
    );
    let by_thread: u64 = report.threads.iter().map(|thread| thread.acquisitions).sum();
    assert_eq!(by_thread, acquisitions, "threads and locks tell different sums");
    assert!(report.locks.iter().all(|lock| lock.comm == comm), "{:?}", report.names());
    assert!(!report.sites.is_empty(), "a server locks somewhere");
}

/// What holds for a server that a distribution has compiled without frame pointers: nearly every stack of it is known to its
/// start, but for those deeper than what is copied, of which there are fewer than others.
fn assert_whole_stacks(report: &Report) {
    let (all, whole) = unwound(report).unwrap_or_else(|| panic!("nothing unwound: {:?}", report.quality.notes));
    let cut = cut_short(report);
    assert!(whole > all / 2 && whole * 10 >= (all - cut) * 9, "{:?}", report.quality.notes);
}

/// How many stacks were deeper than what is copied of them.
fn cut_short(report: &Report) -> u64 {
    let before = report.quality.notes.iter().find_map(|note| Some(note.split_once(" cut after ")?.0));
    before.and_then(|before| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}
