//! Events counted by CPU, for the programs to read.

use super::CaptureError;
use super::hotplug::{Changed, Hotplug};
use super::raw_program;
use crate::measures::event::{Event, Source};
use aya::Ebpf;
use aya_obj::generated::{bpf_cmd, perf_event_attr, perf_type_id};
use lockbpf_common::counts::{self, MAX_EVENTS};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

/// `PERF_FORMAT_TOTAL_TIME_ENABLED`: what is read of an event is its count, and the time in which it was enabled, ns.
const TIME_ENABLED: u64 = 1;
/// Maps that the programs read them from, by CPU.
const MAPS: [&str; MAX_EVENTS] = ["EVENT_0", "EVENT_1", "EVENT_2", "EVENT_3", "EVENT_4"];
/// The map of those that tell whether the others go on.
const WITNESS: &str = "WITNESS";
/// `PERF_COUNT_SW_DUMMY`: counts nothing.
const DUMMY: Event = Event { name: String::new(), source: Source::Software(9), user: true, kernel: true };

/// How long a CPU's clock may stand still: three ticks of a kernel that ticks a hundred times a second.
const TICKS: Duration = Duration::from_millis(30);
/// How long is waited between two looks at it.
const PAUSE: Duration = Duration::from_millis(1);

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
    match open_on_first(&cycles) {
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
    open_on_first(event).is_ok()
}

fn open_on_first(event: &Event) -> io::Result<OwnedFd> {
    let cpu = aya::util::online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    open(event, cpu, Pinned(false))
}

/// Events that are counted.
pub(super) struct Events {
    events: Vec<Event>,
    names: Vec<String>,
    notes: Vec<String>,
    open: BTreeMap<u32, OnCpu>,
    /// `None` if the kernel does not tell: events of CPUs that come later are not counted, which is told of each section there.
    hotplug: Option<Hotplug>,
}

/// Those of a CPU.
struct OnCpu {
    /// Goes on as long as the CPU has not been away.
    witness: OwnedFd,
    _counted: Vec<OwnedFd>,
}

impl Events {
    /// Counts these on every CPU that is online, for the programs in `ebpf` to read.
    ///
    /// # Errors
    /// When one cannot be counted on any CPU.
    pub(super) fn start(ebpf: &Ebpf, events: &[Event]) -> Result<Self, CaptureError> {
        // First, so that no CPU is missed that comes meanwhile.
        let hotplug = Hotplug::listen().inspect_err(|error| log::warn!("CPUs that come are not noticed: {error}")).ok();
        let cpus = aya::util::online_cpus().map_err(|(_, error)| EventsError::Cpus(error))?;
        let names = events.iter().map(|event| event.name.clone()).collect();
        let mut all = Self { events: events.to_vec(), names, notes: Vec::new(), open: BTreeMap::new(), hotplug };
        let mut without: BTreeMap<usize, Vec<(u32, io::Error)>> = BTreeMap::new();
        for &cpu in &cpus {
            for (n, error) in all.open_on(ebpf, cpu)? {
                without.entry(n).or_default().push((cpu, error));
            }
        }
        for (n, mut without) in without {
            let event = all.names.get(n).cloned().unwrap_or_default();
            let refusing: Vec<String> = without.iter().map(|(cpu, _)| cpu.to_string()).collect();
            let Some((_, source)) = without.pop() else { continue };
            if refusing.len() == cpus.len() {
                return Err(EventsError::Refused { event, source }.into());
            }
            all.notes.push(format!(
                "{event} cannot be counted on CPU {} ({source}): sections there have no counts (counts_unread).",
                refusing.join(", ")
            ));
        }
        Ok(all)
    }

    /// Counts on a CPU. Returns which events cannot be counted there. The witness is opened first and told last: as long as the programs
    /// cannot read it, they believe none of the others.
    fn open_on(&mut self, ebpf: &Ebpf, cpu: u32) -> Result<Vec<(usize, io::Error)>, CaptureError> {
        let witness = match open(&DUMMY, cpu, Pinned(true)) {
            Ok(fd) => fd,
            Err(error) => return Ok(vec![(0, error)]),
        };
        let (mut refused, mut counted) = (Vec::new(), Vec::new());
        for (n, (name, event)) in MAPS.into_iter().zip(&self.events).enumerate() {
            let map = map(ebpf, name)?;
            // What takes no turns stays on its CPU while threads with events of their own come and go there.
            match open(event, cpu, Pinned(!event.needs_pmu())) {
                Ok(fd) => {
                    put(map, cpu, &fd).map_err(|source| EventsError::Map { event: event.name.clone(), source })?;
                    counted.push(fd);
                }
                Err(error) => {
                    remove(map, cpu);
                    refused.push((n, error));
                }
            }
        }
        put(map(ebpf, WITNESS)?, cpu, &witness).map_err(|source| EventsError::Map { event: WITNESS.into(), source })?;
        self.open.insert(cpu, OnCpu { witness, _counted: counted });
        Ok(refused)
    }

