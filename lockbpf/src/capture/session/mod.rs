//! One observation's kernel side, from loading to the last sum: load, attach, activate, drain, stop, harvest.

mod begin;
mod harvest;
mod holds;
mod options;
mod skipped;
mod stacks;
mod sum_slots;
mod tasks;

pub use holds::{Hold, ThreadNow};
pub use options::{Options, Scope};

use super::CaptureError;
use super::aside::drop_aside;
use super::attach::{self, FutexTier, ProbeSite, Tracepoints};
use super::cpu_clock::CpuClock;
use super::described;
use super::events::{self, Events};
use super::gates::{Gap, Gates, Sheds};
use super::inflight::Snapshot;
use super::kernel;
use super::lease::{Lease, Renewing};
use super::object::{self, Extras};
use super::open_stacks::OpenStacks;
use super::placer::Mechanism;
use super::probe_table::SCHED_SWITCH;
use super::raw_program::{self, Programs};
use super::rings::{Bell, Rings};
use super::stack_copies::StackCopies;
use super::target::FileKey;
use super::witness::{Witness, again};
use crate::decode::{Decoded, decode};
use crate::governor::Sampled;
use crate::id::Process;
use crate::quality::{FailedProbe, Quality, Unobserved};
use crate::units::Time;
use crate::unwind::Method;
use aya::Ebpf;
use aya::maps::{Array, CgroupArray, HashMap as BpfHashMap, MapData, PerCpuArray};
use aya_log::EbpfLogger;
use begin::Loaded;
use lockbpf_common::config::Control;
use lockbpf_common::counter::Counter;
use lockbpf_common::gate::Account;
use lockbpf_common::kernel::Kernel;
use lockbpf_common::parking;
use lockbpf_common::virtual_thread::{self, Carrier};
use nix::time::{ClockId, clock_gettime};
use skipped::Skipped;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use sum_slots::SumSlots;

/// The kernel side of one observation.
pub struct Session {
    ebpf: Ebpf,
    /// Unless a governor has them; `None` too where there are no uprobes.
    gates: Option<Gates>,
    /// Whether a governor opens and closes the gates.
    governed: bool,
    /// What the gates knew of it when they went.
    sheds: Option<Sheds>,
    /// What observing takes, by slots: also in the hands of the gates.
    accounts: PerCpuArray<MapData, Account>,
    witness: Witness,
    /// When the observation began.
    started: Time,
    /// CPU time that children used on breakpoints: counted by the gates, whoever has them.
    children_ns: Option<Arc<AtomicU64>>,
    mechanism: Mechanism,
    placed: usize,
    /// Processes of which only waits are seen, for want of slots.
    refused: u64,
    tracepoints: Tracepoints,
    /// Tells of contended sections that go on, when it is run; `None` without uprobes.
    lasting: Option<OwnedFd>,
    rings: Rings,
    futex_tier: FutexTier,
    quality: Quality,
    /// What the kernel left out before the observation.
    skipped_before: Skipped,
    open_stacks: OpenStacks,
    /// `None` if none are counted.
    events: Option<Events>,
    /// `None` if stacks are not copied.
    stack_copies: Option<StackCopies>,
    sum_slots: SumSlots,
    kernel_log: Option<EbpfLogger<&'static dyn log::Log>>,
    /// The last: the guardian is there until no probe is.
    renewing: Arc<Renewing>,
}

