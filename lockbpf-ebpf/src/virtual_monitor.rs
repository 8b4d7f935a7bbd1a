//! Monitors that [virtual threads](crate::virtual_thread) of Java's wait for. The machine asks for the monitor in one function, which yields whether it got
//! it; if not, the virtual thread leaves the thread that carries it, and has the monitor when another function is called. A third gives a
//! monitor back to one of those that wait. Free monitors are taken and given back elsewhere, and not seen.

use crate::calls::return_address;
use crate::context::cookie_of;
use crate::gate::pass_ungated;
use crate::goroutine;
use crate::maps::{CONFIG, FutexWord, Waker, count};
use crate::memory::read;
use crate::section::fits;
use crate::stack::take_stack;
use crate::thread::{Thread, now, tid};
use crate::unexplained::{given, record_wake};
use crate::unseen::Waited;
use crate::virtual_thread::{carrier, note, object, over};
use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::counter::Counter;
use lockbpf_common::function;
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::record::WakeFields;
use lockbpf_common::task::{is_task, of_virtual};
use lockbpf_common::virtual_thread::{Carrier, VirtualCall, VirtualWait, Waiter};

/// The function that asks for a monitor which is taken begins. Of all these functions the second argument is what the machine knows of the thread.
#[uprobe]
pub fn virtual_enters(ctx: ProbeContext) -> u32 {
    let now = now();
    let Some((t, epoch)) = pass_ungated(cookie_of(&ctx)) else { return 0 };
    let Some(carrier) = carrier(t) else { return 0 };
    let (monitor, thread): (u64, u64) = (ctx.arg(0).unwrap_or(0), ctx.arg(1).unwrap_or(0));
    // One that comes back from `Object.wait` is in the queue already. Its frames are not on the stack yet.
    if ctx.arg::<u64>(2).unwrap_or(0) != 0 {
        return 0;
    }
    let Some(id) = read::<u64>(thread + u64::from(carrier.id)) else { return 0 };
    let site = return_address(&ctx);
    if fits(monitor, site) {
        t.virtual_call = VirtualCall { monitor, id };
        enters(ctx.as_ptr(), t, (site, epoch), now);
    }
    0
}

/// It returns: whether it got the monitor.
#[uretprobe]
pub fn virtual_entered(ctx: RetProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    if let Some((t, epoch)) = pass_ungated(cookie) {
        let VirtualCall { monitor, id } = t.virtual_call;
        t.virtual_call.monitor = 0;
        // The machine sets only the lowest byte of a boolean.
        if monitor != 0 && ctx.ret::<u64>() & 0xff != 0 {
            entered(t, id, (monitor, via(cookie), epoch), now);
        }
    }
    0
}

/// A virtual thread has the monitor that it waited for, or a thread of whatever kind gives one back.
#[uprobe]
pub fn virtual_monitor(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    let Some((t, epoch)) = pass_ungated(cookie) else { return 0 };
    let Some(carrier) = carrier(t) else { return 0 };
    let (monitor, thread): (u64, u64) = (ctx.arg(0).unwrap_or(0), ctx.arg(1).unwrap_or(0));
    let Some(id) = read::<u64>(thread + u64::from(carrier.id)) else { return 0 };
    if gate::function(cookie) == function::VIRTUAL_ENTERED {
        return entered(t, id, (monitor, via(cookie), epoch), now);
    }
    let Some(waiter) = read::<Waiter>(ctx.arg(2).unwrap_or(0)) else { return 0 };
    match waiter.is_virtual(monitor) {
        // A futex call tells.
        Some(false) => {}
        Some(true) => {
            let who = if runs_virtual(&carrier, thread) { of_virtual(id) } else { tid() };
            gives_back(ctx.as_ptr(), t, monitor, who, now);
        }
        None => count(Counter::VirtualOdd),
    }
    0
}

/// As what a wait counts that a probe sees the end of.
#[inline(always)]
fn via(cookie: u64) -> Via {
    if gate::is_ungated(cookie) { Via::VirtualMonitor } else { Via::JavaMonitor }
}

/// Whether the thread runs another one of Java's than its own.
#[inline(always)]
fn runs_virtual(carrier: &Carrier, thread: u64) -> bool {
    object(thread, carrier.own) != object(thread, carrier.runs)
}

/// A virtual thread asks for a monitor by the thread's call. Its stack is there for the last time. A function of its own, so that its stack is
/// not that of all.
#[inline(never)]
fn enters(ctx: *mut c_void, t: &Thread, (site, epoch): (u64, u64), now: u64) -> u32 {
    let stack = take_stack(ctx, t.process, t.slot, 0);
    let VirtualCall { monitor: lock, id } = t.virtual_call;
    note(t, id, VirtualWait { lock, site, attempt_ns: now, epoch, tid: of_virtual(id), stack });
    0
}

/// A virtual thread has a monitor now: for which it had asked, if it is not back from `Object.wait`.
#[inline(never)]
fn entered(t: &Thread, id: u64, (monitor, via, epoch): (u64, Via, u64), now: u64) -> u32 {
    let wait = over(t, id, |wait| wait.lock != 0);
    let Some(wait) = wait.filter(|wait| wait.lock == monitor && wait.epoch == epoch) else { return 0 };
    let VirtualWait { lock, site, attempt_ns, tid, stack, .. } = wait;
    let waker = Some(FutexWord { addr: lock, process: u64::from(t.process) });
    let waited = Waited { lock, site, attempt_ns, tid, owner: 0, stack, waker, flags: flag::CONTENDED, via };
    waited.tell(t, Outcome::Unseen, now);
    0
}

/// `who` gives a monitor back, and a virtual thread is next. The release is recorded if that one may have waited for long enough.
#[inline(never)]
fn gives_back(ctx: *mut c_void, t: &mut Thread, monitor: u64, who: u32, now: u64) -> u32 {
    let Some(since_ns) = given(t, monitor, Waker::at(now, who)) else { return 0 };
    let long = since_ns >= CONFIG.load().stack_wait_ns;
    let stack = if long { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    if long && is_task(who) {
        goroutine::gave_back(t, goroutine::of_virtual(who), who, now.saturating_sub(since_ns), now);
    }
    let (process, word) = (t.process, monitor);
    let fields = WakeFields { time_ns: now, since_ns, watched_ns: 0, word, process, tid: who, woken: 1, stack };
    record_wake(t, &fields, core::ptr::null_mut())
}
