//! Events counted in critical sections. The kernel counts events by CPU, whoever runs there; this is made the thread's own: from
//! each reading is taken off what the CPU had counted when the thread came to it last, and what it had itself when it left the
//! CPU before is added. Only if events are asked for; otherwise the verifier leaves all of this out.
//!
//! A reading that fails (a CPU that came later has no counters), or that the thread was interrupted in by a switch to another
//! one, begins a new era: sections that began in an earlier one are counted as not counted.

use crate::atomic::add;
use crate::maps::{
    EVENT_0, EVENT_1, EVENT_2, EVENT_3, EVENT_4, EVENTS, EXITED_COUNTS, PerfEvents, SITE_COUNTS, THREAD_COUNTING, count,
};
use crate::section::{NO_SLOT, slot_of, slot_of_held, tally};
use crate::thread::{Thread, now, task, tid};
use aya_ebpf::bindings::{
    BPF_F_CURRENT_CPU, BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST, bpf_perf_event_value, task_struct,
};
use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_perf_event_read, bpf_perf_event_read_value, bpf_task_storage_get,
};
use core::mem::MaybeUninit;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{Counts, MAX_EVENTS, SiteCounts, ThreadCounts};
use lockbpf_common::kind::flag;
use lockbpf_common::sums::SumKey;
use lockbpf_common::via::is_shared;

/// Event 0 is the clock: durations are told by it.
const CLOCK: usize = 0;

/// What a thread's events have counted, as of a moment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Reading {
    /// Readings of different eras cannot be compared. From 1 on.
    era: u64,
    counts: Counts,
}

