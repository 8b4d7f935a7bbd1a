//! pthread mutexes (glibc): attempt at the entry of the lock functions, acquire at their return, release at the entry of
//! unlock.

use crate::maps::{CONTROL, count};
use crate::process::start_boottime;
use crate::section::{acquired, attempt, close, contend, failed};
use crate::thread::{Thread, current, now, task};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Outcome, Via, mutex_kind, word_has_waiters};

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

/// Attempt by a call that waits if the lock is held.
#[inline(always)]
fn attempt_blocking(ctx: &ProbeContext, via: Via) {
    let now = now();
    let Some(t) = current() else { return };
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let Some(p) = attempt(t, via, lock, return_address(ctx), now) else { return };
    let Some(mutex) = GlibcMutex::read(lock) else { return };
    p.kind = mutex.kind;
    // Not free, and not merely taken again by its own holder: this thread will wait.
    if mutex.word != 0 && t.find(lock).is_none() {
        contend(ctx, t, mutex.owner(), now);
    }
}

#[uprobe]
pub fn mutex_lock(ctx: ProbeContext) -> u32 {
    attempt_blocking(&ctx, Via::Lock);
    0
}

#[uprobe]
pub fn mutex_timedlock(ctx: ProbeContext) -> u32 {
    attempt_blocking(&ctx, Via::TimedLock);
    0
}

#[uprobe]
pub fn mutex_clocklock(ctx: ProbeContext) -> u32 {
    attempt_blocking(&ctx, Via::ClockLock);
    0
}

#[uprobe]
pub fn mutex_trylock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = current() {
        let lock: u64 = ctx.arg(0).unwrap_or(0);
        if let Some(p) = attempt(t, Via::TryLock, lock, return_address(&ctx), now)
            && let Some(mutex) = GlibcMutex::read(lock)
        {
            p.kind = mutex.kind;
        }
    }
    0
}

/// Return of every lock function: acquired, timed out, busy, or an error.
#[uretprobe]
pub fn mutex_acquired(ctx: RetProbeContext) -> u32 {
    let now = now();
    let Some(t) = current() else { return 0 };
    if t.pending.via == 0 {
        count(Counter::WaitingAtStart);
        return 0;
    }
    match ctx.ret::<i32>() {
        // EOWNERDEAD: acquired, the previous owner of a robust mutex died holding it.
        0 | EOWNERDEAD => {
            let attempt_ns = t.pending.attempt_ns;
            acquired(t, attempt_ns, now);
        }
        ETIMEDOUT => failed(t, Outcome::TimedOut, now),
        EBUSY => failed(t, Outcome::TryFailed, now),
        _ => failed(t, Outcome::Failed, now),
    }
    0
}

#[uprobe]
pub fn mutex_unlock(ctx: ProbeContext) -> u32 {
    let now = now();
    let Some(t) = current() else { return 0 };
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let Some(i) = t.find(lock) else {
        unexpected_release(t);
        return 0;
    };
    let held = &mut t.held[i & (MAX_HELD - 1)];
    if held.recursion > 0 {
        held.recursion -= 1;
        return 0;
    }
    let (kind, waited_for) = match GlibcMutex::read(lock) {
        Some(mutex) => (mutex.kind, mutex.has_waiters()),
        None => (0, false),
    };
    close(&ctx, t, i, now, Outcome::Released, kind, waited_for);
    0
}

/// A lock is released that was not seen to be acquired.
#[inline(always)]
pub fn unexpected_release(t: &mut Thread) {
    if t.overflow > 0 {
        t.overflow -= 1;
        return;
    }
    let began = CONTROL.get(0).map_or(0, |c| c.start_boottime_ns);
    if start_boottime(task().cast::<u8>().cast_const()) < began {
        count(Counter::HeldAtStart);
    } else {
        count(Counter::UnlockNotHeld);
    }
}
