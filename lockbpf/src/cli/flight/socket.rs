//! How `lockbpf dump` asks a running one: an abstract Unix socket, which leaves nothing behind whatever becomes of the one that listens. Each
//! side believes root and its own user only, by what the kernel says of the other; root believes whoever it asks.

use crate::trace;
use anyhow::{Context, Result, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::fs;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// What sockets are called, with the pid of the one that listens behind it.
const NAME: &str = "lockbpf/flight/";
/// The first byte of an answer: the recording follows.
pub(super) const ACCEPTED: u8 = b'+';
/// The same: why there is none follows.
pub(super) const REFUSED: char = '-';
/// Bytes of that reason at most.
const REASON: u64 = 4_096;
/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME}{pid}"))
}

/// Listens for whoever asks this process.
///
/// # Errors
/// When another process has its name.
pub(super) fn listen() -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Who asks, if somebody does who may.
pub(super) fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (stream, _) = listener.accept().ok()?;
    let may = getsockopt(&stream, PeerCredentials).is_ok_and(|peer| [0, geteuid().as_raw()].contains(&peer.uid()));
    let set = |stream: &UnixStream| {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))
    };
    (may && set(&stream).is_ok()).then_some(stream)
}

/// Asks a process.
///
/// # Errors
/// When it has no flight recorder, or is not one that may be believed.
pub fn ask(pid: u32) -> Result<UnixStream> {
    let failed = || format!("failed to ask the flight recorder of process {pid}");
    let stream = address(pid).and_then(|address| UnixStream::connect_addr(&address)).with_context(|| {
        format!("{}: is it a lockbpf with --keep, in this network namespace? (SIGUSR1 asks, too)", failed())
    })?;
    let peer = getsockopt(&stream, PeerCredentials).with_context(failed)?;
    let believed = geteuid().is_root() || [0, geteuid().as_raw()].contains(&peer.uid());
    if peer.pid().cast_unsigned() != pid || !believed {
        bail!("{}: process {} of user {} answers in its place", failed(), peer.pid(), peer.uid());
    }
    stream.set_read_timeout(Some(PATIENCE)).with_context(failed)?;
    Ok(stream)
}

/// Copies an answer; returns its bytes.
///
/// # Errors
/// When there is none, it breaks off, or it cannot be written.
pub fn receive<W: Write>(mut from: UnixStream, mut out: W) -> Result<(W, u64)> {
    let asked = "failed to read the flight recorder's answer";
    let mut first = [0];
    from.read_exact(&mut first).context(asked)?;
    if first != [ACCEPTED] {
        let mut why = String::new();
        if first == [REFUSED as u8] {
            from.take(REASON).read_to_string(&mut why).context(asked)?;
        }
        bail!("the flight recorder gives nothing: {why}");
    }
    let mut buffer = vec![0; 256 << 10];
    let (mut last, mut bytes) = (Vec::new(), 0);
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => buffer.get(..got).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context(asked),
        };
        out.write_all(got).context("failed to write the recording")?;
        bytes += got.len() as u64;
        last.extend_from_slice(got);
        last.drain(..last.len().saturating_sub(trace::END_BYTES));
    }
    if !trace::is_end(&last) {
        bail!("{asked}: it broke off after {bytes} bytes");
    }
    Ok((out, bytes))
}

/// The processes that can be asked, as the kernel tells of sockets.
pub fn all() -> Vec<u32> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let of = |line: &str| line.rsplit_once(&format!("@{NAME}"))?.1.trim().parse().ok();
    let mut all: Vec<u32> = table.lines().filter_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::observation::Harvest;
    use crate::trace::{Compression, Header, Writer};
    use crate::units::Time;

    #[test]
    fn whoever_may_is_heard() {
        let listener = listen().unwrap();
        assert!(accept(&listener).is_none());
        let pid = std::process::id();
        assert!(all().contains(&pid));
        let mut asking = ask(pid).unwrap();
        accept(&listener).unwrap().write_all(b"kept").unwrap();
        let mut got = String::new();
        asking.read_to_string(&mut got).unwrap();
        assert_eq!(got, "kept");
        drop(listener);
        assert!(format!("{:#}", ask(pid).unwrap_err()).contains("--keep"));
    }

    struct Nobody;

    impl Names for Nobody {
        fn frames(&mut self, _: crate::id::Process, addr: u64) -> Vec<crate::names::Frame> {
            vec![crate::names::Frame { addr, ..Default::default() }]
        }
        fn global(&mut self, _: crate::id::Lock) -> Option<String> {
            None
        }
        fn call_stack(&mut self, _: crate::id::Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
            raw.to_vec()
        }
    }

    fn answered(answer: &[u8]) -> Result<Vec<u8>> {
        let (asking, mut answering) = UnixStream::pair().unwrap();
        answering.write_all(answer).unwrap();
        drop(answering);
        Ok(receive(asking, Vec::new())?.0)
    }

    #[test]
    fn only_a_whole_answer_counts() {
        let writer = Writer::new(Vec::new(), &Header::default(), Compression::None).unwrap();
        let (trace, _) = writer.finish(&Harvest::default(), &mut Nobody, Time(1)).unwrap();
        let answer = [&[ACCEPTED][..], &trace].concat();
        assert_eq!(answered(&answer).unwrap(), trace);
        for cut in 0..answer.len() {
            assert!(answered(&answer[..cut]).is_err(), "{cut}");
        }
        assert!(answered(b"-it has stopped").unwrap_err().to_string().contains("it has stopped"));
        assert!(answered(b"GET").is_err());
    }
}
