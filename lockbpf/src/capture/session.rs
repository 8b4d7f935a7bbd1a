//! One observation's kernel side, from loading to the last sum: load, attach, activate, drain, stop, harvest.

use super::CaptureError;
use super::attach::{self, FutexTier, ProbeSite, Tracepoints};
use super::btf::{Btf, TaskOffsets};
use super::cgroup::Cgroup;
use super::gates::Gates;
use super::kernel;
use super::object;
use super::open_stacks::{OpenStacks, Waiter};
use super::placer::{Mechanism, Placer};
use super::rings::{Bell, Rings};
use super::sched::Sched;
use super::stack_copies::{Numbered, StackCopies};
use super::target::FileKey;
use crate::deadlock::LockOrder;
use crate::decode::{Decoded, decode, thread_totals};
use crate::event::ProcessSeen;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::observation::{Harvest, OpenWait};
use crate::quality::{FailedProbe, Quality};
use crate::sums::KernelSums;
use crate::units::Time;
use crate::unwind::{Decision, Method, StackCopy, Unwind, Unwound};
use aya::Ebpf;
use aya::maps::{Array, CgroupArray, HashMap as BpfHashMap, MapData, PerCpuArray, StackTraceMap};
use aya::programs::Program;
use aya_log::EbpfLogger;
use lockbpf_common::config::{Config, Control, MAX_THREADS, comm_words, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::goroutine::{GoroutineKey, GoroutineWait};
use lockbpf_common::kernel::Kernel;
use lockbpf_common::kind::Via;
use lockbpf_common::order::{OrderKey, OrderSums};
use lockbpf_common::process::{ProcessEntry, SERIAL_PROCESS, SERIAL_SLOT};
use lockbpf_common::sums::{SumKey, Sums, ThreadSums};
use lockbpf_common::waiting::Waiting;
use nix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Whom to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These processes.
    Pids(Vec<u32>),
    /// Every process but this one.
    SystemWide,
    /// Every process in a cgroup, or below it, at each moment. Its probes are placed as the processes are admitted.
    Cgroup(Cgroup),
}

/// What to observe, and how much of it to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom.
    pub scope: Scope,
    /// Processes that have a number already.
    pub known: Vec<ProcessSeen>,
    /// Only threads with this name.
    pub comm: Option<String>,
    /// Only these threads.
    pub tids: Vec<u32>,
    /// Record every section.
    pub all_events: bool,
    /// Do not record contended sections that waited less.
    pub min_wait: Duration,
    /// Take stacks of waits that lasted so long.
    pub stack_wait: Duration,
    /// How stacks are taken.
    pub unwind: Method,
    /// Let the kernel side log its rare paths.
    pub kernel_log: bool,
    /// The kernel's types.
    pub types: &'static Btf,
    /// Offsets in its `task_struct`.
    pub task_offsets: TaskOffsets,
    /// Whether tracefs can be read.
    pub tracefs: bool,
    /// Whether to do without uprobes: only the futex calls are watched.
    pub futex_only: bool,
    /// Whether to do without uprobe sessions.
    pub plain_uprobes: bool,
    /// Whether to see what is rare as well: functions that are none of a mutex or read-write lock, and the ends of threads and
    /// programs. Else their programs need not be loaded.
    pub rare: bool,
    /// Whether the processes that observed ones start are observed, too.
    pub follow_forks: bool,
    /// What the programs have to know of the kernel, if its locks are to be observed.
    pub kernel_locks: Option<Kernel>,
    /// Whether a governor will open and close the gates, process by process.
    pub governed: bool,
}

/// The kernel side of one observation.
pub struct Session {
    ebpf: Ebpf,
    /// Until a governor takes them; `None` too where there are no uprobes.
    gates: Option<Gates>,
    mechanism: Mechanism,
    placed: usize,
    /// Processes of which only waits are seen, for want of slots.
    refused: u64,
    _tracepoints: Tracepoints,
    rings: Rings,
    futex_tier: FutexTier,
    quality: Quality,
    open_stacks: OpenStacks,
    /// `None` if stacks are not copied.
    stack_copies: Option<StackCopies>,
    kernel_log: Option<EbpfLogger<&'static dyn log::Log>>,
}

