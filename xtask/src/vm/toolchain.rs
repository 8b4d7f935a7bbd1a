//! What makes the programs that are put into a machine, by architecture.

use std::{
    env::consts,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::Found;
use crate::{arch::Arch, cc, install, process, workspace};

/// How long cargo may take.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long each call of another tool may take.
const TOOL_LIMIT: Duration = Duration::from_secs(300);

/// rustc's name of the other architecture.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The C compiler for it, and Debian's packages of that and of the C library.
const CROSS_CC: &str = "aarch64-linux-gnu-gcc";
const CROSS_PACKAGES: [&str; 2] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
const CROSS_READELF: &str = "aarch64-linux-gnu-readelf";

/// A shared library: its path inside of the machine, and here.
pub(crate) type Library = (String, PathBuf);

/// Compilers for an architecture.
#[derive(Clone, Copy)]
pub(crate) enum Toolchain {
    /// This machine's own architecture, with its own libraries.
    Native,
    /// aarch64 from another one: lockbpf and the init are static, the workloads have Debian's libraries.
    Aarch64,
}

impl Toolchain {
    /// Finds what it takes, or installs it.
    ///
    /// # Errors
    /// The system's folders cannot be written to.
    pub(crate) fn find(arch: Arch) -> Result<Found<Self>> {
        if arch.name() == consts::ARCH {
            return Ok(Found::Here(Self::Native));
        }
        Ok(match cross_tools() {
            Ok(()) => Found::Here(Self::Aarch64),
            Err(reason) => Found::Unavailable(reason),
        })
    }

    /// Builds a program of the workspace; returns its path.
    ///
    /// # Errors
    /// It does not compile.
    pub(crate) fn executable(self, package: &str, name: &str) -> Result<PathBuf> {
        let mut cargo = if let (Self::Native, "lockbpf") = (self, package) {
            // It is there already where the other tests have run.
            workspace::build_released()
        } else {
            let mut cargo = workspace::cargo();
            cargo.args(["build", "--release", "--package", package, "--bin", name]);
            cargo
        };
        cargo.arg("--message-format=json");
        if let Self::Aarch64 = self {
            cargo.args(["--target", TARGET]);
            let variable = TARGET.replace('-', "_");
            cargo.env(format!("CC_{variable}"), CROSS_CC);
            let variable = format!("CARGO_TARGET_{}", variable.to_uppercase());
            cargo.env(format!("{variable}_LINKER"), CROSS_CC);
            cargo.env(format!("{variable}_RUSTFLAGS"), "-Ctarget-feature=+crt-static");
            // It is unpacked into an emulated machine's memory.
            cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        }
        let messages = process::output(&mut cargo, BUILD_LIMIT)?;
        executable_in(&messages, name).with_context(|| format!("cargo built no program {name}"))
    }

    /// Compiles a workload as the integration tests do: dynamic, with symbols.
    ///
    /// # Errors
    /// It does not compile.
    pub(crate) fn workload(self, name: &str, dir: &Path) -> Result<PathBuf> {
        let source = workspace::root().join("tests/workloads").join(name).with_extension("c");
        let program = dir.join(name);
        let compiler = match self {
            Self::Native => cc::HOST,
            Self::Aarch64 => CROSS_CC,
        };
        cc::compile_with(compiler, &source, &program, &["-std=c11", "-g"])?;
        Ok(program)
    }

    /// The shared libraries that a program is started with, its loader among them.
    ///
    /// # Errors
    /// It cannot be read, or one of them is missing.
    pub(crate) fn libraries(self, program: &Path) -> Result<Vec<Library>> {
        match self {
            Self::Native => own_libraries(program),
            Self::Aarch64 => cross_libraries(program),
        }
    }
}

fn own_libraries(program: &Path) -> Result<Vec<Library>> {
    let listed = process::output(Command::new("ldd").arg(program), TOOL_LIMIT)?;
    ensure!(!listed.contains("not found"), "a library of {} is missing: {listed}", program.display());
    let libraries = libraries_in(&listed);
    ensure!(!libraries.is_empty(), "ldd lists no library of {}: {listed}", program.display());
    Ok(libraries.into_iter().map(|path| (path.clone(), path.into())).collect())
}

fn cross_libraries(program: &Path) -> Result<Vec<Library>> {
    let said = process::output(Command::new(CROSS_READELF).arg("-ld").arg(program), TOOL_LIMIT)?;
    let Some(loader) = loader_in(&said) else { return Ok(Vec::new()) };
    let loader = Path::new(loader);
    let folder = loader.parent().context("a loader without a folder")?;
    let names = needed_in(&said).into_iter().map(Path::new).chain(loader.file_name().map(Path::new));
    let locate = |name: &Path| {
        let asked = format!("-print-file-name={}", name.display());
        let here = PathBuf::from(process::output(Command::new(CROSS_CC).arg(asked), TOOL_LIMIT)?.trim());
        // The compiler repeats the name of what it does not know.
        ensure!(here.is_absolute(), "{CROSS_CC} knows no {}, which {} needs", name.display(), program.display());
        Ok((folder.join(name).display().to_string(), here))
    };
    names.map(locate).collect()
}

fn cross_tools() -> Result<()> {
    ensure!(
        consts::ARCH == "x86_64",
        "programs for aarch64 are cross-compiled on x86_64 only, and this machine is {}",
        consts::ARCH
    );
    if workspace::find_program(CROSS_CC).is_none() {
        let by_hand = format!("missing: {}", CROSS_PACKAGES.join(" "));
        if let Some(reason) = install::impossible() {
            anyhow::bail!("{reason}; {by_hand}");
        }
        eprintln!("installing {}, to compile for aarch64", CROSS_PACKAGES.join(" and "));
        install::packages(&CROSS_PACKAGES).context(by_hand)?;
    }
    let asked = ["--print", "target-libdir", "--target", TARGET];
    let library = process::output(workspace::rustc().args(asked), TOOL_LIMIT)?;
    if !Path::new(library.trim()).is_dir() {
        eprintln!("adding Rust's target {TARGET}");
        let mut rustup = Command::new("rustup");
        rustup.current_dir(workspace::root()).args(["target", "add", TARGET]);
        process::output(&mut rustup, TOOL_LIMIT).with_context(|| format!("missing: Rust's target {TARGET}"))?;
    }
    Ok(())
}

fn executable_in(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == name);
    built.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The paths in lines `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`.
fn libraries_in(ldd: &str) -> Vec<String> {
    let words = ldd.lines().map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.flatten().map(str::to_owned).collect()
}

/// The loader that readelf tells of, if there is one.
fn loader_in(readelf: &str) -> Option<&str> {
    let (_, rest) = readelf.split_once("program interpreter: ")?;
    rest.split_once(']').map(|(path, _)| path)
}

/// The names of shared libraries that readelf tells of.
fn needed_in(readelf: &str) -> Vec<&str> {
    let names = readelf.lines().filter_map(|line| line.split_once("Shared library: [")?.1.split_once(']'));
    names.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found() {
        let ldd = "\tlinux-vdso.so.1 (0x00007f8a)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f8a)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f8a)\n";
        assert_eq!(libraries_in(ldd), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries_in("\tstatically linked\n").is_empty());
        let readelf = "      [Requesting program interpreter: /lib/ld-linux-aarch64.so.1]\n\
                       0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n";
        assert_eq!(loader_in(readelf), Some("/lib/ld-linux-aarch64.so.1"));
        assert_eq!(needed_in(readelf), ["libc.so.6"]);
        assert_eq!(loader_in("There is no dynamic section in this file.\n"), None);
    }

    #[test]
    fn the_program_is_told_from_other_artifacts() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"lockbpf"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"lockbpf"},"executable":"/target/lockbpf"}
{"reason":"build-finished"}"#;
        assert_eq!(executable_in(messages, "lockbpf"), Some("/target/lockbpf".into()));
        assert_eq!(executable_in(messages, "vm-init"), None);
    }
}
