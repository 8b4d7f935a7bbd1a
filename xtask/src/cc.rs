//! The C compiler, for the programs that are measured.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::process;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// This machine's own compiler.
pub(crate) const HOST: &str = "cc";

/// Compiles a program that uses threads, for this machine.
///
/// # Errors
/// There is no C compiler, or it fails.
pub(crate) fn compile(source: &Path, program: &Path, options: &[&str]) -> Result<()> {
    compile_with(HOST, source, program, options)
}

/// Compiles a program that uses threads.
///
/// # Errors
/// There is no such compiler, or it fails.
pub(crate) fn compile_with(compiler: &str, source: &Path, program: &Path, options: &[&str]) -> Result<()> {
    let mut cc = Command::new(compiler);
    cc.args(["-O2", "-Wall", "-pthread"]).args(options).arg("-o").arg(program).arg(source);
    process::output(&mut cc, LIMIT)?;
    Ok(())
}

/// Writes GNU C into `dir`, and compiles it there to a program of that name.
///
/// # Errors
/// The text cannot be written, there is no C compiler, or it fails.
pub(crate) fn compile_text(text: &str, dir: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let program = dir.join(name);
    let source = program.with_extension("c");
    fs::write(&source, text).with_context(|| format!("failed to write {}", source.display()))?;
    compile(&source, &program, &[&["-std=gnu11"], options].concat())?;
    Ok(program)
}
