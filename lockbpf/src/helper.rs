//! Processes that lockbpf starts beside itself: who ends it if it is stalled, who removes its probes, who reads files of observed programs, and
//! what it measures costs on. They are the same program again, started with a variable in its environment.

use lockbpf_common::process::HELPER_NAME;
use nix::sys::prctl;
use std::env;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that tells a program that it is a helper.
pub const VARIABLE: &str = "LOCKBPF_HELPER";

/// See [`set_program`].
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Has this file be run as helpers, not the one that runs here: for programs that do not serve as helpers themselves. Only the first call counts.
pub fn set_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// The file that is run.
#[must_use]
pub fn program() -> &'static Path {
    PROGRAM.get().map_or(Path::new("/proc/self/exe"), PathBuf::as_path)
}

/// A helper of this name, which it has as its first argument, too.
pub(crate) fn command(name: &str) -> Command {
    command_as(program(), name)
}

/// The same, of another program.
pub(crate) fn command_as(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    mark(command.arg(name));
    command
}

/// Tells a process that will run that it is a helper.
pub(crate) fn mark(command: &mut Command) {
    command.env(VARIABLE, "1");
}

/// Gives this process, a helper, a name that says what it does for whom: `lockbpf-reader`.
///
/// # Errors
/// When the kernel does not take it.
pub(crate) fn take_name(helps: &str) -> io::Result<()> {
    let name = [&HELPER_NAME[..], helps.as_bytes()].concat();
    Ok(prctl::set_name(&CString::new(name)?)?)
}

/// Whether this process is a helper.
pub(crate) fn is_one() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// A helper that starts to observe would start helpers that do.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process was started to help one that observes: a program that observes calls `lockbpf::observe::serve` before anything else"
)]
pub struct NotServed;

/// Whether this process may observe.
///
/// # Errors
/// When it is a helper.
pub(crate) fn check() -> Result<(), NotServed> {
    if is_one() { Err(NotServed) } else { Ok(()) }
}
