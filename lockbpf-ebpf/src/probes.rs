//! The uprobe programs. Two forms of the same: one program for all entries and a session program for the functions that must
//! be watched to their return, which tell functions apart by their cookies (kernel 6.13); and plain programs per function for
//! older kernels.

use crate::barrier;
use crate::calls::{attempt_fallible, attempt_lock, attempt_returned, release};
use crate::cond;
use crate::gate::pass;
use crate::thread::now;
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::gate;
use lockbpf_common::kind::{Via, cookie};

/// What a session's entry handler returns so that the return half is skipped.
const DECLINE: u32 = 1;

/// Entry of the functions that are not watched to their return. Not by a session: in a process that another link is for, a
/// session's program does not run, and the kernel takes that for a wish to see the return.
#[uprobe]
pub fn entries(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    let function = gate::function(cookie);
    let attempt = match function {
        cookie::LOCK => Some(Via::Lock),
        cookie::RDLOCK => Some(Via::ReadLock),
        cookie::WRLOCK => Some(Via::WriteLock),
        _ => None,
    };
    // An attempt to lock reads the clock itself, as late as possible; all others begin now.
    let now = if attempt.is_some() { 0 } else { now() };
    let Some(t) = pass(cookie) else { return 0 };
    match (attempt, function) {
        (Some(via), _) => attempt_lock(&ctx, t, via),
        (_, cookie::UNLOCK) => release(&ctx, t, now),
        (_, cookie::BARRIER_WAIT) => barrier::arrive(&ctx, t, now),
        _ => cond::wait(&ctx, t, now),
    }
    0
}

/// Both halves of the functions that may fail. Declared by hand: aya's `uprobe` attribute would return 0 whatever this returns.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn session(ctx: *mut c_void) -> u32 {
    let now = now();
    let ctx = ProbeContext::new(ctx);
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return DECLINE };
    if t.pending.via != 0 && instruction_pointer(&ctx) == t.pending.site {
        // At the return address of the call in progress: this is its return half.
        attempt_returned(t, RetProbeContext::new(ctx.as_ptr()).ret(), now);
        return 0;
    }
    let via = match gate::function(cookie) {
        cookie::TRYLOCK => Via::TryLock,
        cookie::TIMEDLOCK => Via::TimedLock,
        cookie::TRYRDLOCK => Via::TryReadLock,
        cookie::TRYWRLOCK => Via::TryWriteLock,
        cookie::TIMEDRDLOCK => Via::TimedReadLock,
        cookie::TIMEDWRLOCK => Via::TimedWriteLock,
        _ => Via::ClockLock,
    };
    let wanted = attempt_fallible(&ctx, t, via, now);
    u32::from(!wanted)
}

#[inline(always)]
fn cookie_of<C: EbpfContext>(ctx: &C) -> u64 {
    // SAFETY: ctx is the program's own context.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
}

#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn instruction_pointer(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context.
    unsafe { (*ctx.regs).rip }
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn instruction_pointer(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context.
    unsafe { (*ctx.regs).pc }
}

#[uprobe]
pub fn mutex_lock(ctx: ProbeContext) -> u32 {
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_lock(&ctx, t, Via::Lock);
    }
    0
}

#[uprobe]
pub fn rwlock_rdlock(ctx: ProbeContext) -> u32 {
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_lock(&ctx, t, Via::ReadLock);
    }
    0
}

#[uprobe]
pub fn rwlock_wrlock(ctx: ProbeContext) -> u32 {
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_lock(&ctx, t, Via::WriteLock);
    }
    0
}

#[uprobe]
pub fn mutex_timedlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TimedLock, now);
    }
    0
}

#[uprobe]
pub fn mutex_clocklock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::ClockLock, now);
    }
    0
}

#[uprobe]
pub fn mutex_trylock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TryLock, now);
    }
    0
}

#[uprobe]
pub fn rwlock_tryrdlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TryReadLock, now);
    }
    0
}

#[uprobe]
pub fn rwlock_trywrlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TryWriteLock, now);
    }
    0
}

#[uprobe]
pub fn rwlock_timedrdlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TimedReadLock, now);
    }
    0
}

#[uprobe]
pub fn rwlock_timedwrlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_fallible(&ctx, t, Via::TimedWriteLock, now);
    }
    0
}

#[uprobe]
pub fn unlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        release(&ctx, t, now);
    }
    0
}

#[uprobe]
pub fn cond_wait(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        cond::wait(&ctx, t, now);
    }
    0
}

#[uprobe]
pub fn barrier_wait(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        barrier::arrive(&ctx, t, now);
    }
    0
}

/// Return of trylock and the timed calls. Without a call in progress it began before the observation.
#[uretprobe]
pub fn call_returned(ctx: RetProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx))
        && t.pending.via != 0
    {
        attempt_returned(t, ctx.ret(), now);
    }
    0
}
