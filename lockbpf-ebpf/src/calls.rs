//! Calls on pthread mutexes and read-write locks (glibc): attempt at the entry of the lock functions, release at the entry of
//! unlock. Only the calls that may fail (trylock and the timed ones) are watched to their return.

use crate::atomic::add;
use crate::context::instruction_pointer;
use crate::counts;
use crate::custom_call;
use crate::gate::opened_boottime;
use crate::held::Held;
use crate::lock::{Seen, see, see_glibc};
use crate::maps::count;
use crate::process::start_boottime;
use crate::section::{End, acquired, attempt, close, contend, contend_held, failed, fits, hold, release_held, settle};
use crate::section_sums::sums;
use crate::signal::jumped_out;
use crate::spin;
use crate::thread::{Thread, Wrapper, now, task};
use crate::unseen;
use aya_ebpf::EbpfContext;
#[cfg(bpf_target_arch = "x86_64")]
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::function::RELEASE;
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, Via, flag, mutex_kind};
use lockbpf_common::sums::SumKey;
use lockbpf_common::via::{is_rwlock, is_semaphore, is_shared, is_spin, is_try};

/// What semaphore calls return when they fail.
const FAILED: i32 = -1;
/// musl's `thrd_busy` and `thrd_timedout`, from C11's calls; as errors of the others, these two numbers do not occur.
const THRD_BUSY: i32 = 1;
const THRD_TIMEDOUT: i32 = 4;
const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
const EOWNERDEAD: i32 = 130;

/// The return address of the probed function: the probe sits where nothing has been pushed yet.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn return_address(ctx: &ProbeContext) -> u64 {
    return_address_above(ctx, 0)
}

/// The same where the function has moved its stack pointer by so many bytes.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn return_address_above(ctx: &ProbeContext, frame: u64) -> u64 {
    // SAFETY: regs is the program's context; a faulting stack address is an error from the helper.
    unsafe { bpf_probe_read_user(((*ctx.regs).rsp + frame) as *const u64) }.unwrap_or(0)
}

/// The same wherever the stack pointer is.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn return_address_above(ctx: &ProbeContext, _frame: u64) -> u64 {
    return_address(ctx)
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
pub fn attempt_lock(ctx: &ProbeContext, t: &mut Thread, via: u32) {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = t.site(lock, return_address(ctx));
    // Functions of musl are watched to their return.
    let Seen { taken, owner, kind, plain, is_full, .. } = see_glibc(lock, via);
    // As late as possible: what this handler takes should not count as holding.
    counts::begins(t);
    let now = now();
    if !fits(lock, site) {
        return;
    }
    let known = if t.depth == 0 { MAX_HELD } else { t.find(lock).unwrap_or(MAX_HELD) };
    // EDEADLK, or EAGAIN: it has it itself, and does not just read what it reads already.
    let holds = known < MAX_HELD;
    let refuses = if !holds {
        false
    } else if is_rwlock(via) {
        !is_shared(t.held[known & (MAX_HELD - 1)].via)
    } else {
        is_full || kind & mutex_kind::TYPE_MASK == mutex_kind::ERRORCHECK
    };
    if refuses && taken {
        let key = SumKey { lock, site, process: t.process, via };
        if let Some(s) = sums(&key, kind, now) {
            add(&mut s.errors, 1);
        }
        return;
    }
    let recursive = kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE;
    if plain && (!holds || recursive || !taken) {
        let held = Held { kind, ..t.begun(lock, site, via, now) };
        if let Some(i) = hold(t, held, known)
            && taken
        {
            contend_held(t, i, owner);
        }
        return;
    }
    // Robust, priority inheriting or protected; or one that this thread holds, for which it will wait for ever.
    attempt(t, via, lock, site, now).kind = kind;
    if taken && (!holds || !recursive) {
        contend(t, owner);
    }
}

/// Attempt by a call that is watched to its return, at `now`: one that may fail, one whose waiting no futex call tells, and all
/// of musl's, which call one another. Returns whether its return must be seen.
#[inline(always)]
pub fn attempt_watched(ctx: &ProbeContext, t: &mut Thread, via: u32, now: u64) -> bool {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let returns_to = return_address(ctx);
    let site = t.site(lock, returns_to);
    if !fits(lock, site) {
        return false;
    }
    // A runtime's slow path is taken only where the lock is.
    let seen = if via >= u32::from(Via::RUNTIMES) { Seen::TAKEN } else { see(lock, via, t.is_musl()) };
    let p = attempt(t, via, lock, site, now);
    p.kind = seen.kind;
    p.returns_to = returns_to;
    if is_spin(via) && !is_try(via) && !seen.taken {
        // It has it at once, or waits too short to matter.
        acquired(t, now, now);
        return false;
    }
    if !is_try(via) && seen.taken && t.find(lock).is_none() {
        contend(t, seen.owner);
        if is_spin(via) {
            spin::waits(t.process, lock);
        }
    }
    true
}

/// Attempt by a call that may fail, but must not be watched to its return, at `now`: the lock tells how it goes. Returns 0. A function
/// of its own, so that its instructions burden no other.
#[inline(never)]
pub fn attempt_unwatched(ctx: &ProbeContext, t: &mut Thread, via: u32, now: u64) -> u32 {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = t.site(lock, return_address(ctx));
    if via >= u32::from(Via::RUNTIMES) || !fits(lock, site) {
        return 0;
    }
    let seen = see(lock, via, t.is_musl());
    let recursive = seen.kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE;
    let free = !seen.taken || recursive && t.find(lock).is_some();
    attempt(t, untimed(via), lock, site, now).kind = seen.kind;
    if via == Via::TryLock as u32 {
        // Another thread may be faster. Who has got it is said by the mutex once the thread does something else.
    } else if is_try(via) && !free {
        failed(t, Outcome::TryFailed, now);
    } else if is_try(via) && is_semaphore(via) {
        unseen::acquired(t, now);
    } else if is_try(via) || is_spin(via) {
        acquired(t, now, now);
    } else if !free {
        contend(t, seen.owner);
    }
    0
}

