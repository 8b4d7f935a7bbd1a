//! apt without installing anything: packages of the machine's suites or of others, downloaded and unpacked privately.
//! apt's own state is not touched.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{process, workspace};

/// Keys that sign Debian's archives, old and new.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How long each call of apt may take.
const LIMIT: Duration = Duration::from_secs(180);

/// apt with options that let it look at other places than the machine's own.
pub(crate) struct Apt {
    options: Vec<String>,
    /// Where packages are downloaded to.
    dir: PathBuf,
}

/// One suite of an archive.
pub(crate) struct Suite<'a> {
    /// Address of the archive.
    pub(crate) mirror: &'a str,
    /// The suite's name.
    pub(crate) name: &'a str,
    /// The keys that sign it; the machine's trusted ones if there is no such file.
    pub(crate) keyring: &'a Path,
    /// Debian's name of the architecture that packages are for; the machine's own if there is none.
    pub(crate) architecture: Option<&'a str>,
}

impl<'a> Suite<'a> {
    /// A suite of Debian.
    pub(crate) fn debian(mirror: &'a str, name: &'a str) -> Self {
        Self { mirror, name, keyring: Path::new(DEBIAN_KEYRING), architecture: None }
    }
}

impl Apt {
    /// The machine's own suites; packages are downloaded to `dir`.
    ///
    /// # Errors
    /// This machine has no apt.
    pub(crate) fn of_machine(dir: &Path) -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg-deb"] {
            ensure!(workspace::find_program(program).is_some(), "no {program} on this machine");
        }
        Ok(Self { options: Vec::new(), dir: dir.to_path_buf() })
    }

    /// An apt that knows one suite, believes that nothing is installed and keeps its state in `scratch`.
    ///
    /// # Errors
    /// The suite cannot be fetched, or `scratch` cannot be written to.
    pub(crate) fn of_suite(suite: &Suite, scratch: &Path) -> Result<Self> {
        let dir = scratch.join(suite.name);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::write(dir.join("status"), "")?;
        let keyring = suite.keyring.display();
        let signed_by = if suite.keyring.is_file() { format!("[signed-by={keyring}] ") } else { String::new() };
        fs::write(dir.join("sources.list"), format!("deb {signed_by}{} {} main\n", suite.mirror, suite.name))?;
        let at = |part: &str| dir.join(part).display().to_string();
        let mut options = vec![
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".into(),
            "Dir::Etc::preferences=/dev/null".into(),
            "Dir::Etc::preferencesparts=/dev/null".into(),
            format!("Dir::State={}", dir.display()),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".into(),
            // Otherwise a suite that cannot be fetched is a warning, and looks like an empty one.
            "APT::Update::Error-Mode=any".into(),
            // Root may unpack where apt's own user may not read.
            "APT::Sandbox::User=root".into(),
        ];
        let architecture = suite.architecture.into_iter();
        options.extend(architecture.flat_map(|a| ["", "s"].map(|end| format!("APT::Architecture{end}={a}"))));
        let apt = Self { options, dir };
        process::output(apt.command("apt-get").args(["-qq", "update"]), LIMIT)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("LC_ALL", "C");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// The versions of `package` that are offered.
    ///
    /// # Errors
    /// apt fails.
    pub(crate) fn versions(&self, package: &str) -> Result<Vec<String>> {
        let listed = process::output(self.command("apt-cache").args(["madison", package]), LIMIT)?;
        Ok(offered_versions(&listed).into_iter().map(str::to_owned).collect())
    }

    /// The names of the packages that begin with `prefix`.
    ///
    /// # Errors
    /// apt fails.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let listed = process::output(self.command("apt-cache").args(["pkgnames", prefix]), LIMIT)?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Downloads one package, `NAME` or `NAME=VERSION`, and unpacks it into `into`.
    ///
    /// # Errors
    /// There is no such package, or it cannot be fetched or unpacked.
    pub(crate) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let fresh = tempfile::tempdir_in(&self.dir)?;
        let mut download = self.command("apt-get");
        process::output(download.current_dir(&fresh).args(["-qq", "download", package]), LIMIT)?;
        unpack_all(fresh.path(), into)
    }

    /// Downloads a package and everything that it depends on, and unpacks all of it into `into`: a tree of its own, with
    /// its own C library. Only for an apt [of one suite](Self::of_suite).
    ///
    /// # Errors
    /// There is no such package, or something cannot be fetched or unpacked.
    pub(crate) fn unpack_with_dependencies(&self, package: &str, into: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        download.args(["-qq", "-y", "--no-install-recommends", "--download-only", "install", package]);
        process::output(&mut download, LIMIT)?;
        unpack_all(&self.dir.join("cache/archives"), into)
    }

    /// The address of the Debian mirror that the machine is configured to use.
    ///
    /// # Errors
    /// It is not configured for one.
    pub(crate) fn mirror(&self) -> Result<String> {
        let format = "$(ORIGIN) $(COMPONENT) $(REPO_URI)";
        let listed = process::output(
            self.command("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]),
            LIMIT,
        )?;
        debian_mirror(&listed).context("apt is not configured for a Debian mirror")
    }
}

/// Unpacks every package in the folder `from` into `into`.
fn unpack_all(from: &Path, into: &Path) -> Result<()> {
    let files = fs::read_dir(from)?.flatten().map(|entry| entry.path());
    let packages: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|ext| ext == "deb")).collect();
    ensure!(!packages.is_empty(), "apt-get downloaded nothing");
    for package in packages {
        process::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(into), LIMIT)?;
    }
    Ok(())
}

/// The versions in what `apt-cache madison` printed: ` rust-src | VERSION | SOURCE`.
fn offered_versions(madison: &str) -> Vec<&str> {
    madison.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect()
}

/// The first Debian archive in lines of `ORIGIN COMPONENT URI` that is not the security archive, which has no other
/// suites. Before the first `apt-get update` no origin is known, and the address must tell.
fn debian_mirror(listed: &str) -> Option<String> {
    let is_debian = |line: &&str| match line.split(' ').collect::<Vec<_>>()[..] {
        [origin, "main", uri] => origin == "Debian" || uri.trim_end_matches('/').ends_with("/debian"),
        _ => false,
    };
    let mut uris = listed.lines().filter(is_debian).filter_map(|line| line.split(' ').nth(2));
    uris.find(|uri| !uri.contains("security")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_versions_are_found() {
        let madison = " rust-src | 1.63.0+dfsg1-2 | mirror bookworm/main amd64 Packages\n rust-src | 1:1.95.0+dfsg1-1~bpo13+1 | mirror";
        assert_eq!(offered_versions(madison), ["1.63.0+dfsg1-2", "1:1.95.0+dfsg1-1~bpo13+1"]);
    }

    #[test]
    fn the_mirror_is_debians_and_not_the_security_archive() {
        let listed =
            "Other main http://other/\nDebian main http://mirror/debian-security/\nDebian main http://mirror/debian/\n";
        assert_eq!(debian_mirror(listed).as_deref(), Some("http://mirror/debian/"));
        let before_update = "$(ORIGIN) main http://mirror/debian\n";
        assert_eq!(debian_mirror(before_update).as_deref(), Some("http://mirror/debian"));
        assert_eq!(debian_mirror("Ubuntu main http://mirror/ubuntu/\n"), None);
    }
}