impl Session {
    /// Loads the programs and places them at `sites`; nothing is observed until [`Session::activate`].
    ///
    /// # Errors
    /// When the kernel refuses a map, a program or a tracepoint, or when no uprobe at all could be placed.
    pub fn start(options: &Options, sites: &[ProbeSite]) -> Result<Self, CaptureError> {
        let mut ebpf = object::load(&config(options), options.task_offsets.tgid, options.kernel_log)?;
        let rings = Rings::create(&mut ebpf)?;
        fill_filters(&mut ebpf, options)?;
        if let Scope::Cgroup(cgroup) = &options.scope {
            let map = ebpf.map_mut("CGROUP").ok_or(CaptureError::NoMap("CGROUP"))?;
            CgroupArray::try_from(map)?.set(0, cgroup.dir(), 0)?;
        }
        // Before the kernel log takes its map: these programs are relocated against every map.
        let full = if options.futex_only {
            None
        } else {
            let sched = Sched::load(&ebpf, options.types);
            Some((Placer::load(&mut ebpf, !options.plain_uprobes, options.rare)?, sched))
        };
        let stack_copies = if options.unwind == Method::Fp { None } else { Some(StackCopies::start(&mut ebpf)?) };
        let kernel_log = if options.kernel_log { kernel_log(&mut ebpf) } else { None };
        let life: Vec<_> = [
            ("process_exec", "sched_process_exec", options.rare),
            ("process_exit", "sched_process_exit", options.rare),
            ("process_fork", "sched_process_fork", options.follow_forks),
            ("task_rename", "task_rename", options.comm.is_some()),
        ]
        .into_iter()
        .filter_map(|(program, tracepoint, wanted)| wanted.then_some((program, tracepoint)))
        .chain(kernel::PROGRAMS.into_iter().filter(|_| options.kernel_locks.is_some()).map(|name| (name, name)))
        .collect();
        let programs = life.iter().map(|&(program, _)| program).chain(attach::futex_programs(options.tracefs));
        attach::load(&mut ebpf, &programs.collect::<Vec<_>>())?;
        if let Some(kernel) = options.kernel_locks {
            let map = ebpf.map_mut("KERNEL").ok_or(CaptureError::NoMap("KERNEL"))?;
            Array::<_, Kernel>::try_from(map)?.set(0, kernel, 0)?;
        }
        let mut tracepoints = Tracepoints::default();
        for (program, tracepoint) in life {
            tracepoints.attach_raw(&mut ebpf, program, tracepoint)?;
        }
        let (futex_tier, failed_probes) = tracepoints.attach_futex(&mut ebpf, options.tracefs)?;
        let mut quality = Quality { failed_probes, ..Quality::default() };
        let mut mechanism = Mechanism::PerfEvents;
        let (mut placed, mut refused) = (0, 0);
        let mut gates = None;
        match full {
            Some((placer, sched)) => {
                mechanism = placer.mechanism();
                let mut full = Gates::new(&mut ebpf, placer, sched, sites, matches!(options.scope, Scope::Cgroup(_)))?;
                place(&mut full, &options.scope, options.governed)?;
                placed = full.placed();
                refused = full.refused();
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
                    fill(&mut ebpf, "TARGETS", pids)?;
                }
            }
        }
        Ok(Self {
            ebpf,
            gates,
            mechanism,
            placed,
            refused,
            _tracepoints: tracepoints,
            rings,
            futex_tier,
            quality,
            open_stacks: OpenStacks::default(),
            stack_copies,
            kernel_log,
        })
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

    /// Makes known which mutex guards the interpreter lock of a process.
    ///
    /// # Errors
    /// When the map cannot be written, for another reason than that it is full: such a process's lock is not observed.
    pub fn interpreter_lock(&mut self, pid: u32, mutex: u64) -> Result<(), CaptureError> {
        let map = self.ebpf.map_mut("GILS").ok_or(CaptureError::NoMap("GILS"))?;
        let mut locks: BpfHashMap<_, u32, u64> = map.try_into()?;
        Ok(locks.insert(pid, mutex, 0)?)
    }

