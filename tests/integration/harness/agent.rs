//! `lockbpf agent`, run as a service manager runs it, and asked over HTTP.

use super::observer::lockbpf;
use super::process::{Running, eventually};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What requests carry.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A running service.
pub(crate) struct Agent {
    pub(crate) running: Running,
    /// Where it listens.
    pub(crate) address: String,
    dir: TempDir,
}

impl Agent {
    /// Observes one process without a bound, as this says besides.
    pub(crate) fn of(pid: u32, more: &str) -> Self {
        Self::configured(&configuration(pid, more))
    }

    /// Observes as this configuration says.
    pub(crate) fn configured(text_of: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("agent.toml");
        std::fs::write(&config, text_of).expect("a configuration");
        Self::started(dir, lockbpf().args(["agent", "--config", text(&config)]))
    }

    /// The one that a command starts. A folder is kept as long as it runs.
    pub(crate) fn started(dir: TempDir, command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let served = running.err.find(|line| line.starts_with("lockbpf: serving http at "));
        let Some(served) = served else { panic!("the agent ended: {}", running.err.rest()) };
        let address = served.rsplit(' ').next().expect("an address").to_owned();
        let agent = Self { running, address, dir };
        eventually("it observes", || agent.get("/healthz").starts_with("HTTP/1.1 200"));
        agent
    }

    /// A file in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The answer to a request, its head included; a body that is no text is cut off.
    pub(crate) fn get(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.ask(path, "")).into_owned()
    }

    /// The same, with more in the request's head.
    pub(crate) fn ask(&self, path: &str, header: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer {TOKEN}\r\n{header}\r\n")
            .expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        answer
    }

    /// The body of an answer that is one.
    pub(crate) fn body(&self, path: &str, header: &str) -> Vec<u8> {
        let answer = self.ask(path, header);
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        answer[end + 4..].to_vec()
    }

    /// What it tells now.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::of(&String::from_utf8(self.body("/metrics", "")).expect("metrics are text"))
    }

    /// Ends it as a service manager does.
    pub(crate) fn end(mut self) {
        self.running.signal(Signal::SIGTERM);
        let status = self.running.wait();
        assert!(status.success(), "{status}: {}", self.running.err.rest());
    }
}

/// The least that it has to be told.
pub(crate) fn configuration(pid: u32, more: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\ninterval = \"1s\"\n{more}\n[observe]\npids = [{pid}]\nbudget = \"off\"\n")
}

/// Samples by name and labels.
#[derive(Debug)]
pub(crate) struct Metrics(pub(crate) BTreeMap<String, f64>);

impl Metrics {
    /// As `/metrics` has them.
    pub(crate) fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample =
            |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().expect("a number")));
        Self(lines.filter_map(sample).collect())
    }

    /// The sum of a metric's samples with these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let fits = |key: &str| key.split('{').next() == Some(name) && labels.iter().all(|label| key.contains(label));
        self.0.iter().filter(|(key, _)| fits(key)).map(|(_, value)| value).sum()
    }
}
