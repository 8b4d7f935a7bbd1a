//! What lockbpf makes of recordings of real programs, byte by byte as it was when it was last accepted.
//!
//! `commands.txt` lists the goldens. `recordings/` holds the input: programs of `tests/workloads` under observation, with most kinds of
//! locks. `expected/` holds the output. `cargo xtask goldens --accept` renews it; what then changes is for the review to judge.
//! A golden of a page is its data, without the script that shows them; one of Parquet files is the rows, as text.

mod shown;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set by `cargo xtask goldens --accept`: what is written is taken as right.
const ACCEPT: &str = "LOCKBPF_ACCEPT_GOLDENS";

/// One output and how it comes about.
struct Golden<'a> {
    file: &'a str,
    arguments: Vec<&'a str>,
}

impl<'a> Golden<'a> {
    /// A line of `commands.txt`; `None` for a comment or an empty line.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let file = words.next().filter(|word| !word.starts_with('#'))?;
        Some(Self { file, arguments: words.collect() })
    }

    /// What lockbpf writes, whatever this machine was calibrated to.
    fn output(&self, recordings: &Path) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a directory");
        let tables = folder.path().to_str().expect("a path in UTF-8");
        let output = Command::new(env!("CARGO_BIN_EXE_lockbpf"))
            .args(self.arguments.iter().map(|&word| if word == "TABLES" { tables } else { word }))
            .current_dir(recordings)
            .env("XDG_STATE_HOME", "/nonexistent")
            .env("LOCKBPF_CALIBRATE", "never")
            .output()
            .expect("failed to run lockbpf");
        let said = String::from_utf8_lossy(&output.stderr);
        // A gate that fails has an exit status of its own.
        let gated = output.status.code() == Some(3) && self.arguments.contains(&"--fail-if");
        assert!(output.status.success() || gated, "lockbpf {}: {}: {said}", self.arguments.join(" "), output.status);
        if self.arguments.contains(&"TABLES") {
            shown::tables(folder.path()).into_bytes()
        } else if self.arguments.contains(&"html") {
            shown::data(&String::from_utf8(output.stdout).expect("a page is UTF-8")).into_bytes()
        } else {
            output.stdout
        }
    }

    /// The first line that is not as expected.
    fn difference(&self, expected: &[u8], output: &[u8]) -> Option<String> {
        if expected == output {
            return None;
        }
        let (expected, output) = (String::from_utf8_lossy(expected), String::from_utf8_lossy(output));
        let same = expected.split('\n').zip(output.split('\n')).take_while(|(a, b)| a == b).count();
        let line = |text: &str| text.split('\n').nth(same).unwrap_or("(the end)").to_owned();
        let (command, n, a, b) = (self.arguments.join(" "), same + 1, line(&expected), line(&output));
        Some(format!("{}, line {n}\n  expected: {a}\n  written:  {b}\n  by: lockbpf {command}", self.file))
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens").join(name)
}

/// Recordings say how many CPUs their programs could use. Event lines do not: their predictions get one CPU, on every machine.
fn use_one_cpu() {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own).expect("failed to ask for the CPUs");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).expect("there is a CPU");
    let mut one = CpuSet::new();
    one.set(first).expect("the CPU is in range");
    sched_setaffinity(own, &one).expect("failed to choose a CPU");
}

#[test]
fn goldens() {
    use_one_cpu();
    let (recordings, expected) = (folder("recordings"), folder("expected"));
    let accept = std::env::var_os(ACCEPT).is_some();
    let commands = fs::read_to_string(folder("commands.txt")).expect("failed to read the list of goldens");
    let goldens: Vec<Golden<'_>> = commands.lines().filter_map(Golden::parse).collect();
    let mut wrong = Vec::new();
    for golden in &goldens {
        let (output, file) = (golden.output(&recordings), expected.join(golden.file));
        if accept {
            fs::write(&file, &output).expect("failed to write a golden");
        }
        wrong.extend(golden.difference(&fs::read(&file).unwrap_or_default(), &output));
    }
    let listed: BTreeSet<&str> = goldens.iter().map(|golden| golden.file).collect();
    assert_eq!(listed.len(), goldens.len(), "commands.txt lists a file twice");
    for entry in fs::read_dir(&expected).expect("failed to list the goldens").flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| listed.contains(name)) {
            continue;
        }
        if accept {
            fs::remove_file(entry.path()).expect("failed to remove a golden");
        } else {
            wrong.push(format!("{} is not in commands.txt", name.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} goldens are wrong (if they should be as they are now: `cargo xtask goldens --accept`):\n{}",
        wrong.len(),
        goldens.len(),
        wrong.join("\n")
    );
}
