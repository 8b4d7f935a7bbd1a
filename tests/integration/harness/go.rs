//! Compiles the workloads that are written in Go.

use super::privilege::installed;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

static BUILT: LazyLock<Mutex<HashMap<(String, bool), PathBuf>>> = LazyLock::new(Mutex::default);

/// The compiled workload of `tests/workloads/NAME/`, with or without symbols; `None`, with the reason printed, without Go.
pub(crate) fn compile_go(name: &str, stripped: bool) -> Option<PathBuf> {
    let go = installed("go")?;
    // Once for a run of the tests: a program that is replaced while it runs is another case.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    Some(built.entry((name.to_owned(), stripped)).or_insert_with(|| compile_now(&go, name, stripped)).clone())
}

fn compile_now(go: &Path, name: &str, stripped: bool) -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kind = if stripped { "stripped" } else { "plain" };
    let program = temporary.join(format!("{name}-{kind}"));
    let fresh = temporary.join(format!("{name}-{kind}.{}", std::process::id()));
    let output = Command::new(go)
        .args(["build", "-ldflags", if stripped { "-s -w" } else { "" }, "-o"])
        .arg(&fresh)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads").join(name))
        .env("GOCACHE", temporary.join("go-cache"))
        .env("GOPATH", temporary.join("go-path"))
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")])
        .output()
        .expect("failed to run go");
    assert!(output.status.success(), "failed to compile {name}: {}", String::from_utf8_lossy(&output.stderr));
    // Renamed into place: another run of the tests may be executing the old file.
    std::fs::rename(&fresh, &program).expect("failed to move a workload into place");
    program
}
