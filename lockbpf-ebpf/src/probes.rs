//! The uprobe programs. Two forms of the same: one program for all entries and a session program for the functions that must
//! be watched to their return, which tell functions apart by their cookies (kernel 6.13); and plain programs per function for
//! older kernels.

use crate::barrier;
use crate::cond;
use crate::gate::pass;
use crate::mutex::{attempt_lock, attempt_returned, attempt_timed, attempt_trylock, release};
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
    // An attempt to lock reads the clock itself, as late as possible; all others begin now.
    let now = if function == cookie::LOCK { 0 } else { now() };
    let Some(t) = pass(cookie) else { return 0 };
    match function {
        cookie::LOCK => attempt_lock(&ctx, t),
        cookie::UNLOCK => release(&ctx, t, now),
        cookie::BARRIER_WAIT => barrier::arrive(&ctx, t, now),
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
    let wanted = match gate::function(cookie) {
        cookie::TRYLOCK => attempt_trylock(&ctx, t, now),
        cookie::TIMEDLOCK => attempt_timed(&ctx, t, Via::TimedLock, now),
        _ => attempt_timed(&ctx, t, Via::ClockLock, now),
    };
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
        attempt_lock(&ctx, t);
    }
    0
}

#[uprobe]
pub fn mutex_timedlock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_timed(&ctx, t, Via::TimedLock, now);
    }
    0
}

#[uprobe]
pub fn mutex_clocklock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_timed(&ctx, t, Via::ClockLock, now);
    }
    0
}

#[uprobe]
pub fn mutex_trylock(ctx: ProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx)) {
        attempt_trylock(&ctx, t, now);
    }
    0
}

#[uprobe]
pub fn mutex_unlock(ctx: ProbeContext) -> u32 {
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
