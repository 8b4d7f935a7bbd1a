//! MariaDB under sysbench, in a data directory of its own.

use super::{assert_believable, assert_whole_stacks, free_port, output};
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::privilege::{installed, is_root, skipped};
use crate::harness::process::{Running, eventually};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Each transaction updates one row, which it keeps for two milliseconds.
const ONE_ROW: &str = r#"
function thread_init() con = sysbench.sql.driver():connect() end
function event()
  con:query("BEGIN")
  con:query("UPDATE hot SET v = v + 1")
  con:query("SELECT SLEEP(0.002)")
  con:query("COMMIT")
end
"#;

/// A server, its data, and its clients.
struct Mariadb {
    server: Running,
    client: PathBuf,
    bench: PathBuf,
    dir: TempDir,
}

impl Mariadb {
    /// `None`, and says so, where it cannot be run.
    fn start() -> Option<Self> {
        let programs = ["mariadb-install-db", "mariadbd", "mariadb", "sysbench"].map(installed);
        let [Some(install), Some(server), Some(client), Some(bench)] = programs else { return None };
        if !is_root() {
            skipped("not root: cannot run a server with --user=root");
            return None;
        }
        let dir = tempfile::tempdir().expect("failed to make a directory");
        let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
        let data = format!("--datadir={}", data.display());
        output(
            Command::new(install)
                .args(["--no-defaults", &data, "--user=root", "--skip-test-db"])
                .args(["--auth-root-authentication-method=normal"]),
        );
        let (socket_option, port) = (format!("--socket={}", socket.display()), format!("--port={}", free_port()));
        let mut command = Command::new(server);
        command.args(["--no-defaults", &data, &socket_option, &port, "--bind-address=127.0.0.1", "--user=root"]);
        command.args(["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"]);
        let server = Running::start(&mut command);
        eventually("MariaDB answers", || UnixStream::connect(&socket).is_ok());
        let mariadb = Self { server, client, bench, dir };
        mariadb.query("create database bench");
        Some(mariadb)
    }

    fn socket(&self) -> String {
        self.dir.path().join("socket").display().to_string()
    }

    fn query(&self, query: &str) -> String {
        let socket = format!("--socket={}", self.socket());
        output(Command::new(&self.client).args(["--no-defaults", "-uroot", &socket, "-N", "-e", query]))
    }

    /// The number that it keeps by this name.
    fn status(&self, name: &str) -> u64 {
        let told = self.query(&format!("show global status like '{name}'"));
        let number = told.split_whitespace().last().and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no {name}: {told}"))
    }

    /// The sysbench command for a step of a benchmark.
    fn sysbench(&self, bench: &str, options: &[&str], step: &str) -> String {
        let socket = format!("--mysql-socket={}", self.socket());
        let command = [bench, "--mysql-user=root", "--mysql-db=bench", &socket, "--time=0"];
        output(Command::new(&self.bench).args(command).args(options).arg(step))
    }
}

/// What the server itself counts and times: the waits for rows.
#[test]
fn rows_of_mariadb() {
    let Some(_turn) = may_observe() else { return };
    let Some(mut mariadb) = Mariadb::start() else { return };
    mariadb.query("create table bench.hot (v int) engine=innodb; insert into bench.hot values (0)");
    let script = mariadb.dir.path().join("one_row.lua");
    std::fs::write(&script, ONE_ROW).expect("failed to write the benchmark");
    for options in [&["--budget", "off"][..], &["--futex-only"]] {
        let counted = || ["Innodb_row_lock_waits", "Innodb_row_lock_time"].map(|name| mariadb.status(name));
        let before = counted();
        let observer = Observer::of(mariadb.server.pid(), options);
        mariadb.sysbench(&script.display().to_string(), &["--threads=8", "--events=1000"], "run");
        observer.interrupt();
        let report = observer.report();
        let [waits, waited_ms] = {
            let after = counted();
            [after[0] - before[0], after[1] - before[1]]
        };
        let told = report.locks.first().unwrap_or_else(|| panic!("{options:?}: {:?}", report.verdict));
        assert_eq!(told.kind, "lock of conditions", "{options:?}: {:?}", report.verdict);
        let close = |told: f64, counted: u64| (told / counted as f64 - 1.0).abs() < 0.1;
        assert!(close(told.contended as f64, waits), "{options:?}: {} waits of {waits}", told.contended);
        assert!(close(told.wait_ns.sum / 1e6, waited_ms), "{options:?}: {} of {waited_ms} ms", told.wait_ns.sum);
    }
    assert!(mariadb.server.is_alive());
}

#[test]
fn mariadb_under_sysbench() {
    let Some(_turn) = may_observe() else { return };
    let Some(mut mariadb) = Mariadb::start() else { return };
    let sysbench = |step| {
        let options = ["--tables=2", "--table-size=500", "--threads=4", "--events=400"];
        mariadb.sysbench("oltp_read_write", &options, step)
    };
    sysbench("prepare");
    let observer = Observer::of(mariadb.server.pid(), &[]);
    let result = sysbench("run");
    observer.interrupt();
    let report = observer.report();
    assert!(mariadb.server.is_alive());
    let transactions = result.lines().find_map(|line| line.trim().strip_prefix("transactions:"));
    let count = transactions.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let count: u64 = count.unwrap_or_else(|| panic!("sysbench tells no transactions: {result}"));
    assert!(count >= 400, "{result}");
    assert_believable(&report, "mariadbd", count);
    assert_whole_stacks(&report);
}
