//! Focus: while it is on, only what has to do with the locks and sites in it is recorded; all else is counted only.
//!
//! A lock that is waited for under a focused one comes into the focus itself, before its holder gives it back: the holder
//! then records its section, and the chain of who waited because of whom stays whole.

use crate::lock::may_have;
use crate::maps::{FOCUS, FOCUSED, count};
use crate::thread::Thread;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::focus::{FocusKey, LONG_NS, MAX_RANGES, mode};
use lockbpf_common::kernel;

/// [`mode`] bits in force.
#[inline(always)]
fn mode() -> u32 {
    FOCUS.get(0).map_or(0, |focus| focus.mode)
}

/// Whether what happened with a lock is recorded; counted if not.
#[inline(always)]
pub fn includes(process: u32, lock: u64, site: u64) -> bool {
    let wanted = mode() == 0 || within(process, lock, site) != 0;
    if !wanted {
        count(Counter::Unfocused);
    }
    wanted
}

/// As [`includes`], for a wait whose site is not known here, or the wake that ends it.
#[inline(always)]
pub fn includes_word(process: u32, word: u64) -> bool {
    mode() & mode::SITES != 0 || includes(process, word, 0)
}

/// As [`includes_word`], for a wait that has lasted so long.
#[inline(always)]
pub fn includes_wait(process: u32, word: u64, wait_ns: u64) -> bool {
    wait_ns >= LONG_NS && mode() & mode::LONG != 0 || includes_word(process, word)
}

/// The thread begins to wait for a lock.
#[inline(always)]
pub fn waits(t: &Thread, lock: u64, site: u64) {
    if mode() != 0 && within(t.process, lock, site) == 0 && holds(t) != 0 {
        bring_in(t.process, lock);
    }
}

/// The thread begins to wait for a kernel lock.
#[inline(always)]
pub fn waits_in_kernel(t: &Thread, lock: u64, site: u64) {
    if mode() != 0 && within(kernel::PROCESS, lock, site) == 0 && holds(t) != 0 {
        bring_in(kernel::PROCESS, lock);
    }
}

/// Whether the thread holds a lock whose sections are recorded.
#[inline(always)]
pub fn holds_any(t: &Thread) -> bool {
    mode() == 0 || holds(t) != 0
}

/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
fn holds(t: &Thread) -> u32 {
    let p = &t.pending;
    if may_have(p.via, p.kind) && listed(t.process, p.lock) {
        return 1;
    }
    let mut i = 0;
    while i < MAX_HELD {
        if i >= t.depth as usize {
            return 0;
        }
        if listed(t.process, t.held[i].lock) {
            return 1;
        }
        i += 1;
    }
    0
}

/// Whether a lock is in the focus, or a site, which then brings its lock in. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn within(process: u32, lock: u64, site: u64) -> u32 {
    if listed(process, lock) {
        return 1;
    }
    let Some(focus) = FOCUS.get(0) else { return 0 };
    let mut i = 0;
    while i < MAX_RANGES {
        if i >= focus.used as usize {
            return 0;
        }
        let range = &focus.ranges[i];
        if range.process == process && range.covers(lock, site) {
            bring_in(process, lock);
            return 1;
        }
        i += 1;
    }
    0
}

#[inline(always)]
fn listed(process: u32, lock: u64) -> bool {
    // SAFETY: only the key's presence matters.
    unsafe { FOCUSED.get(FocusKey { lock, process: u64::from(process) }) }.is_some()
}

#[inline(always)]
fn bring_in(process: u32, lock: u64) {
    if FOCUSED.insert(FocusKey { lock, process: u64::from(process) }, 1, 0).is_err() {
        count(Counter::FocusFull);
    }
}
