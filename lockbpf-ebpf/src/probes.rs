//! The uprobe programs: two for entries, and for the functions that must be watched to their return a session program
//! (kernel 6.13), or a pair of programs on older kernels. The cookie tells which function it is.

use crate::barrier;
use crate::calls::{
    attempt_lock, attempt_returned, attempt_unwatched, attempt_watched, is_inside, release, release_other,
    returns_here, wrapped,
};
use crate::cond;
use crate::context::{cookie_of, is_return_half};
use crate::gate::pass;
use crate::gil;
use crate::off_cpu::record_absence;
use crate::once;
use crate::permit;
use crate::section::settle;
use crate::signal::is_above_interrupted;
#[cfg(bpf_target_arch = "x86_64")]
use crate::spin;
use crate::thread::{Thread, now};
use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::function::{BARRIER_WAIT, COND_WAIT, RELEASE, SEM_POST, SPIN_RELEASE, WRAPPER};
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::function::{SEM_BUSY, SEM_TAKEN, SPIN_TRIED};
use lockbpf_common::gate;
use lockbpf_common::via::Via;

/// What a session's entry handler returns so that the return half is skipped.
const DECLINE: u32 = 1;

/// Entry of the functions that are not watched to their return. Not by a session: in a process that another link is for, a
/// session's program does not run, and the kernel takes that for a wish to see the return.
#[uprobe]
pub fn entries(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    let function = gate::function(cookie);
    // An attempt to lock reads the clock itself, as late as possible; all others begin now.
    let now = if function < RELEASE { 0 } else { now() };
    let Some(t) = pass(cookie) else { return 0 };
    // Here and not in each branch, so that the verifier follows it once.
    record_absence(t);
    settle(t);
    match function {
        RELEASE => unlock(&ctx, t, now),
        COND_WAIT => {
            cond::wait(&ctx, t, now, false);
        }
        BARRIER_WAIT => {
            barrier::arrive(&ctx, t, now);
        }
        via => attempt_lock(&ctx, t, via as u32),
    }
    0
}

/// Entry of rarer ones: apart, so that the verifier has less to follow at a time.
#[uprobe]
pub fn others(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return 0 };
    let function = gate::function(cookie);
    if is_inside(t, &ctx, function) {
        return 0;
    }
    record_absence(t);
    // A spin lock's probe is hit at each try.
    if t.pending.via != Via::SpinLock as u32 {
        settle(t);
    }
    match function {
        RELEASE | SPIN_RELEASE => release_other(&ctx, t, now, function),
        #[cfg(bpf_target_arch = "x86_64")]
        SPIN_TRIED => spin::tried(&ctx, t, now),
        SEM_POST => permit::post(&ctx, t, now),
        #[cfg(bpf_target_arch = "x86_64")]
        SEM_BUSY | SEM_TAKEN => permit::tried(&ctx, t, cookie, now),
        WRAPPER => wrapped(&ctx, t, cookie),
        via if via == Via::Once as u64 => once::enter(&ctx, t),
        via => permit::wait(&ctx, t, via as u32),
    }
    0
}

/// Both halves of the functions that are watched to their return. Declared by hand: aya's `uprobe` attribute would return 0
/// whatever this returns.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn session(ctx: *mut c_void) -> u32 {
    let now = now();
    let ctx = ProbeContext::new(ctx);
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return DECLINE };
    if returns_here(&ctx, t) {
        attempt_returned(t, RetProbeContext::new(ctx.as_ptr()).ret(), now);
        return 0;
    }
    let function = gate::function(cookie);
    if is_inside(t, &ctx, function) || is_return_half(&ctx) {
        return DECLINE;
    }
    settle(t);
    if is_above_interrupted(t) {
        match function {
            COND_WAIT | BARRIER_WAIT => watch(&ctx, t, function, now),
            via => attempt_unwatched(&ctx, t, via as u32, now) != 0,
        };
        return DECLINE;
    }
    u32::from(!watch(&ctx, t, function, now))
}

/// Entry of the functions that are watched to their return, without sessions.
#[uprobe]
pub fn call_entered(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    if let Some(t) = pass(cookie)
        && !is_inside(t, &ctx, gate::function(cookie))
    {
        settle(t);
        watch(&ctx, t, gate::function(cookie), now);
    }
    0
}

/// Return of those. Without a call in progress it began before the observation.
#[uretprobe]
pub fn call_returned(ctx: RetProbeContext) -> u32 {
    let now = now();
    if let Some(t) = pass(cookie_of(&ctx))
        && returns_here(&ctx, t)
    {
        attempt_returned(t, ctx.ret(), now);
    }
    0
}

/// Entry of unlock of a mutex or read-write lock of glibc, at `now`.
#[inline(always)]
fn unlock(ctx: &ProbeContext, t: &mut Thread, now: u64) {
    if !gil::is_guarded_by(t, ctx.arg(0).unwrap_or(0)) {
        release(ctx, t, now);
        return;
    }
    gil::leave_guard(t);
    let meaning = gil::meaning(t);
    if meaning == gil::TAKEN {
        gil::taken(ctx, t, now);
    } else if meaning != 0 {
        gil::given(ctx, t, now, meaning);
    }
}

/// Entry of a function that is watched to its return. Returns whether that is of interest.
#[inline(always)]
fn watch(ctx: &ProbeContext, t: &mut Thread, function: u64, now: u64) -> bool {
    match function {
        COND_WAIT => cond::wait(ctx, t, now, true),
        BARRIER_WAIT => barrier::arrive(ctx, t, now),
        via => attempt_watched(ctx, t, via as u32, now),
    }
}
