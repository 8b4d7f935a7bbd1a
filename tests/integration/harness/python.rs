//! Packages of Python's registry that read what lockbpf writes, in an environment of their own.

use super::privilege::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held while an environment is made: tests that want the same one run side by side.
static MAKING: Mutex<()> = Mutex::new(());

/// The interpreter of an environment in which these packages are installed (`name==version`); `None`, with the proof printed, if that cannot be
/// had.
pub(crate) fn with(packages: &[&str]) -> Option<PathBuf> {
    let name = packages.join("+").replace("==", "-");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{name}"));
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let (python, done) = (environment.join("bin/python"), environment.join("installed"));
    if done.exists() {
        return Some(python);
    }
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&environment);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    for command in [&mut create, &mut install] {
        let output = match command.output() {
            Ok(output) if output.status.success() => continue,
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        skipped(&format!("{command:?} failed: {}", output.trim()));
        return None;
    }
    std::fs::write(done, "").expect("the environment is ours");
    Some(python)
}

/// What a script prints, given these arguments.
pub(crate) fn run(python: &Path, script: &str, arguments: &[&Path]) -> String {
    let output = Command::new(python).arg("-c").arg(script).args(arguments).output().expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("python prints text")
}
