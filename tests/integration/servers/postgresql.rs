//! PostgreSQL under pgbench, in a data directory of its own: its lightweight locks as `--locks postgresql` describes them.

use super::output;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::privilege::{installed, is_root, skipped};
use crate::harness::process::{Running, eventually};
use nix::sys::signal::Signal;
use nix::unistd::{User, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The release of which the description names the locks.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 300;
/// Further transactions that look at the next number while they are observed, and those of the two questions for it.
const OTHERS: u64 = 20;
/// Backends are there before their work begins, and observed by then.
const SCRIPT: &str = r"\if :warm = 0
select pg_sleep(3);
\set warm 1
\endif
\set aid random(1, 100000)
update pgbench_accounts set abalance = abalance + 1 where aid = :aid;
";

/// Each transaction that writes takes a number, and each number is given under `XidGen`, once. So the server's own numbers tell
/// how often that was acquired, over all backends.
#[test]
fn postgresql_under_pgbench() {
    let Some(_turn) = may_observe() else { return };
    if installed("pg_ctlcluster").is_none() {
        return;
    }
    let (Ok(Some(user)), true) = (User::from_name("postgres"), is_root()) else {
        return skipped("not root, or no user `postgres`: the server does not run as root");
    };
    if !Path::new(PROGRAMS).exists() {
        return skipped(&format!("no {PROGRAMS}: other releases number their locks in another way"));
    }
    let dir = tempfile::tempdir().expect("failed to make a directory");
    chown(dir.path(), Some(user.uid), Some(user.gid)).expect("failed to give the directory away");
    let place = dir.path().to_str().expect("a path in UTF-8");
    let program = |name: &str| {
        let mut command = Command::new(Path::new(PROGRAMS).join(name));
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir(place).env_remove("LC_ALL").env("LANG", "C");
        command
    };
    let client = |name: &str, arguments: &[&str]| output(program(name).args(["-h", place]).args(arguments));
    let data = format!("{place}/data");
    output(program("initdb").args(["-A", "trust", "-N", "-D", &data]));
    let mut command = program("postgres");
    command.args(["-D", &data, "-k", place, "-h", ""]);
    command.args(["-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB"]);
    let mut server = Running::start(&mut command);
    eventually("PostgreSQL answers", || {
        program("pg_isready").args(["-h", place]).output().is_ok_and(|answer| answer.status.success())
    });
    client("pgbench", &["-i", "-q", "-n", "postgres"]);
    let script = format!("{place}/script.sql");
    std::fs::write(&script, SCRIPT).expect("failed to write the script");
    let next = || -> u64 {
        let number = client("psql", &["-At", "-c", "select pg_current_xact_id()", "postgres"]);
        number.trim().parse().unwrap_or_else(|_| panic!("no number: {number}"))
    };
    let observer = Observer::of(server.pid(), &["--follow-forks", "--locks", "postgresql", "--budget", "off"]);
    let before = next();
    let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    let load = ["-n", "-c", &clients, "-j", "2", "-t", &transactions, "-D", "warm=0", "-f", &script, "postgres"];
    client("pgbench", &load);
    let given = next() - before;
    observer.interrupt();
    let report = observer.report();
    assert!(server.is_alive());
    server.signal(Signal::SIGINT);
    server.wait();
    assert!(given >= CLIENTS * TRANSACTIONS, "{given} numbers were given");
    // The backend that answers one question may be gone before it is known which memory it shares.
    let acquired = |name: &str| -> Vec<u64> {
        let locks = report.locks.iter().filter(|lock| lock.name == name && lock.kind == "LWLock");
        locks.map(|lock| lock.acquisitions).collect()
    };
    let numbers = acquired("XidGen");
    let all: u64 = numbers.iter().sum();
    assert!((given..=given + OTHERS).contains(&all), "{numbers:?} for {given} transactions");
    assert!(numbers.iter().any(|&one| one >= CLIENTS * TRANSACTIONS), "{numbers:?} for {given} transactions");
    // Each transaction asks for a snapshot at least once, and leaves the list of those that run.
    let list = acquired("ProcArray");
    assert!(list.iter().any(|&one| one >= 2 * CLIENTS * TRANSACTIONS), "{list:?}");
    assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
    assert!(report.quality.impossible.values().all(|&n| n == 0), "impossible: {:?}", report.quality.impossible);
}