    /// The gates, for a governor that opens and closes them from now on.
    pub fn take_gates(&mut self) -> Option<Gates> {
        self.gates.take()
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

    /// Begins the observation, now that every probe is in place. Returns the time on the records' clock.
    ///
    /// # Errors
    /// When the control map cannot be written.
    pub fn activate(&mut self) -> Result<Time, CaptureError> {
        let start = now();
        if let Some(gates) = &mut self.gates {
            gates.open_all()?;
        }
        self.control(Control { active: 1 })?;
        Ok(start)
    }

    /// Ends the observation: from now on the programs do nothing. Returns the time.
    ///
    /// # Errors
    /// When the control map cannot be written.
    pub fn deactivate(&mut self) -> Result<Time, CaptureError> {
        self.control(Control::default())?;
        Ok(now())
    }

    /// Hands every record that is there to `sink`; undecodable ones are counted.
    pub fn drain(&mut self, mut sink: impl FnMut(Decoded)) {
        let undecodable = &mut self.quality.undecodable;
        self.rings.drain(|record| match decode(record) {
            Ok(decoded) => sink(decoded),
            Err(error) => *undecodable.entry(error.name()).or_default() += 1,
        });
        if let Some(logger) = &mut self.kernel_log {
            logger.flush();
        }
    }

    /// The stacks copied so far that were not fetched before. Call after [`Session::drain`], and every record handed over
    /// then has its stack among these or earlier ones.
    ///
    /// # Errors
    /// When a map cannot be accessed.
    pub fn fetch_stacks(&mut self) -> Result<Vec<StackCopy>, CaptureError> {
        self.stack_copies.as_mut().map_or(Ok(Vec::new()), |copies| copies.fetch(&mut self.ebpf))
    }

    /// Takes note of what a copied stack has turned out to be.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn settle_stack(&mut self, copy: &StackCopy, unwound: &Unwound) -> Result<(), CaptureError> {
        self.stack_copies.as_mut().map_or(Ok(()), |copies| copies.settle(&mut self.ebpf, copy, unwound))
    }

