//! The gates: whether a process's full tier is open, what observing it takes, and what a closing cuts.

use crate::atomic::{add, raise};
use crate::lease;
use crate::lock::has_word;
use crate::maps::{ACCOUNTS, GATES};
use crate::reading;
use crate::section_sums::at;
use crate::slots::take_slot;
use crate::thread::{Thread, current, now, stored, task};
use crate::transitions;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::gate::{self, Account, CLOSINGS, Gate};

/// Bits of an opening's number below the lapses of the lease.
const LAPSES_SHIFT: u32 = 32;
/// What takes longer was not all spent here: the thread was preempted meanwhile, ns.
const MAX_TAKING_NS: u64 = 20_000;

/// Changes the account of a slot on this CPU.
#[inline(always)]
pub fn charge(slot: u32, change: impl FnOnce(&mut Account)) {
    if let Some(account) = ACCOUNTS.get_ptr_mut(slot) {
        // SAFETY: the kernel returned a valid entry of this CPU; what a preempted program may lose of it is noise in a sum
        // that is an estimate anyway.
        change(unsafe { &mut *account });
    }
}

/// Charges a slot with what it took to take a stack since then, ns.
#[inline(always)]
pub fn charge_stack(slot: u32, began: u64) {
    let took = now() - began;
    charge(slot, |account| account.stack_ns += took.min(MAX_TAKING_NS));
}

/// The current thread at a hit of the probe with this cookie, if its process's gate is open and it is observed.
#[inline(always)]
pub fn pass(cookie: u64) -> Option<&'static mut Thread> {
    let slot = gate::slot(cookie);
    charge(slot, |account| {
        account.hits += 1;
        account.stepped += u64::from(gate::is_stepped(cookie));
    });
    let gate = GATES.get(slot)?;
    if gate.epoch == 0 || !gate::is_of_set(cookie, gate.set) {
        return None;
    }
    let t = current()?;
    let epoch = opening(gate, t.lapses);
    if t.epoch != epoch {
        if t.epoch != 0 {
            cut(slot);
        }
        t.epoch = epoch;
        t.slot = slot;
        t.set_musl(gate::is_musl(cookie));
        reading::lost(t);
    }
    t.hits = t.hits.wrapping_add(1);
    Some(t)
}

/// What a thread remembers in place of an opening where no gate matters.
const NO_GATE: u64 = u32::MAX as u64;

/// The current thread at a hit of a probe that may be one that no gate closes, and the number of the opening, which ends with a lapse of the lease at
/// least.
#[inline(always)]
pub fn pass_ungated(cookie: u64) -> Option<(&'static mut Thread, u64)> {
    if !gate::is_ungated(cookie) {
        let t = pass(cookie)?;
        let epoch = t.epoch;
        return Some((t, epoch));
    }
    charge(gate::slot(cookie), |account| {
        account.hits += 1;
        account.ungated += 1;
        account.stepped += u64::from(gate::is_stepped(cookie));
    });
    let t = current()?;
    if t.epoch == 0 {
        // It may have been met before its process had one.
        t.slot = gate::slot(cookie);
    }
    t.hits = t.hits.wrapping_add(1);
    let epoch = NO_GATE | t.lapses << LAPSES_SHIFT;
    Some((t, epoch))
}

/// Forgets what the thread was seen to do before its gate was closed, if it has been since. For whatever does not come
/// through [`pass`].
#[inline(always)]
pub fn refresh(t: &mut Thread) {
    if t.epoch != 0 {
        refresh_known(t);
    }
}

/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
fn refresh_known(t: &mut Thread) {
    if let Some(gate) = GATES.get(t.slot)
        && opening(gate, t.lapses) != t.epoch
    {
        cut(t.slot);
        t.epoch = 0;
    }
}

/// Whether what the thread was seen to do still holds.
#[inline(always)]
pub fn is_open(t: &Thread) -> bool {
    lease::believes(t) && GATES.get(t.slot).is_some_and(|gate| opening(gate, t.lapses) == t.epoch)
}

/// Whether its gate was not closed since then, though the lease may have been over.
#[inline(always)]
pub fn is_of_this_opening(t: &Thread) -> bool {
    t.epoch != 0 && GATES.get(t.slot).is_some_and(|gate| gate.epoch as u32 == t.epoch as u32)
}

/// The number of an opening that a thread remembers: a lapse of the lease ends it as a closing does. 0 while the gate is closed.
#[inline(always)]
fn opening(gate: &Gate, lapses: u64) -> u64 {
    if gate.epoch == 0 { 0 } else { gate.epoch | lapses << LAPSES_SHIFT }
}

/// Since when the thread's gate is open, on `CLOCK_BOOTTIME`, ns.
#[inline(always)]
pub fn opened_boottime(t: &Thread) -> u64 {
    GATES.get(t.slot).map_or(0, |gate| gate.opened_boottime_ns)
}

/// The gate of the current thread was closed, or the lease over, while it held locks: how long its sections lasted will never be known, but
/// that they were there, and for how long at least, is. Returns 0. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cut(slot: u32) -> u32 {
    let (Some(t), Some(gate)) = (stored(task()), GATES.get(slot)) else { return 0 };
    let mut closed_ns = gate.closed_ns[t.epoch as usize & (CLOSINGS - 1)];
    let lapses = t.epoch >> LAPSES_SHIFT;
    if lapses != t.lapses {
        let lapsed_ns = lease::lapsed_after(lapses);
        // The gate may have been closed before.
        if gate.epoch as u32 == t.epoch as u32 || lapsed_ns < closed_ns {
            closed_ns = lapsed_ns;
        }
    }
    let waits_for = if t.futex.role == crate::futex_call::NONE { 0 } else { t.futex.word };
    let depth = t.depth as usize;
    // The lock taken last may be one that it still waits for.
    let waits = depth == 1 && {
        let h = &t.held[0];
        has_word(h.lock, h.via, t.is_musl(), waits_for)
    };
    transitions::cut(t, closed_ns, !waits);
    let mut back = 0;
    while back < MAX_HELD {
        if back >= depth {
            break;
        }
        let h = &t.held[(depth - 1 - back) & (MAX_HELD - 1)];
        // What it still waits for has not been acquired.
        if !has_word(h.lock, h.via, t.is_musl(), waits_for) && h.acquire_ns <= closed_ns {
            let process_and_via = u64::from(t.process) << 32 | u64::from(h.via);
            add_cut(h.lock, h.site, process_and_via, h.acquire_ns, closed_ns);
        }
        back += 1;
    }
    t.forget_locks();
    0
}

/// Sums a section that was cut. Returns 0. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn add_cut(lock: u64, site: u64, process_and_via: u64, acquire_ns: u64, cut_ns: u64) -> u32 {
    if let Some(s) = at(take_slot(lock, site, process_and_via, 0, acquire_ns)) {
        // Others may hold the lock by now, so nothing orders the writers.
        add(&mut s.cut, 1);
        let seen_ns = cut_ns.wrapping_sub(acquire_ns);
        add(&mut s.cut_ns, seen_ns);
        // It was held that long at least.
        raise(&mut s.hold_max_ns, seen_ns);
    }
    0
}
