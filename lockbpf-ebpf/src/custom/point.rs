//! Points (USDT) that tell what happens to a described lock: that a thread begins to wait for it, has got it, has not got it, gives it back.

use super::{CUSTOM_FUNCTIONS, CUSTOM_KINDS, at, introduce, leave_behind, release, wait, word};
use crate::context::{cookie_of, instruction_pointer, stack_pointer};
use crate::counts;
use crate::custom_call::CustomCall;
use crate::gate::pass;
use crate::off_cpu::record_absence;
use crate::registers::{read_register, user_registers_address};
use crate::section::{acquired, attempt, contend, failed, fits, settle};
use crate::thread::{Thread, now};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::custom::{Function, Kind, does, number, operand, sort, via};
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, mutex_kind};
use lockbpf_common::via::is_custom;

/// A point is passed.
#[uprobe]
pub fn custom_point(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    if let Some(t) = pass(cookie) {
        passed(&ctx, t, gate::detail(cookie));
    }
    0
}

#[inline(always)]
fn passed(ctx: &ProbeContext, t: &mut Thread, detail: u32) {
    let Some(f) = CUSTOM_FUNCTIONS.get(u32::from(number(detail))) else { return };
    let Some(kind) = CUSTOM_KINDS.get(f.kind) else { return };
    // As a return address has it: the place is before it.
    let (frame, site) = (stack_pointer(ctx), instruction_pointer(ctx) + 1);
    record_absence(t);
    let lock = at(passed_value(detail), &f.lock);
    if lock == 0 || !fits(lock, site) {
        return;
    }
    if f.does == does::RELEASE {
        settle(t);
        // Whoever is woken from here on is woken for this lock, until the frame is left.
        t.custom = CustomCall { lock, frame, returns_to: word(frame, 8) };
        release(ctx, t, kind, now());
        return;
    }
    // No call: nothing sleeps in it.
    t.custom = CustomCall { lock, frame: 0, returns_to: 0 };
    let pending = is_custom(t.pending.via) && t.pending.lock == lock;
    let set_aside = is_custom(t.slow.via) && t.slow.lock == lock;
    if set_aside {
        settle(t);
        t.resume();
    }
    let waits = pending || set_aside;
    if !waits {
        leave_behind(t, frame);
        settle(t);
        introduce(t.process, lock, f.kind);
        begin(t, f, kind, site, frame);
    }
    match f.does {
        // It was woken, and has not got it.
        does::WAITS if waits => {}
        does::WAITS => {
            contend(t, 0);
            wait(t, lock, t.pending.via);
        }
        does => ended(t, does, waits),
    }
}

/// An attempt begins that a point will end, or ends at once.
#[inline(always)]
fn begin(t: &mut Thread, f: &Function, kind: &Kind, site: u64, frame: u64) {
    let shared = f.shared != 0 && kind.sort == sort::RWLOCK;
    let mutex_kind = if kind.recursive != 0 || shared { mutex_kind::RECURSIVE } else { 0 };
    let lock = t.custom.lock;
    let p = attempt(t, via(kind.sort, shared, false), lock, site, now());
    // No function returns.
    (p.kind, p.returns_to, p.cond) = (mutex_kind, 0, frame);
}

/// The attempt in progress has ended.
#[inline(always)]
fn ended(t: &mut Thread, does: u32, waited: bool) {
    let attempt_ns = t.pending.attempt_ns;
    counts::returned(t);
    if waited {
        counts::waited(t);
    }
    if does == does::ACQUIRED {
        acquired(t, attempt_ns, now());
    } else {
        failed(t, if waited { Outcome::TimedOut } else { Outcome::TryFailed }, now());
    }
}

/// What the point passes as the lock, by what its probe is told of it; 0 if it cannot be read.
#[inline(always)]
fn passed_value(detail: u32) -> u64 {
    let (register, memory) = operand(detail);
    let registers = user_registers_address();
    // SAFETY: these registers come from the kernel; a wrong number reads the kernel's memory behind them as a number, or an error.
    let value = unsafe { read_register(registers as *const _, register as usize * 8) };
    match memory {
        None => value,
        Some(behind) => word(value.wrapping_add(behind as u64), 8),
    }
}
