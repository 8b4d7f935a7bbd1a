//! PostgreSQL under pgbench, in a data directory of its own: its lightweight locks as `--locks postgresql` describes them.

use super::output;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::privilege::{installed, is_root, skipped};
use crate::harness::process::{Running, eventually};
use crate::harness::report::Lock;
use nix::sys::signal::Signal;
use nix::unistd::{User, chown};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

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

/// Transactions that change the same row, some while after another, so that all others wait for whoever has.
const ROW: &str = r"\if :warm = 0
select pg_sleep(3);
\set warm 1
\endif
begin;
update pgbench_branches set bbalance = bbalance + 1 where bid = 1;
select pg_sleep(0.004);
commit;
";
/// A server of its own, with pgbench's tables.
struct Server {
    running: Running,
    user: User,
    dir: TempDir,
}

impl Server {
    /// Starts it with these settings; `None` if this machine cannot.
    fn start(settings: &[&str]) -> Option<Self> {
        installed("pg_ctlcluster")?;
        let (Ok(Some(user)), true) = (User::from_name("postgres"), is_root()) else {
            skipped("not root, or no user `postgres`: the server does not run as root");
            return None;
        };
        if !Path::new(PROGRAMS).exists() {
            skipped(&format!("no {PROGRAMS}: other releases number their locks in another way"));
            return None;
        }
        let dir = tempfile::tempdir().expect("failed to make a directory");
        chown(dir.path(), Some(user.uid), Some(user.gid)).expect("failed to give the directory away");
        let place = dir.path().to_str().expect("a path in UTF-8").to_owned();
        let data = format!("{place}/data");
        output(program(&user, &place, "initdb").args(["-A", "trust", "-N", "-D", &data]));
        let mut command = program(&user, &place, "postgres");
        command.args(["-D", &data, "-k", &place, "-h", ""]);
        command.args(["-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB"]);
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let server = Self { running: Running::start(&mut command), user, dir };
        eventually("PostgreSQL answers", || {
            server.program("pg_isready").args(["-h", &place]).output().is_ok_and(|answer| answer.status.success())
        });
        server.client("pgbench", &["-i", "-q", "-n", "postgres"]);
        Some(server)
    }

    fn place(&self) -> &str {
        self.dir.path().to_str().expect("a path in UTF-8")
    }

    fn program(&self, name: &str) -> Command {
        program(&self.user, self.place(), name)
    }

    /// What a program that asks the server prints.
    fn client(&self, name: &str, arguments: &[&str]) -> String {
        output(self.program(name).args(["-h", self.place()]).args(arguments))
    }

    /// Runs a script in each of the clients so many times.
    fn run(&self, script: &str, transactions: u64) {
        let path = format!("{}/script.sql", self.place());
        fs::write(&path, script).expect("failed to write the script");
        let (clients, transactions) = (CLIENTS.to_string(), transactions.to_string());
        let load = ["-n", "-c", &clients, "-j", "2", "-t", &transactions, "-D", "warm=0", "-f", &path, "postgres"];
        self.client("pgbench", &load);
    }

    /// Ends it, and returns what it has told.
    fn end(mut self) -> String {
        assert!(self.running.is_alive());
        self.running.signal(Signal::SIGINT);
        self.running.wait();
        self.running.err.rest()
    }
}

fn program(user: &User, place: &str, name: &str) -> Command {
    let mut command = Command::new(Path::new(PROGRAMS).join(name));
    command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir(place).env_remove("LC_ALL").env("LANG", "C");
    command
}