    /// Takes the stacks of a process in this way from now on.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub fn decide(&mut self, process: Process, decision: Decision) -> Result<(), CaptureError> {
        StackCopies::decide(&mut self.ebpf, process, decision)
    }

    /// What the number of a stack in a record stands for.
    #[must_use]
    pub fn numbered(&self, id: StackId) -> Numbered {
        self.stack_copies.as_ref().map_or(Numbered::Known(Some(id)), |copies| copies.number(id))
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

    /// Reads what the kernel side has summed. Call after [`Session::deactivate`] and a last [`Session::drain`]. The stacks
    /// of waits in progress are unwound by `unwinder`, if stacks are to be.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn harvest(&mut self, end: Time, unwinder: &mut dyn Unwind) -> Result<Harvest, CaptureError> {
        let sums = self.sums()?;
        let serials: Array<_, u64> = self.map("SERIALS")?.try_into()?;
        let used = u32::try_from(serials.get(&SERIAL_SLOT, 0)?).unwrap_or(MAX_THREADS).min(MAX_THREADS);
        let slots: Array<_, ThreadSums> = self.map("THREAD_SUMS")?.try_into()?;
        let threads = (0..used)
            .filter_map(|slot| slots.get(&slot, 0).ok())
            .filter(|s| s.tid != 0)
            .map(|s| thread_totals(end, &s))
            .collect();
        let mut open_waits = self.waits_with_stacks(unwinder)?;
        open_waits.extend(self.waits_of_goroutines()?);
        let orders = self.orders()?;
        let stacks = self.stacks()?;
        let counters: PerCpuArray<_, u64> = self.map("COUNTERS")?.try_into()?;
        let mut quality = self.quality.clone();
        quality.notes.extend(self.kernel_misses());
        for &counter in Counter::ALL {
            let mut total: u64 = counters.get(&(counter as u32), 0)?.iter().sum();
            if counter == Counter::StackLost {
                total += self.stack_copies.as_ref().map_or(0, StackCopies::lost);
            }
            if total > 0 {
                quality.counters.insert(counter.name(), total);
            }
        }
        if self.refused > 0 {
            quality.counters.insert(Counter::SlotsFull.name(), self.refused);
        }
        Ok(Harvest { sums, threads, open_waits, orders, stacks, quality, deadlocks: Vec::new(), estimates: None })
    }

    /// What the kernel itself left out: a contention while one was being handled on the same CPU.
    fn kernel_misses(&self) -> Option<String> {
        let missed: u64 = kernel::PROGRAMS.iter().filter_map(|name| misses(self.ebpf.program(name)?)).sum();
        (missed > 0).then(|| {
            format!("{missed} waits for kernel locks, of any process, came while another was being handled, and were not seen.")
        })
    }

    /// The waits in progress whose beginning was seen, without their stacks.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn waits(&self) -> Result<Vec<OpenWait>, CaptureError> {
        Ok(self.waiting()?.iter().filter_map(|&(tid, w)| open_wait(tid, &w)).collect())
    }

    /// The stack of the thread's wait in progress, while it lasts.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn stack_of_wait(&mut self, tid: Tid, unwinder: &mut dyn Unwind) -> Result<Option<StackId>, CaptureError> {
        let waits: BpfHashMap<_, u32, Waiting> = self.map("WAITS")?.try_into()?;
        let Ok(wait) = waits.get(&tid.0, 0) else { return Ok(None) };
        Ok(self.open_stack(waiter(tid.0, &wait), unwinder))
    }

    fn open_stack(&mut self, waiter: Waiter, unwinder: &mut dyn Unwind) -> Option<StackId> {
        self.open_stacks.of(waiter, if self.stack_copies.is_some() { Some(unwinder) } else { None })
    }

    fn waits_with_stacks(&mut self, unwinder: &mut dyn Unwind) -> Result<Vec<OpenWait>, CaptureError> {
        let waiting = self.waiting()?;
        self.open_stacks.keep(&waiting.iter().map(|(tid, wait)| waiter(*tid, wait)).collect());
        let mut waits = Vec::with_capacity(waiting.len());
        for (tid, wait) in &waiting {
            let stack = self.open_stack(waiter(*tid, wait), unwinder);
            waits.extend(open_wait(*tid, wait).map(|open| OpenWait { stack, ..open }));
        }
        Ok(waits)
    }

    /// The waits in progress of goroutines, of processes that are there. Their stacks are not known: they are not those of threads.
    /// Not where gates open and close: of a wait that began at an earlier opening it is not known whether it has ended.
    fn waits_of_goroutines(&self) -> Result<Vec<OpenWait>, CaptureError> {
        if self.gates.is_none() {
            return Ok(Vec::new());
        }
        let processes: BpfHashMap<_, u32, ProcessEntry> = self.map("PROCESSES")?.try_into()?;
        let there = |pid: u32| std::path::Path::new("/proc").join(pid.to_string()).exists();
        let known = processes.iter().filter_map(Result::ok);
        let known: HashSet<u64> = known.filter(|&(pid, _)| there(pid)).map(|(_, entry)| entry.process).collect();
        let waits: BpfHashMap<_, GoroutineKey, GoroutineWait> = self.map("GO_CALLS")?.try_into()?;
        let open = waits.iter().filter_map(Result::ok).filter(|(key, _)| known.contains(&key.process)).filter_map(
            |(key, wait)| {
                let process = Process(u32::try_from(key.process).ok()?);
                Some(OpenWait {
                    tid: Tid(wait.tid),
                    lock: Lock { process, addr: wait.lock },
                    site: Some(Site { process, addr: wait.site }),
                    since: Time(wait.attempt_ns),
                    owner: None,
                    stack: None,
                    via: Via::from_u8(u8::try_from(wait.via).ok()?)?,
                    expected: None,
                    before_start: false,
                })
            },
        );
        Ok(open.collect())
    }

    fn waiting(&self) -> Result<Vec<(u32, Waiting)>, CaptureError> {
        let waits: BpfHashMap<_, u32, Waiting> = self.map("WAITS")?.try_into()?;
        Ok(waits.iter().filter_map(Result::ok).collect())
    }

    /// The return addresses of one stack, innermost first; empty if it is not there.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn stack(&self, id: StackId) -> Result<Vec<u64>, CaptureError> {
        if let Some(stack) = self.open_stacks.get(id) {
            return Ok(stack.to_vec());
        }
        if let Some(stack) = self.stack_copies.as_ref().and_then(|copies| copies.get(id)) {
            return Ok(stack.to_vec());
        }
        let map: StackTraceMap<&MapData> = self.map("STACKS")?.try_into()?;
        Ok(map.get(&id.0, 0).map(|trace| trace.frames().iter().map(|f| f.ip).collect()).unwrap_or_default())
    }

    /// The sums as they are now.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn sums(&self) -> Result<Vec<KernelSums>, CaptureError> {
        Ok(self.kernel_sums()?.iter().filter_map(|(key, sums)| KernelSums::new(key, *sums)).collect())
    }

    pub(super) fn kernel_sums(&self) -> Result<Vec<(SumKey, Sums)>, CaptureError> {
        let slots: BpfHashMap<_, SumKey, u32> = self.map("SUM_SLOTS")?.try_into()?;
        let sums: Array<_, Sums> = self.map("SUMS")?.try_into()?;
        // A copy that is not unwound yet may be so the next time.
        let numbered = |raw| match StackId::from_raw(raw).map(|id| self.numbered(id)) {
            Some(Numbered::Known(Some(id))) => id.0.cast_signed(),
            Some(Numbered::Known(None) | Numbered::NotYet) => -1,
            None => raw,
        };
        let with_stack = |sums: Sums| Sums { stack: numbered(sums.stack), ..sums };
        slots.iter().filter_map(Result::ok).map(|(key, slot)| Ok((key, with_stack(sums.get(&slot, 0)?)))).collect()
    }

    fn orders(&self) -> Result<Vec<LockOrder>, CaptureError> {
        let map: BpfHashMap<_, OrderKey, OrderSums> = self.map("ORDERS")?.try_into()?;
        Ok(map.iter().filter_map(Result::ok).map(|(key, sums)| lock_order(&key, &sums)).collect())
    }

    fn stacks(&self) -> Result<HashMap<StackId, Vec<u64>>, CaptureError> {
        let map: StackTraceMap<&MapData> = self.map("STACKS")?.try_into()?;
        Ok(map
            .iter()
            .filter_map(Result::ok)
            .map(|(id, trace)| (StackId(id), trace.frames().iter().map(|f| f.ip).collect()))
            .chain(self.open_stacks.all().map(|(id, stack)| (id, stack.to_vec())))
            .chain(self.stack_copies.iter().flat_map(StackCopies::all).map(|(id, stack)| (id, stack.to_vec())))
            .collect())
    }

    pub(super) fn map(&self, name: &'static str) -> Result<&aya::maps::Map, CaptureError> {
        self.ebpf.map(name).ok_or(CaptureError::NoMap(name))
    }

    pub(super) fn map_mut(&mut self, name: &'static str) -> Result<&mut aya::maps::Map, CaptureError> {
        self.ebpf.map_mut(name).ok_or(CaptureError::NoMap(name))
    }

    fn control(&mut self, control: Control) -> Result<(), CaptureError> {
        let map = self.map_mut("CONTROL")?;
        Array::<_, Control>::try_from(map)?.set(0, control, 0)?;
        Ok(())
    }
}

