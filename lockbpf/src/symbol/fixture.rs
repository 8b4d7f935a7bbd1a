//! Small programs for tests: compiled on the spot, they print their own addresses, so that what a test expects does not
//! come from the code it tests.

use crate::id::{Lock, Process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The process number that tests give to their program.
pub(super) const PROCESS: Process = Process(1);

/// A lock of the test's program.
pub(super) fn lock(addr: u64) -> Lock {
    Lock { process: PROCESS, addr }
}

/// A directory to build in.
pub(super) struct Workshop(TempDir);

impl Workshop {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a source text; `None`, with the proof on stderr, if there is no such compiler. The source sees
    /// `tell("name", address)`, which prints, and `stay()`, which waits for the end of input.
    pub(super) fn build(&self, compiler: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
        let suffix = match compiler {
            "rustc" => "rs",
            "g++" => "cc",
            _ => "c",
        };
        let name = format!("fixture{}", std::fs::read_dir(self.0.path()).unwrap().count());
        let (source_path, program) = (self.path(&format!("{name}.{suffix}")), self.path(&name));
        let prelude = if compiler == "rustc" { "" } else { PRELUDE };
        std::fs::write(&source_path, format!("{prelude}{source}")).unwrap();
        let mut command = Command::new(compiler);
        command.arg(&source_path).arg("-o").arg(&program).args(options);
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                crate::fixture::skipped(&format!("no {compiler} in PATH ({error})"));
                None
            }
            Err(error) => panic!("{compiler}: {error}"),
            Ok(out) => {
                assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
                Some(program)
            }
        }
    }

    /// Runs a tool of binutils.
    pub(super) fn tool(&self, name: &str, args: &[&Path]) {
        let status = Command::new(name).args(args).current_dir(self.0.path()).status();
        assert!(status.unwrap_or_else(|e| panic!("{name}: {e}")).success(), "{name} {args:?}");
    }
}

/// What every C and C++ source begins with.
const PRELUDE: &str = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <unistd.h>\n\
    static void tell(const char *name, const void *addr) { printf(\"%s %lx\\n\", name, (unsigned long)addr); }\n\
    static void stay(void) { puts(\"ready 0\"); fflush(stdout); char c; while (read(0, &c, 1) > 0 && c != 'n') ; }\n";

/// A running program and what it told of itself.
pub(super) struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
    told: HashMap<String, u64>,
}

impl Program {
    /// Starts a program and waits until it stays.
    pub(super) fn start(path: &Path, args: &[&Path]) -> Self {
        let mut child = Command::new(path)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fixture runs");
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, output, told: HashMap::new() };
        program.listen();
        program
    }

    /// Reads what the program tells until it stays again.
    fn listen(&mut self) {
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the fixture ended early");
            let (name, addr) = line.trim().rsplit_once(' ').unwrap();
            self.told.insert(name.to_owned(), u64::from_str_radix(addr, 16).unwrap());
        }
    }

    /// Lets the program go on until it stays again.
    pub(super) fn resume(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"n").unwrap();
        self.listen();
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An address that the program told.
    #[track_caller]
    pub(super) fn told(&self, name: &str) -> u64 {
        *self.told.get(name).unwrap_or_else(|| panic!("the fixture did not tell {name}"))
    }

    /// Every address that the program told, with its name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let told = self.told.iter().filter(|(name, _)| *name != "ready");
        told.map(|(name, &addr)| (name.as_str(), addr))
    }

    /// Kills the program and waits until nothing is left of it in /proc.
    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
