//! What is put into a machine: lockbpf, the init, the workloads, and the shared libraries of all of them.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};
use vm_tests::place;

use super::{cpio::Archive, toolchain::Toolchain};

/// The device by which the kernel gives the init its standard streams.
const CONSOLE: (&str, u32, u32) = ("/dev/console", 5, 1);

/// Builds everything and writes it to `file`, as the archive that the kernel unpacks.
///
/// # Errors
/// Something does not compile, or `file` cannot be written to.
pub(crate) fn write(toolchain: Toolchain, file: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("failed to create a temporary folder")?;
    let mut programs = vec![
        ("/init".to_owned(), toolchain.executable("vm-tests", "vm-init")?),
        (place::LOCKBPF.to_owned(), toolchain.executable("lockbpf", "lockbpf")?),
    ];
    for name in place::WORKLOAD_NAMES {
        programs.push((format!("{}/{name}", place::WORKLOADS), toolchain.workload(name, scratch.path())?));
    }
    let mut archive = Archive::default();
    let mut libraries = BTreeSet::new();
    for (inside, program) in programs {
        libraries.extend(toolchain.libraries(&program)?);
        archive.file(&inside, read(&program)?);
    }
    for (inside, library) in libraries {
        archive.file(&inside, read(&library)?);
    }
    let (path, major, minor) = CONSOLE;
    archive.device(path, major, minor);
    fs::write(file, archive.bytes()?).with_context(|| format!("failed to write {}", file.display()))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}
