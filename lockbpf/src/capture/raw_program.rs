//! Programs that aya 0.14 cannot load (uprobe sessions) or only at the price of reading the kernel's types a second time
//! (BTF tracepoints): prepared from the same object, loaded with the system call itself, on the maps that aya has made.

use super::verifier::to_the_end;
use crate::rights;
use aya::maps::{Map, MapData};
use aya_obj::Object;
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_prog_type, perf_event_attr};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `BPF_TRACE_UPROBE_SESSION` of `enum bpf_attach_type` (kernel 6.13).
pub(super) const UPROBE_SESSION: u32 = 57;
/// `BPF_TRACE_UPROBE_MULTI` (kernel 6.6).
pub(super) const UPROBE_MULTI: u32 = 48;
/// Room for the verifier's log when it refuses the program.
const LOG_BYTES: usize = 64 << 10;

/// Why a program could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum RawError {
    /// The object could not be prepared.
    #[error("failed to prepare the programs: {0}")]
    Object(String),
    /// The object lacks a program.
    #[error("failed to load program {0}: the object lacks it")]
    Absent(&'static str),
    /// The kernel lacks the tracepoint of this name.
    #[error("failed to load program {0}: the kernel's types have no such tracepoint")]
    NoTracepoint(&'static str),
    /// The kernel refused the program.
    #[error("failed to load program {program}: {source}{}", log_tail(.log))]
    Load {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
        /// What the verifier said.
        log: String,
    },
    /// The kernel lacks the iterator.
    #[error("failed to load program {0}: the kernel's types have no such iterator")]
    NoIterator(&'static str),
    /// The kernel refused the link.
    #[error("failed to attach: {0}")]
    Link(#[from] io::Error),
    /// The kernel refused the object's types.
    #[error("failed to load the programs' types: {0}")]
    Types(#[source] io::Error),
}

fn log_tail(log: &str) -> String {
    log.trim_end()
        .lines()
        .rev()
        .find(|line| !line.starts_with("processed "))
        .map_or_else(String::new, |l| format!(": {l}"))
}

/// What sort of program it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// On uprobe sessions.
    UprobeSession,
    /// On the entries of many functions.
    UprobeMulti,
    /// On perf events.
    Uprobe,
    /// On a tracepoint, with typed arguments: the number of the tracepoint's type among the kernel's.
    Tracepoint(u32),
    /// On samples of a CPU's clock.
    Clock,
    /// Run for each of something, when user space wants it: the number of the iterator's type among the kernel's (kernel 5.8).
    Iterator(u32),
}

/// A prefix of `union bpf_attr` for `BPF_PROG_LOAD`.
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
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// A prefix of `union bpf_attr` for `BPF_BTF_LOAD`.
#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    reserved: u32,
}

/// A prefix of `union bpf_attr` for `BPF_LINK_CREATE` of an iterator.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

/// The same for `BPF_ITER_CREATE`.
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// A prefix of `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    reserved: u32,
}

/// The programs of an object, ready to be loaded, each as often and in as many threads at a time as it is wanted: the object is parsed
/// once for all.
pub(super) struct Programs {
    object: Object,
    /// The object's types, as the kernel has them.
    types: Option<OwnedFd>,
    /// Keeps the descriptors open by which the programs name maps.
    _maps: Vec<OwnedFd>,
}

impl Programs {
    /// Prepares the programs of `object` on the maps that aya has created from the same object.
    pub(super) fn prepare<'a>(object: &[u8], maps: impl Iterator<Item = (&'a str, &'a Map)>) -> Result<Self, RawError> {
        let unprepared = |error: &dyn std::error::Error| RawError::Object(error.to_string());
        let mut object = Object::parse(object).map_err(|e| unprepared(&e))?;
        let again = |map| data(map).map(|data| data.fd().as_fd().try_clone_to_owned()).transpose();
        let maps = maps.filter_map(|(name, map)| again(map).transpose().map(|map| Ok((name, map?))));
        let (names, maps): (Vec<&str>, Vec<OwnedFd>) =
            maps.collect::<io::Result<Vec<_>>>().map_err(|e| unprepared(&e))?.into_iter().unzip();
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let definitions = object.maps.clone();
        let fds = maps.iter().map(AsRawFd::as_raw_fd);
        let named = names.into_iter().zip(fds).filter_map(|(name, fd)| Some((name, fd, definitions.get(name)?)));
        object.relocate_maps(named, &text).map_err(|e| unprepared(&e))?;
        object.relocate_calls(&text).map_err(|e| unprepared(&e))?;
        let types = match aya::features().btf().map(|features| object.fixup_and_sanitize_btf(features)).transpose() {
            Ok(types) => types.flatten().map(load_types).transpose().map_err(RawError::Types)?,
            Err(error) => return Err(unprepared(&error)),
        };
        Ok(Self { object, types, _maps: maps })
    }

    /// Loads one.
    pub(super) fn load(&self, program: &'static str, kind: Kind) -> Result<OwnedFd, RawError> {
        load(&self.object, self.types.as_ref(), program, kind)
    }
}

