//! What a thread's events have counted so far. The kernel counts events by CPU, whoever runs there; this is made the thread's own: from
//! each reading is taken off what the CPU had counted when the thread came to it last, and what it had itself when it left the
//! CPU before is added. Only if events are asked for; otherwise the verifier leaves all of this out.
//!
//! A reading in which the thread was interrupted, by a switch to another one, is made once more: kernels that can be preempted do so
//! within a program. One that fails (a CPU has no counters until user space has noticed that it came), or was interrupted each time,
//! begins a new era: sections that began in an earlier one are counted as not counted.

use crate::maps::{EVENT_0, EVENT_1, EVENT_2, EVENT_3, EVENT_4, EVENTS, PerfEvents, THREAD_COUNTING, WITNESS, count};
use crate::thread::{Thread, now, task};
use aya_ebpf::bindings::{BPF_F_CURRENT_CPU, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_perf_event_value, task_struct};
use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_perf_event_read, bpf_perf_event_read_value, bpf_task_storage_get,
};
use core::mem::MaybeUninit;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{Counts, MAX_EVENTS};

/// What a thread's events have counted, as of a moment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Reading {
    /// Readings of different eras cannot be compared. From 1 on.
    pub era: u64,
    pub counts: Counts,
}

/// A thread's events. Zeroed storage is the valid initial state.
#[repr(C)]
pub struct Counting {
    /// What its CPU had counted that is not the thread's.
    base: Counts,
    /// The last reading at an operation on a lock.
    pub now: Reading,
    /// What it had when it left the CPU.
    away: Counts,
    /// At the attempt in progress, or when its last sleep ended, unless the lock counts as held from its attempt on.
    pub attempt: Reading,
    /// When the first of the held locks was acquired.
    pub union_start: u64,
    pub union_era: u64,
    /// Clock's count of the wait that led to each held lock, and to the attempt in progress.
    pub waited: [u64; MAX_HELD],
    pub pending_waited: u64,
    /// When each held lock was acquired.
    pub held: [Reading; MAX_HELD],
    /// What the CPU had counted at the reading in progress, and what was counted since an earlier one. Here, since the stack
    /// has no room for them.
    raw: Counts,
    pub delta: Counts,
    /// `now`, while something else is read.
    pub kept: Reading,
    /// When it was preempted; 0 if it left the CPU otherwise.
    preempted_since_ns: u64,
    /// For how long it was, so far.
    preempted_ns: u64,
    /// Number of the present era.
    era: u64,
    /// How often it came to a CPU.
    switches: u64,
    /// The lock released last, until something else is read.
    pub released_lock: u64,
    /// Slot of its sums plus one; 0 if there is none.
    pub released: u32,
    /// The CPU it is on.
    cpu: u32,
    /// One of the three below.
    state: u32,
    /// Explicit padding.
    reserved: u32,
}

/// Nothing was read yet, or the thread was lost sight of.
const LOST: u32 = 0;
/// On a CPU.
const ON: u32 = 1;
/// Off it; what it had then is known.
const AWAY: u32 = 2;

/// Whether events are counted for this thread.
#[inline(always)]
pub fn on(t: &Thread) -> bool {
    EVENTS.load().number() != 0 && t.epoch != 0
}

/// The events of a task, if it has any yet, or `flags` has them made.
#[inline(always)]
fn of(task: *mut task_struct, flags: u64) -> Option<&'static mut Counting> {
    // SAFETY: THREAD_COUNTING is a task-storage map of `Counting`; the task is the current one or an argument of a tracepoint,
    // hence trusted; the storage lives as long as the task, and is changed by the task itself, and by its CPU while it switches.
    unsafe {
        bpf_task_storage_get(THREAD_COUNTING.as_ptr(), task.cast(), core::ptr::null_mut(), flags)
            .cast::<Counting>()
            .as_mut()
    }
}

#[inline(always)]
pub fn own() -> Option<&'static mut Counting> {
    of(task(), 0)
}

/// Those of the current thread, made if there are none yet; if there is no room for them, that is counted.
#[inline(always)]
pub fn created() -> Option<&'static mut Counting> {
    let made = of(task(), u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE));
    if made.is_none() {
        count(Counter::StateFull);
    }
    made
}

