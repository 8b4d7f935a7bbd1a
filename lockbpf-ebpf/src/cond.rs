//! Condition variables: the wait closes the hold of its mutex, sleeps idly, and re-opens the hold when it returns. The
//! idle part is summed for the condition variable, apart from contention; the re-acquisition is an ordinary attempt.

use crate::atomic::add;
use crate::mutex::{GlibcMutex, return_address, unexpected_release};
use crate::section::{acquired, attempt, close, sums, tally};
use crate::thread::{Thread, current, now};
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::kind::{Outcome, Via, mutex_kind};
use lockbpf_common::sums::SumKey;

const ETIMEDOUT: i32 = 110;

/// Entry of `pthread_cond_wait` and its timed forms. Returns whether its return must be seen.
#[inline(always)]
pub fn wait(ctx: &ProbeContext) -> bool {
    let now = now();
    let Some(t) = current() else { return false };
    let cond: u64 = ctx.arg(0).unwrap_or(0);
    let lock: u64 = ctx.arg(1).unwrap_or(0);
    let mutex = GlibcMutex::read(lock);
    let kind = mutex.map_or(0, |m| m.kind);
    match t.find(lock) {
        Some(i) => close(ctx, t, i, now, Outcome::CondReleased, kind, mutex.is_some_and(|m| m.has_waiters())),
        None => unexpected_release(t),
    }
    let Some(p) = attempt(t, Via::CondReacquire, lock, return_address(ctx), now) else { return false };
    p.cond = cond;
    p.kind = kind;
    true
}

/// Return of a condition wait that is in progress: the mutex is held again, whatever the result.
#[inline(always)]
pub fn wait_returned(t: &mut Thread, result: i32, now: u64) {
    let p = t.pending;
    // Not seen asleep: the wait was satisfied at once.
    let woken_ns = if p.woken_ns == 0 { now } else { p.woken_ns };
    let idle_ns = woken_ns.saturating_sub(p.attempt_ns);
    let key = SumKey { lock: p.cond, site: p.site, process: t.process, via: Via::CondWait as u32 };
    if let Some(s) = sums(&key, mutex_kind::IS_CONDVAR, p.attempt_ns) {
        // Waits with different mutexes are allowed, if odd: nothing orders these writers.
        add(&mut s.acquisitions, 1);
        add(&mut s.wait_ns, idle_ns);
        if idle_ns > s.wait_max_ns {
            s.wait_max_ns = idle_ns;
        }
        tally(&mut s.wait_hist, idle_ns);
        if result == ETIMEDOUT {
            add(&mut s.timeouts, 1);
        }
    }
    acquired(t, woken_ns, now);
}
