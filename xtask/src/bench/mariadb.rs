//! MariaDB under sysbench, in a data directory of its own, reached by a socket only.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{sys::signal::Signal, unistd::Pid};
use tempfile::TempDir;

use super::{child::Child, interrupt, server::Loaded, wrapper::Wrapper};
use crate::{process, workspace};

/// The server's name.
pub(super) const NAME: &str = "mariadb";
const LOAD: &str = "sysbench oltp_read_write with 4 threads, a request is a statement";
/// Programs that are needed.
pub(super) const PROGRAMS: [&str; 4] = ["mariadb-install-db", "mariadbd", "mariadb", "sysbench"];
/// How long each step of the preparation may take.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// How often and how many times a connection is tried until the server listens.
const RETRY: Duration = Duration::from_millis(50);
const RETRIES: usize = 2400;

/// A running MariaDB under load. Fields end in this order: clients first, the directory last.
pub(super) struct Mariadb {
    load: Child,
    counter: Child,
    server: Child,
    _dir: TempDir,
}

impl Mariadb {
    /// Starts the server as the wrapper says, fills a small database and puts load on it.
    ///
    /// # Errors
    /// A step of it fails.
    pub(super) fn start(wrapper: &Wrapper) -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let socket = dir.path().join("socket");
        let data = format!("--datadir={}", dir.path().join("data").display());
        process::output(
            program("mariadb-install-db")?
                .args(["--no-defaults", &data, "--user=root", "--skip-test-db"])
                .arg("--auth-root-authentication-method=normal"),
            STEP_LIMIT,
        )?;
        let socket_option = format!("--socket={}", socket.display());
        let server = Child::start(
            wrapper
                .command(&path("mariadbd")?)
                .args(["--no-defaults", &data, &socket_option, "--skip-networking", "--user=root"])
                .args(["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"])
                // Under valgrind it would hang with io_uring, and cannot reserve addresses for as large a pool as
                // might ever be. Where there is no such limit yet the option is ignored.
                .args(["--innodb-use-native-aio=0", "--loose-innodb-buffer-pool-size-max=64M"]),
        )?;
        let server = listening(server, &socket)?;
        let client = || -> Result<Command> {
            let mut client = program("mariadb")?;
            client.args(["--no-defaults", "-uroot", &socket_option]);
            Ok(client)
        };
        process::output(client()?.args(["-e", "create database bench"]), STEP_LIMIT)?;
        process::output(&mut sysbench(&socket, "prepare")?, STEP_LIMIT)?;
        // Answers a line to each question, from a connection of its own that stays open.
        let counter = Child::start(client()?.args(["--unbuffered", "--batch", "--skip-column-names"]))?;
        let load = Child::start(&mut sysbench(&socket, "run")?)?;
        Ok(Self { load, counter, server, _dir: dir })
    }
}

impl Loaded for Mariadb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self) -> &'static str {
        LOAD
    }

    fn pid(&self) -> Pid {
        self.server.pid()
    }

    fn resume(&mut self) -> Result<()> {
        self.load.signal(Signal::SIGCONT)
    }

    fn pause(&mut self) -> Result<()> {
        self.load.signal(Signal::SIGSTOP)
    }

    fn requests(&mut self) -> Result<u64> {
        self.server.check_alive()?;
        self.load.check_alive()?;
        self.counter.tell("show global status like 'Questions';")?;
        self.counter.expect_out(questions)
    }
}

fn program(name: &str) -> Result<Command> {
    Ok(Command::new(path(name)?))
}

fn path(name: &str) -> Result<PathBuf> {
    workspace::find_program(name).with_context(|| format!("{name} is not installed"))
}

fn listening(mut server: Child, socket: &Path) -> Result<Child> {
    for _ in 0..RETRIES {
        if UnixStream::connect(socket).is_ok() {
            return Ok(server);
        }
        server.check_alive()?;
        interrupt::sleep(RETRY)?;
    }
    bail!("mariadbd does not listen on {}", socket.display())
}

/// sysbench for a step; a run lasts until it is ended.
fn sysbench(socket: &Path, step: &str) -> Result<Command> {
    let mut command = program("sysbench")?;
    command
        .args(["oltp_read_write", "--mysql-user=root", "--mysql-db=bench", "--tables=4", "--table-size=2000"])
        .args(["--threads=4", "--time=0", "--events=0", "--rand-type=uniform", "--db-ps-mode=auto"])
        .arg(format!("--mysql-socket={}", socket.display()))
        .arg(step);
    Ok(command)
}

/// The count in an answer `Questions<TAB>COUNT`.
fn questions(line: &str) -> Option<u64> {
    let (name, count) = line.split_once('\t')?;
    (name == "Questions").then(|| count.trim().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_counter_is_understood() {
        assert_eq!(questions("Questions\t12345"), Some(12345));
        assert_eq!(questions("Queries\t12345"), None);
        assert_eq!(questions("ERROR 2006"), None);
    }
}
