//! The kernels that are tested, and where they come from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use vm_tests::expectation::Expectation;

use super::{Found, cache::Cache, platform::Platform};
use crate::{
    apt::{Apt, Suite},
    arch::Arch,
};

/// A distribution that a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Debian,
    Ubuntu,
}

/// A kernel to boot.
pub(crate) struct Kernel {
    /// As the command line has it.
    pub(crate) name: &'static str,
    /// What it runs on.
    pub(crate) arch: Arch,
    /// How lockbpf must behave on it.
    pub(crate) expectation: Expectation,
    origin: Origin,
    suite: &'static str,
    /// What the package's name is around the version.
    package: (&'static str, &'static str),
}

/// Every kernel, oldest first: the last one too old, the oldest supported one, those of Debian's releases, the newest.
pub(crate) const KERNELS: [Kernel; 8] = [
    debian("5.10", Expectation::Refused, "bullseye", "linux-image-5.10."),
    ubuntu("5.15", Expectation::PerfEvents, "jammy", "linux-image-5.15."),
    debian("6.1", Expectation::PerfEvents, "bookworm", "linux-image-6.1."),
    // Its later versions, as Debian's 6.12, have the exemption from filters of 6.14.
    ubuntu("6.11", Expectation::LinksKillFiltered, "noble-updates", "linux-image-6.11.0-17"),
    debian("6.12", Expectation::Links, "trixie", "linux-image-6.12."),
    // Newer images are split, and the kernel itself is in this package.
    debian("newest", Expectation::Sessions, "trixie-backports", "linux-binary-"),
    on_aarch64(debian("6.1", Expectation::PerfEvents, "bookworm", "linux-image-6.1.")),
    on_aarch64(debian("6.12", Expectation::Links, "trixie", "linux-image-6.12.")),
];

const fn debian(name: &'static str, expectation: Expectation, suite: &'static str, prefix: &'static str) -> Kernel {
    let package = (prefix, "-cloud-amd64");
    Kernel { name, arch: Arch::X86_64, expectation, origin: Origin::Debian, suite, package }
}

const fn ubuntu(name: &'static str, expectation: Expectation, suite: &'static str, prefix: &'static str) -> Kernel {
    let package = (prefix, "-generic");
    Kernel { name, arch: Arch::X86_64, expectation, origin: Origin::Ubuntu, suite, package }
}

const fn on_aarch64(kernel: Kernel) -> Kernel {
    Kernel { arch: Arch::Aarch64, package: (kernel.package.0, "-cloud-arm64"), ..kernel }
}

const UBUNTU: &str = "http://archive.ubuntu.com/ubuntu";
/// Debian's package of the keys that sign Ubuntu's archives.
const UBUNTU_KEYS: (&str, &str) = ("ubuntu-keyring", "usr/share/keyrings/ubuntu-archive-keyring.gpg");
/// The suite of Debian to take it from.
const KEYS_SUITE: &str = "trixie";

