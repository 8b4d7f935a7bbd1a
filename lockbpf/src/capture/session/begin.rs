//! What an observation begins with: its programs are loaded, told whom to leave out, and placed.

use super::options::{Options, Scope};
use crate::capture::CaptureError;
use crate::capture::attach::{self, ProbeSite, joined};
use crate::capture::gates::Gates;
use crate::capture::placer::Placer;
use crate::capture::probe_table::SCHED_SWITCH;
use crate::capture::raw_program::Programs;
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap};
use aya_log::EbpfLogger;
use lockbpf_common::process::{ProcessEntry, SERIAL_PROCESS};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Programs that are loaded and have no place yet.
pub(super) struct Loaded {
    /// With those for uprobes; `None` without any.
    pub(super) placer: Option<Placer>,
    /// That for switches of threads.
    pub(super) sched: Result<OwnedFd, CaptureError>,
    /// That for sections that go on at the end; `None` without uprobes.
    pub(super) lasting: Option<Result<OwnedFd, CaptureError>>,
}

/// Loads all programs side by side, since each keeps a CPU busy with being verified: aya's of these `names`, those on functions at `sites` unless
/// only futex calls are watched, and the one on switches, without which an observation goes on.
pub(super) fn load(
    ebpf: &mut Ebpf,
    programs: &Arc<Programs>,
    options: &Options,
    names: &[&'static str],
    sites: &[ProbeSite],
) -> Result<Loaded, CaptureError> {
    let &Options { types, futex_only, plain_uprobes, .. } = options;
    std::thread::scope(|scope| {
        let sched = scope.spawn(|| attach::load_typed(programs, types, SCHED_SWITCH));
        let lasting = (!futex_only).then(|| scope.spawn(|| attach::load_iterator(programs, types, "lasting", "task")));
        let placer = (!futex_only).then(|| scope.spawn(|| Placer::start(programs, types, plain_uprobes, sites)));
        attach::load(ebpf, names)?;
        let placer = placer.map(joined).transpose()?;
        Ok(Loaded { placer, sched: joined(sched), lasting: lasting.map(joined) })
    })
}

/// Places the probes of all that is observed from the start. Processes that are probed at once share slot 0.
pub(super) fn place(gates: &mut Gates, scope: &Scope) -> Result<(), CaptureError> {
    match scope {
        Scope::SystemWide { at_once: false } | Scope::Cgroup(_) => {}
        Scope::SystemWide { at_once: true } => gates.place(0),
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

pub(super) fn fill_filters(ebpf: &mut Ebpf, options: &Options) -> Result<(), CaptureError> {
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

pub(super) fn fill(ebpf: &mut Ebpf, name: &'static str, keys: &[u32]) -> Result<(), CaptureError> {
    let map = ebpf.map_mut(name).ok_or(CaptureError::NoMap(name))?;
    let mut map: BpfHashMap<_, u32, u32> = BpfHashMap::try_from(map)?;
    for &key in keys {
        map.insert(key, 1, 0)?;
    }
    Ok(())
}

/// Forwards the kernel side's log to the `log` facade. Diagnostics only: a failure is logged itself.
pub(super) fn kernel_log(ebpf: &mut Ebpf) -> Option<EbpfLogger<&'static dyn log::Log>> {
    EbpfLogger::init(ebpf).inspect_err(|error| log::warn!("no kernel-side log: {error}")).ok()
}
