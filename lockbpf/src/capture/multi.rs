//! Uprobe links of many functions of a file (kernel 6.6), and sessions of them (6.13), whose entry handler may decline the
//! return half.

use super::probe_table::By;
use super::raw_program::{self, Kind, RawError, UPROBE_MULTI, UPROBE_SESSION, bpf};
use aya::maps::Map;
use aya_obj::generated::bpf_cmd;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A loaded program for such links.
pub(super) struct Program {
    name: &'static str,
    fd: OwnedFd,
    attach_type: u32,
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

impl Program {
    /// Loads a program of `object`, using the maps that aya has created from the same object.
    pub(super) fn load<'a>(
        object: &[u8],
        maps: impl Iterator<Item = (&'a str, &'a Map)>,
        by: By,
    ) -> Result<Self, RawError> {
        let (name, kind, attach_type) = match by {
            By::Entry => ("entries", Kind::UprobeMulti, UPROBE_MULTI),
            By::OtherEntry => ("others", Kind::UprobeMulti, UPROBE_MULTI),
            By::Go => ("go_lock", Kind::UprobeMulti, UPROBE_MULTI),
            By::Return => ("session", Kind::UprobeSession, UPROBE_SESSION),
            By::Library => ("library", Kind::UprobeMulti, UPROBE_MULTI),
            By::LibraryReturn => ("library_session", Kind::UprobeSession, UPROBE_SESSION),
        };
        Ok(Self { name, fd: raw_program::load(object, maps, name, kind)?, attach_type })
    }

    /// Attaches it to offsets of a file, each with its cookie; for one process, or for all with `pid` 0. The probes are there
    /// until the link that is returned is closed.
    pub(super) fn attach(&self, path: &Path, offsets: &[u64], cookies: &[u64], pid: u32) -> Result<OwnedFd, RawError> {
        if offsets.len() != cookies.len() {
            let reason = "offsets and cookies differ in number".to_owned();
            return Err(RawError::Object { program: self.name, reason });
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)?;
        let attr = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            attach_type: self.attach_type,
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
