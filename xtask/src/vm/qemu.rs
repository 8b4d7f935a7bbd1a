//! QEMU: the machine's own if it is good enough, else Debian's, unpacked privately; and its command line.

use std::{ffi::OsString, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{Found, cache::Cache, platform::Platform};
use crate::{
    apt::{Apt, Suite},
    process, workspace,
};

/// Known to be good. Debian 12's 7.2 crashes one boot in five of a 6.12 kernel, and calls that a success; and its ARM machine
/// has no second serial port.
const GOOD_VERSION: u32 = 10;
/// The release of Debian that has a good one.
const SUITE: &str = "trixie";
/// How long QEMU may take to tell its version.
const LIMIT: Duration = Duration::from_secs(30);

/// A QEMU that can be run.
pub(crate) struct Qemu {
    platform: &'static Platform,
    /// The words that start it.
    words: Vec<OsString>,
}

/// What to boot, and where to write what it says.
pub(crate) struct Boot<'a> {
    /// The kernel's image.
    pub(crate) kernel: &'a Path,
    /// The archive that it unpacks as its file system.
    pub(crate) initramfs: &'a Path,
    /// The arguments of the init.
    pub(crate) arguments: &'a str,
    /// How many CPUs.
    pub(crate) cpus: u32,
    /// The binary logarithm of the ns that an instruction takes, on a processor that counts instructions; `None`: as fast as it goes.
    pub(crate) shift: Option<u32>,
    /// Receives what the kernel says.
    pub(crate) console: &'a Path,
    /// Receives the results.
    pub(crate) results: &'a Path,
}

impl Qemu {
    /// Finds a QEMU that emulates this, or downloads one.
    ///
    /// # Errors
    /// The cache cannot be written to, or what was downloaded does not run.
    pub(crate) fn find(cache: &Cache, platform: &'static Platform) -> Result<Found<Self>> {
        if let Some(program) = workspace::find_program(platform.qemu) {
            let own = Self { platform, words: vec![program.into()] };
            if own.version().is_ok_and(|version| version >= GOOD_VERSION) {
                return Ok(Found::Here(own));
            }
        }
        let name = format!("{}-{SUITE}", platform.package.0);
        let kept = cache.path(&name);
        if !kept.is_dir() {
            let scratch = cache.scratch()?;
            let tree = scratch.path().join("tree");
            if let Err(reason) = download(platform, scratch.path(), &tree) {
                return Ok(Found::Unavailable(reason));
            }
            // Not kept if it does not run.
            Self::in_tree(platform, &tree)?.version()?;
            cache.keep(&tree, &name)?;
        }
        let private = Self::in_tree(platform, &kept)?;
        let version = private.version()?;
        ensure!(version >= GOOD_VERSION, "{} holds QEMU {version}, which is too old", kept.display());
        Ok(Found::Here(private))
    }

    /// The QEMU in a tree of unpacked packages, run with the tree's own C library.
    fn in_tree(platform: &'static Platform, tree: &Path) -> Result<Self> {
        let libraries = tree.join("usr/lib/x86_64-linux-gnu");
        let loader = libraries.join("ld-linux-x86-64.so.2");
        ensure!(loader.is_file(), "no {}", loader.display());
        let mut words: Vec<OsString> = vec![loader.into(), "--library-path".into(), libraries.into()];
        words.push(tree.join("usr/bin").join(platform.qemu).into());
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".into(), tree.join(data).into()]);
        }
        Ok(Self { platform, words })
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
        command.args(self.platform.options).args(["-smp", &boot.cpus.to_string()]);
        if let Some(shift) = boot.shift {
            command.args(["-icount", &format!("shift={shift}")]);
        }
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initramfs);
        // A kernel that is broken ends the machine at once.
        let kernel = format!("console={} quiet oops=panic panic=-1", self.platform.console);
        command.args(["-append", &format!("{kernel} -- {}", boot.arguments)]);
        for file in [boot.console, boot.results] {
            let mut port = OsString::from("file:");
            port.push(file);
            command.arg("-serial").arg(port);
        }
        Ok(command)
    }
}

fn download(platform: &Platform, scratch: &Path, tree: &Path) -> Result<()> {
    let mirror = Apt::of_machine(scratch)?.mirror()?;
    let apt = Apt::of_suite(&Suite::debian(&mirror, SUITE), scratch)?;
    let (package, size) = platform.package;
    eprintln!("downloading {package} of Debian {SUITE} and the libraries that it needs (about {size} MB)");
    apt.unpack_with_dependencies(package, tree)
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
