//! The descriptions of locks that an observation goes by.

use crate::custom::{self, Catalogue, SHIPPED};
use crate::input;
use crate::untrusted::shown;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where descriptions are that every observation goes by.
const DIRECTORY: &str = "/etc/lockbpf/locks.d";

/// Goes by these descriptions, and those of this machine, from now on.
///
/// # Errors
/// When one cannot be read, or has a mistake.
pub(crate) fn load(files: &[PathBuf]) -> Result<()> {
    let mut catalogue = Catalogue::default();
    for file in files {
        add(&mut catalogue, file)?;
    }
    for file in of_machine()? {
        add(&mut catalogue, &file)?;
    }
    custom::install(catalogue);
    Ok(())
}

/// The descriptions of this machine, in the order of their names.
fn of_machine() -> Result<Vec<PathBuf>> {
    let failed = || format!("failed to read {DIRECTORY}");
    let entries = match std::fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.with_context(failed)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

/// Adds what a file, or a description that lockbpf brings along, says.
///
/// # Errors
/// When it cannot be read, or has a mistake.
pub(crate) fn add(catalogue: &mut Catalogue, file: &Path) -> Result<()> {
    let shipped = SHIPPED.iter().find(|(name, _)| file == Path::new(name));
    let origin = shown(&file.display().to_string()).into_owned();
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None => input::read_text(file).with_context(|| format!("failed to read the locks that {origin} describes"))?,
    };
    catalogue.add(&text, &origin).context("locks are not described as they should be")
}
