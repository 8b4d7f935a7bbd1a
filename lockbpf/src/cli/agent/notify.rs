//! What systemd is told (sd_notify(3)): a datagram to the socket that it names.

use crate::capture::session::now;
use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one.
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// How often a sign of life is due.
    every: Option<Duration>,
    next: Cell<Instant>,
    ready: Cell<bool>,
}

impl Notify {
    /// The one that the environment names.
    pub(super) fn from_environment() -> Self {
        let name = std::env::var("NOTIFY_SOCKET").ok();
        let limit = std::env::var("WATCHDOG_USEC").ok().and_then(|limit| limit.parse().ok()).map(Duration::from_micros);
        let for_us = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        Self {
            socket: name.and_then(|name| connect(&name)),
            every: limit.filter(|_| for_us).map(|limit| limit / 4),
            next: Cell::new(Instant::now()),
            ready: Cell::new(false),
        }
    }

    /// The service does what it is for; said once, until it reloads.
    pub(super) fn ready(&self) {
        if !self.ready.replace(true) {
            self.say("READY=1");
        }
    }

    /// It reads its configuration again.
    pub(super) fn reloading(&self) {
        self.ready.set(false);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", now().0 / 1_000));
    }

    /// It ends.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// A sign of life, if one is due.
    pub(super) fn alive(&self) {
        if let Some(every) = self.every
            && Instant::now() >= self.next.get()
        {
            self.next.set(Instant::now() + every);
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, message: &str) {
        // Nobody waits for a service manager that does not listen.
        self.socket.iter().for_each(|socket| drop(socket.send(message.as_bytes())));
    }
}

fn connect(name: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(name).ok()?,
    };
    socket.connect_addr(&address).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_what_it_expects() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify {
            socket: connect(path.to_str().unwrap()),
            every: Some(Duration::from_secs(3_600)),
            next: Cell::new(Instant::now()),
            ready: Cell::new(false),
        };
        (0..2).for_each(|_| notify.ready());
        (0..2).for_each(|_| notify.alive());
        notify.stopping();
        let mut heard = Vec::new();
        for _ in 0..3 {
            let mut buffer = [0; 64];
            let length = manager.recv(&mut buffer).unwrap();
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        assert_eq!(heard, ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
    }
}
