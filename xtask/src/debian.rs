//! Debian's rust-src package, downloaded and unpacked privately: nothing is installed and apt's own state is not
//! touched.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{process, workspace};

/// Where a newer rustc than the machine's own suites hold may be found, most stable first.
const OTHER_SUITES: [&str; 3] = ["trixie-backports", "testing", "sid"];
/// The keys that sign them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How long each call of apt may take.
const APT_LIMIT: Duration = Duration::from_secs(180);

/// apt with options that let it look at other places than the machine's own.
struct Apt {
    options: Vec<String>,
    /// Where packages are downloaded to.
    dir: PathBuf,
}

/// Downloads the rust-src package of exactly `version` (`1.95.0`) and unpacks it below `scratch`; returns the folder
/// that holds its `usr/`.
///
/// # Errors
/// There is no apt, no Debian source, no package of this version in the machine's suites and the other ones tried,
/// or no network.
pub(crate) fn unpack_rust_src(version: &str, scratch: &Path) -> Result<PathBuf> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        ensure!(workspace::find_program(program).is_some(), "no {program} on this machine");
    }
    let machine = Apt { options: Vec::new(), dir: scratch.to_path_buf() };
    let mut failures = match machine.download(version) {
        Ok(package) => return unpack(&package, scratch),
        Err(reason) => vec![format!("the machine's suites: {reason:#}")],
    };
    let mirror = machine.mirror().with_context(|| failures.join(", "))?;
    for suite in OTHER_SUITES {
        match Apt::private(&mirror, suite, scratch).and_then(|apt| apt.download(version)) {
            Ok(package) => return unpack(&package, scratch),
            Err(reason) => failures.push(format!("{suite}: {reason:#}")),
        }
    }
    bail!("{}", failures.join(", "))
}

fn unpack(package: &Path, scratch: &Path) -> Result<PathBuf> {
    let into = scratch.join("package");
    process::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&into), APT_LIMIT)?;
    Ok(into)
}

impl Apt {
    /// An apt that knows one suite of `mirror` and keeps its state in `scratch`.
    fn private(mirror: &str, suite: &str, scratch: &Path) -> Result<Self> {
        let dir = scratch.join(suite);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::write(dir.join("status"), "")?;
        let signed_by = if Path::new(KEYRING).is_file() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        fs::write(dir.join("sources.list"), format!("deb {signed_by}{mirror} {suite} main\n"))?;
        let at = |part: &str| dir.join(part).display().to_string();
        let options = vec![
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".into(),
            "Dir::Etc::preferences=/dev/null".into(),
            "Dir::Etc::preferencesparts=/dev/null".into(),
            format!("Dir::State={}", dir.display()),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".into(),
            // Root may unpack where apt's own user may not read.
            "APT::Sandbox::User=root".into(),
        ];
        let apt = Self { options, dir };
        process::output(apt.command("apt-get").args(["-qq", "update"]), APT_LIMIT)?;
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

    /// Downloads rust-src of `version`; returns the package's path.
    fn download(&self, version: &str) -> Result<PathBuf> {
        let listed = process::output(self.command("apt-cache").args(["madison", "rust-src"]), APT_LIMIT)?;
        let versions = offered_versions(&listed);
        let offered = versions.iter().find(|offered| upstream_version(offered) == version);
        let Some(offered) = offered else {
            let others = if versions.is_empty() { "none".to_owned() } else { versions.join(" and ") };
            bail!("has rust-src {others}, not {version}");
        };
        eprintln!("downloading Debian's rust-src {offered}");
        let package = format!("rust-src={offered}");
        process::output(self.command("apt-get").args(["-qq", "download", &package]), APT_LIMIT)?;
        let mut files = fs::read_dir(&self.dir)?.flatten().map(|entry| entry.path());
        files.find(|path| path.extension().is_some_and(|ext| ext == "deb")).context("apt-get downloaded nothing")
    }

    /// The address of the Debian mirror that the machine is configured to use.
    fn mirror(&self) -> Result<String> {
        let format = "$(ORIGIN) $(COMPONENT) $(REPO_URI)";
        let listed = process::output(
            self.command("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]),
            APT_LIMIT,
        )?;
        debian_mirror(&listed).context("apt is not configured for a Debian mirror")
    }
}

/// The versions in what `apt-cache madison` printed: ` rust-src | VERSION | SOURCE`.
fn offered_versions(madison: &str) -> Vec<&str> {
    madison.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect()
}

/// The upstream part of a Debian version: `1.95.0` of `1.95.0+dfsg1-1~bpo13+1`.
fn upstream_version(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_epoch, version)| version);
    version.split(['+', '-', '~']).next().unwrap_or(version)
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
    fn versions_are_compared_by_their_upstream_part() {
        let madison = " rust-src | 1.63.0+dfsg1-2 | mirror bookworm/main amd64 Packages\n rust-src | 1:1.95.0+dfsg1-1~bpo13+1 | mirror";
        let upstream: Vec<&str> = offered_versions(madison).into_iter().map(upstream_version).collect();
        assert_eq!(upstream, ["1.63.0", "1.95.0"]);
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
