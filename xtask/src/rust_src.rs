//! Finds the standard library's source, which compiling `core` for the BPF target needs, and stages a copy of it
//! inside the workspace, where cargo finds it without a change to the installed toolchain.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::{debian, process, provenance, rustc_wrapper, workspace};

/// Names the source to use: a folder that holds `library/`, or a `.tar.xz` archive.
const VARIABLE: &str = "LOCKBPF_RUST_SRC";
/// How long `rustup component add` may take, whose server not every network reaches.
const RUSTUP_LIMIT: Duration = Duration::from_secs(120);
/// How long copying or unpacking the source may take.
const COPY_LIMIT: Duration = Duration::from_secs(120);
/// Marks a complete staged copy; holds the version of the rustc it was staged for.
const STAMP: &str = "staged-for";
/// What of the source ends up in the objects.
const COMPILED: [&str; 3] = ["core/src", "compiler-builtins/compiler-builtins/src", "stdarch/crates/core_arch/src"];

/// The staged source.
pub(crate) struct RustSrc {
    /// Its `library` folder.
    pub(crate) library: PathBuf,
    /// One digest of the files that end up in the objects.
    pub(crate) sha256: String,
}

/// What a way to the source has to go by.
struct Search<'a> {
    /// rustc's version number: `1.95.0`.
    version: &'a str,
    /// A folder for what must be unpacked, removed afterwards.
    scratch: &'a Path,
}

/// A way to the source: what it is called in messages, and what returns a folder that holds `library/`.
type Way = (&'static str, fn(&Search<'_>) -> Result<PathBuf>);

/// In the order they are tried.
const WAYS: [Way; 5] = [
    (VARIABLE, from_variable),
    ("rustup component", from_sysroot),
    ("rustup component add rust-src", from_rustup),
    ("../shared/toolchain", from_neighbour),
    ("Debian package rust-src", from_debian),
];

/// The staged source for the rustc of `rustc_version`, staged now if it is not already or if the environment names one.
///
/// # Errors
/// No way leads to it; the error names each way and why it failed.
pub(crate) fn find(rustc_version: &str) -> Result<RustSrc> {
    let staged = workspace::root().join(rustc_wrapper::RUST_SRC);
    let library = staged.join("library");
    let is_staged = fs::read_to_string(staged.join(STAMP)).is_ok_and(|stamp| stamp == rustc_version);
    if !is_staged || env::var_os(VARIABLE).is_some() {
        let scratch = tempfile::tempdir_in(workspace::bpf_dir()?).context("failed to create a scratch folder")?;
        let version = rustc_version.split(' ').next().unwrap_or(rustc_version);
        let found = search(&Search { version, scratch: scratch.path() })?;
        stage(&found, &staged, rustc_version).with_context(|| format!("failed to copy {}", found.display()))?;
    }
    let sha256 = digest(&library)?;
    Ok(RustSrc { library, sha256 })
}

fn search(search: &Search<'_>) -> Result<PathBuf> {
    let mut failures = Vec::new();
    for (name, way) in WAYS {
        match way(search).and_then(check) {
            Ok(found) => {
                eprintln!("rust-src {} found: {name}", search.version);
                return Ok(found);
            }
            Err(reason) => failures.push(format!("  {name}: {reason:#}")),
        }
    }
    bail!(
        "failed to find the standard library's source (rust-src) of rustc {}; tried in order:\n{}\n\
         set {VARIABLE} to a folder that holds its library/ or to a .tar.xz archive of it",
        search.version,
        failures.join("\n")
    )
}

/// `dir`, if it holds the standard library's workspace.
fn check(dir: PathBuf) -> Result<PathBuf> {
    for file in ["library/Cargo.lock", "library/core/src/lib.rs", "library/sysroot/Cargo.toml"] {
        ensure!(dir.join(file).is_file(), "{} holds no {file}", dir.display());
    }
    Ok(dir)
}

fn from_variable(search: &Search<'_>) -> Result<PathBuf> {
    let path = PathBuf::from(env::var_os(VARIABLE).context("not set")?);
    // A relative path counts from where the user is, not from where a program is run.
    let path = env::current_dir()?.join(path);
    if path.is_dir() { Ok(path) } else { unpack(&path, search.scratch) }
}

