//! A process beside this one that removes probes. The kernel removes no breakpoint in a thread that is being killed: a removal under way
//! would leave them in the target for good. So the last descriptor of whatever keeps a probe in place is closed by that process, which
//! nobody has a reason to kill. It ends by itself when this one has ended, and if that was in the middle of something, takes away first
//! what may have been left.
//!
//! Both share a socket. A message with `REMOVE` carries descriptors, the last of them one end of a stream: when the other end says no more,
//! no descriptor of this process is open, and the others are to be closed; when the stream is over, they are. One with `PLACES` carries a
//! file, and offsets where there may be probes.

mod process;

pub use process::run;

use super::attach::ProbeSite;
use crate::helper;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The subcommand that the process is.
pub const COMMAND: &str = "remover";

/// These are to be closed.
const REMOVE: u8 = 0;
/// There may be probes there.
const PLACES: u8 = 1;
/// Nothing is under way any more.
const OVER: u8 = 2;
/// Removals side by side at most: all that the kernel does before and after each perf event's grace period.
const AT_ONCE: usize = 64;
/// Descriptors of a message: the kernel allows 253.
const MOST: usize = 250;

/// The process, once it was needed, and what it was told.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
static PID: AtomicU32 = AtomicU32::new(0);

struct Running {
    socket: OwnedFd,
    _child: Child,
}

/// This process's remover, which nobody wants to observe.
#[must_use]
pub fn pid() -> Option<u32> {
    Some(PID.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
}

/// Probes may be placed there from now on. A kernel or a system that does not allow the process is not asked for more: then this one
/// removes them.
pub(super) fn expect(sites: &[ProbeSite]) {
    let mut files: BTreeMap<_, (&ProbeSite, Vec<u8>)> = BTreeMap::new();
    for site in sites {
        let (_, spots) = files.entry(site.file).or_insert_with(|| (site, vec![PLACES]));
        let (offset, counter) = site.spot();
        spots.extend([offset, counter].map(u64::to_ne_bytes).concat());
    }
    let mut running = running();
    for (site, spots) in files.values() {
        if let Err(error) = send(&mut running, spots, &[site.open.as_raw_fd()]) {
            log::warn!("no process removes probes if lockbpf is killed while it places or removes some: {error}");
            return;
        }
    }
}

/// Closes what keeps probes in place, and returns when the kernel has removed them. If no other process does so, this one does, and gives
/// back what it has to close.
pub(super) fn remove(mut probes: Vec<OwnedFd>) -> Result<(), Vec<OwnedFd>> {
    let each = probes.len().div_ceil(AT_ONCE).clamp(1, MOST);
    let mut streams = Vec::new();
    while !probes.is_empty() {
        let some = probes.split_off(probes.len().saturating_sub(each));
        match hand_over(&some) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                log::info!("nobody else removes probes: {error}");
                probes.extend(some);
                break;
            }
        }
        drop(some);
    }
    for stream in &streams {
        // The other process is gone: so are its descriptors.
        let _ = stream.shutdown(Shutdown::Write);
    }
    for mut stream in streams {
        let _ = stream.read(&mut [0]);
    }
    if probes.is_empty() { Ok(()) } else { Err(probes) }
}

/// Nothing is placed or removed any more. To be called before the program ends.
pub fn dismiss() {
    if let Some(running) = self::running().take() {
        let _ = message(&running, &[OVER], &[]);
    }
}

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hand_over(probes: &[OwnedFd]) -> io::Result<UnixStream> {
    let (own, its) = UnixStream::pair()?;
    let all: Vec<RawFd> = probes.iter().map(AsRawFd::as_raw_fd).chain([its.as_raw_fd()]).collect();
    send(&mut running(), &[REMOVE], &all)?;
    Ok(own)
}

/// Sends a message to the process, which is started if there is none.
fn send(running: &mut Option<Running>, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let there = match running.take() {
        Some(there) => there,
        None => Running::start()?,
    };
    // One that cannot be told anything is gone: the next message is for a new one.
    message(&there, bytes, descriptors)?;
    *running = Some(there);
    Ok(())
}

fn message(to: &Running, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(to.socket.as_raw_fd(), &[IoSlice::new(bytes)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

impl Running {
    fn start() -> io::Result<Self> {
        let (socket, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let mut command = helper::command(COMMAND);
        command.arg(std::process::id().to_string()).stdin(its).stdout(Stdio::null()).stderr(Stdio::null());
        // What is meant for this process's group is not meant for it.
        // SAFETY: setsid is async-signal-safe, which is all that may run between fork and exec.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
        let child = command.spawn()?;
        PID.store(child.id(), Ordering::Relaxed);
        // It has the only other end: its end is heard.
        drop(command);
        // Out of its cgroup before there is anything to be removed: it says so by a first message.
        let ready = recv(socket.as_raw_fd(), &mut [0], MsgFlags::empty())?;
        if ready == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Self { socket, _child: child }) }
    }
}
