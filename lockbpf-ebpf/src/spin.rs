//! Spin locks: who waits for one makes no system call and leaves no trace in the lock, so it leaves one here, for the holder to
//! find at its release.

use crate::maps::{FutexWord, SPINNERS};
#[cfg(bpf_target_arch = "x86_64")]
use crate::{
    calls::return_address,
    counts,
    section::{acquired, attempt, contend, fits},
    thread::Thread,
};
#[cfg(bpf_target_arch = "x86_64")]
use aya_ebpf::programs::ProbeContext;
#[cfg(bpf_target_arch = "x86_64")]
use lockbpf_common::via::Via;

/// The current thread, of this process, begins to wait for a spin lock.
#[inline(always)]
pub fn waits(process: u32, lock: u64) {
    // The oldest give way to new ones.
    let _ = SPINNERS.insert(FutexWord { addr: lock, process: u64::from(process) }, 1, 0);
}

/// Whether a thread has begun to wait for a spin lock since this was asked last.
#[inline(always)]
pub fn was_waited_for(process: u32, lock: u64) -> bool {
    SPINNERS.remove(FutexWord { addr: lock, process: u64::from(process) }).is_ok()
}

/// glibc's `pthread_spin_lock` on x86 has tried to take the lock (`lock decl`), with or without success, at `now`. The kernel
/// refuses probes on locked instructions, so this one is on the next: the branch that is taken if it is held by another.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn tried(ctx: &ProbeContext, t: &mut Thread, now: u64) {
    /// The zero flag.
    const ZERO: u64 = 1 << 6;
    let lock: u64 = ctx.arg(0).unwrap_or(0);
    // SAFETY: regs is the program's context.
    let taken = unsafe { (*ctx.regs).eflags } & ZERO == 0;
    let again = t.pending.via == Via::SpinLock as u32 && t.pending.lock == lock;
    if !again {
        let site = return_address(ctx);
        if !fits(lock, site) {
            return;
        }
        attempt(t, Via::SpinLock as u32, lock, site, now);
        if taken {
            contend(t, 0);
            waits(t.process, lock);
        }
    }
    if !taken {
        if again {
            counts::returned(t);
            counts::waited(t);
        }
        let attempt_ns = t.pending.attempt_ns;
        acquired(t, attempt_ns, now);
    }
}