fn load(object: &Object, types: Option<&OwnedFd>, program: &'static str, kind: Kind) -> Result<OwnedFd, RawError> {
    let code = object
        .programs
        .get(program)
        .and_then(|p| object.functions.get(&p.function_key()))
        .ok_or(RawError::Absent(program))?;
    let license: CString = object.license.clone();
    let (prog_type, expected_attach_type, attach_btf_id) = match kind {
        Kind::UprobeSession => (bpf_prog_type::BPF_PROG_TYPE_KPROBE, UPROBE_SESSION, 0),
        Kind::UprobeMulti => (bpf_prog_type::BPF_PROG_TYPE_KPROBE, UPROBE_MULTI, 0),
        Kind::Uprobe => (bpf_prog_type::BPF_PROG_TYPE_KPROBE, 0, 0),
        Kind::Clock => (bpf_prog_type::BPF_PROG_TYPE_PERF_EVENT, 0, 0),
        Kind::Tracepoint(id) => (bpf_prog_type::BPF_PROG_TYPE_TRACING, bpf_attach_type::BPF_TRACE_RAW_TP as u32, id),
        Kind::Iterator(id) => (bpf_prog_type::BPF_PROG_TYPE_TRACING, bpf_attach_type::BPF_TRACE_ITER as u32, id),
    };
    let mut attr = ProgLoad {
        prog_type: prog_type as u32,
        insn_cnt: code.instructions.len() as u32,
        insns: code.instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        expected_attach_type,
        attach_btf_id,
        ..ProgLoad::default()
    };
    // By these the verifier knows the global functions, each of which it verifies once, whoever calls it.
    let functions = code.func_info.func_info_bytes();
    if let Some(types) = types {
        attr.prog_btf_fd = types.as_raw_fd() as u32;
        attr.func_info = functions.as_ptr() as u64;
        attr.func_info_cnt = code.func_info.len() as u32;
        attr.func_info_rec_size = code.func_info_rec_size as u32;
    }
    for (to, from) in attr.prog_name.iter_mut().take(15).zip(program.bytes()) {
        *to = from;
    }
    to_the_end(|| bpf(bpf_cmd::BPF_PROG_LOAD, &attr)).or_else(|refused| {
        // Once more, to learn why.
        let mut log = vec![0u8; LOG_BYTES];
        attr.log_level = 1;
        attr.log_size = LOG_BYTES as u32;
        attr.log_buf = log.as_mut_ptr() as u64;
        to_the_end(|| bpf(bpf_cmd::BPF_PROG_LOAD, &attr)).map_err(|source| {
            // A log that is too long for its room hides the reason.
            let source = if source.kind() == io::ErrorKind::StorageFull { refused } else { source };
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            RawError::Load { program, source, log: String::from_utf8_lossy(&log[..end]).into_owned() }
        })
    })
}

