//! memcached over loopback.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

use super::{child::Child, interrupt, load::Load, server::Loaded, wrapper::Wrapper};
use crate::workspace;

const CONNECTIONS: u64 = 8;
/// Distinct keys.
const KEYS: u64 = 10_000;
/// The same under a wrapper, where a server may take a tenth of a second to store one.
const FEW_KEYS: u64 = 200;
/// The server's name.
pub(super) const NAME: &str = "memcached";
/// Programs that are needed.
pub(super) const PROGRAMS: [&str; 1] = ["memcached"];
const LOAD: &str = "8 connections over loopback, 9 gets for each set";
/// How often and how many times a connection is tried until the server listens.
const RETRY: Duration = Duration::from_millis(20);
const RETRIES: usize = 3000;

/// A running memcached under load. The load ends before the server does.
pub(super) struct Memcached {
    load: Load,
    server: Child,
}

impl Memcached {
    /// Starts the server as the wrapper says, and its load.
    ///
    /// # Errors
    /// The server cannot be started, or does not answer.
    pub(super) fn start(wrapper: &Wrapper) -> Result<Self> {
        let program = workspace::find_program("memcached").context("memcached is not installed")?;
        let port = free_port()?;
        let mut command = wrapper.command(&program);
        command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-m", "64", "-p", &port.to_string()]);
        let mut server = Child::start(&mut command)?;
        for _ in 0..RETRIES {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                break;
            }
            server.check_alive()?;
            interrupt::sleep(RETRY)?;
        }
        Ok(Self { load: Load::start(port, CONNECTIONS, if wrapper.is_none() { KEYS } else { FEW_KEYS })?, server })
    }
}

impl Loaded for Memcached {
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
        self.load.resume();
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        self.load.pause();
        Ok(())
    }

    fn requests(&mut self) -> Result<u64> {
        self.server.check_alive()?;
        self.load.answered()
    }
}

/// A TCP port of the loopback interface that nobody uses just now.
/// A port that nobody has.
///
/// # Errors
/// There is none.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to bind to the loopback interface")?;
    Ok(listener.local_addr()?.port())
}