/// The current time on the clock of the records.
#[must_use]
pub fn now() -> Time {
    Time(clock(ClockId::CLOCK_MONOTONIC))
}

/// How often the kernel left out a loaded program, since it was running already.
fn misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

/// The time on a clock, ns.
pub(super) fn clock(id: ClockId) -> u64 {
    // These clocks exist on every Linux; a refusal would be a broken seccomp filter, and time 0 shows.
    clock_gettime(id).map_or(0, |t| Duration::from(t).as_nanos() as u64)
}

fn config(options: &Options) -> Config {
    let mut bits = 0;
    for (bit, on) in [
        (mode::SYSTEM_WIDE, matches!(options.scope, Scope::SystemWide | Scope::Cgroup(_))),
        (mode::CGROUP, matches!(options.scope, Scope::Cgroup(_))),
        (mode::ALL_EVENTS, options.all_events),
        (mode::COMM, options.comm.is_some()),
        (mode::TIDS, !options.tids.is_empty()),
        (mode::COPY_STACKS, options.unwind != Method::Fp),
        (mode::COMPARE_STACKS, options.unwind == Method::Auto),
    ] {
        if on {
            bits |= bit;
        }
    }
    let mut comm = [0; 16];
    if let Some(name) = &options.comm {
        // The kernel keeps 15 bytes of a thread's name.
        let kept = name.len().min(15);
        comm[..kept].copy_from_slice(&name.as_bytes()[..kept]);
    }
    Config {
        min_wait_ns: u64::try_from(options.min_wait.as_nanos()).unwrap_or(u64::MAX),
        stack_wait_ns: u64::try_from(options.stack_wait.as_nanos()).unwrap_or(u64::MAX),
        self_pid: std::process::id(),
        mode: bits,
        task_group_leader: options.task_offsets.group_leader,
        task_start_boottime: options.task_offsets.start_boottime,
        task_state: options.task_offsets.state,
        task_run_delay: options.task_offsets.run_delay.unwrap_or(0),
        comm: comm_words(&comm),
    }
}