/// Reads the events of this CPU. Returns whether all could be read.
#[inline(always)]
fn read_cpu(raw: &mut Counts) -> bool {
    let events = EVENTS.load();
    let mut value = MaybeUninit::uninit();
    let mut failed = false;
    let mut one = |map: &PerfEvents, n: usize| {
        if n >= events.number() {
            return;
        }
        if events.takes_turns(n) {
            failed |= read_value(map, &mut value) != 0;
            // SAFETY: the kernel has written all of it, zeros if it failed.
            let bpf_perf_event_value { counter, enabled, running } = unsafe { value.assume_init() };
            (raw.on_cpu_ns, raw.counted_ns[n], raw.counts[n]) = (enabled, running, counter);
        } else {
            let count = read_count(map);
            failed |= count > LEAST_ERROR;
            raw.counts[n] = count;
        }
    };
    one(&EVENT_0, 0);
    one(&EVENT_1, 1);
    one(&EVENT_2, 2);
    one(&EVENT_3, 3);
    one(&EVENT_4, 4);
    !failed
}

/// Whether the events of this CPU go on. Those of a CPU that was taken away stand still, even when it comes back, until user space has
/// opened new ones: no failure tells, but of the [witness](WITNESS). A thread that is on a CPU keeps it there, so this is looked at when
/// one has come; and before its events are read, since the witness is the last to be replaced.
#[inline(always)]
fn go_on() -> bool {
    read_count(&WITNESS) <= LEAST_ERROR
}

/// The kernel's errors are the numbers above this one.
const LEAST_ERROR: u64 = 4096u64.wrapping_neg();

/// The count alone: without the times, which take another two looks at the clock.
#[inline(always)]
fn read_count(map: &PerfEvents) -> u64 {
    // SAFETY: a map of perf events.
    unsafe { bpf_perf_event_read(map.as_ptr(), u64::from(BPF_F_CURRENT_CPU)) }
}

#[inline(always)]
fn read_value(map: &PerfEvents, value: &mut MaybeUninit<bpf_perf_event_value>) -> i64 {
    let size = size_of::<bpf_perf_event_value>() as u32;
    // SAFETY: a map of perf events; value has the size that is stated.
    unsafe { bpf_perf_event_read_value(map.as_ptr(), u64::from(BPF_F_CURRENT_CPU), value.as_mut_ptr(), size) }
}

/// `to = a − b`, word by word, modulo 2^64, but for the time of preemption, which is the thread's own in any case.
#[inline(always)]
fn subtract(to: &mut Counts, a: &Counts, b: &Counts) {
    let events = EVENTS.load();
    if events.any_takes_turns() {
        to.on_cpu_ns = a.on_cpu_ns.wrapping_sub(b.on_cpu_ns);
    }
    let mut n = 0;
    while n < MAX_EVENTS {
        if n < events.number() {
            to.counts[n] = a.counts[n].wrapping_sub(b.counts[n]);
            if events.takes_turns(n) {
                to.counted_ns[n] = a.counted_ns[n].wrapping_sub(b.counted_ns[n]);
            }
        }
        n += 1;
    }
}