/// A thread's events. Zeroed storage is the valid initial state.
#[repr(C)]
pub struct Counting {
    /// What its CPU had counted that is not the thread's.
    base: Counts,
    /// The last reading at an operation on a lock.
    now: Reading,
    /// What it had when it left the CPU.
    away: Counts,
    /// At the attempt in progress, or when its last sleep ended, unless the lock counts as held from its attempt on.
    attempt: Reading,
    /// When the first of the held locks was acquired.
    union_start: u64,
    union_era: u64,
    /// Clock's count of the wait that led to each held lock, and to the attempt in progress.
    waited: [u64; MAX_HELD],
    pending_waited: u64,
    /// When each held lock was acquired.
    held: [Reading; MAX_HELD],
    /// What the CPU had counted at the reading in progress, and what was counted since an earlier one. Here, since the stack
    /// has no room for them.
    raw: Counts,
    delta: Counts,
    /// `now`, while something else is read.
    kept: Reading,
    /// When it was preempted; 0 if it left the CPU otherwise.
    preempted_since_ns: u64,
    /// For how long it was, so far.
    preempted_ns: u64,
    /// Number of the present era.
    era: u64,
    /// How often it came to a CPU.
    switches: u64,
    /// The lock released last, until something else is read.
    released_lock: u64,
    /// Slot of its sums plus one; 0 if there is none.
    released: u32,
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
fn on(t: &Thread) -> bool {
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
fn own() -> Option<&'static mut Counting> {
    of(task(), 0)
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

/// Brings `now` up to date. Returns 0. A function of its own, so that its stack and instructions burden no other.
#[inline(never)]
fn read(c: &mut Counting) -> u32 {
    // SAFETY: a field of a valid value; the program on the scheduler's switches may change it in between.
    let switches = unsafe { core::ptr::read_volatile(&raw const c.switches) };
    let cpu = cpu();
    let complete = read_cpu(&mut c.raw);
    // SAFETY: as above.
    if !complete || unsafe { core::ptr::read_volatile(&raw const c.switches) } != switches {
        c.state = LOST;
        c.now.era = 0;
        return 0;
    }
    if c.state != ON || c.cpu != cpu {
        // It goes on from where it was seen last.
        subtract(&mut c.base, &c.raw, &c.now.counts);
        (c.state, c.cpu) = (ON, cpu);
        c.era += 1;
    }
    subtract(&mut c.now.counts, &c.raw, &c.base);
    c.now.counts.preempted_ns = c.preempted_ns;
    c.now.era = c.era;
    0
}

/// What was counted from an earlier reading to this one, if that can be told.
#[inline(always)]
fn between(delta: &mut Counts, earlier: &Reading, now: &Reading) -> bool {
    if now.era == 0 || now.era != earlier.era {
        return false;
    }
    subtract(delta, &now.counts, &earlier.counts);
    delta.preempted_ns = now.counts.preempted_ns.wrapping_sub(earlier.counts.preempted_ns);
    true
}

/// The thread leaves its CPU; `runnable` tells whether it could go on.
#[inline(always)]
pub fn leaves(t: &Thread, task: *mut task_struct, runnable: impl FnOnce() -> bool) {
    if on(t)
        && let Some(c) = of(task, 0)
        && c.state == ON
    {
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
    if !read_cpu(&mut c.raw) || c.cpu != cpu {
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
    if !read_cpu(&mut c.raw) {
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

/// The thread attempts to lock something, now.
#[inline(always)]
pub fn attempt(t: &Thread) {
    if on(t) {
        attempt_now();
    }
}

#[inline(never)]
fn attempt_now() -> u32 {
    let Some(c) = of(task(), u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else {
        count(Counter::StateFull);
        return 0;
    };
    read(c);
    copy(&mut c.attempt, &c.now);
    c.pending_waited = 0;
    c.released = 0;
    0
}

/// The thread attempts to lock something, now, that it then holds as the last one of the locks held.
#[inline(always)]
pub fn begins(t: &Thread) {
    if on(t) {
        begin(t);
    }
}

#[inline(never)]
fn begin(t: &Thread) -> u32 {
    let Some(c) = of(task(), u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else {
        count(Counter::StateFull);
        return 0;
    };
    read(c);
    c.pending_waited = 0;
    c.released = 0;
    if t.depth < MAX_HELD as u32 {
        hold(c, t.depth);
    }
    0
}

/// The last one of the locks held is held since the last reading; `others` were before.
#[inline(always)]
fn hold(c: &mut Counting, others: u32) {
    let i = others as usize & (MAX_HELD - 1);
    copy(&mut c.held[i], &c.now);
    c.waited[i] = c.pending_waited;
    c.pending_waited = 0;
    if others == 0 {
        c.union_start = c.now.counts.counts[CLOCK];
        c.union_era = c.now.era;
    }
}

/// As much of a reading as is used.
#[inline(always)]
fn copy(to: &mut Reading, from: &Reading) {
    to.era = from.era;
    copy_counts(&mut to.counts, &from.counts);
}

#[inline(always)]
fn copy_counts(to: &mut Counts, from: &Counts) {
    subtract(to, from, &Counts::NONE);
    to.preempted_ns = from.preempted_ns;
}

/// A sleep has ended, or a lock call, now.
#[inline(always)]
pub fn returned(t: &Thread) {
    if on(t)
        && let Some(c) = own()
    {
        c.released = 0;
        read(c);
    }
}

/// The attempt in progress has waited until the last reading.
#[inline(always)]
pub fn waited(t: &mut Thread) {
    if on(t) {
        waited_pending(t);
    }
}

#[inline(never)]
fn waited_pending(t: &mut Thread) -> u32 {
    let Some(c) = own() else { return 0 };
    let p = &t.pending;
    let key = SumKey { lock: p.lock, site: p.site, process: t.process, via: p.via };
    let slot = slot_of(&key, p.kind, p.attempt_ns);
    let wait = Wait { first: c.pending_waited == 0, outside: t.depth == 0 };
    let known = between(&mut c.delta, &c.attempt, &c.now);
    copy(&mut c.attempt, &c.now);
    if known {
        c.pending_waited += add_wait(t, c, slot, wait);
    }
    0
}

/// The attempt at held lock `i`, which counts as acquired, has waited until the last reading.
#[inline(always)]
pub fn waited_held(t: &mut Thread, i: usize) {
    if on(t) {
        waited_at(t, i as u32);
    }
}

#[inline(never)]
fn waited_at(t: &mut Thread, i: u32) -> u32 {
    let Some(c) = own() else { return 0 };
    let i = i as usize & (MAX_HELD - 1);
    let slot = slot_of_held(t, i);
    // It was counted as held since its attempt, and is only now.
    let alone = t.depth == 1;
    let known = between(&mut c.delta, &c.held[i], &c.now);
    copy(&mut c.held[i], &c.now);
    if known {
        c.waited[i] += add_wait(t, c, slot, Wait { first: c.waited[i] == 0, outside: alone });
    }
    if alone {
        c.union_start = c.now.counts.counts[CLOCK];
        c.union_era = c.now.era;
    }
    0
}

/// A piece of a wait.
struct Wait {
    /// The first one of its wait.
    first: bool,
    /// The thread holds no other lock.
    outside: bool,
}

/// Adds a piece of a wait, in which was counted what is in `delta`. Returns the clock's count.
#[inline(always)]
fn add_wait(t: &Thread, c: &Counting, slot: u32, wait: Wait) -> u64 {
    let clock = c.delta.counts[CLOCK];
    if let Some(sums) = t.counts() {
        sums.wait += clock;
        if wait.outside {
            sums.outside += clock;
        }
    }
    if let Some(s) = at(slot) {
        // Whoever waits for the lock does not hold it.
        add(&mut s.waits, u64::from(wait.first));
        add_counts(&mut s.wait, &c.delta, true);
    }
    clock
}

/// The thread holds the last one of the locks held since the last reading.
#[inline(always)]
pub fn holds(t: &Thread) {
    if EVENTS.load().number() != 0 {
        holds_last(t);
    }
}

#[inline(never)]
fn holds_last(t: &Thread) -> u32 {
    if let Some(c) = own() {
        hold(c, t.depth.wrapping_sub(1));
    }
    0
}

/// The section of held lock `i` ends, now; it is still among the locks held.
#[inline(always)]
pub fn ends(t: &mut Thread, i: usize) {
    if EVENTS.load().number() != 0 {
        end(t, i as u32);
    }
}

#[inline(never)]
fn end(t: &mut Thread, i: u32) -> u32 {
    let Some(c) = own() else { return 0 };
    read(c);
    let i = i as usize & (MAX_HELD - 1);
    c.released = 0;
    let clock = if between(&mut c.delta, &c.held[i], &c.now) {
        let shared = is_shared(t.held[i].via);
        let waited = if t.held[i].flags & u32::from(flag::CONTENDED) != 0 { c.waited[i] } else { 0 };
        let clock = c.delta.counts[CLOCK];
        c.released_lock = t.held[i].lock;
        let slot = slot_of_held(t, i);
        if let Some(s) = at(slot) {
            c.released = slot.wrapping_add(1);
            plus(&mut s.sections, 1, shared);
            add_counts(&mut s.hold, &c.delta, shared);
            tally(&mut s.hold_hist, clock);
            if waited != 0 {
                tally(&mut s.wait_hist, waited);
            }
        }
        clock
    } else {
        count(Counter::CountsUnread);
        0
    };
    let left = t.depth.wrapping_sub(1);
    if let Some(sums) = t.counts() {
        (sums.tid, sums.process, sums.threads) = (tid(), t.process, 1);
        copy_counts(&mut sums.execution, &c.now.counts);
        sums.held_sum += clock;
        if left == 0 && c.now.era == c.union_era && c.union_era != 0 {
            sums.held_union += c.now.counts.counts[CLOCK].wrapping_sub(c.union_start);
        }
    }
    take_gap(c, i, left);
    0
}

/// As in the thread's state: the lock taken last takes the place of lock `i`.
#[inline(always)]
fn take_gap(c: &mut Counting, i: usize, last: u32) {
    let last = last as usize & (MAX_HELD - 1);
    if last != i {
        c.held[i] = c.held[last];
        c.waited[i] = c.waited[last];
    }
}

/// Held lock `i` turns out to be none; it is still among the locks held.
#[inline(always)]
pub fn forgets(t: &Thread, i: usize) {
    if on(t)
        && let Some(c) = own()
    {
        take_gap(c, i & (MAX_HELD - 1), t.depth.wrapping_sub(1));
    }
}

/// The call ends, now, by which the thread woke whoever waited for a lock: if it has just released that, it belongs to the
/// release.
#[inline(always)]
pub fn woke(t: &Thread, lock: u64) {
    if on(t) {
        woke_now(t, lock);
    }
}

#[inline(never)]
fn woke_now(t: &Thread, lock: u64) -> u32 {
    let Some(c) = own() else { return 0 };
    if c.released == 0 || c.released_lock != lock {
        return 0;
    }
    let slot = c.released.wrapping_sub(1);
    c.released = 0;
    // Nothing was read since, and no attempt is in progress.
    copy(&mut c.attempt, &c.now);
    read(c);
    if !between(&mut c.delta, &c.attempt, &c.now) {
        return 0;
    }
    let clock = c.delta.counts[CLOCK];
    if let Some(s) = at(slot) {
        add(&mut s.releases, 1);
        add_counts(&mut s.release, &c.delta, true);
        tally(&mut s.release_hist, clock);
    }
    if let Some(sums) = t.counts() {
        sums.release += clock;
        if t.depth == 0 {
            sums.outside += clock;
        }
    }
    0
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
    let Some(c) = of(task(), u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else {
        count(Counter::StateFull);
        to.era = 0;
        return 0;
    };
    copy(&mut c.kept, &c.now);
    read(c);
    copy(to, &c.now);
    copy(&mut c.now, &c.kept);
    0
}

/// Adds to a thread's own sums what was counted between two readings; not if that cannot be told.
#[inline(always)]
pub fn add_between(t: &Thread, to: &mut Counts, from: &Reading, now: &Reading) -> bool {
    let Some(c) = own() else { return false };
    if !between(&mut c.delta, from, now) {
        return false;
    }
    add_counts(to, &c.delta, false);
    if let Some(sums) = t.counts() {
        (sums.tid, sums.process, sums.threads) = (tid(), t.process, 1);
        copy_counts(&mut sums.execution, &now.counts);
    }
    true
}

/// The thread exits, or its program is replaced: its counts go to its process's.
#[inline(always)]
pub fn exits(t: &Thread) {
    if EVENTS.load().number() != 0 {
        fold(t);
    }
}

#[inline(never)]
fn fold(t: &Thread) -> u32 {
    let Some(sums) = t.counts() else { return 0 };
    if sums.threads == 0 {
        return 0;
    }
    if let Some(c) = own() {
        read(c);
        if c.now.era != 0 {
            sums.execution = c.now.counts;
        }
        // It goes on from here after an exec.
        c.now.counts = Counts::NONE;
        c.preempted_ns = 0;
        c.state = LOST;
    }
    sums.tid = 0;
    let process = t.process;
    if EXITED_COUNTS.insert(process, &*sums, u64::from(BPF_NOEXIST)).is_err() {
        match EXITED_COUNTS.get_ptr_mut(process) {
            Some(all) => {
                // SAFETY: entries are never removed while the programs run; all access to them is atomic.
                let all = unsafe { &mut *all };
                add(&mut all.threads, 1);
                add_counts(&mut all.execution, &sums.execution, true);
                add(&mut all.wait, sums.wait);
                add(&mut all.release, sums.release);
                add(&mut all.outside, sums.outside);
                add(&mut all.held_union, sums.held_union);
                add(&mut all.held_sum, sums.held_sum);
            }
            None => count(Counter::ProcessesFull),
        }
    }
    *sums = ThreadCounts::default();
    0
}

#[inline(always)]
fn at(slot: u32) -> Option<&'static mut SiteCounts> {
    if slot == NO_SLOT {
        return None;
    }
    // SAFETY: the kernel returned a valid entry. Writers of plain fields are ordered by the observed lock; the others use
    // `add`.
    SITE_COUNTS.get_ptr_mut(slot).map(|p| unsafe { &mut *p })
}

/// Adds counts to sums; with `shared`, others may do so at the same time.
#[inline(always)]
fn add_counts(to: &mut Counts, counts: &Counts, shared: bool) {
    let events = EVENTS.load();
    if events.any_takes_turns() {
        plus(&mut to.on_cpu_ns, counts.on_cpu_ns, shared);
    }
    plus(&mut to.preempted_ns, counts.preempted_ns, shared);
    let mut n = 0;
    while n < MAX_EVENTS {
        if n < events.number() {
            plus(&mut to.counts[n], counts.counts[n], shared);
            if events.takes_turns(n) {
                plus(&mut to.counted_ns[n], counts.counted_ns[n], shared);
            }
        }
        n += 1;
    }
}

#[inline(always)]
fn plus(word: &mut u64, n: u64, shared: bool) {
    if shared { add(word, n) } else { *word += n }
}
