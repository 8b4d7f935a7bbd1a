//! Uprobe sessions (kernel 6.13): one program, one link for all functions of a file, and an entry handler that may
//! decline the return half.

use super::raw_program::{self, Kind, RawError, UPROBE_SESSION, bpf};
use aya::maps::Map;
use aya_obj::generated::bpf_cmd;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the program in the object.
const PROGRAM: &str = "session";

/// The loaded session program.
pub(super) struct Program(OwnedFd);

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

impl Program {
    /// Loads the session program of `object`, using the maps that aya has created from the same object.
    pub(super) fn load<'a>(object: &[u8], maps: impl Iterator<Item = (&'a str, &'a Map)>) -> Result<Self, RawError> {
        raw_program::load(object, maps, PROGRAM, Kind::UprobeSession).map(Self)
    }

    /// Attaches it to offsets of a file, each with its cookie; for one process, or for all with `pid` 0. The probes are there
    /// until the link that is returned is closed.
    pub(super) fn attach(&self, path: &Path, offsets: &[u64], cookies: &[u64], pid: u32) -> Result<OwnedFd, RawError> {
        if offsets.len() != cookies.len() {
            let reason = "offsets and cookies differ in number".to_owned();
            return Err(RawError::Object { program: PROGRAM, reason });
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)?;
        let attr = LinkCreate {
            prog_fd: self.0.as_raw_fd() as u32,
            attach_type: UPROBE_SESSION,
            path: path.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            cookies: cookies.as_ptr() as u64,
            cnt: offsets.len() as u32,
            pid,
            ..LinkCreate::default()
        };
        Ok(bpf(bpf_cmd::BPF_LINK_CREATE, &attr)?)
    }
}
