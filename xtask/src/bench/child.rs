//! A program that runs beside the benchmark, is spoken to by lines, and does not outlive its owner.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::interrupt;
use crate::process::describe;

/// How long a child may take to say what is expected of it, or to exit.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether the benchmark was interrupted, or a child has exited.
const POLL: Duration = Duration::from_millis(20);

/// A running child. Killed when dropped.
pub(super) struct Child {
    child: std::process::Child,
    name: String,
    stdin: Option<ChildStdin>,
    /// What it prints on stdout.
    pub(super) out: Lines,
    /// What it prints on stderr.
    pub(super) err: Lines,
}

impl Child {
    /// Starts a command with all three streams piped.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        Self::start_into(command, Stdio::piped())
    }

    /// Starts a command whose stdout goes elsewhere.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_into(command: &mut Command, stdout: Stdio) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start `{}`", describe(command)))?;
        let (out, err) = (Lines::of(child.stdout.take()), Lines::of(child.stderr.take()));
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Self { stdin: child.stdin.take(), child, name, out, err })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Pid {
        // The kernel's pids fit: it gave this one as an i32.
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// It does not read any more.
    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().with_context(|| format!("{} has no input", self.name))?;
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .with_context(|| format!("failed to write to {}", self.name))
    }

    /// The next wanted thing on stdout; `wanted` makes it out of a line.
    ///
    /// # Errors
    /// It does not come, or the benchmark was interrupted.
    pub(super) fn expect_out<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let found = self.out.find(wanted);
        found.map_err(|error| self.explain(&error))
    }

    /// The next wanted thing on stderr; `wanted` makes it out of a line.
    ///
    /// # Errors
    /// It does not come, or the benchmark was interrupted.
    pub(super) fn expect_err<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let found = self.err.find(wanted);
        found.map_err(|error| self.explain(&error))
    }

    fn explain(&mut self, error: &anyhow::Error) -> anyhow::Error {
        let said = self.err.last().or_else(|| self.out.last()).unwrap_or("nothing");
        anyhow!("{}: {error}; it said last: {said}", self.name)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).with_context(|| format!("failed to send {signal} to {}", self.name))
    }

    /// Interrupts it as Ctrl-C does, and waits for its exit.
    ///
    /// # Errors
    /// It does not exit, not with status 0, or the benchmark was interrupted.
    pub(super) fn interrupt(&mut self) -> Result<()> {
        let status = self.interrupted_status()?;
        if status.success() {
            return Ok(());
        }
        self.err.drain();
        Err(self.explain(&anyhow!("it ended with {status}")))
    }

    /// Interrupts it as Ctrl-C does, and returns what it exits with.
    ///
    /// # Errors
    /// It does not exit, or the benchmark was interrupted.
    pub(super) fn interrupted_status(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGINT)?;
        let begin = Instant::now();
        loop {
            match self.child.try_wait().with_context(|| format!("failed to wait for {}", self.name))? {
                Some(status) => return Ok(status),
                None if begin.elapsed() > PATIENCE => {
                    bail!("{} did not exit within {} s", self.name, PATIENCE.as_secs())
                }
                None => interrupt::sleep(POLL)?,
            }
        }
    }

    /// Whether it has exited.
    ///
    /// # Errors
    /// That cannot be found out.
    pub(super) fn has_exited(&mut self) -> Result<bool> {
        let status = self.child.try_wait().with_context(|| format!("failed to look at {}", self.name))?;
        Ok(status.is_some())
    }

    /// Fails if it has exited.
    ///
    /// # Errors
    /// It has exited.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| format!("failed to look at {}", self.name))? {
            None => Ok(()),
            Some(status) => {
                self.err.drain();
                self.out.drain();
                Err(self.explain(&anyhow!("it ended early with {status}")))
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if it has exited, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, as they come.
pub(super) struct Lines {
    coming: Receiver<String>,
    last: Option<String>,
}

impl Lines {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (sender, coming) = channel();
        thread::spawn(move || {
            let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n').map_while(Result::ok));
            for line in lines {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Self { coming, last: None }
    }

    fn find<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let begin = Instant::now();
        loop {
            match self.coming.recv_timeout(POLL) {
                Ok(line) => {
                    let found = wanted(&line);
                    self.last = Some(line);
                    if let Some(found) = found {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => bail!("it ended early"),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > PATIENCE => {
                    bail!("it did not answer within {} s", PATIENCE.as_secs())
                }
                Err(RecvTimeoutError::Timeout) => interrupt::check()?,
            }
        }
    }

    /// Everything until the pipe is closed, which its writer's exit does.
    pub(super) fn rest(&mut self) -> String {
        self.coming.iter().flat_map(|line| [line, "\n".to_owned()]).collect()
    }

    fn drain(&mut self) {
        self.last = self.coming.iter().filter(|line| !line.trim().is_empty()).last().or(self.last.take());
    }

    fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where signals are ignored, as in the background of a script, a shell cannot trap them.
    fn shell(script: &str) -> Child {
        Child::start(Command::new("env").args(["--default-signal=INT", "sh", "-c", script])).unwrap()
    }

    #[test]
    fn a_child_answers_lines() {
        let mut child = shell("while read line; do echo noise; echo answer to $line; done");
        for word in ["one", "two"] {
            child.tell(word).unwrap();
            let answer = child.expect_out(|line| line.strip_prefix("answer to ").map(str::to_owned)).unwrap();
            assert_eq!(answer, word);
        }
        child.check_alive().unwrap();
    }

    #[test]
    fn an_early_end_is_told_with_the_last_words() {
        let mut child = shell("echo the reason >&2; exit 3");
        let error = child.expect_err(|line| line.strip_prefix("never").map(drop)).unwrap_err();
        assert!(error.to_string().contains("the reason"), "{error}");
        let error = child.interrupt().unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[test]
    fn an_interrupted_child_ends_cleanly_with_its_output() {
        let mut child = shell("trap 'echo report; exit 0' INT; echo ready >&2; while :; do sleep 0.01; done");
        child.expect_err(|line| (line == "ready").then_some(())).unwrap();
        child.interrupt().unwrap();
        assert_eq!(child.out.rest(), "report\n");
    }

    #[test]
    fn a_dropped_child_is_dead() {
        let child = shell("exec sleep 600");
        let pid = child.pid();
        drop(child);
        assert!(kill(pid, None).is_err());
    }
}
