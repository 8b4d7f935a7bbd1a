//! xtask as cargo's `RUSTC_WRAPPER` while the eBPF programs are compiled: it makes the objects depend on the sources
//! and the toolchain alone.
//!
//! Two things would leak the machine into an object. Paths end up in BTF line information and in panic messages:
//! they are remapped. Cargo's `-C metadata` hash ends up in every mangled name and in the order of functions, and it
//! changes with the place of rust-src, the host, and the version of any build dependency: it is replaced by the
//! crate's name and version.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

use crate::compile::TARGET;

/// Set to the workspace's root by the build; its presence makes xtask act as the wrapper.
pub(crate) const ROOT_VAR: &str = "LOCKBPF_EBPF_BUILD_ROOT";

/// The folder below the workspace's root where the standard library's source is staged.
pub(crate) const RUST_SRC: &str = "target/bpf/rust-src";

/// What cargo says about the crate being compiled.
struct Crate<'a> {
    name: &'a str,
    version: &'a str,
    manifest_dir: &'a Path,
}

/// Replaces this process by the rustc that cargo asked for (`xtask RUSTC ARGS…`).
///
/// # Errors
/// Cargo gave no rustc, or it cannot be started.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let mut args = env::args_os().skip(1);
    let rustc = args.next().context("failed to act as rustc's wrapper: no rustc given")?;
    let args: Vec<OsString> = args.collect();
    let name = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let krate = Crate { name: &name, version: &version, manifest_dir: manifest_dir.as_ref() };
    let error = Command::new(&rustc).args(rewrite(args, root, &krate)).exec();
    Err(error).with_context(|| format!("failed to start {}", Path::new(&rustc).display()))
}

/// The arguments with which a crate compiles the same on every machine. Crates for the host and cargo's questions
/// about the compiler stay as they are.
fn rewrite(args: Vec<OsString>, root: &Path, krate: &Crate<'_>) -> Vec<OsString> {
    let is_metadata = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.starts_with("metadata="));
    if !args.iter().any(|arg| arg == TARGET) || !args.iter().any(is_metadata) {
        return args;
    }
    let identity = format!("{}-{}", krate.name, krate.version);
    let mut args: Vec<OsString> = args
        .into_iter()
        .map(|arg| if is_metadata(&arg) { format!("metadata={identity}").into() } else { arg })
        .collect();
    args.push(remap(root, "."));
    let is_member = krate.manifest_dir.parent() == Some(root);
    if !is_member && !krate.manifest_dir.starts_with(root.join(RUST_SRC)) {
        // The last of several prefixes that fit wins.
        args.push(remap(krate.manifest_dir, &identity));
    }
    args
}

fn remap(from: &Path, to: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.push(from);
    flag.push(OsStr::new("="));
    flag.push(to);
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(args: &[&str], manifest_dir: &str) -> Vec<String> {
        let krate = Crate { name: "aya-ebpf", version: "0.2.1", manifest_dir: Path::new(manifest_dir) };
        let args = args.iter().map(OsString::from).collect();
        rewrite(args, Path::new("/ws"), &krate).into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn a_registry_crate_loses_hash_and_paths() {
        let args = rewritten(&["--target", TARGET, "-C", "metadata=0123"], "/home/me/.cargo/registry/src/x/aya-ebpf");
        assert_eq!(
            args,
            [
                "--target",
                TARGET,
                "-C",
                "metadata=aya-ebpf-0.2.1",
                "--remap-path-prefix=/ws=.",
                "--remap-path-prefix=/home/me/.cargo/registry/src/x/aya-ebpf=aya-ebpf-0.2.1",
            ]
        );
    }

    #[test]
    fn members_and_the_standard_library_are_named_from_the_workspace() {
        for manifest_dir in ["/ws/lockbpf-ebpf", "/ws/target/bpf/rust-src/library/core"] {
            let args = rewritten(&["--target", TARGET, "-C", "metadata=0123"], manifest_dir);
            assert!(!args.iter().any(|arg| arg.ends_with("=aya-ebpf-0.2.1") && arg.starts_with("--remap")), "{args:?}");
        }
    }

    #[test]
    fn host_crates_and_questions_stay_as_they_are() {
        for args in [&["-C", "metadata=0123"][..], &["--target", TARGET, "--print=cfg"]] {
            assert_eq!(rewritten(args, "/ws/lockbpf-ebpf"), args);
        }
    }
}
