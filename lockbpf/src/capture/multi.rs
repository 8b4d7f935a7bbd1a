//! Uprobe sessions (kernel 6.13): one program, one link for all functions of a file, and an entry handler that may
//! decline the return half. Aya 0.14 cannot load or attach them, so this does it with its own two system calls, on the
//! maps that aya has made.

use aya::maps::Map;
use aya_obj::Object;
use aya_obj::generated::{bpf_cmd, bpf_prog_type};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the program in the object.
const PROGRAM: &str = "session";
/// `BPF_TRACE_UPROBE_SESSION` of `enum bpf_attach_type` (kernel 6.13).
const UPROBE_SESSION: u32 = 57;
/// Room for the verifier's log when it refuses the program.
const LOG_BYTES: usize = 64 << 10;

/// Why a session could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum MultiError {
    /// The object could not be prepared.
    #[error("failed to prepare the session program: {0}")]
    Object(String),
    /// The kernel refused the program.
    #[error("failed to load the session program: {source}{}", log_tail(.log))]
    Load {
        /// Why.
        #[source]
        source: io::Error,
        /// What the verifier said.
        log: String,
    },
    /// The kernel refused the link.
    #[error("failed to attach the session program: {0}")]
    Link(#[from] io::Error),
}

fn log_tail(log: &str) -> String {
    log.trim_end().lines().last().map(|line| format!(": {line}")).unwrap_or_default()
}

/// The loaded session program.
pub(super) struct Program(OwnedFd);

/// A link: the probes of one file for one process (or all). Detached when dropped.
pub(super) struct Link {
    _fd: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
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
    /// Loads the session program of `object`, using the maps that aya has created from the same object.
    pub(super) fn load<'a>(object: &[u8], maps: impl Iterator<Item = (&'a str, &'a Map)>) -> Result<Self, MultiError> {
        let prepare = |error: &dyn std::error::Error| MultiError::Object(error.to_string());
        let mut object = Object::parse(object).map_err(|e| prepare(&e))?;
        let fds: Vec<(&str, RawFd)> = maps.filter_map(|(name, map)| Some((name, fd(map)?))).collect();
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let definitions = object.maps.clone();
        let named = fds.iter().filter_map(|&(name, fd)| Some((name, fd, definitions.get(name)?)));
        object.relocate_maps(named, &text).map_err(|e| prepare(&e))?;
        object.relocate_calls(&text).map_err(|e| prepare(&e))?;
        let program = object
            .programs
            .get(PROGRAM)
            .and_then(|p| object.functions.get(&p.function_key()))
            .ok_or_else(|| MultiError::Object(format!("it has no program {PROGRAM}")))?;
        let license: CString = object.license.clone();
        let mut attr = ProgLoad {
            prog_type: bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32,
            insn_cnt: program.instructions.len() as u32,
            insns: program.instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            expected_attach_type: UPROBE_SESSION,
            ..ProgLoad::default()
        };
        attr.prog_name[..PROGRAM.len()].copy_from_slice(PROGRAM.as_bytes());
        bpf(bpf_cmd::BPF_PROG_LOAD, &attr).map(Self).or_else(|_| {
            // Once more, to learn why.
            let mut log = vec![0u8; LOG_BYTES];
            attr.log_level = 1;
            attr.log_size = LOG_BYTES as u32;
            attr.log_buf = log.as_mut_ptr() as u64;
            bpf(bpf_cmd::BPF_PROG_LOAD, &attr).map(Self).map_err(|source| {
                let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
                MultiError::Load { source, log: String::from_utf8_lossy(&log[..end]).into_owned() }
            })
        })
    }

    /// Attaches it to offsets of a file, each with its cookie; for one process, or for all with `pid` 0.
    pub(super) fn attach(&self, path: &Path, offsets: &[u64], cookies: &[u64], pid: u32) -> Result<Link, MultiError> {
        if offsets.len() != cookies.len() {
            return Err(MultiError::Object("offsets and cookies differ in number".to_owned()));
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
        Ok(Link { _fd: bpf(bpf_cmd::BPF_LINK_CREATE, &attr)? })
    }
}

/// The `bpf` system call for commands that return a file descriptor.
fn bpf<T>(command: bpf_cmd, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: attr is a live, zero-padded prefix of `union bpf_attr` for this command, its size is given, and every
    // pointer in it outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, std::ptr::from_ref(attr), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Descriptor of a map of any of the kinds that the object has.
fn fd(map: &Map) -> Option<RawFd> {
    let data = match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data)
        | Map::Unsupported(data) => data,
        _ => return None,
    };
    Some(data.fd().as_fd().as_raw_fd())
}