impl Session {
    /// Loads the programs and places them at `sites`; nothing is observed until [`Session::activate`].
    ///
    /// # Errors
    /// When the kernel refuses a map, a program or a tracepoint, or when no uprobe at all could be placed.
    pub fn start(options: &Options, sites: &[ProbeSite]) -> Result<Self, CaptureError> {
        let which = events::which(&options.events);
        let extras = Extras {
            events: which,
            library: options.library,
            walked_stacks: Some(options.walked_stacks),
            kernel_log: options.kernel_log,
        };
        let mut ebpf = object::load(&options.config(), Some(options.task_offsets), extras)?;
        let renewing = Arc::new(Renewing::start(control(&ebpf)?, options.guardian.clone())?);
        // Before anything can be read of them.
        let events = if options.events.is_empty() { None } else { Some(Events::start(&ebpf, &options.events)?) };
        let rings = Rings::create(&mut ebpf)?;
        begin::fill_filters(&mut ebpf, options)?;
        described::tell(&mut ebpf, crate::custom::catalogue())?;
        if let Scope::Cgroup(cgroup) = &options.scope {
            let map = ebpf.map_mut("CGROUP").ok_or(CaptureError::NoMap("CGROUP"))?;
            CgroupArray::try_from(map)?.set(0, cgroup.dir(), 0)?;
        }
        // Before the kernel log takes its map: these programs are relocated against every map.
        let programs = Programs::prepare(object::BYTES, ebpf.maps());
        let programs = Arc::new(programs.map_err(|e| CaptureError::Unprepared(e.to_string()))?);
        let mut tracepoints = Tracepoints::default();
        if options.comm.is_some() {
            let program = attach::load_typed(&programs, options.types, "task_rename")?;
            tracepoints.attach_typed(program, "task_rename")?;
        }
        let stack_copies = if options.unwind == Method::Fp { None } else { Some(StackCopies::start(&mut ebpf)?) };
        let kernel_log = if options.kernel_log { begin::kernel_log(&mut ebpf) } else { None };
        let life: Vec<_> = [
            ("process_exec", "sched_process_exec", options.life),
            ("process_exit", "sched_process_exit", options.life),
            ("process_fork", "sched_process_fork", options.follow_forks || options.life && !options.futex_only),
            ("signal_delivered", "signal_deliver", !options.futex_only),
        ]
        .into_iter()
        .filter_map(|(program, tracepoint, wanted)| wanted.then_some((program, tracepoint)))
        .chain(kernel::PROGRAMS.into_iter().filter(|_| options.kernel_locks.is_some()).map(|name| (name, name)))
        .collect();
        let names = life.iter().map(|&(program, _)| program).chain(attach::futex_programs(options.tracefs));
        let Loaded { placer, sched, lasting } =
            begin::load(&mut ebpf, &programs, options, &names.collect::<Vec<_>>(), sites)?;
        // Before the first probe, but not while all these programs are loaded: where the processor is emulated, that keeps all threads of this
        // process from their memory for seconds. Those that are wanted later come one or a few at a time.
        renewing.lease().guarded(true);
        let sched = sched.and_then(|program| tracepoints.attach_typed(program, SCHED_SWITCH));
        if let Some(kernel) = options.kernel_locks {
            let map = ebpf.map_mut("KERNEL").ok_or(CaptureError::NoMap("KERNEL"))?;
            Array::<_, Kernel>::try_from(map)?.set(0, kernel, 0)?;
        }
        for (program, tracepoint) in life {
            tracepoints.attach_raw(&mut ebpf, program, tracepoint)?;
        }
        let (futex_tier, mut failed_probes) = tracepoints.attach_futex(&mut ebpf, options.tracefs)?;
        // Without it, only why holders did not run is missing.
        failed_probes.extend(sched.err().map(|error| FailedProbe {
            probe: format!("sched:{SCHED_SWITCH}"),
            file: None,
            reason: attach::reason(&error),
        }));
        let lasting = lasting.and_then(|program| {
            let unusable =
                |error| FailedProbe { probe: "iter:task".to_owned(), file: None, reason: attach::reason(error) };
            failed_probes.extend(program.as_ref().err().map(|error| unusable(error)));
            program.ok()
        });
        let notes = events.iter().flat_map(Events::notes).cloned().collect();
        let mut quality = Quality { failed_probes, notes, ..Quality::default() };
        let mut mechanism = Mechanism::PerfEvents;
        let (mut placed, mut refused) = (0, 0);
        let accounts = again(&ebpf, "ACCOUNTS")?.try_into()?;
        let witness = Witness::new(&ebpf)?;
        let mut children_ns = None;
        let mut gates = None;
        match placer {
            Some(placer) => {
                mechanism = placer.mechanism();
                let filtered = matches!(options.scope, Scope::Cgroup(_));
                let clock = CpuClock::new(programs.clone(), mechanism == Mechanism::PerfEvents);
                let mut full = Gates::new(&mut ebpf, placer, clock, sites, filtered)?;
                begin::place(&mut full, &options.scope)?;
                placed = full.placed();
                refused = full.refused();
                children_ns = Some(full.children_ns());
                let failed = full.take_failed();
                if !sites.is_empty() && placed == 0 && !failed.is_empty() {
                    let reason = failed.into_iter().next().map(|f| f.reason);
                    return Err(CaptureError::NothingAttached(reason.unwrap_or_default()));
                }
                quality.failed_probes.extend(failed);
                gates = Some(full);
            }
            None => {
                if let Scope::Pids(pids) = &options.scope {
                    begin::fill(&mut ebpf, "TARGETS", pids)?;
                }
            }
        }
        Ok(Self {
            ebpf,
            gates,
            governed: false,
            sheds: None,
            accounts,
            witness,
            started: now(),
            children_ns,
            mechanism,
            placed,
            refused,
            tracepoints,
            lasting,
            rings,
            futex_tier,
            quality,
            skipped_before: Skipped::default(),
            open_stacks: OpenStacks::default(),
            sum_slots: SumSlots::default(),
            events,
            stack_copies,
            kernel_log,
            renewing,
        })
    }