fn from_sysroot(_: &Search<'_>) -> Result<PathBuf> {
    let sysroot = process::output(workspace::rustc().args(["--print", "sysroot"]), Duration::from_secs(60))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib/src/rust"))
}

fn from_rustup(search: &Search<'_>) -> Result<PathBuf> {
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add", "rust-src"]).current_dir(workspace::root());
    process::output(&mut rustup, RUSTUP_LIMIT)?;
    from_sysroot(search)
}

fn from_neighbour(search: &Search<'_>) -> Result<PathBuf> {
    let archive = format!("../shared/toolchain/rust-src-{}.tar.xz", search.version);
    unpack(&workspace::root().join(archive), search.scratch)
}

fn from_debian(search: &Search<'_>) -> Result<PathBuf> {
    let unpacked = debian::unpack_rust_src(search.version, search.scratch)?;
    Ok(unpacked.join(format!("usr/src/rustc-{}", search.version)))
}

/// Unpacks a `.tar.xz` archive; returns the folder that holds `library/`, at the archive's top or one below.
fn unpack(archive: &Path, scratch: &Path) -> Result<PathBuf> {
    ensure!(archive.is_file(), "{} does not exist", archive.display());
    let into = scratch.join("unpacked");
    fs::create_dir_all(&into)?;
    process::output(Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(&into), COPY_LIMIT)?;
    let below = fs::read_dir(&into)?.flatten().map(|entry| entry.path());
    let holds_library = [into.clone()].into_iter().chain(below).find(|dir| dir.join("library").is_dir());
    holds_library.with_context(|| format!("{} holds no library/", archive.display()))
}

/// Copies `found`'s `library` into `staged`, whole or not at all.
fn stage(found: &Path, staged: &Path, rustc_version: &str) -> Result<()> {
    if staged.exists() {
        fs::remove_dir_all(staged)?;
    }
    fs::create_dir_all(staged)?;
    let mut copy = Command::new("cp");
    copy.args(["-r", "--preserve=timestamps"]).arg(found.join("library")).arg(staged);
    process::output(&mut copy, COPY_LIMIT)?;
    let library = staged.join("library");
    drop_missing_members(&library.join("Cargo.toml"))?;
    fs::write(staged.join(STAMP), rustc_version)?;
    Ok(())
}

/// Debian leaves out some members (the library's own tests), without which cargo refuses the workspace.
fn drop_missing_members(manifest: &Path) -> Result<()> {
    let mut workspace: toml::Table = fs::read_to_string(manifest)?.parse()?;
    let members = workspace.get_mut("workspace").and_then(|workspace| workspace.get_mut("members"));
    let members = members.and_then(toml::Value::as_array_mut).context("the library's workspace names no members")?;
    let library = manifest.parent().unwrap_or(manifest);
    members.retain(|member| member.as_str().is_some_and(|member| library.join(member).join("Cargo.toml").is_file()));
    fs::write(manifest, toml::to_string(&workspace)?)?;
    Ok(())
}

fn digest(library: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    for part in COMPILED {
        for (file, sha256) in provenance::hash_tree(library, part)? {
            hasher.update(format!("{file} {sha256}\n"));
        }
    }
    Ok(provenance::hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_left_out_by_a_distribution_are_dropped() {
        let library = tempfile::tempdir().unwrap();
        let manifest = library.path().join("Cargo.toml");
        fs::create_dir(library.path().join("std")).unwrap();
        fs::write(library.path().join("std/Cargo.toml"), "").unwrap();
        fs::write(&manifest, "[workspace]\nmembers = [\"std\", \"coretests\"]\n[profile.dev]\ndebug = 0\n").unwrap();
        drop_missing_members(&manifest).unwrap();
        let kept: toml::Table = fs::read_to_string(&manifest).unwrap().parse().unwrap();
        assert_eq!(kept["workspace"]["members"].as_array().unwrap().len(), 1);
        assert_eq!(kept["profile"]["dev"]["debug"].as_integer(), Some(0));
    }

    #[test]
    fn a_folder_without_the_library_is_refused_by_name() {
        let empty = tempfile::tempdir().unwrap();
        let error = check(empty.path().to_path_buf()).unwrap_err();
        assert!(error.to_string().contains("library/Cargo.lock"), "{error}");
    }
}
