//! Process numbers: (pid, start time), and a new one after exec.

use crate::emit::emit_and_wake;
use crate::maps::{CONFIG, PROCESSES, TASK_MM, TASK_PARENT, TASK_TGID, count, next};
use crate::thread::now;
use aya_ebpf::bindings::{BPF_NOEXIST, task_struct};
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use lockbpf_common::config::comm_words;
use lockbpf_common::counter::Counter;
use lockbpf_common::process::{HELPER_NAME, ProcessEntry, SERIAL_PROCESS};
use lockbpf_common::record::{ProcessRecord, Tag};

/// The number of a process, registering it if it is new; `parent`: the number of the one that forks it now, else 0.
#[inline(always)]
pub fn number(task: *mut task_struct, pid: u32, parent: u32, comm: [u8; 16]) -> u32 {
    let start_ns = start_boottime(leader(task));
    // SAFETY: the entry is copied at once; a concurrent eviction can only make it stale, which the start time reveals.
    if let Some(known) = unsafe { PROCESSES.get(pid) }.copied() {
        // 0: registered by user space, which cannot know the exact time.
        if known.start_ns == start_ns || known.start_ns == 0 {
            return known.process as u32;
        }
        let _ = PROCESSES.remove(pid);
    }
    let process = next(SERIAL_PROCESS) + 1;
    let entry = ProcessEntry { start_ns, process };
    if PROCESSES.insert(pid, entry, u64::from(BPF_NOEXIST)).is_err() {
        // Another thread of this process was faster: its number counts.
        // SAFETY: as above.
        if let Some(known) = unsafe { PROCESSES.get(pid) }.copied() {
            return known.process as u32;
        }
        count(Counter::ProcessesFull);
    }
    let record = ProcessRecord {
        time_ns: now(),
        tag: (Tag::Process as u64) << 60 | u64::from(parent),
        start_ns,
        process: process as u32,
        pid,
        comm,
    };
    emit_and_wake(&record, Counter::LifeRecords);
    process as u32
}

/// Whether the current process has a number.
#[inline(always)]
pub fn is_known() -> bool {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: only the key's presence matters.
    unsafe { PROCESSES.get(pid) }.is_some()
}

/// A task's process id; 0 if it cannot be read.
#[inline(always)]
pub fn pid_of(task: *mut task_struct) -> u32 {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: a faulting address is an error from the helper, not a fault; the offset comes from the running kernel's BTF.
    unsafe { bpf_probe_read_kernel(task.add(TASK_TGID.load() as usize).cast::<u32>()) }.unwrap_or(0)
}

/// Whether the current task helps the process that observes: that has started it, and it has the name of one.
#[inline(always)]
pub fn is_helper(task: *mut task_struct) -> bool {
    bpf_get_current_comm().is_ok_and(|comm| comm_words(&comm)[0] == u64::from_ne_bytes(HELPER_NAME))
        && pid_of(parent(task)) == CONFIG.load().self_pid
}

/// The task that started this task's process; null if it cannot be read.
#[inline(always)]
fn parent(task: *mut task_struct) -> *mut task_struct {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: a faulting address is an error from the helper, not a fault; the offset comes from the running kernel's BTF.
    unsafe { bpf_probe_read_kernel(task.add(TASK_PARENT.load() as usize).cast::<*mut task_struct>()) }
        .unwrap_or(core::ptr::null_mut())
}

/// A task's memory, as a number; 0 if it has none, or it cannot be read.
#[inline(always)]
pub fn memory_of(task: *mut task_struct) -> u64 {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel(task.add(TASK_MM.load() as usize).cast::<u64>()) }.unwrap_or(0)
}

/// Forgets a process, so that its next operation registers it anew: its image was replaced.
#[inline(always)]
pub fn forget(pid: u32) {
    let _ = PROCESSES.remove(pid);
}

/// Start of a task, ns since boot; 0 if it cannot be read.
#[inline(always)]
pub fn start_boottime(task: *const u8) -> u64 {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_kernel(task.add(CONFIG.load().task_start_boottime as usize).cast::<u64>()) }.unwrap_or(0)
}

#[inline(always)]
fn leader(task: *mut task_struct) -> *const u8 {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: as above; the offset comes from the running kernel's BTF.
    unsafe { bpf_probe_read_kernel(task.add(CONFIG.load().task_group_leader as usize).cast::<*const u8>()) }
        .unwrap_or(task)
}
