//! QEMU: the machine's own if it is good enough, else Debian's, unpacked privately; and its command line.

use std::{ffi::OsString, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{Found, cache::Cache};
use crate::{
    apt::{Apt, Suite},
    process, workspace,
};

const PROGRAM: &str = "qemu-system-x86_64";
/// Known to be good. Debian 12's 7.2 crashes one boot in five of a 6.12 kernel, and calls that a success.
const GOOD_VERSION: u32 = 10;
/// Debian's package, and the release that has a good one.
const PACKAGE: &str = "qemu-system-x86";
const SUITE: &str = "trixie";
/// Where a private copy is in the cache.
const KEPT: &str = "qemu-trixie";
/// How long QEMU may take to tell its version.
const LIMIT: Duration = Duration::from_secs(30);

/// A QEMU that can be run.
pub(crate) struct Qemu {
    /// The words that start it.
    words: Vec<OsString>,
}

/// What to boot, and where to write what it says.
pub(crate) struct Boot<'a> {
    /// The kernel's image.
    pub(crate) kernel: &'a Path,
    /// The archive that it unpacks as its file system.
    pub(crate) initramfs: &'a Path,
    /// The argument of the init.
    pub(crate) argument: &'a str,
    /// Receives what the kernel says.
    pub(crate) console: &'a Path,
    /// Receives the results.
    pub(crate) results: &'a Path,
}

impl Qemu {
    /// Finds a QEMU, or downloads one.
    ///
    /// # Errors
    /// The cache cannot be written to, or what was downloaded does not run.
    pub(crate) fn find(cache: &Cache) -> Result<Found<Self>> {
        if let Some(program) = workspace::find_program(PROGRAM) {
            let own = Self { words: vec![program.into()] };
            if own.version().is_ok_and(|version| version >= GOOD_VERSION) {
                return Ok(Found::Here(own));
            }
        }
        let kept = cache.path(KEPT);
        if !kept.is_dir() {
            let scratch = cache.scratch()?;
            let tree = scratch.path().join("tree");
            if let Err(reason) = download(scratch.path(), &tree) {
                return Ok(Found::Unavailable(reason));
            }
            // Not kept if it does not run.
            Self::in_tree(&tree)?.version()?;
            cache.keep(&tree, KEPT)?;
        }
        let private = Self::in_tree(&kept)?;
        let version = private.version()?;
        ensure!(version >= GOOD_VERSION, "{} holds QEMU {version}, which is too old", kept.display());
        Ok(Found::Here(private))
    }

    /// The QEMU in a tree of unpacked packages, run with the tree's own C library.
    fn in_tree(tree: &Path) -> Result<Self> {
        let libraries = tree.join("usr/lib/x86_64-linux-gnu");
        let loader = libraries.join("ld-linux-x86-64.so.2");
        ensure!(loader.is_file(), "no {}", loader.display());
        let mut words: Vec<OsString> = vec![loader.into(), "--library-path".into(), libraries.into()];
        words.push(tree.join("usr/bin").join(PROGRAM).into());
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".into(), tree.join(data).into()]);
        }
        Ok(Self { words })
    }

    fn command(&self) -> Result<Command> {
        let (program, arguments) = self.words.split_first().context("QEMU has no command line")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }

    /// The major version.
    fn version(&self) -> Result<u32> {
        let said = process::output(self.command()?.arg("--version"), LIMIT)?;
        major_version(&said).with_context(|| format!("QEMU tells no version: {said}"))
    }

    /// The command that boots a machine. It ends when the machine is switched off, or panics: its exit status tells
    /// nothing.
    pub(crate) fn boot(&self, boot: &Boot) -> Result<Command> {
        let mut command = self.command()?;
        // Emulated in software: that /dev/kvm opens does not mean that it can run these kernels.
        command.args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initramfs);
        // A kernel that is broken ends the machine at once.
        let kernel = "console=ttyS0 quiet oops=panic panic=-1";
        command.args(["-append", &format!("{kernel} -- {}", boot.argument)]);
        for file in [boot.console, boot.results] {
            let mut port = OsString::from("file:");
            port.push(file);
            command.arg("-serial").arg(port);
        }
        Ok(command)
    }
}

fn download(scratch: &Path, tree: &Path) -> Result<()> {
    let mirror = Apt::of_machine(scratch)?.mirror()?;
    let apt = Apt::of_suite(&Suite::debian(&mirror, SUITE), scratch)?;
    eprintln!("downloading {PACKAGE} of Debian {SUITE} and the libraries that it needs (about 40 MB)");
    apt.unpack_with_dependencies(PACKAGE, tree)
}

/// The major version in `QEMU emulator version 10.0.13 (Debian …)`.
fn major_version(said: &str) -> Option<u32> {
    let (_, version) = said.split_once("version ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let said = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright (c) 2003-2025 …\n";
        assert_eq!(major_version(said), Some(10));
        assert_eq!(major_version("no such thing"), None);
    }
}