#[inline(always)]
fn cpu() -> u32 {
    // SAFETY: no arguments.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// Brings `now` up to date. Returns 0. Three tries, of which each but the first has the CPU anew. No loop: 5.15's verifier refuses it for
/// how the compiler lays it out. A function of its own, so that its stack and instructions burden no other.
#[inline(never)]
pub fn read(c: &mut Counting) -> u32 {
    if try_read(c) == INTERRUPTED && try_read(c) == INTERRUPTED && try_read(c) == INTERRUPTED {
        lose(c);
    }
    0
}

/// What became of a try: it was interrupted by a switch, or not.
const INTERRUPTED: u32 = 1;
const OVER: u32 = 0;

#[inline(never)]
fn try_read(c: &mut Counting) -> u32 {
    let switches = look(&c.switches);
    let cpu = cpu();
    let stays = look(&c.state) == ON && look(&c.cpu) == cpu;
    let complete = (stays || go_on()) && read_cpu(&mut c.raw);
    if look(&c.switches) != switches {
        return INTERRUPTED;
    }
    if !complete {
        lose(c);
        return OVER;
    }
    if !stays {
        // It goes on from where it was seen last.
        subtract(&mut c.base, &c.raw, &c.now.counts);
        (c.state, c.cpu) = (ON, cpu);
        c.era += 1;
    }
    subtract(&mut c.now.counts, &c.raw, &c.base);
    c.now.counts.preempted_ns = c.preempted_ns;
    c.now.era = c.era;
    OVER
}

#[inline(always)]
fn lose(c: &mut Counting) {
    c.state = LOST;
    c.now.era = 0;
}

/// A field as it is now: the program on the scheduler's switches may have changed it since it was read last.
#[inline(always)]
fn look<T: Copy>(field: &T) -> T {
    // SAFETY: a field of a valid value.
    unsafe { core::ptr::read_volatile(field) }
}

/// What was counted from an earlier reading to this one, if that can be told: not if a count went back, which no event's does by itself.
#[inline(always)]
pub fn between(delta: &mut Counts, earlier: &Reading, now: &Reading) -> bool {
    if now.era == 0 || now.era != earlier.era {
        return false;
    }
    subtract(delta, &now.counts, &earlier.counts);
    delta.preempted_ns = now.counts.preempted_ns.wrapping_sub(earlier.counts.preempted_ns);
    !goes_back(delta)
}

/// Whether a difference of counts is below zero.
#[inline(always)]
fn goes_back(delta: &Counts) -> bool {
    let mut signs = 0;
    let mut n = 0;
    while n < MAX_EVENTS {
        if n < EVENTS.load().number() {
            signs |= delta.counts[n];
        }
        n += 1;
    }
    signs >> 63 != 0
}

/// The thread leaves its CPU; `runnable` tells whether it could go on.
#[inline(always)]
pub fn leaves(t: &Thread, task: *mut task_struct, runnable: impl FnOnce() -> bool) {
    if on(t)
        && let Some(c) = of(task, 0)
    {
        if c.state != ON {
            // If it was away, the kernel told nobody that it came back: what it did since then cannot be told from what others did.
            c.state = LOST;
            return;
        }
        leave(c);
        c.preempted_since_ns = if runnable() { now() } else { 0 };
        if let Some(sums) = t.counts() {
            sums.execution = c.away;
        }
    }
}

/// A function of its own, so that its stack burdens no other.
#[inline(never)]
fn leave(c: &mut Counting) -> u32 {
    let cpu = cpu();
    if c.cpu != cpu || !read_cpu(&mut c.raw) {
        c.state = LOST;
        return 0;
    }
    subtract(&mut c.away, &c.raw, &c.base);
    c.away.preempted_ns = c.preempted_ns;
    c.state = AWAY;
    0
}

/// The thread comes to a CPU.
#[inline(always)]
pub fn comes(t: &Thread, task: *mut task_struct) {
    if on(t)
        && let Some(c) = of(task, 0)
    {
        come(c);
    }
}

/// A function of its own, for the same reason.
#[inline(never)]
fn come(c: &mut Counting) -> u32 {
    c.switches += 1;
    if c.preempted_since_ns != 0 {
        c.preempted_ns += now().saturating_sub(c.preempted_since_ns);
    }
    if c.state != AWAY {
        c.state = LOST;
        return 0;
    }
    let cpu = cpu();
    if !go_on() || !read_cpu(&mut c.raw) {
        c.state = LOST;
        return 0;
    }
    subtract(&mut c.base, &c.raw, &c.away);
    (c.state, c.cpu) = (ON, cpu);
    0
}

/// The thread was not watched for a while.
#[inline(always)]
pub fn lost(t: &Thread) {
    if on(t)
        && let Some(c) = own()
    {
        c.state = LOST;
    }
}

/// Reads what has nothing to do with locks: for those, the last reading stays what it was.
#[inline(always)]
pub fn stamp(t: &Thread, to: &mut Reading) {
    if on(t) {
        stamp_now(to);
    }
}

#[inline(never)]
fn stamp_now(to: &mut Reading) -> u32 {
    let Some(c) = created() else {
        to.era = 0;
        return 0;
    };
    copy(&mut c.kept, &c.now);
    read(c);
    copy(to, &c.now);
    copy(&mut c.now, &c.kept);
    0
}

/// Begins anew: what was counted so far is somebody else's.
#[inline(always)]
pub fn restart(c: &mut Counting) {
    c.now.counts = Counts::NONE;
    c.preempted_ns = 0;
    c.state = LOST;
}

/// As much of a reading as is used.
#[inline(always)]
pub fn copy(to: &mut Reading, from: &Reading) {
    to.era = from.era;
    copy_counts(&mut to.counts, &from.counts);
}

#[inline(always)]
pub fn copy_counts(to: &mut Counts, from: &Counts) {
    subtract(to, from, &Counts::NONE);
    to.preempted_ns = from.preempted_ns;
}
