//! Calls on pthread mutexes and read-write locks (glibc): attempt at the entry of the lock functions, release at the entry of
//! unlock. Only the calls that may fail (trylock and the timed ones) are watched to their return.

use crate::atomic::add;
use crate::gate::opened_boottime;
use crate::lock::{Seen, is_shared, see};
use crate::maps::count;
use crate::off_cpu::record_absence;
use crate::process::start_boottime;
use crate::section::{acquired, attempt, contend, contend_held, failed, fits, hold, release_held, settle, sums};
use crate::thread::{Held, Thread, now, task};
#[cfg(bpf_target_arch = "x86_64")]
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Outcome, Via, mutex_kind};
use lockbpf_common::sums::SumKey;

const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
const EOWNERDEAD: i32 = 130;

/// The return address of the probed function: the probe sits where nothing has been pushed yet.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn return_address(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context; a faulting stack address is an error from the helper.
    unsafe { bpf_probe_read_user((*ctx.regs).rsp as *const u64) }.unwrap_or(0)
}

/// The return address of the probed function: in the link register, which the probe's site has not overwritten.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn return_address(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context.
    unsafe { (*ctx.regs).regs[30] }
}

/// Attempt by a call that cannot fail, which is not watched to its return: the lock counts as held from now on, and if it is
/// contended, from the end of the last sleep for it.
#[inline(always)]
pub fn attempt_lock(ctx: &ProbeContext, t: &mut Thread, via: Via) {
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    let Seen { taken, owner, kind, plain, .. } = see(lock, via as u32);
    // As late as possible: what this handler takes should not count as holding.
    let now = now();
    if !fits(lock, site) {
        return;
    }
    let known = if t.depth == 0 { None } else { t.find(lock) };
    // EDEADLK: it has it itself, and does not just read what it reads already.
    let refuses = match known {
        Some(i) if via.is_rwlock() => !is_shared(t.held[i & (MAX_HELD - 1)].via),
        Some(_) => kind & mutex_kind::TYPE_MASK == mutex_kind::ERRORCHECK,
        None => false,
    };
    if refuses && taken {
        let key = SumKey { lock, site, process: t.process, via: via as u32 };
        if let Some(s) = sums(&key, kind, now) {
            add(&mut s.errors, 1);
        }
        return;
    }
    let recursive = kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE;
    if plain && (known.is_none() || recursive || !taken) {
        let held = Held {
            lock,
            site,
            acquire_ns: now,
            wait_ns: 0,
            owner: 0,
            waker: 0,
            stack: -1,
            via: via as u32,
            flags: 0,
            recursion: 0,
            kind,
            hits: t.hits,
        };
        if let Some(i) = hold(t, held, known)
            && taken
        {
            contend_held(t, i, owner);
        }
        return;
    }
    // Robust, priority inheriting or protected; or one that this thread holds, for which it will wait for ever.
    attempt(t, via, lock, site, now).kind = kind;
    if taken && (known.is_none() || !recursive) {
        contend(t, owner);
    }
}

/// Attempt by a call that may fail, at `now`: trylock, or one with a deadline. Returns whether its return must be seen.
#[inline(always)]
pub fn attempt_fallible(ctx: &ProbeContext, t: &mut Thread, via: Via, now: u64) -> bool {
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    if !fits(lock, site) {
        return false;
    }
    let seen = see(lock, via as u32);
    attempt(t, via, lock, site, now).kind = seen.kind;
    if !via.is_try() && seen.taken && t.find(lock).is_none() {
        contend(t, seen.owner);
    }
    true
}

/// Return of a lock function whose attempt is in progress: acquired, timed out, busy, or an error.
#[inline(always)]
pub fn attempt_returned(t: &mut Thread, result: i32, now: u64) {
    match result {
        // EOWNERDEAD: acquired, the previous owner of a robust mutex died holding it.
        0 | EOWNERDEAD => {
            let attempt_ns = t.pending.attempt_ns;
            acquired(t, attempt_ns, now);
        }
        ETIMEDOUT => failed(t, Outcome::TimedOut, now),
        EBUSY => failed(t, Outcome::TryFailed, now),
        _ => failed(t, Outcome::Failed, now),
    }
}

/// Entry of unlock, at `now`.
#[inline(always)]
pub fn release(ctx: &ProbeContext, t: &mut Thread, now: u64) {
    record_absence(t);
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let Some(i) = t.find(lock) else {
        unexpected_release(t);
        return;
    };
    let held = &mut t.held[i & (MAX_HELD - 1)];
    if held.recursion > 0 {
        held.recursion -= 1;
        return;
    }
    release_held(ctx, t, i, now);
}

/// A lock is released that was not seen to be acquired.
#[inline(always)]
pub fn unexpected_release(t: &mut Thread) {
    if t.overflow > 0 {
        t.overflow -= 1;
        return;
    }
    if start_boottime(task().cast::<u8>().cast_const()) < opened_boottime(t) {
        count(Counter::HeldAtStart);
    } else {
        count(Counter::UnlockNotHeld);
    }
}
