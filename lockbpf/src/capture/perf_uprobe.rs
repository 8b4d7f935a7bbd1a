//! Uprobes as perf events with an attach cookie (kernel 5.15), of which aya keeps the cookie to itself.

use super::attach::Spot;
use super::probe_table::is_return_half;
use super::raw_program::{Kind, Programs, RawError, attach_perf_event, perf_event};
use aya_obj::generated::perf_event_attr;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where the kernel describes its uprobe events.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";
/// Bits of an event's configuration below the place of the program's counter (`format/ref_ctr_offset`, since 4.20).
const COUNTER_SHIFT: u32 = 32;

/// The kernel's uprobe events.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerfUprobes {
    kind: u32,
    returns_bit: u32,
}

/// Where a probe goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The file.
    pub path: &'a Path,
    /// Where in it.
    pub spot: Spot,
    /// A thread of the process; 0 for all processes.
    pub pid: u32,
}

/// A loaded program.
pub(super) struct Program {
    fd: OwnedFd,
    /// Whether it goes to functions' returns.
    at_return: bool,
}

impl Program {
    /// Loads one of [`By::programs`](super::probe_table::By::programs).
    pub(super) fn load(programs: &Programs, name: &'static str) -> Result<Self, RawError> {
        Ok(Self { fd: programs.load(name, Kind::Uprobe)?, at_return: is_return_half(name) })
    }
}

impl PerfUprobes {
    /// Finds out how this kernel numbers them.
    pub(super) fn find() -> io::Result<Self> {
        let read = |name: &str| std::fs::read_to_string(Path::new(PMU).join(name));
        let odd = |text: &str| io::Error::other(format!("{PMU} has an unexpected entry: {}", text.trim()));
        let kind = read("type")?;
        let bit = read("format/retprobe")?;
        Ok(Self {
            kind: kind.trim().parse().map_err(|_| odd(&kind))?,
            returns_bit: bit
                .trim()
                .strip_prefix("config:")
                .and_then(|bit| bit.parse().ok())
                .filter(|&bit| bit < 64)
                .ok_or_else(|| odd(&bit))?,
        })
    }

    /// Places a program. Returns the event and the program's link to it.
    pub(super) fn attach(self, program: &Program, at: &Place<'_>, cookie: u64) -> io::Result<(OwnedFd, OwnedFd)> {
        let event = self.open(at, program.at_return)?;
        let link = attach_perf_event(&program.fd, &event, cookie)?;
        Ok((event, link))
    }

    /// Opens an event without a program, at the function's entry or return: for as long as it is open, and its thread runs, the breakpoint stays
    /// in that thread's memory.
    pub(super) fn open(self, at: &Place<'_>, at_return: bool) -> io::Result<OwnedFd> {
        let path = CString::new(at.path.as_os_str().as_bytes())?;
        // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.type_ = self.kind;
        attr.size = size_of::<perf_event_attr>() as u32;
        let (offset, counter) = at.spot;
        if counter > u32::MAX.into() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        attr.config = u64::from(at_return) << self.returns_bit | counter << COUNTER_SHIFT;
        attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = offset;
        // For all processes the event needs a CPU in name; the probe fires on each.
        let (pid, cpu) = if at.pid == 0 { (-1, 0) } else { (at.pid as libc::pid_t, -1) };
        // The path outlives the call.
        perf_event(&attr, pid, cpu)
    }
}
