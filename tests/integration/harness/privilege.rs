//! Proof that a test cannot be run here: nothing is skipped without one.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Why this process may not load and attach eBPF programs, as the kernel tells it; `None` if it may.
pub(crate) fn lacking() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").expect("failed to read /proc/self/status");
    let line = status.lines().find(|line| line.starts_with("CapEff:")).expect("no CapEff in /proc/self/status");
    let bits = u64::from_str_radix(line["CapEff:".len()..].trim(), 16).expect("CapEff is not a number");
    let has = |cap: u32| bits >> cap & 1 == 1;
    let enough = has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON);
    (!enough).then(|| format!("{line} has neither CAP_SYS_ADMIN nor both of CAP_BPF and CAP_PERFMON"))
}

/// Whether this process is user 0, as setting up containers and changing the user need.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The one way for a test to pass having done nothing: prints why it did not run, past the test harness's capture. Where the tests are the gate
/// (`CI=true`), that is a failure.
pub(crate) fn skipped(proof: &str) {
    assert!(!is_ci(), "nothing may be skipped with CI={}: {proof}", std::env::var("CI").unwrap_or_default());
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    writeln!(std::io::stderr(), "skipped: {name}: {proof}").expect("failed to write to stderr");
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// The path of a program on `PATH` or among the system's own; `None`, with the proof printed, if it is not installed.
pub(crate) fn installed(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = path.split(':').map(|dir| Path::new(dir).join(program)).find(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("no {program} in {path}"));
    }
    found
}

/// lockbpf as the user `nobody`, without any capability, in a place where that user may execute it; `None`, with the
/// proof printed, where it cannot be done.
pub(crate) fn unprivileged() -> Option<(tempfile::TempDir, Command)> {
    if !is_root() {
        skipped("not root: cannot become another user");
        return None;
    }
    let setpriv = installed("setpriv")?;
    let dir = tempfile::tempdir().expect("failed to make a directory");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("failed to open a directory to all");
    let program = dir.path().join("lockbpf");
    fs::copy(env!("CARGO_BIN_EXE_lockbpf"), &program).expect("failed to copy lockbpf");
    let mut command = Command::new(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    Some((dir, command))
}
