//! The programs that use locks: one for each language.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, ensure};

use super::super::pairs::{self, Workload};
use crate::{process, workspace};

/// A program, and the uses that it knows.
pub(super) struct Program {
    /// Its language.
    pub(super) language: &'static str,
    /// What it takes to build and run it.
    tool: &'static str,
    /// How it is built in a directory, and run from there.
    build: fn(&Path) -> Result<Command>,
    /// Uses that it knows, and what they are.
    pub(super) uses: &'static [(&'static str, &'static str)],
}

pub(super) const PROGRAMS: [Program; 5] = [
    Program {
        language: "C",
        tool: "cc",
        build: pairs::build,
        uses: &[
            ("mutex", "mutex: lock, unlock"),
            ("mutex_try", "mutex: trylock, unlock"),
            ("mutex_timed", "mutex: timedlock, unlock"),
            ("rwlock_read", "rwlock: rdlock, unlock"),
            ("rwlock_write", "rwlock: wrlock, unlock"),
            ("spin", "spin lock: lock, unlock"),
            ("c11_mutex", "C11: mtx_lock, mtx_unlock"),
            ("own", "a lock of the program's own, described: lock, unlock"),
            ("semaphore", "semaphore: wait, post"),
            ("cond_signal", "condition variable: signal, nobody waits"),
            ("barrier_of_one", "barrier of one: wait"),
            ("once_done", "once: done already"),
        ],
    },
    Program {
        language: "Python",
        tool: "python3",
        build: |dir| {
            std::fs::write(dir.join("uses.py"), include_str!("uses.py"))?;
            let mut command = Command::new("python3");
            command.arg(dir.join("uses.py"));
            Ok(command)
        },
        uses: &[
            ("python_lock", "Python: threading.Lock, acquire, release"),
            ("gil", "Python: interpreter lock given back and taken, time.sleep(0)"),
        ],
    },
    Program {
        language: "Rust",
        tool: "rustc",
        build: |dir| {
            std::fs::write(dir.join("uses.rs"), include_str!("uses_rust.rs"))?;
            compiled(dir, Command::new("rustc").args(["--edition=2024", "-O", "-o", "uses", "uses.rs"]))
        },
        uses: &[("rust_mutex", "Rust: Mutex, lock, unlock"), ("rust_read", "Rust: RwLock, read, unlock")],
    },
    Program {
        language: "Go",
        tool: "go",
        build: |dir| {
            std::fs::write(dir.join("uses.go"), include_str!("uses.go"))?;
            compiled(dir, Command::new("go").args(["build", "-o", "uses", "uses.go"]).env("GO111MODULE", "off"))
        },
        uses: &[("go_mutex", "Go: Mutex, Lock, Unlock"), ("go_read", "Go: RWMutex, RLock, RUnlock")],
    },
    Program {
        language: "Java",
        tool: "java",
        build: |dir| {
            std::fs::write(dir.join("Uses.java"), include_str!("Uses.java"))?;
            let mut command = Command::new("java");
            command.arg("-XX:+UseSerialGC").arg(dir.join("Uses.java"));
            Ok(command)
        },
        uses: &[("java_monitor", "Java: synchronized")],
    },
];

impl Program {
    /// Builds and starts it in the directory.
    ///
    /// # Errors
    /// What it takes is not installed, or building or starting it fails.
    pub(super) fn start(&self, dir: &Path, window: Duration) -> Result<Workload> {
        ensure!(workspace::find_program(self.tool).is_some(), "{} is not installed", self.tool);
        Workload::of(&mut (self.build)(dir)?, window)
    }
}

/// What a compiler has left in the directory as `uses`.
fn compiled(dir: &Path, compiler: &mut Command) -> Result<Command> {
    process::output(compiler.current_dir(dir), Duration::from_secs(120))?;
    Ok(Command::new(dir.join("uses")))
}
