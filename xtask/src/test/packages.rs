//! The Debian packages that the tests use, named before they are installed.

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

use super::step::Outcome;
use crate::{process, workspace};

/// A package that the tests use.
struct Need {
    package: &'static str,
    /// A program of the package, by which it is recognised however it was installed.
    program: &'static str,
    why: &'static str,
    /// Tests whose names contain this cannot run without the package.
    tests: &'static str,
}

const NEEDS: [Need; 8] = [
    Need { package: "memcached", program: "memcached", why: "a real server to observe", tests: "memcached" },
    Need { package: "libmemcached-tools", program: "memcslap", why: "puts load on memcached", tests: "memcached" },
    Need { package: "mariadb-server", program: "mariadbd", why: "a real server to observe", tests: "mariadb" },
    Need { package: "sysbench", program: "sysbench", why: "puts load on mariadb", tests: "mariadb" },
    Need { package: "bpftrace", program: "bpftrace", why: "the observer to compare costs with", tests: "bpftrace" },
    Need { package: "graphviz", program: "dot", why: "reads the wait graphs that lockbpf draws", tests: "graphviz" },
    Need { package: "binutils", program: "strip", why: "makes a program without symbols", tests: "stripped" },
    Need { package: "g++", program: "c++", why: "compiles libFuzzer", tests: "fuzz" },
];

/// How long apt may take to fetch its lists.
const UPDATE_LIMIT: Duration = Duration::from_secs(180);
/// How long it may take to fetch and install the packages.
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Asked by maintainer scripts before they start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Recognises a policy that an interrupted run left behind.
const POLICY_MARK: &str = "# Written by lockbpf's `cargo xtask test`";

/// Installs what is missing, unless `quick`.
///
/// # Errors
/// The system's folders cannot be written to.
pub(super) fn install(quick: bool) -> Result<Outcome> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Outcome::passed("all installed"));
    }
    let names: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let by_hand = format!("missing: {}", names.join(" "));
    if quick {
        return Ok(Outcome::skipped(format!("--quick; {by_hand}")));
    }
    if workspace::find_program("apt-get").is_none() {
        return Ok(Outcome::skipped(format!("no apt-get on this machine; {by_hand}")));
    }
    if !nix::unistd::geteuid().is_root() {
        return Ok(Outcome::skipped(format!("installing packages needs root; {by_hand}")));
    }
    eprintln!("installing, without starting services:");
    for need in &missing {
        eprintln!("  {:<20} {}", need.package, need.why);
    }
    match apt_install(&names) {
        Ok(()) => Ok(Outcome::passed(format!("installed {}", names.join(" ")))),
        Err(reason) => Ok(Outcome::unavailable(format!("{reason:#}; {by_hand}"))),
    }
}

/// The substrings of the names of tests that cannot run for lack of a package.
pub(super) fn tests_not_possible() -> Vec<&'static str> {
    let mut tests: Vec<&str> = missing().iter().map(|need| need.tests).collect();
    tests.dedup();
    tests
}

/// Which tests cannot run for lack of which package.
pub(super) fn missing_reasons() -> Vec<String> {
    let missing = missing();
    let reason =
        |need: &&Need| format!("tests named *{}*: {} is not installed ({})", need.tests, need.package, need.why);
    missing.iter().map(reason).collect()
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| workspace::find_program(need.program).is_none()).collect()
}

fn apt_install(packages: &[&str]) -> Result<()> {
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
