//! The packages that lockbpf is made of: their licences and versions are those that `.cargo/deny.toml` allows.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};

/// What is read of the policy.
#[derive(Deserialize)]
struct Policy {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: BTreeSet<String>,
}

/// What is read of cargo's answer.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

fn policy() -> Policy {
    let text = std::fs::read_to_string(workspace::root().join(".cargo/deny.toml")).expect("there is a policy");
    toml::from_str(&text).expect("the policy is as cargo-deny wants it")
}

/// The packages of one target, those for tests and tools included.
fn packages(target: &str) -> Vec<Package> {
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let output = cargo.output().expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Metadata { packages, resolve } = serde_json::from_slice(&output.stdout).expect("cargo's answer is readable");
    let used: BTreeSet<String> = resolve.nodes.into_iter().map(|node| node.id).collect();
    packages.into_iter().filter(|package| used.contains(&package.id)).collect()
}

/// Whether a licence can be had by what is allowed.
fn check(license: Option<&str>, allowed: &[String]) -> Result<()> {
    let license = license.context("no licence")?;
    let license = Expression::parse_mode(license, ParseMode::LAX).with_context(|| license.to_owned())?;
    ensure!(license.evaluate(|wanted| allowed.contains(&wanted.to_string())), "{license}");
    Ok(())
}

#[test]
fn packages_are_those_that_the_policy_allows() {
    let policy = policy();
    let mut wrong = BTreeSet::new();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for target in &policy.graph.targets {
        for Package { name, version, license, .. } in packages(target) {
            if let Err(error) = check(license.as_deref(), &policy.licenses.allow) {
                wrong.insert(format!("{name} {version}: {error:#}"));
            }
            versions.entry(name).or_default().insert(version);
        }
    }
    assert!(versions.len() > 100, "{}", versions.len());
    assert!(wrong.is_empty(), "licences that nobody has allowed: {wrong:#?}");
    let several: BTreeSet<String> = versions.into_iter().filter(|(_, of)| of.len() > 1).map(|(name, _)| name).collect();
    assert_eq!(several, policy.bans.skip, "packages in several versions, and those of the policy");
}

#[test]
fn a_licence_is_allowed_if_one_of_its_choices_is() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for license in
        ["MIT", "MIT/GPL-2.0-only", "GPL-3.0-only OR Apache-2.0 WITH LLVM-exception", "MIT OR (Zlib AND 0BSD)"]
    {
        check(Some(license), &allowed).unwrap();
    }
    for license in ["Zlib", "MIT AND Zlib", "Apache-2.0", "CDDL-1.0", "my own"] {
        check(Some(license), &allowed).unwrap_err();
    }
    check(None, &allowed).unwrap_err();
}