/// Each transaction that writes takes a number, and each number is given under `XidGen`, once. So the server's own numbers tell
/// how often that was acquired, over all backends.
#[test]
fn postgresql_under_pgbench() {
    let Some(_turn) = may_observe() else { return };
    let Some(server) = Server::start(&[]) else { return };
    let next = || -> u64 {
        let number = server.client("psql", &["-At", "-c", "select pg_current_xact_id()", "postgres"]);
        number.trim().parse().unwrap_or_else(|_| panic!("no number: {number}"))
    };
    let options = ["--follow-forks", "--locks", "postgresql", "--budget", "off"];
    let observer = Observer::of(server.running.pid(), &options);
    let before = next();
    server.run(SCRIPT, TRANSACTIONS);
    let given = next() - before;
    observer.interrupt();
    let report = observer.report();
    server.end();
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

/// The server tells of each wait for a heavyweight lock that lasts for a while, and how long it was.
#[test]
fn rows_of_postgresql() {
    let Some(_turn) = may_observe() else { return };
    let Some(server) = Server::start(&["log_lock_waits=on", "deadlock_timeout=1ms"]) else { return };
    let options = ["--follow-forks", "--locks", "postgresql", "--budget", "3%"];
    let observer = Observer::of(server.running.pid(), &options);
    let began = Instant::now();
    server.run(ROW, TRANSACTIONS / 3);
    let longest = CLIENTS as f64 * began.elapsed().as_nanos() as f64;
    observer.interrupt();
    let report = observer.report();
    let log = server.end();
    let told = |name: &str| {
        let locks: Vec<_> = report.locks.iter().filter(|l| l.kind == "PostgreSQL lock" && l.name == name).collect();
        let [lock] = locks[..] else { panic!("{name}: {locks:?}") };
        lock
    };
    // LOG:  process 4711 acquired ShareLock on transaction 742 after 5.127 ms
    let waits = |of: &str| -> Vec<f64> {
        let lines = log.lines().filter(|line| line.contains(" acquired ") && line.contains(of));
        lines.filter_map(|line| line.rsplit(" after ").next()?.strip_suffix(" ms")?.parse().ok()).collect()
    };
    let (lock, long) = (told("transactionid"), waits(" on transaction "));
    let sum = long.iter().sum::<f64>() * 1e6;
    assert!(long.len() as u64 >= TRANSACTIONS / 3, "{log}");
    assert!(lock.contended >= long.len() as u64, "{} of {}", lock.contended, long.len());
    let waited = lock.contended_wait_ns.sum;
    assert!(waited >= 0.98 * sum && waited <= longest, "{waited} for {sum}, at most {longest}");
    let commits = lock.holders.iter().filter(|h| h.function.as_deref() == Some("CommitTransactionCommand"));
    let blamed: f64 = commits.map(|h| h.wait_ns).sum();
    assert!(blamed >= 0.8 * waited, "{blamed} of {waited}: {:?}", lock.holders);
}

/// A session changes a row and forgets about it, others wait for it until the observation ends.
#[test]
fn who_is_idle_in_a_transaction_of_postgresql_holds_its_rows() {
    let Some(_turn) = may_observe() else { return };
    let Some(server) = Server::start(&[]) else { return };
    let place = server.place().to_owned();
    let session = || {
        let mut command = server.program("psql");
        Running::start(command.args(["-h", &place, "-qAtX", "postgres"]))
    };
    let change = "update pgbench_branches set bbalance = bbalance + 1 where bid = 1;\n";
    let mut holder = session();
    holder.tell(&format!("begin; {change} select 'pid ' || pg_backend_pid();\n"));
    let pid: u64 = holder.out.find(|line| line.starts_with("pid ")).expect("no pid")[4..].parse().expect("a number");
    // They are there before the observation, and wait when it has begun.
    let mut others = [session(), session()];
    others.iter_mut().for_each(|other| other.tell("select 'there';\n"));
    others.iter_mut().for_each(|other| assert!(other.out.find_any("there")));
    let observed = ["--system-wide", "--comm", "postgres", "--locks", "postgresql", "--format", "json"];
    // At first they begin to wait, then they wait already.
    for begins in [true, false] {
        let observer = Observer::start(&observed);
        if begins {
            others.iter_mut().for_each(|other| other.tell(change));
        }
        let waiting = "select count(*) from pg_locks where not granted";
        eventually("both wait", || server.client("psql", &["-At", "-c", waiting, "postgres"]).trim() == "2");
        std::thread::sleep(Duration::from_millis(500));
        observer.interrupt();
        let report = observer.report();
        let told: Vec<_> = report.locks.iter().filter(|lock| lock.kind == "PostgreSQL lock").collect();
        // Another test may have a server, too.
        let is_held = |lock: &&&Lock| lock.name == "transactionid" && lock.waiting_now.held_by == [Value::from(pid)];
        let lock = told.iter().find(is_held).unwrap_or_else(|| panic!("{pid}: {told:?}"));
        assert_eq!(lock.waiting_now.count, 1, "{lock:?}");
        assert!(lock.waiting_now.longest_ns > 400_000_000, "{lock:?}");
        // Who came later waits for whoever is to have the row next.
        let is_row = |row: &&&Lock| row.name.starts_with("tuple ") && row.pid == lock.pid;
        let row = told.iter().find(is_row).unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(row.waiting_now.count, 1, "{row:?}");
        let waits = report.verdict.iter().any(|line| line.contains("wait"));
        assert!(waits && !report.verdict[0].starts_with("No "), "{:?}", report.verdict);
    }
    others.iter_mut().chain([&mut holder]).for_each(Running::close_stdin);
    holder.wait();
    others.iter_mut().for_each(|other| assert!(other.wait().success()));
    server.end();
}
