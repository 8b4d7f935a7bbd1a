//! A child process whose output is read while it runs. It does not outlive its test, and no wait for it is endless.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long anything may take: only a defect takes longer, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of a pipe, as they come.
pub(crate) struct Lines {
    coming: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, coming) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
            for line in lines {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Self { coming, seen: Vec::new() }
    }

    /// The next line; `None` once the pipe is closed. Panics after [`PATIENCE`].
    pub(crate) fn next(&mut self) -> Option<String> {
        match self.coming.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was printed for {PATIENCE:?} after:\n{}", self.text()),
        }
    }

    /// The first line from here on that is wanted; `None` if the pipe is closed before it comes.
    pub(crate) fn find(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        while let Some(line) = self.next() {
            if wanted(&line) {
                return Some(line);
            }
        }
        None
    }

    /// Whether a line has this in it: one that was read already, or one that comes.
    pub(crate) fn find_any(&mut self, part: &str) -> bool {
        self.seen.iter().any(|line| line.contains(part)) || self.find(|line| line.contains(part)).is_some()
    }

    /// Reads on until the pipe is closed.
    pub(crate) fn rest(&mut self) -> String {
        while self.next().is_some() {}
        self.text()
    }

    fn text(&self) -> String {
        self.seen.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

/// A running child.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it prints on stdout.
    pub(crate) out: Lines,
    /// What it prints on stderr.
    pub(crate) err: Lines,
}

impl Running {
    /// Starts a command with all three streams piped.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command).unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let out = Lines::of(child.stdout.take().expect("stdout is piped"));
        let err = Lines::of(child.stderr.take().expect("stderr is piped"));
        Self { stdin: child.stdin.take(), child, out, err }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its stdin; what the reader does not want any more is dropped.
    pub(crate) fn tell(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
        }
    }

    /// Closes its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid is positive"));
        kill(pid, signal).unwrap_or_else(|error| panic!("failed to send {signal} to {pid}: {error}"));
    }

    /// Whether it has not exited.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("failed to look at a child").is_none()
    }

    /// Waits for its exit. Panics after [`PATIENCE`].
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("failed to wait for a child") {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "pid {} has not exited within {PATIENCE:?}", self.pid());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has exited, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that was just written may still be open for writing: in a child that another test has forked, until that executes its own.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut spawned = command.spawn();
    eventually("nobody writes the program", || {
        let busy = matches!(&spawned, Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy);
        if busy {
            spawned = command.spawn();
        }
        !busy
    });
    spawned
}

/// Tries until it holds. Panics after [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that a process has started, by a word of their command lines.
pub(crate) fn children(of: u32, word: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let all: String = tasks.map(|task| text(task.path().join("children"))).collect();
    let pids = all.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
    pids.filter(|pid| text(format!("/proc/{pid}/cmdline").into()).split('\0').any(|argument| argument == word))
        .collect()
}
