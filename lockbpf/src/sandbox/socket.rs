//! Messages over a socket: a length, so many bytes, and descriptors of files.

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::{cmsg_space, errno::Errno};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest message.
pub const MAX_BYTES: usize = 16 << 20;
/// Descriptors of a message at most.
pub const MAX_FILES: usize = 3;

/// Sends a message.
///
/// # Errors
/// When it is too long, or the other end is gone or does not read in time.
pub fn send(mut socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length as usize <= MAX_BYTES).ok_or_else(too_long)?;
    if files.len() > MAX_FILES {
        return Err(too_long());
    }
    let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
    let head = length.to_ne_bytes();
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&head)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    socket.write_all(head.get(sent..).unwrap_or_default())?;
    socket.write_all(bytes)
}

/// The next message with its descriptors; `None` if there will be none.
///
/// # Errors
/// When it is too long, or cut off.
pub fn receive(mut socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut head = [0; 4];
    let mut space = cmsg_space!([RawFd; MAX_FILES]);
    let (read, files) = loop {
        let mut parts = [IoSliceMut::new(&mut head)];
        let received = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
        {
            Err(Errno::EINTR) => continue,
            received => received?,
        };
        let mut files = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel has just made these descriptors for this process, and nobody else knows of them.
                files.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
            }
        }
        break (received.bytes, files);
    };
    if read == 0 {
        return Ok(None);
    }
    socket.read_exact(head.get_mut(read..).unwrap_or_default())?;
    let mut bytes = vec![0; length(head)?];
    socket.read_exact(&mut bytes)?;
    Ok(Some((bytes, files)))
}

/// The next message, which has no descriptors, until a deadline, which is asked for anew when it is reached.
///
/// # Errors
/// When it does not come in time (`TimedOut`), is too long or cut off.
pub fn receive_until(socket: &UnixStream, deadline: impl Fn() -> Instant) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    read_until(socket, &mut head, &deadline)?;
    let mut bytes = vec![0; length(head)?];
    read_until(socket, &mut bytes, &deadline)?;
    Ok(bytes)
}

fn length(head: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_ne_bytes(head) as usize;
    if length > MAX_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// A deadline for all of it, not for each piece.
fn read_until(mut socket: &UnixStream, mut bytes: &mut [u8], deadline: &impl Fn() -> Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes = bytes.get_mut(read..).unwrap_or_default(),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_with_files() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"of the file").unwrap();
        send(&one, b"text", &[file.as_fd()]).unwrap();
        let (bytes, files) = receive(&other).unwrap().unwrap();
        assert_eq!((bytes, files.len()), (b"text".to_vec(), 1));
        drop(one);
        assert!(receive(&other).unwrap().is_none());
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (one, other) = UnixStream::pair().unwrap();
        let began = Instant::now();
        let soon = || began + Duration::from_millis(50);
        // Were it waited for ever, this test would not end.
        assert_eq!(receive_until(&other, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        (&one).write_all(&u32::MAX.to_ne_bytes()).unwrap();
        let late = || began + Duration::from_secs(3_600);
        assert_eq!(receive_until(&other, late).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let (one, other) = UnixStream::pair().unwrap();
            (&one).write_all(&bytes).unwrap();
            drop(one);
            let _ = receive(&other);
        }
    }
}
