//! CPUs that come and go, as the kernel tells by its uevents (`NETLINK_KOBJECT_UEVENT`).

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's own messages, not those of udev.
const KERNEL: u32 = 1;
/// More than the kernel puts into one (`UEVENT_BUFFER_SIZE`, 2 KiB, and the path).
const LONGEST: usize = 8 << 10;
/// Messages read at once: what else there is waits for the next time.
const AT_ONCE: usize = 256;

/// Listens for them.
pub(super) struct Hotplug(OwnedFd);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// These CPUs have come, or gone, or both.
    These(BTreeSet<u32>),
    /// There was more than could be told.
    Any,
}

impl Hotplug {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the kernel does not let anybody listen.
    pub(super) fn listen() -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let socket = socket::socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
        socket::bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL))?;
        Ok(Self(socket))
    }

    /// What has happened since the last call.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = BTreeSet::new();
        let mut message = [0; LONGEST];
        for _ in 0..AT_ONCE {
            match socket::recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty()) {
                Ok(length) => changed.extend(cpu_of(message.get(..length).unwrap_or_default())),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => return Changed::Any,
                Err(_) => break,
            }
        }
        Changed::These(changed)
    }
}

/// The CPU that a message tells of: `online@/devices/system/cpu/cpu1`, a zero, and more.
fn cpu_of(message: &[u8]) -> Option<u32> {
    let head = std::str::from_utf8(message.split(|&byte| byte == 0).next()?).ok()?;
    let (action, path) = head.split_once('@')?;
    let number = path.strip_prefix("/devices/system/cpu/cpu")?;
    matches!(action, "online" | "offline").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_tell_of_cpus() {
        assert_eq!(cpu_of(b"offline@/devices/system/cpu/cpu12\0ACTION=offline\0SEQNUM=7\0"), Some(12));
        assert_eq!(cpu_of(b"online@/devices/system/cpu/cpu0"), Some(0));
        for other in [
            &b""[..],
            b"add@/devices/system/cpu/cpu3\0",
            b"online@/devices/system/memory/memory3\0",
            b"online@/devices/system/cpu/cpufreq\0",
            b"libudev\0\xfe\xed\xca\xfe",
            b"\xff\xff@",
        ] {
            assert_eq!(cpu_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn nothing_has_happened_at_first() {
        assert_eq!(Hotplug::listen().unwrap().changed(), Changed::These(BTreeSet::new()));
    }
}
