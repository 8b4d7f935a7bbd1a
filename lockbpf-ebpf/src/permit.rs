//! Semaphores. A permit need not be given back by the thread that took it, so it is not among the locks that a thread holds: the
//! last one taken is remembered, and where the same thread posts, that was a section like any other. Otherwise its end stays
//! unseen.
//!
//! `sem_wait` and its timed forms can be cancelled, so they are not watched to their return: their futex calls tell how they ended.

use crate::atomic::add;
use crate::calls::return_address;
use crate::futex_call::{INTERRUPTED, NONE};
use crate::gil::site;
use crate::lock::see;
use crate::parking::is_of_python;
use crate::section::{attempt, contend, failed, fits};
use crate::section_sums::{add_time, sums};
use crate::thread::{Thread, now};
use crate::unseen;
use aya_ebpf::programs::ProbeContext;
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::function::SEM_TAKEN;
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::gate;
use lockbpf_common::kind::Outcome;
use lockbpf_common::sums::SumKey;
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::via::Via;

/// Entry of `sem_wait` and its timed forms.
#[inline(always)]
pub fn wait(ctx: &ProbeContext, t: &mut Thread, via: u32) {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = site(t, return_address(ctx));
    if !fits(lock, site) || is_of_python(t, lock) {
        return;
    }
    let seen = see(lock, via, t.is_musl());
    attempt(t, via, lock, site, now());
    // What interrupted a call before is none of this one's.
    t.futex.role = NONE;
    if seen.taken {
        contend(t, 0);
    }
}

/// `sem_trywait` has just taken a permit, or found none, at `now`: told by a branch that its probe is on, which leads there only under
/// a condition.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn tried(ctx: &ProbeContext, t: &mut Thread, cookie: u64, now: u64) {
    // SAFETY: regs is the program's context.
    if !gate::counts(cookie, unsafe { (*ctx.regs).eflags }) {
        return;
    }
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    let site = site(t, return_address(ctx));
    if !fits(lock, site) {
        return;
    }
    attempt(t, Via::TrySemWait as u32, lock, site, now);
    if gate::function(cookie) == SEM_TAKEN {
        unseen::acquired(t, now);
    } else {
        failed(t, Outcome::TryFailed, now);
    }
}

/// The attempt in progress, on a semaphore or for another thread's initialiser, has ended by now, since the thread does something else.
/// Returns 0. A function of its own, so that its instructions burden no hot path.
#[inline(never)]
pub fn settle(t: &mut Thread) -> u32 {
    let p = &t.pending;
    let ended_ns = p.acquire_ns.max(p.attempt_ns);
    let outcome = if p.timed_out != 0 {
        Outcome::TimedOut
    } else if t.futex.role == INTERRUPTED && t.futex.lock == p.lock {
        Outcome::Failed
    } else {
        return unseen::acquired(t, ended_ns);
    };
    failed(t, outcome, ended_ns);
    0
}

/// `sem_post` begins, or has given the permit just before, at `now`.
#[inline(always)]
pub fn post(ctx: &ProbeContext, t: &mut Thread, now: u64) {
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    if lock == 0 || t.permit.lock != lock {
        return;
    }
    let (site, via) = (t.permit.site, t.permit.via);
    let hold_ns = now.saturating_sub(t.permit.acquire_ns);
    if let Some(s) = sums(&SumKey { lock, site, process: t.process, via }, 0, now) {
        add(&mut s.unseen, 1u64.wrapping_neg());
        add_time(&mut s.hold_ns, &mut s.hold_max_ns, &mut s.hold_hist, hold_ns, true);
    }
    let waited_for = see(lock, via, t.is_musl()).has_waiters;
    unseen::tell(t, Outcome::Released, hold_ns, waited_for);
}
