//! What the committed objects were made from: hashes of the sources, versions of the crates and tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    arch::Arch,
    bpf_linker,
    compile::{RUSTFLAGS, Toolchain},
    workspace,
};

/// The committed file, from the workspace's root.
pub(crate) const FILE: &str = "lockbpf/ebpf/provenance.toml";

const HEADER: &str = "# What the objects in this folder were made from. Written by `cargo xtask build-ebpf`.\n\n";
/// The files and folders whose content decides what the objects hold.
const SOURCES: [&str; 5] = [
    "lockbpf-common/Cargo.toml",
    "lockbpf-common/src",
    "lockbpf-ebpf/Cargo.toml",
    "lockbpf-ebpf/build.rs",
    "lockbpf-ebpf/src",
];
/// The profiles of the workspace's manifest that compiling obeys.
const PROFILES: [&str; 2] = ["release", "bpf"];

/// The content of [`FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// SHA-256 of each source file, by its path from the workspace's root.
    pub(crate) sources: BTreeMap<String, String>,
    /// Version of each crate compiled into the objects.
    pub(crate) crates: BTreeMap<String, String>,
    /// Versions of the tools, and the SHA-256 of the part of rust-src that is compiled in.
    pub(crate) toolchain: BTreeMap<String, String>,
    /// SHA-256 of each object, by its path from the workspace's root.
    pub(crate) objects: BTreeMap<String, String>,
}

impl Provenance {
    /// The recorded one.
    ///
    /// # Errors
    /// The file is missing or is not what this task writes.
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string(path()).with_context(|| format!("failed to read {FILE}"))?;
        toml::from_str(&text).with_context(|| format!("failed to read {FILE}"))
    }

    /// Records this one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        let text = format!("{HEADER}{}", toml::to_string(self)?);
        fs::write(path(), text).with_context(|| format!("failed to write {FILE}"))
    }
}

fn path() -> PathBuf {
    workspace::root().join(FILE)
}

/// Hashes of the sources as they are now.
///
/// # Errors
/// One cannot be read.
pub(crate) fn sources() -> Result<BTreeMap<String, String>> {
    let root = workspace::root();
    let mut hashes = BTreeMap::new();
    for source in SOURCES {
        hashes.extend(hash_tree(&root, source)?);
    }
    let manifest = read_toml(&root.join("Cargo.toml"))?;
    for profile in PROFILES {
        let settings = manifest.get("profile").and_then(|profiles| profiles.get(profile));
        let settings = settings.with_context(|| format!("Cargo.toml has no [profile.{profile}]"))?;
        hashes.insert(format!("Cargo.toml [profile.{profile}]"), hash(toml::to_string(settings)?.as_bytes()));
    }
    Ok(hashes)
}

/// Versions in Cargo.lock of aya's crates that the programs use.
///
/// # Errors
/// Cargo.lock cannot be read or does not know the programs.
pub(crate) fn crates() -> Result<BTreeMap<String, String>> {
    aya_crates(&read_toml(&workspace::root().join("Cargo.lock"))?)
}

/// What `toolchain` is, beside the flags it is given.
pub(crate) fn toolchain(toolchain: &Toolchain) -> BTreeMap<String, String> {
    let entries = [
        ("rustc", toolchain.rustc.as_str()),
        ("bpf-linker", bpf_linker::VERSION),
        ("rust-src", &toolchain.rust_src.sha256),
        ("rustflags", &RUSTFLAGS.join(" ")),
    ];
    entries.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
}

/// The entry for one object.
pub(crate) fn object(arch: Arch, object: &[u8]) -> (String, String) {
    (arch.object(), hash(object))
}

/// SHA-256 of each file at or below `root`/`part`, by its path from `root`.
///
/// # Errors
/// One cannot be read.
pub(crate) fn hash_tree(root: &Path, part: &str) -> Result<BTreeMap<String, String>> {
    let path = root.join(part);
    if !path.is_dir() {
        return Ok(BTreeMap::from([(part.to_owned(), hash_file(&path)?)]));
    }
    let mut hashes = BTreeMap::new();
    for entry in fs::read_dir(&path).with_context(|| format!("failed to read {}", path.display()))? {
        let name = entry?.file_name();
        hashes.extend(hash_tree(root, &format!("{part}/{}", name.to_string_lossy()))?);
    }
    Ok(hashes)
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    Ok(hash(&fs::read(path).with_context(|| format!("failed to read {}", path.display()))?))
}

/// SHA-256 of bytes, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// `bytes` in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    text.parse().with_context(|| format!("failed to read {}", path.display()))
}

/// Aya's crates reachable from lockbpf-ebpf in a Cargo.lock; the helper of its build script leaves no code behind.
fn aya_crates(lock: &toml::Table) -> Result<BTreeMap<String, String>> {
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock lists no packages")?;
    let package = |name: &str| packages.iter().find(|package| text(package, "name") == Some(name));
    let mut open = vec!["lockbpf-ebpf".to_owned()];
    let mut seen = BTreeSet::new();
    let mut versions = BTreeMap::new();
    while let Some(name) = open.pop() {
        let found = package(&name).with_context(|| format!("Cargo.lock does not list {name}"))?;
        if name.starts_with("aya-") {
            versions.insert(name, text(found, "version").unwrap_or_default().to_owned());
        }
        let dependencies = found.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        // An entry is `name`, or `name version` where a lock holds several versions.
        let names = dependencies.filter_map(|entry| entry.as_str()?.split(' ').next());
        for name in names.filter(|name| name.starts_with("aya-") && *name != "aya-build") {
            if seen.insert(name.to_owned()) {
                open.push(name.to_owned());
            }
        }
    }
    Ok(versions)
}

fn text<'a>(package: &'a toml::Value, key: &str) -> Option<&'a str> {
    package.get(key).and_then(toml::Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_are_those_the_programs_reach() {
        let lock = r#"
            [[package]]
            name = "lockbpf-ebpf"
            version = "0.1.0"
            dependencies = ["aya-build", "aya-ebpf 0.2.1", "lockbpf-common"]
            [[package]]
            name = "aya-ebpf"
            version = "0.2.1"
            dependencies = ["aya-ebpf-cty", "num_enum"]
            [[package]]
            name = "aya-ebpf-cty"
            version = "0.3.0"
            [[package]]
            name = "aya-obj"
            version = "0.3.0"
        "#;
        let crates = aya_crates(&lock.parse().unwrap()).unwrap();
        assert_eq!(
            crates,
            BTreeMap::from([("aya-ebpf", "0.2.1"), ("aya-ebpf-cty", "0.3.0")].map(|(n, v)| (n.into(), v.into())))
        );
    }

    #[test]
    fn a_lock_without_the_programs_is_an_error() {
        assert!(aya_crates(&"package = []".parse().unwrap()).is_err());
    }

    #[test]
    fn a_tree_is_hashed_by_path_and_content() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("src/deep")).unwrap();
        fs::write(root.path().join("src/deep/a.rs"), "abc").unwrap();
        let hashes = hash_tree(root.path(), "src").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hashes, BTreeMap::from([("src/deep/a.rs".into(), abc.into())]));
    }
}
