//! Downloads are kept outside the repository, so that they are made once.

use std::{
    env,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// The cache folder.
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `lockbpf/vm-test` in the user's cache folder.
    ///
    /// # Errors
    /// There is no home folder, or it cannot be written to.
    pub(crate) fn open() -> Result<Self> {
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base =
            base.or_else(|| Some(env::home_dir()?.join(".cache"))).context("no home folder to keep downloads in")?;
        let root = base.join("lockbpf/vm-test");
        // Only for this user: unpacked packages may hold set-user-id programs.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&root);
        made.with_context(|| format!("failed to create {}", root.display()))?;
        Ok(Self { root })
    }

    /// Where something is kept, whether it is there or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A folder in the cache that goes away with its handle: what is complete is [kept](Self::keep).
    pub(crate) fn scratch(&self) -> Result<TempDir> {
        tempfile::tempdir_in(&self.root)
            .with_context(|| format!("failed to create a folder in {}", self.root.display()))
    }

    /// Puts a complete file or folder from the scratch folder in place. If another run was faster, its stays.
    pub(crate) fn keep(&self, complete: &Path, name: &str) -> Result<PathBuf> {
        let place = self.path(name);
        let parent = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
        match fs::rename(complete, &place) {
            Err(error) if !place.exists() => {
                Err(error).with_context(|| format!("failed to move {} to {}", complete.display(), place.display()))
            }
            _ => Ok(place),
        }
    }
}
