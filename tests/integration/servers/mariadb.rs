//! MariaDB under sysbench, in a data directory of its own.

use super::{assert_believable, assert_whole_stacks, free_port, output};
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::privilege::{installed, is_root, skipped};
use crate::harness::process::{Running, eventually};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// The sysbench command for a step of the benchmark.
fn sysbench(program: &Path, socket: &Path, step: &str) -> String {
    let socket = format!("--mysql-socket={}", socket.display());
    output(Command::new(program).args(["oltp_read_write", "--mysql-user=root", "--mysql-db=bench", &socket]).args([
        "--tables=2",
        "--table-size=500",
        "--threads=4",
        "--time=0",
        "--events=400",
        step,
    ]))
}

#[test]
fn mariadb_under_sysbench() {
    let Some(_turn) = may_observe() else { return };
    let programs = ["mariadb-install-db", "mariadbd", "mariadb", "sysbench"].map(installed);
    let [Some(install), Some(server), Some(client), Some(bench)] = programs else { return };
    if !is_root() {
        return skipped("not root: cannot run a server with --user=root");
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
    let mut server = Running::start(&mut command);
    eventually("MariaDB answers", || UnixStream::connect(&socket).is_ok());
    output(Command::new(client).args(["--no-defaults", "-uroot", &socket_option, "-e", "create database bench"]));
    sysbench(&bench, &socket, "prepare");
    let observer = Observer::of(server.pid(), &[]);
    let result = sysbench(&bench, &socket, "run");
    observer.interrupt();
    let report = observer.report();
    assert!(server.is_alive());
    let transactions = result.lines().find_map(|line| line.trim().strip_prefix("transactions:"));
    let count = transactions.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let count: u64 = count.unwrap_or_else(|| panic!("sysbench tells no transactions: {result}"));
    assert!(count >= 400, "{result}");
    assert_believable(&report, "mariadbd", count);
    assert_whole_stacks(&report);
}
