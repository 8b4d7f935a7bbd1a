//! pthread mutexes (glibc): attempt at the entry of the lock functions, release at the entry of unlock. Only the calls
//! that may fail (trylock and the timed ones) are watched to their return.

use crate::atomic::add;
use crate::gate::opened_boottime;
use crate::maps::count;
use crate::off_cpu::record_absence;
use crate::process::start_boottime;
use crate::section::{acquired, attempt, contend, contend_held, failed, fits, hold, release_held, settle, sums};
use crate::thread::{Held, Thread, now, task};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{FUTEX_OWNER_DIED, Outcome, Via, mutex_kind, word_has_waiters};
use lockbpf_common::sums::SumKey;

const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
const EOWNERDEAD: i32 = 130;

/// The head of glibc's `pthread_mutex_t` on 64-bit machines (glibc 2.36 `struct_mutex.h`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GlibcMutex {
    word: u32,
    count: u32,
    owner: u32,
    users: u32,
    pub kind: u32,
}

impl GlibcMutex {
    /// Reads the mutex at an address of the current process.
    #[inline(always)]
    pub fn read(addr: u64) -> Option<Self> {
        // SAFETY: a faulting address is an error from the helper, not a fault.
        let mutex = unsafe { bpf_probe_read_user(addr as *const Self) }.ok();
        if mutex.is_none() {
            count(Counter::ReadFault);
        }
        mutex
    }

    /// Whether somebody (perhaps) waits for it.
    #[inline(always)]
    pub fn has_waiters(&self) -> bool {
        word_has_waiters(self.kind, self.word)
    }

    /// The owner's tid in its own pid namespace.
    #[inline(always)]
    pub fn owner(&self) -> u32 {
        if self.kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0 {
            self.word & 0x3fff_ffff
        } else {
            self.owner
        }
    }

    /// Whether somebody holds it. A robust mutex whose holder died still has that holder's word, but is to be had.
    #[inline(always)]
    fn is_held(&self) -> bool {
        self.word != 0 && !(self.kind & mutex_kind::ROBUST != 0 && self.word & FUTEX_OWNER_DIED != 0)
    }

    /// Whether a blocking lock call cannot be refused.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.kind & mutex_kind::NOT_PLAIN == 0
    }
}

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

/// Attempt by `pthread_mutex_lock`, which is not watched to its return: the lock counts as held from now on, and if it
/// is contended, from the end of the last sleep for it.
#[inline(always)]
pub fn attempt_lock(ctx: &ProbeContext, t: &mut Thread) {
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    let mutex = GlibcMutex::read(lock);
    // As late as possible: what this handler takes should not count as holding.
    let now = now();
    if !fits(lock, site) {
        return;
    }
    let (taken, owner, kind, plain) =
        mutex.map_or((false, 0, 0, true), |m| (m.is_held(), m.owner(), m.kind, m.is_plain()));
    let known = if t.depth == 0 { None } else { t.find(lock) };
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
            via: Via::Lock as u32,
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
    if known.is_some() && kind & mutex_kind::TYPE_MASK == mutex_kind::ERRORCHECK {
        // EDEADLK: nothing is acquired.
        let key = SumKey { lock, site, process: t.process, via: Via::Lock as u32 };
        if let Some(s) = sums(&key, kind, now) {
            add(&mut s.errors, 1);
        }
        return;
    }
    // Robust, priority inheriting or protected; or one that this thread holds, for which it will wait for ever.
    attempt(t, Via::Lock, lock, site, now).kind = kind;
    if taken && (known.is_none() || !recursive) {
        contend(t, owner);
    }
}

/// Attempt with a deadline, at `now`. Returns whether its return must be seen: a free lock is had at once.
#[inline(always)]
pub fn attempt_timed(ctx: &ProbeContext, t: &mut Thread, via: Via, now: u64) -> bool {
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    if !fits(lock, site) {
        return false;
    }
    let p = attempt(t, via, lock, site, now);
    if let Some(mutex) = GlibcMutex::read(lock) {
        p.kind = mutex.kind;
        if mutex.is_held() && t.find(lock).is_none() {
            contend(t, mutex.owner());
        }
    }
    true
}

/// Attempt by trylock, at `now`: only its result tells whether it got the lock.
#[inline(always)]
pub fn attempt_trylock(ctx: &ProbeContext, t: &mut Thread, now: u64) -> bool {
    settle(t);
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    if !fits(lock, site) {
        return false;
    }
    attempt(t, Via::TryLock, lock, site, now).kind = GlibcMutex::read(lock).map_or(0, |m| m.kind);
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
