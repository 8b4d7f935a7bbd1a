//! memcached under a load of sets and gets whose answers are checked.

use super::{assert_believable, assert_whole_stacks, free_port};
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::privilege::installed;
use crate::harness::process::{PATIENCE, Running, eventually};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

const CONNECTIONS: u64 = 8;
const ROUNDS: u64 = 1500;

/// One connection that speaks memcached's text protocol.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, request: &str) {
        self.0.get_mut().write_all(request.as_bytes()).expect("failed to send to memcached");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("failed to receive from memcached");
        line.trim_end().to_owned()
    }

    /// Sets one of a few keys that all connections share, and gets it back.
    fn round(&mut self, number: u64) {
        let key = number % 50;
        self.send(&format!("set key{key} 0 0 8\r\nvalue{key:03}\r\n"));
        assert_eq!(self.line(), "STORED");
        self.send(&format!("get key{key}\r\n"));
        assert_eq!(self.line(), format!("VALUE key{key} 0 8"));
        assert_eq!(self.line(), format!("value{key:03}"));
        assert_eq!(self.line(), "END");
    }

    /// A counter of the server's own.
    fn statistic(&mut self, name: &str) -> u64 {
        self.send("stats\r\n");
        let mut value = None;
        loop {
            let line = self.line();
            if line == "END" || line.is_empty() {
                return value.unwrap_or_else(|| panic!("memcached has no {name}"));
            }
            value = line.strip_prefix(&format!("STAT {name} ")).and_then(|n| n.parse().ok()).or(value);
        }
    }
}

#[test]
fn memcached_under_load() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = installed("memcached") else { return };
    let port = free_port();
    let mut command = Command::new(program);
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-t", "4", "-m", "64", "-p", &port.to_string()]);
    let mut server = Running::start(&mut command);
    eventually("memcached answers", || Client::connect(port).is_ok());
    let observer = Observer::of(server.pid(), &[]);
    let load = || {
        let mut client = Client::connect(port).expect("failed to connect to memcached");
        (0..ROUNDS).for_each(|number| client.round(number));
    };
    std::thread::scope(|scope| (0..CONNECTIONS).for_each(|_| drop(scope.spawn(load))));
    let mut client = Client::connect(port).expect("failed to connect to memcached");
    let requests = client.statistic("cmd_get") + client.statistic("cmd_set");
    assert_eq!(requests, 2 * CONNECTIONS * ROUNDS, "the server served what was asked");
    observer.interrupt();
    let report = observer.report();
    assert!(server.is_alive());
    assert_believable(&report, "memcached", requests);
    assert_whole_stacks(&report);
    // Each request locks its item's hash bucket and its worker's own statistics.
    let workers = report.threads.iter().filter(|thread| thread.comm == "mc-worker");
    let (count, made) = workers.fold((0, 0), |(count, made), thread| (count + 1, made + thread.acquisitions));
    assert!((1..=4).contains(&count), "{count} of 4 worker threads: {:?}", report.threads);
    assert!(made >= 2 * requests, "{made} acquisitions of the workers for {requests} requests");
}
