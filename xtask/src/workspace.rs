//! Where things are: the workspace, its scratch folder, cargo and rustc.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::process;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let xtask = PathBuf::from(xtask);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf)
}

/// The folder that holds everything the eBPF build needs and makes. It lies inside the workspace whatever cargo's
/// target directory is, because paths inside the workspace are the ones that can be made the same everywhere.
pub(crate) fn bpf_dir() -> Result<PathBuf> {
    let dir = root().join("target/bpf");
    fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    Ok(dir)
}

/// The cargo that runs this task, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A cargo command for the crates of the program, optimised.
pub(crate) fn released(args: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(args).args(["--release", "--package", "lockbpf", "--package", "lockbpf-core"]);
    cargo
}

/// Compiles what users get, and the tests that use it, in one go, so that nothing is compiled once for each. It is for cargo the same go only
/// with the same packages and targets: those that others bring along have other features.
pub(crate) fn build_released() -> Command {
    let mut cargo = released(&["build"]);
    cargo.args(["--bin", "lockbpf", "--test", "integration", "--test", "snapshots", "--test", "allocations"]);
    cargo
}

/// The rustc that cargo uses, in the workspace's root.
pub(crate) fn rustc() -> Command {
    let mut command = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.current_dir(root());
    command
}

/// What `rustc -V` says after its name: `1.95.0 (59807616e 2026-04-14)`.
pub(crate) fn rustc_version() -> Result<String> {
    let said = process::output(rustc().arg("-V"), Duration::from_secs(60))?;
    Ok(said.trim().trim_start_matches("rustc ").to_owned())
}

/// Whether this runs under continuous integration, where what cannot be set up is a failure and not a skip.
pub(crate) fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// The path of `program` in `PATH`, in the folders of system programs or in cargo's own.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}
