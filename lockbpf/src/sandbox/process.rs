//! A confined process, as whoever started it holds it: asked within a time, and ended.

use super::{COMMAND, socket};
use crate::helper;
use crate::proc;
use nix::unistd::{SysconfVar, sysconf};
use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it may take to say that it is confined.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// lockbpf waits for an answer at most this many times its limit, however long the process waits for a CPU.
const MOST: u32 = 10;
/// Most answers come within this part of their limit. Whether the process waits for a CPU is looked at from then on only.
const SOON: u32 = 10;
/// What it is asked first, and answers once it is confined.
pub const READY: &[u8] = b"\"Ready\"";

/// How long one may read in all: then another one goes on. The kernel ends what reads longer ([`super::enter`]).
const WORN: Duration = Duration::from_secs(super::CPU_SECONDS / 2);

/// Those that run.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Whether a process is one of these, which nobody wants to observe.
#[must_use]
pub fn is_own(pid: u32) -> bool {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

/// Those that run.
#[must_use]
pub fn pids() -> Vec<u32> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}

/// Memory of those that run, bytes; files that they map do not count.
#[must_use]
pub fn memory() -> u64 {
    pids().into_iter().map(memory_of).sum()
}

/// Memory of a process of its own, bytes; 0 if it is not known.
fn memory_of(pid: u32) -> u64 {
    let [resident, shared] = resident(pid);
    resident.saturating_sub(shared)
}

/// Resident memory of a process, and the part of it that it maps from files or shares, bytes; 0 if it is not known.
#[must_use]
pub fn resident(pid: u32) -> [u64; 2] {
    let told = proc::text(format!("/proc/{pid}/statm")).unwrap_or_default();
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
    [1, 2].map(|at| {
        let pages = told.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
        pages.unwrap_or(0) * page.unwrap_or(4_096)
    })
}

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// It took too long.
    #[error("it took more than {} s", .0.as_secs())]
    TooLong(Duration),
    /// The process ended.
    #[error("it ended the process that reads such files ({0})")]
    Died(String),
    /// It answered something else.
    #[error("the process that reads such files answered nonsense")]
    Nonsense,
    /// There is no process.
    #[error("no process that reads such files can be started ({0})")]
    None(String),
}

/// The process and the socket to it. It is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    socket: UnixStream,
    child: Option<Child>,
    /// Who answers.
    thread: Option<u32>,
    began: Instant,
    /// How long answers took.
    taken: Cell<Duration>,
}

impl Process {
    /// Starts it, with `arguments`.
    ///
    /// # Errors
    /// When there is no process to be had.
    pub fn start(arguments: &[&str]) -> io::Result<Self> {
        Self::start_as(helper::program(), arguments)
    }