    /// What the kernel says of each program for functions that it refuses: all are tried. Nothing without uprobes, or under a governor.
    #[must_use]
    pub fn refused_programs(&self) -> Vec<String> {
        self.gates.as_ref().map_or_else(Vec::new, |gates| gates.placer().refused())
    }

    /// Samples of the clock are taken of the first process, a private child.
    pub(super) fn sample_child(&mut self) {
        self.gates.iter_mut().for_each(Gates::sample_child);
    }

    /// They are taken seldom again.
    pub(super) fn sample_no_more(&mut self) {
        self.gates.iter_mut().for_each(|gates| gates.sample(false));
    }

    /// What they have found so far.
    pub(super) fn sampled_child(&self) -> Sampled {
        self.gates.as_ref().and_then(|gates| gates.sampled(1)).unwrap_or_default()
    }

    /// Places further probes, for libraries found later.
    pub fn attach(&mut self, sites: &[ProbeSite]) {
        if let Some(gates) = &mut self.gates {
            gates.extend(sites);
            self.placed = gates.placed();
            let failed = gates.take_failed();
            self.failed(failed);
        }
    }

    /// Observes one more process, unless a governor does: in these files, or, with `None`, in all that are known.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn admit(&mut self, pid: u32, files: Option<Vec<FileKey>>) -> Result<(), CaptureError> {
        let Some(gates) = &mut self.gates else { return Ok(()) };
        gates.observe(pid, files)?;
        self.refused = gates.refused();
        self.placed = gates.placed();
        let failed = gates.take_failed();
        self.failed(failed);
        Ok(())
    }

    /// Whether the image of an observed process was replaced by another thread than its first: then what was placed in it follows it no
    /// more. Told once, with the time.
    pub fn replaced(&mut self, pid: u32) -> Option<Time> {
        let mut replaced: BpfHashMap<_, u32, u64> = self.ebpf.map_mut("REPLACED")?.try_into().ok()?;
        let when = replaced.get(&pid, 0).ok()?;
        // It is there, as was just seen.
        let _ = replaced.remove(&pid);
        Some(Time(when))
    }

    /// Looks whether what is observed is seen. Returns the pids of processes that are found not to be, each once; `number` is that of a
    /// process.
    pub fn witness(&mut self, number: impl Fn(u32) -> Option<Process>) -> Vec<u32> {
        let Self { witness, ebpf, started, .. } = self;
        // Where the map cannot be read, nothing is known of locks.
        let keys = || sum_slots::all(ebpf).unwrap_or_default().into_iter().map(|(key, _)| key).collect();
        witness.look(*started, number, keys)
    }

    /// Places anew what was placed in a process and perhaps does not follow it since then, unless a governor does.
    pub fn renew(&mut self, pid: u32, since: Time) {
        if let Some(gates) = &mut self.gates {
            gates.renew(pid, since);
            let (failed, gaps) = (gates.take_failed(), gates.take_gaps());
            self.failed(failed);
            self.gaps(gaps);
        }
    }

    /// When processes were not observed although they were to be.
    pub fn gaps(&mut self, gaps: Vec<Gap>) {
        let start = self.started;
        self.quality.unobserved.extend(gaps.into_iter().map(|gap| Unobserved {
            pid: gap.pid,
            from_ns: gap.from.since(start).0,
            to_ns: Some(gap.to.since(start).0),
        }));
    }

    /// Sees to it that what is placed still follows its processes, unless a governor does.
    pub fn look_after(&mut self) {
        if let Some(gates) = &mut self.gates {
            gates.look_after();
            let (failed, gaps) = (gates.take_failed(), gates.take_gaps());
            self.failed(failed);
            self.gaps(gaps);
        }
    }

    /// Makes known which mutex guards the interpreter lock of a process.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn interpreter_lock(&mut self, pid: u32, mutex: u64) -> Result<(), CaptureError> {
        let map = self.ebpf.map_mut("GILS").ok_or(CaptureError::NoMap("GILS"))?;
        let mut locks: BpfHashMap<_, u32, u64> = map.try_into()?;
        Ok(locks.insert(pid, mutex, 0)?)
    }

    /// What is known of locks that the user has described.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn met(&self) -> Result<described::Met, CaptureError> {
        described::Met::of(again(&self.ebpf, "CUSTOM_LOCKS")?)
    }

    /// Has futex calls of a process count for parking_lot's locks, or for Python's, where they are for one.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn parks(&mut self, process: Process, is_python: bool) -> Result<(), CaptureError> {
        let name = if is_python { "PYTHON_PARKING" } else { "PARKING" };
        let map = self.ebpf.map_mut(name).ok_or(CaptureError::NoMap(name))?;
        let mut processes: Array<_, u32> = map.try_into()?;
        Ok(processes.set(process.0 % parking::MAX_PROCESSES, process.0, 0)?)
    }

    /// Has waits of Java's virtual threads for monitors recorded, by what the threads that carry them tell.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn carries(&mut self, carrier: Carrier) -> Result<(), CaptureError> {
        let map = self.ebpf.map_mut("CARRIERS").ok_or(CaptureError::NoMap("CARRIERS"))?;
        let mut carriers: Array<_, Carrier> = map.try_into()?;
        Ok(carriers.set(carrier.process % virtual_thread::MAX_PROCESSES, carrier, 0)?)
    }

    /// The gates, for a governor that opens and closes them from now on.
    pub fn take_gates(&mut self) -> Option<Gates> {
        self.governed = self.gates.is_some();
        self.gates.take()
    }

    /// Takes the gates back from a governor that has stopped.
    pub fn put_gates(&mut self, gates: Gates) {
        self.gates = Some(gates);
    }

    /// In which processes not all probes that no gate closes were there all the time; `None` while a governor has the gates.
    #[must_use]
    pub fn sheds(&self) -> Option<&Sheds> {
        self.gates.as_ref().map(Gates::sheds).or(self.sheds.as_ref())
    }

    /// So many processes were found to be beyond those that can be observed fully.
    pub fn refused(&mut self, processes: u64) {
        self.refused = processes;
    }

    /// What could not be placed: told once, however often it was tried.
    pub fn failed(&mut self, failed: Vec<FailedProbe>) {
        for probe in failed {
            if !self.quality.failed_probes.contains(&probe) {
                self.quality.failed_probes.push(probe);
            }
        }
    }

    /// Begins the observation, now that every probe is in place. `before`: who slept a moment ago. Returns the time on the records' clock.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn activate(&mut self, before: &Snapshot) -> Result<Time, CaptureError> {
        self.skipped_before = Skipped::read(&self.ebpf);
        let start = now();
        before.tell(&mut self.ebpf, start)?;
        if let Some(gates) = &mut self.gates {
            gates.open_all()?;
        }
        self.renewing.lease().begin()?;
        self.started = start;
        Ok(start)
    }

    /// Ends the observation: from now on the programs do nothing. Returns the time.
    ///
    /// # Errors
    /// When the control map cannot be written.
    pub fn deactivate(&mut self) -> Result<Time, CaptureError> {
        let lapses = self.renewing.lease().end()?;
        let end = now();
        if let Some(Err(error)) = self.lasting.take().map(|program| raw_program::iterate(&program)) {
            self.quality.notes.push(format!("failed to look for sections that go on at the end: {error}."));
        }
        if let Some(gates) = &mut self.gates {
            gates.settle_children();
            gates.end_gaps();
            let gaps = gates.take_gaps();
            self.gaps(gaps);
        }
        self.quality.paused = lapses.total;
        self.quality.notes.extend(lapses.note());
        let skipped = Skipped::read(&self.ebpf).since(self.skipped_before);
        self.quality.notes.extend(skipped.note());
        if skipped.others > 0 {
            self.quality.counters.insert(Counter::KernelSkipped.name(), skipped.others);
        }
        Ok(end)
    }

    /// Removes the probes and the tracepoints, beside whatever else is done: each removal waits for a grace period of the kernel. For after
    /// [`Session::deactivate`]; the target pays for probes as long as they are there, whether they do anything or not.
    pub fn remove_probes(&mut self) {
        // The guardian stays until none is left.
        self.sheds = self.sheds().cloned();
        drop_aside((self.gates.take(), self.renewing.clone()));
        drop_aside((std::mem::take(&mut self.tracepoints), self.renewing.clone()));
    }

    /// How often the kernel has left out a program on futex calls so far: as often a wait may not be among [`Session::waits`].
    #[must_use]
    pub fn skipped_futex_calls(&self) -> u64 {
        Skipped::futex_calls(&self.ebpf)
    }

    /// Hands every record that is there to `sink`; undecodable ones are counted.
    pub fn drain(&mut self, mut sink: impl FnMut(Decoded)) {
        if let Some(events) = &mut self.events
            && let Err(error) = events.follow(&self.ebpf)
        {
            log::warn!("failed to count on a CPU that has come: {error}");
        }
        let undecodable = &mut self.quality.undecodable;
        self.rings.drain(|record| match decode(record) {
            Ok(decoded) => sink(decoded),
            Err(error) => *undecodable.entry(error.name()).or_default() += 1,
        });
        if let Some(logger) = &mut self.kernel_log {
            logger.flush();
        }
    }

    /// Rings for what cannot wait until the next poll: a process that was seen for the first time, new stacks.
    ///
    /// # Errors
    /// When no descriptor is left for it, or outside a tokio runtime.
    pub fn bell(&self) -> std::io::Result<Bell> {
        self.rings.bell(self.stack_copies.as_ref().map(StackCopies::ring))
    }

    /// How the futex calls are watched.
    #[must_use]
    pub fn futex_tier(&self) -> FutexTier {
        self.futex_tier
    }

    /// Names of the events that are counted in sections, the clock first; none if none are.
    #[must_use]
    pub fn events(&self) -> &[String] {
        self.events.as_ref().map_or(&[], Events::names)
    }

    /// Probes in place.
    #[must_use]
    pub fn probe_count(&self) -> usize {
        self.placed
    }

    /// How uprobes are placed.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// How long programs may do anything.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.renewing.lease()
    }

    /// Removes the probes for a while, and returns when they are gone; with a governor, that does it. Returns the slots that had any.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn suspend(&mut self) -> Result<Vec<u32>, CaptureError> {
        self.gates.as_mut().map_or(Ok(Vec::new()), Gates::suspend)
    }

    /// Places the probes of these slots again.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn resume(&mut self, placed: &[u32]) -> Result<(), CaptureError> {
        let Some(gates) = &mut self.gates else { return Ok(()) };
        gates.resume(placed)?;
        self.placed = gates.placed();
        let failed = gates.take_failed();
        self.failed(failed);
        Ok(())
    }

    pub(super) fn map(&self, name: &'static str) -> Result<&aya::maps::Map, CaptureError> {
        self.ebpf.map(name).ok_or(CaptureError::NoMap(name))
    }

    pub(super) fn map_mut(&mut self, name: &'static str) -> Result<&mut aya::maps::Map, CaptureError> {
        self.ebpf.map_mut(name).ok_or(CaptureError::NoMap(name))
    }
}

/// The current time on the clock of the records.
#[must_use]
pub fn now() -> Time {
    Time(clock(ClockId::CLOCK_MONOTONIC))
}

/// The time on a clock, ns.
pub(super) fn clock(id: ClockId) -> u64 {
    // These clocks exist on every Linux; a refusal would be a broken seccomp filter, and time 0 shows.
    clock_gettime(id).map_or(0, |t| Duration::from(t).as_nanos() as u64)
}

/// A second handle on what the lease is written to.
fn control(ebpf: &Ebpf) -> Result<Array<MapData, Control>, CaptureError> {
    Ok(again(ebpf, "CONTROL")?.try_into()?)
}
