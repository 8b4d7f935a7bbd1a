//! Programs of later releases of Debian than the machine's, unpacked below `target/trees` with all that they need, for the tests to run.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::step::Outcome;
use crate::{
    apt::{Apt, Suite},
    workspace,
};

/// Where a package is found, and what it is.
struct Tree {
    suite: &'static str,
    package: &'static str,
    /// A file of it.
    program: &'static str,
}

const TREES: [Tree; 1] = [Tree { suite: "trixie", package: "python3.13", program: "usr/bin/python3.13" }];

/// Unpacks what is not there, unless `quick`.
///
/// # Errors
/// The target folder cannot be written to.
pub(super) fn unpack(quick: bool) -> Result<Outcome> {
    let trees = workspace::root().join("target/trees");
    let missing: Vec<&Tree> =
        TREES.iter().filter(|tree| !trees.join(tree.package).join(tree.program).is_file()).collect();
    if missing.is_empty() {
        return Ok(Outcome::passed("all unpacked"));
    }
    if quick {
        return Ok(Outcome::skipped("--quick"));
    }
    fs::create_dir_all(&trees).with_context(|| format!("failed to create {}", trees.display()))?;
    for tree in &missing {
        if let Err(reason) = tree.put_in(&trees) {
            return Ok(Outcome::unavailable(format!("{} of Debian {}: {reason:#}", tree.package, tree.suite)));
        }
    }
    Ok(Outcome::passed(format!("unpacked {}", missing.iter().map(|tree| tree.package).collect::<Vec<_>>().join(" "))))
}

impl Tree {
    fn put_in(&self, trees: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(trees)?;
        let mirror = Apt::of_machine(scratch.path())?.mirror()?;
        let apt = Apt::of_suite(&Suite::debian(&mirror, self.suite), scratch.path())?;
        let tree = scratch.path().join("tree");
        apt.unpack_with_dependencies(self.package, &tree)?;
        let place = trees.join(self.package);
        // A part of it may be there, of a run that was ended.
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(&tree, place).with_context(|| format!("failed to put {} in place", self.package))
    }
}
