//! Debian's rust-src package, downloaded and unpacked privately.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::apt::{Apt, Suite};

/// Where a newer rustc than the machine's own suites hold may be found, most stable first.
const OTHER_SUITES: [&str; 3] = ["trixie-backports", "testing", "sid"];

/// Downloads the rust-src package of exactly `version` (`1.95.0`) and unpacks it below `scratch`; returns the folder
/// that holds its `usr/`.
///
/// # Errors
/// There is no apt, no Debian source, no package of this version in the machine's suites and the other ones tried,
/// or no network.
pub(crate) fn unpack_rust_src(version: &str, scratch: &Path) -> Result<PathBuf> {
    let into = scratch.join("package");
    let machine = Apt::of_machine(scratch)?;
    let mut failures = match unpack_from(&machine, version, &into) {
        Ok(()) => return Ok(into),
        Err(reason) => vec![format!("the machine's suites: {reason:#}")],
    };
    let mirror = machine.mirror().with_context(|| failures.join(", "))?;
    for suite in OTHER_SUITES {
        let apt = Apt::of_suite(&Suite::debian(&mirror, suite), scratch);
        match apt.and_then(|apt| unpack_from(&apt, version, &into)) {
            Ok(()) => return Ok(into),
            Err(reason) => failures.push(format!("{suite}: {reason:#}")),
        }
    }
    bail!("{}", failures.join(", "))
}

fn unpack_from(apt: &Apt, version: &str, into: &Path) -> Result<()> {
    let versions = apt.versions("rust-src")?;
    let Some(offered) = versions.iter().find(|offered| upstream_version(offered) == version) else {
        let others = if versions.is_empty() { "none".to_owned() } else { versions.join(" and ") };
        bail!("has rust-src {others}, not {version}");
    };
    eprintln!("downloading Debian's rust-src {offered}");
    apt.unpack(&format!("rust-src={offered}"), into)
}

/// The upstream part of a Debian version: `1.95.0` of `1.95.0+dfsg1-1~bpo13+1`.
fn upstream_version(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_epoch, version)| version);
    version.split(['+', '-', '~']).next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_upstream_part() {
        assert_eq!(upstream_version("1.63.0+dfsg1-2"), "1.63.0");
        assert_eq!(upstream_version("1:1.95.0+dfsg1-1~bpo13+1"), "1.95.0");
    }
}