/// The call of the same kind without a deadline: it is over when the thread does something else.
#[inline(always)]
const fn untimed(via: u32) -> u32 {
    if via == Via::TimedLock as u32 || via == Via::ClockLock as u32 {
        Via::Lock as u32
    } else if via == Via::TimedReadLock as u32 {
        Via::ReadLock as u32
    } else if via == Via::TimedWriteLock as u32 {
        Via::WriteLock as u32
    } else {
        via
    }
}

/// Whether the thread is inside a call of which this one is a part: on the same lock or condition variable, since musl's functions call one
/// another, or on a described lock whose waiters sleep on semaphores.
#[inline(always)]
pub fn is_inside(t: &Thread, ctx: &ProbeContext, function: u64) -> bool {
    if is_semaphore(function as u32) && function < RELEASE && custom_call::is_inside(t) {
        return true;
    }
    let object: u64 = ctx.arg(0).unwrap_or(0);
    t.is_musl() && t.pending.via != 0 && (t.pending.lock == object || t.pending.cond == object)
}

/// A function calls a probed one with the same first argument; on x86 its own frame may be as large as the cookie tells.
#[inline(always)]
pub fn wrapped(
    ctx: &ProbeContext,
    t: &mut Thread,
    #[cfg_attr(bpf_target_arch = "aarch64", expect(unused))] cookie: u64,
) {
    #[cfg(bpf_target_arch = "x86_64")]
    let site = return_address_above(ctx, gate::frame_of(cookie));
    #[cfg(bpf_target_arch = "aarch64")]
    let site = return_address(ctx);
    t.wrapper = Wrapper { argument: ctx.arg(0).unwrap_or(0), site };
}

/// Return of a lock function whose attempt is in progress: acquired, timed out, busy, or an error.
#[inline(always)]
pub fn attempt_returned(t: &mut Thread, result: i32, now: u64) {
    let via = t.pending.via;
    if via == Via::CondReacquire as u32 || via == Via::Barrier as u32 {
        settle(t);
        return;
    }
    counts::returned(t);
    if t.pending.flags & u32::from(flag::CONTENDED) != 0 {
        counts::waited(t);
    }
    let outcome = match result {
        // parking_lot's slow paths return whether they got it.
        _ if via.wrapping_sub(Via::ParkingLock as u32) < 4 && result & 0xff == 0 => Some(Outcome::TimedOut),
        _ if via >= u32::from(Via::RUNTIMES) => None,
        // EOWNERDEAD: acquired, the previous owner of a robust mutex died holding it.
        0 | EOWNERDEAD => None,
        ETIMEDOUT | THRD_TIMEDOUT => Some(Outcome::TimedOut),
        EBUSY | THRD_BUSY => Some(Outcome::TryFailed),
        // Semaphores tell by errno why.
        FAILED if is_try(via) => Some(Outcome::TryFailed),
        FAILED if t.pending.timed_out != 0 => Some(Outcome::TimedOut),
        _ => Some(Outcome::Failed),
    };
    match outcome {
        Some(outcome) => failed(t, outcome, now),
        None if is_semaphore(via) || via >= u32::from(Via::RUNTIMES) => {
            unseen::acquired(t, now);
        }
        None => {
            let attempt_ns = t.pending.attempt_ns;
            acquired(t, attempt_ns, now);
        }
    }
}

/// Whether the thread is at the return address of the call in progress: then this is its return half.
#[inline(always)]
pub fn returns_here<C: EbpfContext>(ctx: &C, t: &mut Thread) -> bool {
    let here = instruction_pointer(ctx);
    if t.slow.via != 0 && here == t.slow.returns_to {
        settle(t);
        t.resume();
    }
    t.pending.via != 0 && here == t.pending.returns_to
}

/// Entry of unlock of a mutex or read-write lock of glibc, at `now`.
#[inline(always)]
pub fn release(ctx: &ProbeContext, t: &mut Thread, now: u64) {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    if let Some(i) = given_back(t, lock, true) {
        release_held(ctx, t, i, now, |h| see_glibc(h.lock, h.via).has_waiters);
    }
}

/// Entry of unlock of a spin lock, or of any lock of musl, at `now`.
#[inline(always)]
pub fn release_other(ctx: &ProbeContext, t: &mut Thread, now: u64, function: u64) {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    // glibc's `pthread_spin_init` is the same code as its unlock.
    let Some(i) = given_back(t, lock, function == RELEASE) else { return };
    let via = t.held[i & (MAX_HELD - 1)].via;
    let waited_for =
        if is_spin(via) { spin::was_waited_for(t.process, lock) } else { see(lock, via, t.is_musl()).has_waiters };
    close(ctx, t, i, End { now, outcome: Outcome::Released, waited_for });
}

/// Where the lock is kept that the thread gives back, unless it goes on holding it. One that it does not hold is counted if it
/// is `expected` to.
#[inline(always)]
pub fn given_back(t: &mut Thread, lock: u64, expected: bool) -> Option<usize> {
    let Some(i) = t.find(lock).or_else(|| jumped_out(t, lock)) else {
        if expected {
            unexpected_release(t);
        }
        return None;
    };
    let held = &mut t.held[i & (MAX_HELD - 1)];
    if held.recursion > 0 {
        held.recursion -= 1;
        return None;
    }
    Some(i)
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
