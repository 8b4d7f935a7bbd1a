//! What is known of [tokio's locks](crate::tokio), and of the tasks that have them. As with [goroutines](crate::goroutine), a task leaves no trace in the
//! kernel; but the thread that polls it sleeps when nothing is left to run.

use crate::emit::emit_for;
use crate::maps::FutexWord;
use crate::registers::parks;
use crate::stack::user_stack;
use crate::thread::{GOT, Got, Thread, now};
use crate::watched::WATCH_NS;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::BtfTracePointContext;
use lockbpf_common::config::MAX_WAITS;
use lockbpf_common::counter::Counter;
use lockbpf_common::off_cpu::{MIN_OFF_NS, OffCpuFields, OffCpuRecord, Reason};
use lockbpf_common::task::is_task;

/// What is known of one of tokio's locks.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TokioLock {
    /// The most permits that were seen at once: free, asked for or given back.
    pub most: u64,
    /// When its only holder acquired it, ns.
    pub acquire_ns: u64,
    /// How long that one waited for it, ns; 0 if it did not.
    pub wait_ns: u64,
    /// Return address of the poll that got it.
    pub site: u64,
    /// The opening of the gate in which that was.
    pub epoch: u64,
    /// When the thread that polled that one slept for the first time since, ns; 0 if it has not.
    pub slept_ns: u64,
    /// When it was given back last while somebody waited, ns.
    pub waker_ns: u64,
    /// The only holder; 0 if there is none, or it is not known.
    pub tid: u32,
    /// `Via` by which that one has it.
    pub via: u32,
    /// The stack of its wait, or a negative number.
    pub stack: i32,
    /// How often it was acquired as one that has one holder at a time.
    pub had: u32,
    /// How often it had another holder then.
    pub had_twice: u32,
    /// Who gave it back then.
    pub waker: u32,
    /// What it is (`lockbpf_common::task::tokio_lock`); 0 if that is not known.
    pub what: u32,
    /// Not 0 if callers pass polls the waker itself, not the context around it: compilers that see all callers change the argument.
    pub told_waker: u32,
    /// Why the holder sleeps ([`Reason`]).
    pub reason: u32,
    /// The stack at that, or a negative number.
    pub slept_stack: i32,
    /// Since when readers have had it, each together with others, ns; 0 if none has.
    pub readers_ns: u64,
    /// Return address of the polls by which they got it; 0 if these differ.
    pub reader_site: u64,
}

/// Nothing.
const UNKNOWN: TokioLock = TokioLock {
    most: 0,
    acquire_ns: 0,
    wait_ns: 0,
    site: 0,
    epoch: 0,
    slept_ns: 0,
    waker_ns: 0,
    tid: 0,
    via: 0,
    stack: -1,
    had: 0,
    had_twice: 0,
    waker: 0,
    what: 0,
    told_waker: 0,
    reason: 0,
    slept_stack: -1,
    readers_ns: 0,
    reader_site: 0,
};

/// The locks, those of freed memory included. LRU: of a lost one the section in progress is not told.
#[btf_map]
static TOKIO_LOCKS: LruHashMap<FutexWord, TokioLock, { MAX_WAITS as usize }> = LruHashMap::new();

/// What is known of a lock, from now on.
#[inline(always)]
pub fn known(process: u32, lock: u64) -> Option<&'static mut TokioLock> {
    if let Some(known) = of(process, lock) {
        return Some(known);
    }
    TOKIO_LOCKS.insert(FutexWord { addr: lock, process: u64::from(process) }, UNKNOWN, 0).ok()?;
    of(process, lock)
}

/// The same, if anything is.
#[inline(always)]
pub fn of(process: u32, lock: u64) -> Option<&'static mut TokioLock> {
    let known = TOKIO_LOCKS.get_ptr_mut(FutexWord { addr: lock, process: u64::from(process) })?;
    // SAFETY: the kernel returned a valid entry of integers. Who has the lock is written by who gets it and who gives it back, one after the
    // other; of two counts of permits either may stay.
    Some(unsafe { &mut *known })
}

/// A task gets a lock in the current thread.
#[inline(always)]
pub fn gets(t: &mut Thread, lock: u64, now: u64) {
    let mut oldest = 0;
    let mut i = 1;
    while i < GOT {
        if t.got[i].since_ns < t.got[oldest].since_ns {
            oldest = i;
        }
        i += 1;
    }
    t.got[oldest & (GOT - 1)] = Got { lock, since_ns: now };
}

/// A task gives a lock back in the current thread.
#[inline(always)]
pub fn gives_back(t: &mut Thread, lock: u64) {
    let mut i = 0;
    while i < GOT {
        if t.got[i].lock == lock {
            t.got[i].since_ns = 0;
        }
        i += 1;
    }
}

/// A thread that polls tasks leaves the CPU of its own accord, in this state (0: it could run on). If it sleeps, no task runs that got a lock in
/// it: all are suspended if the thread waits for events. Else all but the one are that asked last, whose own function makes the thread sleep.
#[inline(always)]
pub fn leaves(ctx: &BtfTracePointContext, t: &mut Thread, state: u32, blocked: bool) {
    if state == 0 {
        return;
    }
    t.sleeps = 1;
    if t.got.iter().all(|got| got.since_ns == 0) {
        return;
    }
    let (now, suspends) = (now(), parks());
    let (mut wanted, mut own) = (false, [false; GOT]);
    let mut i = 0;
    while i < GOT {
        let Got { lock, since_ns } = t.got[i];
        t.got[i].since_ns = 0;
        if since_ns != 0
            && let Some(held) = of(t.process, lock)
            && held.acquire_ns == since_ns
            && held.tid != 0
        {
            own[i] = !suspends && u64::from(held.tid) == t.task;
            // A thread stands for who tried: that may be any task.
            if suspends || own[i] || t.task != 0 && is_task(held.tid) {
                (held.slept_ns, held.slept_stack) = (now, -1);
                held.reason = if own[i] && blocked { Reason::Blocked } else { Reason::Sleeping } as u32;
                wanted |= own[i] && now.saturating_sub(held.waker_ns) < WATCH_NS;
            }
        }
        i += 1;
    }
    if !wanted {
        return;
    }
    let stack = user_stack(ctx, t);
    i = 0;
    while i < GOT {
        if own[i]
            && let Some(held) = of(t.process, t.got[i].lock)
        {
            held.slept_stack = stack;
        }
        i += 1;
    }
}

/// Records that the holder of a lock did not run: from when the thread slept in which it had been polled until the current one, in which it
/// goes on, ran again.
#[inline(always)]
pub fn record_sleep(t: &Thread, held: &TokioLock) {
    let off_ns = t.woken_ns.saturating_sub(held.slept_ns);
    if held.slept_ns == 0 || off_ns < MIN_OFF_NS {
        return;
    }
    let record = OffCpuRecord::pack(&OffCpuFields {
        end_ns: t.woken_ns,
        off_ns,
        runnable_ns: 0,
        process: t.process,
        tid: held.tid,
        stack: held.slept_stack,
        reason: held.reason as u8,
    });
    emit_for(t.slot, &record, Counter::OffCpuRecords);
}
