//! The process that removes probes.

use super::{MOST, OVER, PLACES, REMOVE};
use crate::capture::attach::Spot;
use crate::capture::be_quick;
use crate::capture::cgroup::leave_all;
use crate::capture::guardian::open_process;
use crate::capture::sweeper::sweep;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use std::collections::BTreeSet;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};

/// Room for a message: the places of a file's functions.
const BYTES: usize = 128 << 10;

/// A file, and where in it there may be probes.
type Place = (OwnedFd, Vec<Spot>);

/// Removes what the process of this number, which is the parent, hands over.
#[must_use]
pub fn run(parent: i32) -> ExitCode {
    // As long as a probe is in place after its window, the target pays for nothing.
    be_quick();
    // The guardian tells the user which cgroups cannot be left.
    drop(leave_all());
    match serve(parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(parent: i32) -> io::Result<()> {
    let process = open_process(parent)?;
    let socket = io::stdin();
    send(socket.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL)?;
    let (mut under_way, mut places): (Vec<JoinHandle<()>>, Vec<Place>) = (Vec::new(), Vec::new());
    let mut over = false;
    while let Some((kind, bytes, mut descriptors)) = receive(socket.as_raw_fd())? {
        match kind {
            REMOVE => {
                under_way.retain(|thread| !thread.is_finished());
                under_way.push(thread::spawn(move || remove(descriptors)));
            }
            PLACES => {
                let spots: BTreeSet<Spot> = bytes.chunks_exact(16).filter_map(spot).collect();
                places.extend(descriptors.pop().map(|file| (file, spots.into_iter().collect())));
            }
            OVER => over = true,
            _ => {}
        }
    }
    for thread in under_way {
        // A panic has been told already.
        let _ = thread.join();
    }
    if !over {
        // Only when its last thread has ended nothing is placed any more.
        wait_for_end(&process)?;
        let path = |file: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        sweep(&places.iter().map(|(file, spots)| (path(file), spots.clone())).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// A place, of two numbers.
fn spot(bytes: &[u8]) -> Option<Spot> {
    let (offset, counter) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_ne_bytes(*offset), u64::from_ne_bytes(counter.try_into().ok()?)))
}

/// A message: its kind, what it says, and the descriptors in it.
type Message = (u8, Vec<u8>, Vec<OwnedFd>);

/// The next message; `None` if there will be none.
fn receive(socket: RawFd) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; BYTES];
    let mut space = cmsg_space!([RawFd; MOST + 1]);
    loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let (length, descriptors) =
            match recvmsg::<()>(socket, &mut parts, Some(space.as_mut_slice()), MsgFlags::MSG_CMSG_CLOEXEC) {
                Ok(message) => (message.bytes, owned(message.cmsgs()?)),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
        bytes.truncate(length);
        return Ok(bytes.split_first().map(|(&kind, said)| (kind, said.to_vec(), descriptors)));
    }
}

fn owned(messages: impl Iterator<Item = ControlMessageOwned>) -> Vec<OwnedFd> {
    let descriptors = messages.filter_map(|message| match message {
        ControlMessageOwned::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    // SAFETY: the kernel has just made them for this process.
    descriptors.flatten().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

/// Closes them when they are open nowhere else, and then the stream, which is the last.
fn remove(mut descriptors: Vec<OwnedFd>) {
    let Some(stream) = descriptors.pop() else { return };
    let mut stream = UnixStream::from(stream);
    // An error says the same: the other end is gone.
    let _ = stream.read(&mut [0]);
    drop(descriptors);
}

fn wait_for_end(process: &impl AsFd) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            ended => return ended.map(drop).map_err(io::Error::from),
        }
    }
}
