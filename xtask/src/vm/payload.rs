//! What is put into a machine: lockbpf, the init, the workloads, and the shared libraries of all of them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use vm_tests::place;

use super::cpio::Archive;
use crate::{cc, process, workspace};

/// How long cargo may take.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How long each call of the C compiler and of ldd may take.
const TOOL_LIMIT: Duration = Duration::from_secs(120);
/// The device by which the kernel gives the init its standard streams.
const CONSOLE: (&str, u32, u32) = ("/dev/console", 5, 1);

/// Builds everything and writes it to `file`, as the archive that the kernel unpacks.
///
/// # Errors
/// Something does not compile, or `file` cannot be written to.
pub(crate) fn write(file: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("failed to create a temporary folder")?;
    let mut programs = vec![
        ("/init".to_owned(), executable("vm-tests", "vm-init")?),
        (place::LOCKBPF.to_owned(), executable("lockbpf", "lockbpf")?),
    ];
    for name in place::WORKLOAD_NAMES {
        programs.push((format!("{}/{name}", place::WORKLOADS), workload(name, scratch.path())?));
    }
    let mut archive = Archive::default();
    let mut libraries = BTreeSet::new();
    for (inside, program) in programs {
        libraries.extend(shared_libraries(&program)?);
        archive.file(&inside, read(&program)?);
    }
    for library in libraries {
        archive.file(&library, read(Path::new(&library))?);
    }
    let (path, major, minor) = CONSOLE;
    archive.device(path, major, minor);
    fs::write(file, archive.bytes()?).with_context(|| format!("failed to write {}", file.display()))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}

/// Builds a program of the workspace; returns its path.
fn executable(package: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--message-format=json", "--package", package, "--bin", name]);
    let messages = process::output(&mut cargo, BUILD_LIMIT)?;
    executable_in(&messages, name).with_context(|| format!("cargo built no program {name}"))
}

fn executable_in(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == name);
    built.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Compiles a workload as the integration tests do: dynamic, with symbols.
fn workload(name: &str, dir: &Path) -> Result<PathBuf> {
    let source = workspace::root().join("tests/workloads").join(name).with_extension("c");
    let program = dir.join(name);
    cc::compile(&source, &program, &["-std=c11", "-g"])?;
    Ok(program)
}

/// The shared libraries that a program is started with, its loader among them.
fn shared_libraries(program: &Path) -> Result<Vec<String>> {
    let listed = process::output(Command::new("ldd").arg(program), TOOL_LIMIT)?;
    let libraries = libraries_in(&listed);
    ensure!(!listed.contains("not found"), "a library of {} is missing: {listed}", program.display());
    ensure!(!libraries.is_empty(), "ldd lists no library of {}: {listed}", program.display());
    Ok(libraries)
}

/// The paths in lines `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`.
fn libraries_in(ldd: &str) -> Vec<String> {
    let words = ldd.lines().map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.flatten().map(str::to_owned).collect()
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