impl Kernel {
    /// The kernel of this name for a processor.
    pub(crate) fn find(name: &str, arch: Arch) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name && kernel.arch == arch)
    }

    /// The kernel's image, downloaded if it is not in the cache.
    ///
    /// # Errors
    /// The suite has no such kernel, or the cache cannot be written to.
    pub(crate) fn image(&self, cache: &Cache) -> Result<Found<PathBuf>> {
        let kept = format!("kernels/{}/{}", self.arch.name(), self.name);
        if let Ok(image) = image_in(&cache.path(&kept)) {
            return Ok(Found::Here(image));
        }
        let scratch = cache.scratch()?;
        let apt = match self.apt(scratch.path()) {
            Ok(apt) => apt,
            Err(reason) => return Ok(Found::Unavailable(reason)),
        };
        let package = self
            .newest(apt.names(self.package.0)?)
            .with_context(|| format!("{} has no kernel {}*{}", self.suite, self.package.0, self.package.1))?;
        eprintln!("downloading {package}");
        let tree = scratch.path().join("package");
        if let Err(reason) = apt.unpack(&package, &tree) {
            return Ok(Found::Unavailable(reason));
        }
        let complete = scratch.path().join("complete");
        fs::create_dir(&complete)?;
        fs::rename(image_in(&tree)?, complete.join("vmlinuz"))?;
        fs::write(complete.join("package"), package + "\n")?;
        image_in(&cache.keep(&complete, &kept)?).map(Found::Here)
    }

    fn apt(&self, scratch: &Path) -> Result<Apt> {
        let mirror = Apt::of_machine(scratch)?.mirror()?;
        let architecture = Some(Platform::of(self.arch).debian);
        match self.origin {
            Origin::Debian => Apt::of_suite(&Suite { architecture, ..Suite::debian(&mirror, self.suite) }, scratch),
            Origin::Ubuntu => {
                let keys = scratch.join("keys");
                Apt::of_suite(&Suite::debian(&mirror, KEYS_SUITE), scratch)?.unpack(UBUNTU_KEYS.0, &keys)?;
                let keyring = &keys.join(UBUNTU_KEYS.1);
                Apt::of_suite(&Suite { mirror: UBUNTU, name: self.suite, keyring, architecture }, scratch)
            }
        }
    }

    /// The package with the highest version among `names`.
    fn newest(&self, names: Vec<String>) -> Option<String> {
        let (prefix, suffix) = self.package;
        let version = |name: &str| {
            let version = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            (version.is_empty() || version.starts_with(|c: char| c.is_ascii_digit())).then(|| numbers(version))
        };
        let versions = names.into_iter().filter_map(|name| Some((version(&name)?, name)));
        versions.max().map(|(_, name)| name)
    }
}

/// The numbers in a version, by which it is compared: `[6, 12, 107, 13]` of `6.12.107+deb13`.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The one kernel image in an unpacked package or in the cache: where older packages have it, or newer ones.
fn image_in(tree: &Path) -> Result<PathBuf> {
    let folders = [tree.to_path_buf(), tree.join("boot")];
    let modules = ["usr/lib/modules", "lib/modules"].into_iter().filter_map(|dir| fs::read_dir(tree.join(dir)).ok());
    let folders = folders.into_iter().chain(modules.flatten().flatten().map(|entry| entry.path()));
    let files = folders.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut images = files.filter(|file| file.file_name().to_string_lossy().starts_with("vmlinuz"));
    images.next().map(|file| file.path()).with_context(|| format!("no kernel image in {}", tree.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> &'static Kernel {
        KERNELS.iter().find(|kernel| kernel.name == name).unwrap()
    }

    #[test]
    fn the_newest_version_is_taken_and_its_relatives_are_not() {
        let names = [
            "linux-binary-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.10.1+deb13-cloud-amd64",
            "linux-binary-7.9.14+deb13-cloud-amd64",
            "linux-binary-7.11.1+deb13-amd64",
            "linux-binary-unsigned-7.12.1+deb13-cloud-amd64",
            "linux-binary-7.12.1+deb13-cloud-amd64-dbg",
        ];
        let newest = kernel("newest").newest(names.map(str::to_owned).to_vec());
        assert_eq!(newest.as_deref(), Some("linux-binary-7.10.1+deb13-cloud-amd64"));
        let arm = Kernel::find("6.1", Arch::Aarch64).unwrap();
        let names = ["linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-8-cloud-arm64", "linux-image-6.1.0-9-arm64"];
        let newest = arm.newest(names.map(str::to_owned).to_vec());
        assert_eq!(newest.as_deref(), Some("linux-image-6.1.0-8-cloud-arm64"));
        // One version only: the prefix says it all.
        let names = ["linux-image-6.11.0-29-generic", "linux-image-6.11.0-17-generic", "linux-image-6.11.0-17-oem"];
        let only = kernel("6.11").newest(names.map(str::to_owned).to_vec());
        assert_eq!(only.as_deref(), Some("linux-image-6.11.0-17-generic"));
        assert_eq!(kernel("6.1").newest(vec!["linux-image-6.12.1-cloud-amd64".into()]), None);
    }

    #[test]
    fn images_are_found_in_old_and_new_packages() {
        for path in ["boot/vmlinuz-6.1.0-50-cloud-amd64", "usr/lib/modules/7.3.4/vmlinuz", "vmlinuz"] {
            let tree = tempfile::tempdir().unwrap();
            let image = tree.path().join(path);
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            image_in(tree.path()).unwrap_err();
            fs::write(&image, "").unwrap();
            assert_eq!(image_in(tree.path()).unwrap(), image);
        }
    }
}
