//! Installs Debian packages without starting the services in them.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// How long apt may take to fetch its lists.
const UPDATE_LIMIT: Duration = Duration::from_secs(180);
/// How long it may take to fetch and install the packages.
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Asked by maintainer scripts before they start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Recognises a policy that an interrupted run left behind.
const POLICY_MARK: &str = "# Written by lockbpf's `cargo xtask`";

/// Why nothing can be installed here, if so.
pub(crate) fn impossible() -> Option<&'static str> {
    if workspace::find_program("apt-get").is_none() {
        return Some("no apt-get on this machine");
    }
    (!nix::unistd::geteuid().is_root()).then_some("installing packages needs root")
}

/// Installs Debian packages from the machine's suites.
///
/// # Errors
/// One of them is not to be had, or cannot be installed: then none is.
pub(crate) fn packages(packages: &[&str]) -> Result<()> {
    let _no_services = NoServices::begin()?;
    let mut update = apt_get();
    update.args(["-qq", "update"]);
    if let Err(reason) = process::output(&mut update, UPDATE_LIMIT) {
        // The lists that are there may do.
        eprintln!("{reason:#}");
    }
    let mut install = apt_get();
    install.args(["-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", "install"]).args(packages);
    process::output(&mut install, INSTALL_LIMIT).map(drop)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    // Maintainer scripts call programs of the system's folders, which not every user's PATH names.
    let path = env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command
}

/// Keeps packages from starting services while it lives, unless the machine has a policy of its own.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn begin() -> Result<Self> {
        if fs::read_to_string(POLICY).is_ok_and(|policy| policy.contains(POLICY_MARK)) {
            return Ok(Self { ours: true });
        }
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(POLICY)
            .with_context(|| format!("failed to create {POLICY}"))?;
        write!(file, "#!/bin/sh\n{POLICY_MARK} while it installs packages; may be removed.\nexit 101\n")?;
        Ok(Self { ours: true })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("failed to remove {POLICY}: {error}; remove it by hand, or services are not started any more");
        }
    }
}
