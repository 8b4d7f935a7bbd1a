//! A command that is to be started: which program it is, and which C library that will load.

use super::error::TargetError;
use super::file::{File, is_c_library};
use super::{Process, Survey, Targets};
use crate::capture::judge::Role;
use crate::capture::reader;
use crate::capture::unusable::Unusable;
use crate::capture::user::User;
use crate::custom::catalogue;
use crate::door;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many `#!` lines the kernel follows.
const MAX_SCRIPTS: usize = 5;

/// What a command would have to be probed in: the C library that its dynamic loader picks (asked with `--list`, as ldd
/// does, in the environment of this process and as whom the command will run), or the program itself if it is static. Of a script, its
/// interpreter's.
///
/// # Errors
/// If there is no such command, or its loader fails.
pub fn of_command(command: &OsStr, user: Option<&User>) -> Result<Targets, TargetError> {
    let failed = |why: String| TargetError::Command { command: command.to_string_lossy().into_owned(), why };
    let program = program(command).map_err(failed)?;
    let name = program.file_name().unwrap_or(command).to_string_lossy().into_owned();
    let open = door::open_named(&program).map_err(|error| failed(error.to_string()))?;
    let interpreter = reader::interpreter(&open).map_err(|why| failed(why.to_string()))?;

    let (mut survey, mut files) = (Survey::default(), Vec::new());
    let mut verdict = Err(Unusable::NoLibc);
    if let Some(interpreter) = &interpreter {
        let libraries = list(interpreter, &program, user).map_err(failed)?;
        for path in libraries {
            let file = || File::at(&path).map_err(|why| failed(why.to_string()));
            if is_c_library(&path) {
                let found = survey.add(&file()?, &path, Role::CLibrary, false, None, &mut files);
                verdict = super::better(verdict, found);
            } else if catalogue().describes(&path) {
                let _ = survey.add(&file()?, &path, Role::Library, false, None, &mut files);
            }
        }
    }
    let file = File::at(&program).map_err(|why| failed(why.to_string()))?;
    let own = survey.add(&file, &program, Role::Executable, interpreter.is_some(), None, &mut files);
    verdict = super::better(verdict, own);
    let process = Process { pid: None, name, files, unusable: verdict.err() };
    Ok(Targets { libraries: survey.take_new(), processes: vec![process], ..Targets::default() })
}

/// The program that the kernel would run.
fn program(command: &OsStr) -> Result<PathBuf, String> {
    let mut path = find(command)?;
    for _ in 0..MAX_SCRIPTS {
        let mut start = Vec::new();
        let file = fs::File::open(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        file.take(256)
            .read_to_end(&mut start)
            .map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        match interpreter(&start) {
            None => return Ok(path),
            Some(next) => path = executable(Path::new(&next))?,
        }
    }
    Err(format!("{} has more `#!` interpreters behind it than the kernel follows", path.display()))
}

/// The interpreter in a `#!` line.
fn interpreter(start: &[u8]) -> Option<OsString> {
    let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let word = line.trim_ascii_start().split(|&b| b == b' ' || b == b'\t').next()?;
    (!word.is_empty()).then(|| OsString::from_vec(word.to_vec()))
}

fn find(command: &OsStr) -> Result<PathBuf, String> {
    if command.as_bytes().contains(&b'/') {
        return executable(Path::new(command));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find_map(|dir| executable(&dir.join(command)).ok())
        .ok_or_else(|| "no such program in PATH".to_owned())
}

fn executable(path: &Path) -> Result<PathBuf, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !metadata.is_file() || nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_err() {
        return Err(format!("{} is not an executable file", path.display()));
    }
    Ok(path.to_owned())
}

/// The libraries that a loader would load for a program. The loader is the program's choice: it has no more rights than that will have.
fn list(loader: &Path, program: &Path, user: Option<&User>) -> Result<Vec<PathBuf>, String> {
    let mut command = Command::new(loader);
    if let Some(user) = user {
        user.apply(&mut command);
    }
    let output = command
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|error| format!("failed to run its loader {}: {error}", loader.display()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("its loader {} failed: {}", loader.display(), message.trim()));
    }
    Ok(listed(&output.stdout))
}

/// Paths in `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f…)` and `/lib64/ld-linux-x86-64.so.2 (0x7f…)`.
fn listed(output: &[u8]) -> Vec<PathBuf> {
    output
        .split(|&b| b == b'\n')
        .filter_map(|line| {
            let start = line.iter().position(|&b| b == b'/')?;
            let path = line.get(start..)?;
            let end = path.windows(4).rposition(|w| w == b" (0x").unwrap_or(path.len());
            Some(PathBuf::from(OsStr::from_bytes(path.get(..end)?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_command_in_path_has_the_c_library_that_it_will_load() {
        let targets = of_command(OsStr::new("true"), None).unwrap();
        targets.check_full_tier().unwrap();
        let [library] = targets.libraries.as_slice() else { panic!("{:?}", targets.libraries) };
        assert!(is_c_library(&library.path) && library.pids.is_empty());
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
        fs::write(&inner, "#! /bin/sh -e\nexit\n").unwrap();
        fs::write(&outer, format!("#!{}\n", inner.display())).unwrap();
        for path in [&inner, &outer] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(program(outer.as_os_str()).unwrap(), Path::new("/bin/sh"));

        fs::write(&inner, format!("#!{}\n", outer.display())).unwrap();
        assert!(program(outer.as_os_str()).unwrap_err().contains("more `#!` interpreters"));
    }

    #[test]
    fn what_cannot_be_started() {
        for (command, why) in [
            ("no-such-program-anywhere", "no such program in PATH"),
            ("/no/such/file", "/no/such/file: No such file or directory (os error 2)"),
            ("/etc/passwd", "/etc/passwd is not an executable file"),
            ("/", "/ is not an executable file"),
        ] {
            let error = of_command(OsStr::new(command), None).unwrap_err().to_string();
            assert_eq!(error, format!("failed to prepare {command}: {why}"));
        }
    }

    #[test]
    fn loaders_answer_in_these_forms() {
        let output = b"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/my libs/libc.so.6 (0x00007f1e)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f1f)\n\tlibx.so => not found\n\t/lib/ld-musl-x86_64.so.1\n";
        let paths = ["/lib/my libs/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];
        assert_eq!(listed(output), paths.map(PathBuf::from));
    }

    #[test]
    fn interpreters_are_read_as_the_kernel_does() {
        for (line, word) in [
            (&b"#!/bin/sh\n"[..], Some("/bin/sh")),
            (b"#! \t/usr/bin/env python3\n", Some("/usr/bin/env")),
            (b"#!\n", None),
            (b"\x7fELF", None),
            (b"", None),
        ] {
            assert_eq!(interpreter(line), word.map(OsString::from));
        }
    }
}
