//! Events counted by CPU, for the programs to read.

use super::CaptureError;
use super::raw_program;
use crate::measures::event::{Event, Source};
use aya::Ebpf;
use aya_obj::generated::{bpf_cmd, perf_event_attr, perf_type_id};
use lockbpf_common::counts::{self, MAX_EVENTS};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: u64 = 8;
/// Maps that the programs read them from, by CPU.
const MAPS: [&str; MAX_EVENTS] = ["EVENT_0", "EVENT_1", "EVENT_2", "EVENT_3", "EVENT_4"];

/// Whether the processor counts events here.
#[derive(Debug)]
pub enum Pmu {
    /// It does.
    There,
    /// It does not, or the kernel or the virtual machine withholds it.
    Missing,
    /// It cannot be told.
    Unknown(io::Error),
}

/// Why events cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// One of them can be counted on no CPU.
    #[error("{event} cannot be counted on this machine")]
    Refused {
        /// Its name.
        event: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There are no CPUs, or they cannot be listed.
    #[error("failed to list the CPUs")]
    Cpus(#[source] io::Error),
    /// The programs cannot be told.
    #[error("failed to put {event} into its map")]
    Map {
        /// Its name.
        event: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Looks for the PMU, by its cycles on the first CPU.
#[must_use]
pub fn pmu() -> Pmu {
    let cycles = Event { name: String::new(), source: Source::Hardware(0), user: true, kernel: true };
    let cpu = aya::util::online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    match open(&cycles, cpu) {
        Ok(_) => Pmu::There,
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO) => Pmu::Missing,
            _ => Pmu::Unknown(error),
        },
    }
}

/// Whether an event can be counted on the first CPU.
#[must_use]
pub fn can_count(event: &Event) -> bool {
    let cpu = aya::util::online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    open(event, cpu).is_ok()
}

/// Events that are counted.
pub(super) struct Events {
    which: counts::Events,
    names: Vec<String>,
    notes: Vec<String>,
    _open: Vec<OwnedFd>,
}

impl Events {
    /// Counts these on every CPU that is online, for the programs in `ebpf` to read.
    ///
    /// # Errors
    /// When one cannot be counted on any CPU.
    pub(super) fn start(ebpf: &Ebpf, events: &[Event]) -> Result<Self, CaptureError> {
        let cpus = aya::util::online_cpus().map_err(|(_, error)| EventsError::Cpus(error))?;
        let mut notes = Vec::new();
        let mut all = Vec::new();
        for (name, event) in MAPS.into_iter().zip(events) {
            let map = ebpf.map(name).and_then(raw_program::fd).ok_or(CaptureError::NoMap(name))?;
            let mut without = Vec::new();
            let mut refused = None;
            for &cpu in &cpus {
                match open(event, cpu) {
                    Ok(fd) => {
                        put(map, cpu, &fd).map_err(|source| EventsError::Map { event: event.name.clone(), source })?;
                        all.push(fd);
                    }
                    Err(error) => {
                        without.push(cpu);
                        refused = Some(error);
                    }
                }
            }
            let Some(source) = refused else { continue };
            let event = event.name.clone();
            if without.len() == cpus.len() {
                return Err(EventsError::Refused { event, source }.into());
            }
            let cpus: Vec<String> = without.iter().map(u32::to_string).collect();
            notes.push(format!(
                "{event} cannot be counted on CPU {} ({source}): sections there have no counts (counts_unread).",
                cpus.join(", ")
            ));
        }
        let which = which(events);
        Ok(Self { which, names: events.iter().map(|event| event.name.clone()).collect(), notes, _open: all })
    }

    /// As the programs know them.
    pub(super) fn which(&self) -> counts::Events {
        self.which
    }

    /// What they are called.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// What is to be said of them.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Events as the programs know them. Those of the processor may take turns.
pub(super) fn which(events: &[Event]) -> counts::Events {
    let turns = (0..).zip(events).filter(|(_, event)| event.needs_pmu()).map(|(n, _)| 1 << n).sum();
    counts::Events::new(events.len() as u32, turns)
}

/// Begins to count an event on a CPU, whoever runs there.
fn open(event: &Event, cpu: u32) -> io::Result<OwnedFd> {
    // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<perf_event_attr>() as u32;
    (attr.type_, attr.config) = match event.source {
        Source::Hardware(number) => (perf_type_id::PERF_TYPE_HARDWARE as u32, number),
        Source::Software(number) => (perf_type_id::PERF_TYPE_SOFTWARE as u32, number),
        Source::Raw(number) => (perf_type_id::PERF_TYPE_RAW as u32, number),
    };
    attr.set_exclude_user(u64::from(!event.user));
    attr.set_exclude_kernel(u64::from(!event.kernel));
    // SAFETY: attr is a live structure of the size it states.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, cpu as libc::c_int, -1, CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A prefix of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Puts an event into a map of them, of which aya keeps the descriptors to itself.
fn put(map: RawFd, at: u32, event: &OwnedFd) -> io::Result<()> {
    let value = event.as_raw_fd();
    let attr = MapUpdate {
        map_fd: map as u32,
        padding: 0,
        key: (&raw const at) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    let command = bpf_cmd::BPF_MAP_UPDATE_ELEM as libc::c_int;
    // SAFETY: attr is a live prefix of `union bpf_attr` for this command, its size is given; key and value outlive the call, and
    // are of the four bytes that the map was made with.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attr, size_of::<MapUpdate>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
