//! What passed in the older kernel: while what its tests depend on is the same, it need not be booted again.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{provenance, workspace};

/// The committed file, from the workspace's root.
const FILE: &str = "lockbpf/ebpf/tested.toml";
const HEADER: &str =
    "# What has passed in an older kernel. Written by `cargo xtask test`; commit it with what it tells of.\n\n";
/// What decides how those tests end: the objects, what loads and attaches them, the tests, and the versions of all crates.
const PARTS: [&str; 5] = ["lockbpf/ebpf", "lockbpf/src/capture", "lockbpf-common/src", "vm-tests/src", "Cargo.lock"];

/// The content of [`FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tested {
    /// The kernel's release.
    pub(super) kernel: String,
    /// SHA-256 of all files that decide, with their paths.
    sha256: String,
}

impl Tested {
    /// The recorded one, if there is one that can be read.
    pub(super) fn read() -> Option<Self> {
        toml::from_str(&fs::read_to_string(workspace::root().join(FILE)).ok()?).ok()
    }

    /// What is here, which has passed nowhere yet.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn now() -> Result<Self> {
        let mut files = BTreeMap::new();
        for part in PARTS {
            files.extend(provenance::hash_tree(&workspace::root(), part)?);
        }
        files.remove(FILE);
        Ok(Self { kernel: String::new(), sha256: provenance::hash(toml::to_string(&files)?.as_bytes()) })
    }

    /// Whether both are of the same files, wherever they passed.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
    }

    /// Records that it has.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn passed_in(self, kernel: &str) -> Result<()> {
        let text = format!("{HEADER}{}", toml::to_string(&Self { kernel: kernel.to_owned(), ..self })?);
        fs::write(workspace::root().join(FILE), text).with_context(|| format!("failed to write {FILE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_same_files_wherever_it_passed() {
        let now = Tested::now().unwrap();
        assert!(Tested { kernel: "5.15.0".to_owned(), ..now.clone() }.is_of(&now));
        assert!(!Tested { sha256: "0".repeat(64), ..now.clone() }.is_of(&now));
        let text = toml::to_string(&now).unwrap();
        assert_eq!(toml::from_str::<Tested>(&text).unwrap(), now);
    }
}
