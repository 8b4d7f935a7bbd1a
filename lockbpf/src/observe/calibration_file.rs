//! Where calibrations are kept: in the user's state directory, one for each processor.

use crate::model::calibration::{Calibration, SCHEMA};
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What this machine's processor calls itself.
pub(crate) fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |line: &str| line.split_once(':').map(|(_, value)| value.trim().to_owned());
    let named = info.lines().find(|line| line.starts_with("model name")).and_then(field);
    let numbered = || info.lines().find(|line| line.starts_with("CPU part")).and_then(field);
    named.or_else(numbered).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The file for this machine's processor; `None` where the user has no directory.
pub(crate) fn path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = cpu().chars().map(word).collect();
    Some(state.or_else(home)?.join("lockbpf").join(format!("calibration-{name}.json")))
}

/// This machine's calibration; `None` if it has none, or one of another release, which measured other things.
///
/// # Errors
/// When there is a file that cannot be read or is no calibration.
pub(crate) fn load() -> Result<Option<Calibration>> {
    let Some(path) = path() else { return Ok(None) };
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| failed(&path))?,
    };
    let kept: serde_json::Value = serde_json::from_str(&text).with_context(|| failed(&path))?;
    if kept.get("schema").is_some_and(|schema| *schema != SCHEMA) {
        return Ok(None);
    }
    let calibration: Calibration = serde_json::from_value(kept).with_context(|| failed(&path))?;
    Ok(Some(calibration))
}

fn failed(path: &Path) -> String {
    format!("failed to read the calibration {}", path.display())
}
