//! Condition variables: the wait closes the hold of its mutex, sleeps idly, and re-opens the hold. The idle part is summed
//! for the condition variable, apart from contention; the re-acquisition is an ordinary attempt. The wait is not watched
//! to its return: when the thread does anything further with locks it has returned, and its sleeps tell the times.

use crate::atomic::add;
use crate::calls::{return_address, unexpected_release};
use crate::gil;
use crate::lock::{see, see_mutex};
use crate::section::{End, attempt, close, fits};
use crate::section_sums::{add_time, sums};
use crate::thread::Thread;
use crate::transitions;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::kind::{Outcome, Via, flag, mutex_kind};
use lockbpf_common::sums::SumKey;

/// Entry of `pthread_cond_wait` and its timed forms, at `now`, in musl or glibc. Returns whether its return is of interest where it can be watched.
#[inline(always)]
pub fn wait(ctx: &ProbeContext, t: &mut Thread, now: u64, musl: bool) -> bool {
    let cond: u64 = ctx.arg(0).unwrap_or(0);
    let lock: u64 = ctx.arg(1).unwrap_or(0);
    let returns_to = return_address(ctx);
    let site = t.site(cond, returns_to);
    if !fits(lock | cond, site) {
        return false;
    }
    let seen = if musl { see(lock, Via::Lock as u32, true) } else { see_mutex(lock) };
    match t.find(lock) {
        Some(_) if gil::is_guarded_by(t, lock) => {
            gil::leave_guard(t);
        }
        Some(i) => {
            close(ctx, t, i, End { now, outcome: Outcome::CondReleased, waited_for: seen.has_waiters });
        }
        None => unexpected_release(t),
    }
    gil::waits(t, lock, now);
    let p = attempt(t, Via::CondReacquire as u32, lock, site, now);
    p.cond = cond;
    p.kind = seen.kind;
    p.returns_to = returns_to;
    true
}

/// Sums the idle part of a condition wait that has ended; nothing for other attempts.
#[inline(always)]
pub fn sum_idle(t: &mut Thread) {
    let p = &t.pending;
    if p.via != Via::CondReacquire as u32 {
        return;
    }
    let idle_ns = p.woken_ns.saturating_sub(p.attempt_ns);
    if p.timed_out == 0 {
        transitions::waited(&mut t.way, idle_ns.saturating_sub(p.latency_ns));
    }
    let key = SumKey { lock: p.cond, site: p.site, process: t.process, via: Via::CondWait as u32 };
    if let Some(s) = sums(&key, mutex_kind::IS_CONDVAR, p.attempt_ns) {
        // Nothing orders the writers: each is summed when its thread goes on.
        add(&mut s.acquisitions, 1);
        add(&mut s.timeouts, u64::from(p.timed_out));
        add(&mut s.contended, u64::from(p.flags & u32::from(flag::CONTENDED) != 0));
        if p.latency_ns != 0 {
            add_time(&mut s.hold_ns, &mut s.hold_max_ns, &mut s.hold_hist, p.latency_ns, true);
        }
        add_time(&mut s.wait_ns, &mut s.wait_max_ns, &mut s.wait_hist, idle_ns, true);
    }
}
