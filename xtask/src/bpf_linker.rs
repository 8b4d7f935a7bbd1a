//! Finds bpf-linker, which turns LLVM bitcode into an eBPF object, or installs it privately.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

/// The one version the objects are linked with; from 0.11 on it needs an LLVM of the system's own.
pub(crate) const VERSION: &str = "0.10.4";

/// Lets bpf-linker use the LLVM that comes with rustc, whose major version this names.
const FEATURE: &str = "rust-llvm-22";

/// How long compiling bpf-linker may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The path of a bpf-linker of exactly [`VERSION`]: in `PATH`, in cargo's folder of programs, or installed into
/// `target/tools` (never over the user's own).
///
/// # Errors
/// None is there and it cannot be installed.
pub(crate) fn find_or_install() -> Result<PathBuf> {
    let tools = workspace::root().join("target/tools");
    let private = tools.join("bin/bpf-linker");
    let found = workspace::find_program("bpf-linker").into_iter().chain([private.clone()]).find(|path| is_right(path));
    if let Some(path) = found {
        return Ok(path);
    }
    eprintln!("bpf-linker {VERSION} is not installed: compiling it into {}", tools.display());
    install(&tools).with_context(|| {
        format!(
            "failed to install bpf-linker; by hand: cargo install bpf-linker --version {VERSION} --locked \
             --no-default-features --features {FEATURE}"
        )
    })?;
    if !is_right(&private) {
        bail!("failed to install bpf-linker: {} is not version {VERSION}", private.display());
    }
    Ok(private)
}

fn is_right(linker: &Path) -> bool {
    let said = process::output(Command::new(linker).arg("--version"), Duration::from_secs(60));
    said.is_ok_and(|said| said.trim() == format!("bpf-linker {VERSION}"))
}

fn install(tools: &Path) -> Result<()> {
    let mut command = workspace::cargo();
    // Without optimisations: the work is that of rustc's LLVM, and compiling takes half the time.
    command.args(["install", "--quiet", "--debug", "bpf-linker", "--version", VERSION, "--locked"]);
    command.args(["--no-default-features", "--features", FEATURE, "--root"]).arg(tools);
    process::output(&mut command, INSTALL_LIMIT).map(drop)
}
