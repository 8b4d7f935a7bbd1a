//! xtask as cargo's `RUSTC_WRAPPER` while the fuzz targets are compiled: it has our own crates count which code an input reaches, as
//! libFuzzer expects it. Dependencies stay as they are, so that the release build's can be used.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

/// Set to the workspace's root by the build; its presence makes xtask act as the wrapper.
pub(crate) const ROOT_VAR: &str = "LOCKBPF_FUZZ_BUILD_ROOT";

/// What makes the compiler count.
const FLAGS: [&str; 7] = [
    "--cfg",
    "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Replaces this process by the rustc that cargo asked for (`xtask RUSTC ARGS…`).
///
/// # Errors
/// Cargo gave no rustc, or it cannot be started.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let mut args = env::args_os().skip(1);
    let rustc = args.next().context("failed to act as rustc's wrapper: no rustc given")?;
    let args: Vec<OsString> = args.collect();
    let ours = env::var_os("CARGO_MANIFEST_DIR").is_some_and(|dir| is_ours(root, dir.as_ref(), &args));
    let flags = if ours { FLAGS.as_slice() } else { &[] };
    let error = Command::new(&rustc).args(args).args(flags).exec();
    Err(error).with_context(|| format!("failed to start {}", Path::new(&rustc).display()))
}

/// Whether this compiles one of the crates beside `fuzz/`, the analysis, or a target in `fuzz/`; nothing that runs while compiling.
fn is_ours(root: &Path, manifest_dir: &Path, args: &[OsString]) -> bool {
    let compiles = args.iter().any(|arg| arg == "--crate-name");
    let helps = args.iter().any(|arg| arg == "build_script_build" || arg == "proc-macro");
    let beside = manifest_dir.parent() == Some(root) || manifest_dir == root.join("lockbpf/core");
    beside && compiles && !helps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(manifest_dir: &str, args: &[&str]) -> bool {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        is_ours(Path::new("/ws"), Path::new(manifest_dir), &args)
    }

    #[test]
    fn only_our_own_crates_are_instrumented() {
        let library = ["--crate-name", "x", "--crate-type", "lib"];
        assert!(ours("/ws/lockbpf-common", &library) && ours("/ws/fuzz", &library));
        assert!(ours("/ws/lockbpf/core", &library));
        assert!(!ours("/home/me/.cargo/registry/src/x/serde-1.0.0", &library));
        assert!(!ours("/ws/lockbpf", &["--crate-name", "build_script_build"]));
        assert!(!ours("/ws/lockbpf", &["-vV"]));
    }
}
