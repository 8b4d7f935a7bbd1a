//! Running other programs: with a time limit and with errors that say what they said.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How many of a failed program's last lines an error repeats.
const LAST_LINES: usize = 3;

/// Runs `command` without input and returns its standard output.
///
/// # Errors
/// The program cannot be started, exits with another status than 0 (the error repeats its last lines) or is still
/// running after `limit` (it is killed).
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let mut stdout = tempfile::tempfile().context("failed to create a temporary file")?;
    let mut stderr = tempfile::tempfile().context("failed to create a temporary file")?;
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let status = status(command, limit)?;
    let said = read_back(&mut stdout)?;
    if !status.success() {
        let complaint = format!("{said}\n{}", read_back(&mut stderr)?);
        bail!("`{}` ended with {status}: {}", describe(command), last_lines(&complaint));
    }
    Ok(said)
}

/// Runs `command` without input to its end.
///
/// # Errors
/// The program cannot be started or is still running after `limit` (it is killed).
pub(crate) fn status(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let started = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("failed to start `{}`", describe(command)))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("`{}` did not end within {} s", describe(command), limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// The command line, for messages.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(LAST_LINES);
    lines.get(first..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn returns_standard_output() {
        assert_eq!(output(&mut shell("echo yes; echo no >&2"), Duration::from_secs(60)).unwrap(), "yes\n");
    }

    #[test]
    fn a_failure_repeats_what_the_program_said() {
        let error = output(&mut shell("echo the reason >&2; exit 3"), Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("the reason"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let error = output(&mut shell("exec sleep 600"), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = output(&mut Command::new("no-such-program-here"), Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }
}