/// Places the probes of all that is observed from the start. Without a governor the whole system shares slot 0.
fn place(gates: &mut Gates, scope: &Scope, governed: bool) -> Result<(), CaptureError> {
    match scope {
        Scope::SystemWide if governed => {}
        Scope::Cgroup(_) => {}
        Scope::SystemWide => gates.place(0),
        Scope::Pids(pids) => {
            for &pid in pids {
                match gates.admit(pid, None)? {
                    Some(slot) => gates.place(slot),
                    None => gates.refuse(pid)?,
                }
            }
        }
    }
    Ok(())
}

fn fill_filters(ebpf: &mut Ebpf, options: &Options) -> Result<(), CaptureError> {
    fill(ebpf, "TIDS", &options.tids)?;
    let map = ebpf.map_mut("PROCESSES").ok_or(CaptureError::NoMap("PROCESSES"))?;
    let mut processes: BpfHashMap<_, u32, ProcessEntry> = BpfHashMap::try_from(map)?;
    for seen in &options.known {
        processes.insert(seen.pid, ProcessEntry { start_ns: 0, process: u64::from(seen.process.0) }, 0)?;
    }
    let last = options.known.iter().map(|seen| seen.process.0).max().unwrap_or(0);
    let map = ebpf.map_mut("SERIALS").ok_or(CaptureError::NoMap("SERIALS"))?;
    Array::<_, u64>::try_from(map)?.set(SERIAL_PROCESS, u64::from(last), 0)?;
    Ok(())
}

fn fill(ebpf: &mut Ebpf, name: &'static str, keys: &[u32]) -> Result<(), CaptureError> {
    let map = ebpf.map_mut(name).ok_or(CaptureError::NoMap(name))?;
    let mut map: BpfHashMap<_, u32, u32> = BpfHashMap::try_from(map)?;
    for &key in keys {
        map.insert(key, 1, 0)?;
    }
    Ok(())
}

/// Forwards the kernel side's log to the `log` facade. Diagnostics only: a failure is logged itself.
fn kernel_log(ebpf: &mut Ebpf) -> Option<EbpfLogger<&'static dyn log::Log>> {
    EbpfLogger::init(ebpf).inspect_err(|error| log::warn!("no kernel-side log: {error}")).ok()
}

fn lock_order(key: &OrderKey, sums: &OrderSums) -> LockOrder {
    let process = Process(key.process);
    LockOrder {
        outer: Lock { process, addr: key.outer },
        outer_site: Site { process, addr: sums.outer_site },
        inner: Lock { process, addr: key.inner },
        inner_site: Site { process, addr: sums.inner_site },
        tid: Tid(sums.tid),
        others: sums.others != 0,
        count: sums.count,
    }
}

fn waiter(tid: u32, wait: &Waiting) -> Waiter {
    Waiter {
        tid,
        since_ns: wait.since_ns,
        word: wait.lock + u64::from(wait.word_offset),
        frame: wait.frame,
        process: Process(wait.process),
    }
}

fn open_wait(tid: u32, wait: &Waiting) -> Option<OpenWait> {
    let process = Process(wait.process);
    let via = Via::from_u8(u8::try_from(wait.via).ok()?)?;
    Some(OpenWait {
        tid: Tid(tid),
        lock: Lock { process, addr: wait.lock },
        site: (wait.site != 0).then_some(Site { process, addr: wait.site }),
        since: Time(wait.since_ns),
        owner: crate::decode::known_tid(wait.owner),
        stack: None,
        via,
        expected: (via == Via::Futex).then_some(wait.expected),
        before_start: false,
    })
}
