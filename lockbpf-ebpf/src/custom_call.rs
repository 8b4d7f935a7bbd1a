//! Whether a thread is in a function on a lock that the user has described. What such a function sleeps on, nobody has said, so what the
//! thread sleeps on in it counts for the lock.

use crate::registers::{STACK_POINTER, user_register};
use crate::thread::Thread;
#[cfg(bpf_target_arch = "x86_64")]
use aya_ebpf::helpers::bpf_probe_read_user;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::via::is_custom;

/// The call that a thread has begun last.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CustomCall {
    /// The lock.
    pub lock: u64,
    /// The stack pointer at its entry; 0 if there was no call.
    pub frame: u64,
    /// Its return address.
    pub returns_to: u64,
}

/// A call of a function that only those call who have to wait for a described lock.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Blocked {
    /// The lock; 0 if there is no such call in progress.
    pub lock: u64,
    /// Its return address.
    pub site: u64,
    /// When it began, ns.
    pub attempt_ns: u64,
    /// Number of the gate's opening.
    pub epoch: u64,
    /// The single lock of those that the first one stands for; 0 if that is not known.
    pub instance: u64,
    /// Who held the lock then, as the program numbers it.
    pub owner: u32,
    /// Whether it ended without the lock: 0 or 1.
    pub has_failed: u32,
    /// When the stack of such a wait was taken last, ns.
    pub stack_ns: u64,
    /// When the stack of a wake was taken last, ns.
    pub gave_stack_ns: u64,
}

/// Whether the thread's last call, if it was on this lock and is not watched to its return, goes on. A function of its own, so that its
/// instructions are not repeated in every program.
#[inline(never)]
pub fn goes_on(t: &Thread, lock: u64) -> bool {
    let call = t.custom;
    call.frame != 0 && call.lock == lock && user_register(STACK_POINTER) <= call.frame && stands(&call)
}

/// Whether its return address still stands where the call put it: the next call from there overwrites it.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn stands(call: &CustomCall) -> bool {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_user(call.frame as *const u64) }.is_ok_and(|there| there == call.returns_to)
}

/// A register had it, so nothing tells.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn stands(_: &CustomCall) -> bool {
    false
}

/// Whether the thread is in a function that gets a described lock. A function of its own, for the same reason.
#[inline(never)]
pub fn is_inside(t: &Thread) -> bool {
    let call = if t.pending.via == 0 { &t.slow } else { &t.pending };
    if is_custom(call.via) {
        return user_register(STACK_POINTER) <= call.cond;
    }
    let Some(top) = (t.depth as usize).checked_sub(1) else { return false };
    let h = &t.held[top & (MAX_HELD - 1)];
    call.via == 0 && is_custom(h.via) && goes_on(t, h.lock)
}

/// Whether the attempt in progress, on a described lock, is one that the thread still is in.
#[inline(always)]
pub fn is_pending(t: &Thread) -> bool {
    is_custom(t.pending.via) && user_register(STACK_POINTER) <= t.pending.cond
}