/// Loads a program of kind [`UPROBE_MULTI`] that does nothing.
pub(super) fn load_empty() -> io::Result<OwnedFd> {
    // r0 = 0; exit
    let instructions: [u64; 2] = [0xb7, 0x95];
    let attr = ProgLoad {
        prog_type: bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        expected_attach_type: UPROBE_MULTI,
        ..ProgLoad::default()
    };
    to_the_end(|| bpf(bpf_cmd::BPF_PROG_LOAD, &attr))
}

/// Hands the object's types to the kernel.
fn load_types(types: &aya_obj::btf::Btf) -> io::Result<OwnedFd> {
    let bytes = types.to_bytes();
    let attr = BtfLoad { btf: bytes.as_ptr() as u64, btf_size: bytes.len() as u32, ..BtfLoad::default() };
    bpf(bpf_cmd::BPF_BTF_LOAD, &attr)
}

/// Attaches a loaded program of [`Kind::Tracepoint`] to its tracepoint, until the descriptor is closed.
pub(super) fn attach_tracepoint(program: &OwnedFd) -> Result<OwnedFd, RawError> {
    // Without a name: the program knows its tracepoint by the type.
    let attr = RawTracepointOpen { prog_fd: program.as_raw_fd() as u32, ..RawTracepointOpen::default() };
    Ok(bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &attr)?)
}

/// Runs a loaded program of [`Kind::Iterator`] for each of what it iterates over.
pub(super) fn iterate(program: &OwnedFd) -> io::Result<()> {
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        attach_type: bpf_attach_type::BPF_TRACE_ITER as u32,
        ..LinkCreate::default()
    };
    let link = bpf(bpf_cmd::BPF_LINK_CREATE, &attr)?;
    let attr = IterCreate { link_fd: link.as_raw_fd() as u32, flags: 0 };
    let mut all = File::from(bpf(bpf_cmd::BPF_ITER_CREATE, &attr)?);
    // It runs while it is read. The program writes nothing.
    io::copy(&mut all, &mut io::sink()).map(|_| ())
}

/// The `bpf` system call for commands that return a file descriptor.
pub(super) fn bpf<T>(command: bpf_cmd, attr: &T) -> io::Result<OwnedFd> {
    let size = size_of::<T>();
    rights::reach(|| {
        // SAFETY: attr is a live, zero-padded prefix of `union bpf_attr` for this command, its size is given, and every
        // pointer in it outlives the call.
        opened(unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, std::ptr::from_ref(attr), size) })
    })
}

/// What a system call that opens something has returned just now.
fn opened(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A prefix of `union bpf_attr` for `BPF_LINK_CREATE` on a perf event.
#[repr(C)]
#[derive(Default)]
struct EventLink {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// Attaches a loaded program to a perf event, until the descriptor is closed.
pub(super) fn attach_perf_event(program: &OwnedFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let attr = EventLink {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: event.as_raw_fd() as u32,
        attach_type: bpf_attach_type::BPF_PERF_EVENT as u32,
        cookie,
        ..EventLink::default()
    };
    bpf(bpf_cmd::BPF_LINK_CREATE, &attr)
}

/// Opens a perf event of one thread, or of all with -1, on one CPU, or with -1 on whichever the thread runs.
pub(super) fn perf_event(attr: &perf_event_attr, tid: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOEXEC: u64 = 8;
    rights::reach(|| {
        // SAFETY: attr is a live structure of the size that it states.
        opened(unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), tid, cpu, -1, CLOEXEC) })
    })
}

/// A map of any of the kinds that the object has.
pub(super) fn data(map: &Map) -> Option<&MapData> {
    Some(match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::CgroupArray(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerfEventArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data)
        | Map::Unsupported(data) => data,
        _ => return None,
    })
}

/// Its descriptor.
pub(super) fn fd(map: &Map) -> Option<RawFd> {
    Some(data(map)?.fd().as_fd().as_raw_fd())
}
