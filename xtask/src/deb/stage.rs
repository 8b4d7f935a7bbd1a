//! The directory tree that becomes a package.

use super::LIMIT;
use crate::process;
use anyhow::{Context as _, Result};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// A tree that grows file by file, each with the rights that it is to have.
pub(super) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// An empty tree.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its root.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a file of the package lies in the tree; its directory is made, open to all.
    pub(super) fn place(&self, at: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.root.join(at);
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).with_context(|| format!("failed to make {}", parent.display()))?;
        for dir in parent.ancestors().take_while(|dir| dir.starts_with(&self.root)) {
            fs::set_permissions(dir, Permissions::from_mode(0o755))?;
        }
        Ok(path)
    }

    /// Adds a file.
    pub(super) fn add(&self, at: impl AsRef<Path>, mode: u32, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.place(at)?;
        fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        Ok(path)
    }

    /// Adds a copy of a file.
    pub(super) fn copy(&self, from: &Path, at: impl AsRef<Path>, mode: u32) -> Result<PathBuf> {
        let content = fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
        self.add(at, mode, content)
    }

    /// The files of the package, by their paths in it, in their order.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.root.clone()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).with_context(|| format!("failed to read {}", dir.display()))? {
                let path = entry?.path();
                if path.is_dir() { dirs.push(path) } else { files.push(path.strip_prefix(&self.root)?.to_owned()) }
            }
        }
        files.retain(|file| !file.starts_with("DEBIAN"));
        files.sort();
        Ok(files)
    }
}

/// Compresses a file in place, without its name and time.
pub(super) fn gzip(file: &Path) -> Result<()> {
    process::output(Command::new("gzip").arg("-9n").arg(file), LIMIT).map(drop)
}
