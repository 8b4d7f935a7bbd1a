//! The page that a process and its guardian share.

use crate::capture::session::now;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// What is on it: times on `CLOCK_MONOTONIC`, which stands still while the machine is suspended, ns.
#[repr(C)]
struct Signs {
    /// The last sign of life.
    beat_ns: AtomicU64,
    /// How old it may be; 0 while none is expected.
    limit_ns: AtomicU64,
    /// The least that this will ever be.
    strictest_ns: AtomicU64,
}

/// The page of which handlers beat.
static KNOWN: AtomicPtr<Signs> = AtomicPtr::new(std::ptr::null_mut());

/// A mapping of the page.
#[derive(Debug)]
pub(super) struct Page {
    memory: OwnedFd,
    signs: NonNull<Signs>,
}

// SAFETY: the page is accessed through its atomics only.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new one.
    pub(super) fn new(strictest: Duration) -> io::Result<Self> {
        // SAFETY: the name is a string that lives.
        let fd = unsafe { libc::memfd_create(c"lockbpf-guardian".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned it.
        let memory = unsafe { OwnedFd::from_raw_fd(fd) };
        File::from(memory.try_clone()?).set_len(size_of::<Signs>() as u64)?;
        let page = Self::map(memory)?;
        page.signs().strictest_ns.store(ns(strictest), Ordering::Relaxed);
        page.beat();
        Ok(page)
    }

    /// One that another process has made.
    pub(super) fn map(memory: OwnedFd) -> io::Result<Self> {
        if File::from(memory.try_clone()?).metadata()?.len() < size_of::<Signs>() as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses, of a file that is long enough.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Signs>(), protection, flags, memory.as_raw_fd(), 0) };
        match NonNull::new(at.cast()) {
            Some(signs) if at != libc::MAP_FAILED => Ok(Self { memory, signs }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn signs(&self) -> &Signs {
        // SAFETY: the mapping lives as long as this; any bytes are valid atomics.
        unsafe { self.signs.as_ref() }
    }

    pub(super) fn as_stdio(&self) -> io::Result<Stdio> {
        Ok(self.memory.as_fd().try_clone_to_owned()?.into())
    }

    pub(super) fn beat(&self) {
        self.signs().beat_ns.store(now().0, Ordering::Release);
    }

    pub(super) fn set_limit(&self, limit: Duration) {
        self.signs().limit_ns.store(ns(limit), Ordering::Release);
    }

    /// The last sign of life, if one is expected: then with its limit.
    pub(super) fn expected(&self) -> Option<(u64, u64)> {
        let limit_ns = self.signs().limit_ns.load(Ordering::Acquire);
        (limit_ns != 0).then(|| (self.signs().beat_ns.load(Ordering::Acquire), limit_ns))
    }

    pub(super) fn strictest(&self) -> Duration {
        Duration::from_nanos(self.signs().strictest_ns.load(Ordering::Relaxed))
    }

    pub(super) fn make_known(&self) {
        KNOWN.store(self.signs.as_ptr(), Ordering::Release);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let known = (self.signs.as_ptr(), std::ptr::null_mut());
        if KNOWN.compare_exchange(known.0, known.1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // A handler may be writing to it. It is one page, in a process that ends.
            return;
        }
        // SAFETY: nobody else has its address.
        unsafe { libc::munmap(self.signs.as_ptr().cast(), size_of::<Signs>()) };
    }
}

/// Async-signal-safe: it asks the clock and stores.
pub(super) fn beat_known() {
    // SAFETY: a page that was made known stays mapped.
    if let Some(signs) = unsafe { KNOWN.load(Ordering::Acquire).as_ref() } {
        signs.beat_ns.store(now().0, Ordering::Release);
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_see_the_same() {
        let page = Page::new(Duration::from_millis(70)).unwrap();
        let other = Page::map(page.memory.try_clone().unwrap()).unwrap();
        assert_eq!((other.expected(), other.strictest()), (None, Duration::from_millis(70)));
        page.set_limit(Duration::from_secs(1));
        let (beat, limit) = other.expected().unwrap();
        assert_eq!(limit, 1_000_000_000);
        page.make_known();
        beat_known();
        assert!(other.expected().unwrap().0 > beat);
        page.set_limit(Duration::ZERO);
        assert_eq!(other.expected(), None);
    }
}