    /// As [`Process::start`], with another program.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_as(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (socket, its) = UnixStream::pair()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut command = helper::command_as(program, COMMAND);
        command.args(arguments);
        command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(Stdio::null());
        // Nothing of what the user's environment says is meant for it.
        helper::mark(command.env_clear());
        let child = command.current_dir("/").spawn()?;
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id());
        // It has the only other end: its end is heard.
        drop(command);
        let thread = Some(child.id());
        Ok(Self { socket, child: Some(child), thread, began: Instant::now(), taken: Cell::default() })
    }

    /// Somebody else who answers at the other end of a socket; `thread` if it is known who.
    #[must_use]
    pub fn over(socket: UnixStream, thread: Option<u32>) -> Self {
        Self { socket, child: None, thread, began: Instant::now(), taken: Cell::default() }
    }

    /// A thread of this process that answers.
    #[cfg(test)]
    pub fn in_thread(serve: impl FnOnce(&UnixStream) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (socket, its) = UnixStream::pair()?;
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell.send(nix::unistd::gettid().as_raw().cast_unsigned());
            serve(&its)
        });
        Ok(Self::over(socket, told.recv().ok()))
    }

    /// Waits until it has said that it is confined: what ends it from then on is what it reads.
    ///
    /// # Errors
    /// When it cannot be confined, or does not say so in time.
    pub fn greeted(self) -> io::Result<Self> {
        let no_answer = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                io::Error::other("it cannot be confined on this system")
            }
            _ => error,
        };
        socket::send(&self.socket, READY, &[]).map_err(no_answer)?;
        let answer = self.receive_within(PATIENCE).map_err(no_answer)?;
        if answer == READY { Ok(self) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        socket::send(&self.socket, bytes, files)
    }

    /// The next answer, if it takes no longer than `patience`. While the process waits for a CPU, its time stands still.
    ///
    /// # Errors
    /// When it does not come in time (`TimedOut`), is too long or cut off.
    pub fn receive_within(&self, patience: Duration) -> io::Result<Vec<u8>> {
        let (asked, before) = (Instant::now(), OnceCell::new());
        let deadline = || {
            if asked.elapsed() < patience / SOON {
                return asked + patience / SOON;
            }
            let delayed = self.delayed();
            let since = delayed.saturating_sub(*before.get_or_init(|| delayed));
            asked + (patience + since).min(patience * MOST)
        };
        let answer = socket::receive_until(&self.socket, deadline);
        self.taken.set(self.taken.get() + asked.elapsed());
        answer
    }

    /// How long whoever answers has waited for a CPU; nothing on kernels that do not tell.
    fn delayed(&self) -> Duration {
        let told = self.thread.and_then(|tid| proc::text(format!("/proc/{tid}/schedstat")).ok());
        let delayed_ns = told.and_then(|told| told.split_whitespace().nth(1)?.parse().ok());
        delayed_ns.map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// Whether it has read for so long that another one should go on.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.taken.get() >= WORN
    }

    /// Whether it keeps more than `bytes` of memory, and to read all that again would take less than `share` of a CPU, if that were done each
    /// time.
    #[must_use]
    pub fn keeps_too_much(&self, bytes: u64, share: f64) -> bool {
        let cheap = self.taken.get() <= self.began.elapsed().mul_f64(share);
        cheap && self.child.as_ref().is_some_and(|child| memory_of(child.id()) > bytes)
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Ends it, and tells how it had ended, if it had.
    #[must_use]
    pub fn end(mut self) -> String {
        let Some(child) = &mut self.child else { return "it has ended".to_owned() };
        // It had its time: what does not end by itself is ended.
        let ended = (0..20).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            child.try_wait().ok().flatten()
        });
        if ended.is_none() {
            let _ = child.kill();
        }
        match child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => status.to_string(),
            },
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&child.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_told() {
        // It writes its argument until it is ended.
        let process = Process::start_as(Path::new("yes"), &[]).unwrap();
        while memory() < 4_096 {
            std::thread::yield_now();
        }
        assert!(process.keeps_too_much(1, 1.0) && !process.keeps_too_much(1 << 40, 1.0));
        process.taken.set(Duration::from_secs(100));
        assert!(!process.keeps_too_much(1, 0.5), "it would be read again for half of the time");
        assert!(!process.is_worn());
        process.taken.set(WORN);
        assert!(process.is_worn());
    }

    #[test]
    fn while_it_waits_for_a_cpu_its_time_stands_still() {
        // All on one CPU: three of four quarters of the time the first one waits.
        let spin = || {
            let spin = ["-c", "0", "sh", "-c", "while :; do :; done"];
            std::process::Command::new("taskset").args(spin).spawn().unwrap()
        };
        let mut all = [spin(), spin(), spin(), spin()];
        let (_other, socket) = UnixStream::pair().unwrap();
        let process = Process::over(socket, Some(all[0].id()));
        while process.delayed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
        let patience = Duration::from_millis(200);
        // The kernel tells of a wait for a CPU when it is over, so the last one is missing, which may be long: one of some tries shows the others.
        let stands_still = (0..20).any(|_| {
            let began = Instant::now();
            let error = process.receive_within(patience).unwrap_err();
            error.kind() == io::ErrorKind::TimedOut && began.elapsed() >= patience * 2
        });
        for child in &mut all {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(stands_still);
    }
}