    /// Follows CPUs that come and go: the counters of one that has gone stand still, even when it comes back.
    ///
    /// # Errors
    /// When the programs cannot be told.
    pub(super) fn follow(&mut self, ebpf: &Ebpf) -> Result<(), CaptureError> {
        let Some(hotplug) = &self.hotplug else { return Ok(()) };
        let changed = match hotplug.changed() {
            Changed::These(cpus) => cpus,
            Changed::Any => {
                let online = aya::util::online_cpus().map_err(|(_, error)| EventsError::Cpus(error))?;
                self.open.keys().copied().chain(online).collect()
            }
        };
        for cpu in changed {
            // It has come, gone, or both more than once: if its counters go on, threads may be reading them.
            if self.open.get(&cpu).is_some_and(|events| goes_on(&events.witness)) {
                continue;
            }
            self.open.remove(&cpu);
            match self.open_on(ebpf, cpu)?.as_slice() {
                [] => log::info!("events are counted on CPU {cpu} again"),
                // It has gone, or has no such counter.
                refused => log::debug!("not counted on CPU {cpu}: {refused:?}"),
            }
        }
        Ok(())
    }

    /// As the programs know them.
    pub(super) fn which(&self) -> counts::Events {
        which(&self.events)
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

/// A map of events.
fn map(ebpf: &Ebpf, name: &'static str) -> Result<RawFd, CaptureError> {
    ebpf.map(name).and_then(raw_program::fd).ok_or(CaptureError::NoMap(name))
}

/// Whether an event never takes turns. The programs can read one that does not only where it is counted at that moment
/// (`perf_event_read_local`, 4.20).
struct Pinned(bool);

/// Begins to count an event on a CPU, whoever runs there.
fn open(event: &Event, cpu: u32, Pinned(pinned): Pinned) -> io::Result<OwnedFd> {
    // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<perf_event_attr>() as u32;
    (attr.type_, attr.config) = match event.source {
        Source::Hardware(number) => (perf_type_id::PERF_TYPE_HARDWARE as u32, number),
        Source::Software(number) => (perf_type_id::PERF_TYPE_SOFTWARE as u32, number),
        Source::Raw(number) => (perf_type_id::PERF_TYPE_RAW as u32, number),
    };
    attr.read_format = TIME_ENABLED;
    attr.set_pinned(u64::from(pinned));
    attr.set_exclude_user(u64::from(!event.user));
    attr.set_exclude_kernel(u64::from(!event.kernel));
    raw_program::perf_event(&attr, -1, cpu as libc::c_int)
}

/// Whether an event goes on: the time in which it was enabled does, unless its CPU has been away since it was opened. That time may stand
/// still until the CPU's next tick where the processor's clock is not to be relied on, as in virtual machines (`sched_clock_local`).
fn goes_on(event: &OwnedFd) -> bool {
    let Ok(before) = enabled_ns(event) else { return false };
    let until = Instant::now() + TICKS;
    loop {
        match enabled_ns(event) {
            Ok(now) if now > before => return true,
            Ok(_) if Instant::now() < until => thread::sleep(PAUSE),
            _ => return false,
        }
    }
}

fn enabled_ns(event: &OwnedFd) -> io::Result<u64> {
    let mut told = [0; size_of::<[u64; 2]>()];
    let length = nix::unistd::read(event, &mut told)?;
    match (length == told.len()).then(|| told.last_chunk()).flatten() {
        Some(enabled) => Ok(u64::from_ne_bytes(*enabled)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A prefix of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM` and, but for the value, `BPF_MAP_DELETE_ELEM`.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Puts an event into a map of them, of which aya keeps the descriptors to itself.
fn put(map: RawFd, at: u32, event: &OwnedFd) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_UPDATE_ELEM, map, at, event.as_raw_fd())
}

/// Takes one out of it, if there is one.
fn remove(map: RawFd, at: u32) {
    if let Err(error) = element(bpf_cmd::BPF_MAP_DELETE_ELEM, map, at, 0) {
        log::debug!("no event was removed for CPU {at}: {error}");
    }
}

fn element(command: bpf_cmd, map: RawFd, at: u32, value: RawFd) -> io::Result<()> {
    let attr = MapElement {
        map_fd: map as u32,
        padding: 0,
        key: (&raw const at) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    let size = match command {
        // The kernel refuses what it does not expect.
        bpf_cmd::BPF_MAP_DELETE_ELEM => std::mem::offset_of!(MapElement, value),
        _ => size_of::<MapElement>(),
    };
    // SAFETY: attr is a live prefix of `union bpf_attr` for these commands, its size is given; key and value outlive the call, and
    // are of the four bytes that the map was made with.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, &raw const attr, size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
