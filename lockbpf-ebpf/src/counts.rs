//! Events counted in critical sections, waits and releases: what a thread's readings say from one operation on locks to the next.
//! Only if events are asked for; otherwise the verifier leaves all of this out.

use crate::atomic::add;
use crate::maps::{EVENTS, EXITED_COUNTS, SITE_COUNTS, count};
use crate::reading::{Counting, Reading, between, copy, copy_counts, created, on, own, read, restart};
use crate::section_sums::{slot_of_held, tally};
use crate::slots::{NO_SLOT, slot_of};
use crate::thread::{Thread, tid};
use aya_ebpf::bindings::BPF_NOEXIST;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{Counts, MAX_EVENTS, SiteCounts, ThreadCounts};
use lockbpf_common::kind::flag;
use lockbpf_common::sums::{SumKey, is_shared_slot};
use lockbpf_common::via::is_shared;

/// Event 0 is the clock: durations are told by it.
const CLOCK: usize = 0;

/// The thread attempts to lock something, now.
#[inline(always)]
pub fn attempt(t: &Thread) {
    if on(t) {
        attempt_now();
    }
}

#[inline(never)]
fn attempt_now() -> u32 {
    let Some(c) = created() else { return 0 };
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
    let Some(c) = created() else { return 0 };
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
        let waited = if t.held[i].flags & u32::from(flag::CONTENDED) != 0 { c.waited[i] } else { 0 };
        let clock = c.delta.counts[CLOCK];
        c.released_lock = t.held[i].lock;
        let slot = slot_of_held(t, i);
        let shared = is_shared(t.held[i].via) || is_shared_slot(slot);
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
        restart(c);
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
