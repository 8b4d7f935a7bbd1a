//! Uprobe links of many functions of a file (kernel 6.6), and sessions of them (6.13), whose entry handler may decline the
//! return half.

use super::attach::Spot;
use super::probe_table::{By, is_return_half};
use super::raw_program::{self, Kind, Programs, RawError, UPROBE_MULTI, UPROBE_SESSION, bpf};
use aya_obj::generated::bpf_cmd;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `BPF_F_UPROBE_MULTI_RETURN`: at the functions' returns.
const RETURNS: u32 = 1;

/// A loaded program for such links.
pub(super) struct Program {
    fd: OwnedFd,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    reserved: u32,
}

/// The names of the programs that see a function where there are sessions: one for both halves.
pub(super) fn with_sessions(by: By) -> &'static [&'static str] {
    match by {
        By::Return => &["session"],
        By::LibraryReturn => &["library_session"],
        By::CustomReturn => &["custom_session"],
        _ => by.programs(),
    }
}

impl Program {
    /// Loads one of those [`with_sessions`], or of [`By::programs`].
    pub(super) fn load(programs: &Programs, name: &'static str) -> Result<Self, RawError> {
        let (kind, attach_type) = match name {
            "session" | "library_session" | "custom_session" => (Kind::UprobeSession, UPROBE_SESSION),
            _ => (Kind::UprobeMulti, UPROBE_MULTI),
        };
        let flags = if is_return_half(name) { RETURNS } else { 0 };
        Ok(Self { fd: programs.load(name, kind)?, attach_type, flags })
    }

    /// One that does nothing, at entries.
    pub(super) fn empty() -> io::Result<Self> {
        Ok(Self { fd: raw_program::load_empty()?, attach_type: UPROBE_MULTI, flags: 0 })
    }

    /// Whether the kernel has such links, and lets all threads of a link's process through. The first ones let one thread through; by
    /// the same change that mended it (6.10, and where it was taken over) a process that cannot be is refused before what is no file.
    pub(super) fn sees_all_threads(&self) -> bool {
        let refusal = |pid| match self.attach(Path::new("/"), &[(0, 0)], &[0], pid) {
            Err(RawError::Link(error)) => error.raw_os_error(),
            _ => None,
        };
        // A kernel without such links does not get as far as the file.
        refusal(0) == Some(libc::EBADF) && refusal(u32::MAX) == Some(libc::EINVAL)
    }

    /// Attaches it to places in a file, each with its cookie; for one process, or for all with `pid` 0. The probes are there
    /// until the link that is returned is closed.
    pub(super) fn attach(&self, path: &Path, spots: &[Spot], cookies: &[u64], pid: u32) -> Result<OwnedFd, RawError> {
        if spots.len() != cookies.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let (offsets, counters): (Vec<u64>, Vec<u64>) = spots.iter().copied().unzip();
        let counts = counters.iter().any(|&counter| counter != 0);
        let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)?;
        let attr = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            attach_type: self.attach_type,
            path: path.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            ref_ctr_offsets: if counts { counters.as_ptr() as u64 } else { 0 },
            cookies: cookies.as_ptr() as u64,
            cnt: offsets.len() as u32,
            multi_flags: self.flags,
            pid,
            ..LinkCreate::default()
        };
        Ok(bpf(bpf_cmd::BPF_LINK_CREATE, &attr)?)
    }
}
