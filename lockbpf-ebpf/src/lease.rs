//! The lease. User space renews it again and again; without it the programs do nothing, so a target pays for no observation while
//! lockbpf is stopped, frozen, or kept from the CPU. The kernel's ticks (`bpf_jiffies64`, 5.6) say how old a renewal is: the verifier
//! makes that helper a load from memory. The precise clock costs too much at each hit, and the coarse one is forbidden to tracing
//! programs since 5.16.
//!
//! User space does not know the ticks, so a renewal counts from when a program first sees it. The renewing thread makes a futex call
//! right after, which shows it to a program.

use crate::futex_call;
use crate::gate;
use crate::maps::{CONTROL, LEASE, count_more};
use crate::thread::Thread;
use crate::watched;
use aya_ebpf::helpers::generated::bpf_jiffies64;
use lockbpf_common::config::Control;
use lockbpf_common::counter::Counter;

/// Whether programs may do anything.
#[inline(always)]
pub fn holds(control: &Control) -> bool {
    let Some(seen) = LEASE.get_ptr_mut(0) else { return false };
    // SAFETY: no arguments.
    let tick = unsafe { bpf_jiffies64() };
    let renewal = control.renewal;
    // SAFETY: the kernel returned a valid entry. Of several CPUs that see a renewal at once each writes the same, but for a tick.
    unsafe {
        if (*seen).renewal != renewal {
            (*seen).tick = tick;
            (*seen).renewal = renewal;
            return renewal != 0;
        }
        renewal != 0 && tick.wrapping_sub((*seen).tick) < control.ticks
    }
}

/// The same, where nothing else of it is needed.
#[inline(always)]
pub fn is_on() -> bool {
    CONTROL.get(0).is_some_and(holds)
}

/// Whether what the thread was seen to do is up to date: the lease holds, and has since.
#[inline(always)]
pub fn believes(t: &Thread) -> bool {
    CONTROL.get(0).is_some_and(|control| control.lapses == t.lapses && holds(control))
}

/// When the first lapse after so many began, ns.
#[inline(always)]
pub fn lapsed_after(lapses: u64) -> u64 {
    CONTROL.get(0).map_or(0, |control| control.lapsed_after(lapses))
}

/// The lease was over and has been renewed. Futex calls and waits that were in progress before may have ended unseen, and others may have
/// begun. What the thread did with locks is cut as by a closing ([`crate::gate`]).
#[inline(never)]
pub fn lapsed(t: &mut Thread, lapses: u64) {
    count_more(Counter::LeaseExpired, in_progress(t));
    t.lapses = lapses;
    t.futex.role = futex_call::NONE;
    t.released_ns = 0;
    t.once.control = 0;
    t.kernel.forget();
    t.off.reason = 0;
    watched::stop(t);
    t.end_wait();
}

/// Calls, sections and waits of the thread that had begun before, and of which nobody will know how they went on.
#[inline(always)]
fn in_progress(t: &Thread) -> u64 {
    let (sections, calls) = if gate::is_of_this_opening(t) {
        (u64::from(t.depth), u64::from(t.pending.via != 0) + u64::from(t.slow.via != 0))
    } else {
        (0, 0)
    };
    // Else it is that of a call.
    let waits = calls == 0 && t.futex.role == futex_call::WAIT;
    sections + calls + u64::from(waits)
}
