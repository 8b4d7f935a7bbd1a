//! Stops threads for the access profiler. These programs are on hardware breakpoints of single threads, and send the thread a signal
//! that stops it if it is traced, and means nothing if it is not any more.

use crate::atomic::{add, fetch_add};
use crate::maps::{ACCESS, ACCESS_LOCKS};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_perf_event_data;
use aya_ebpf::helpers::generated::bpf_send_signal_thread;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;

/// Where a lock function begins: stops the thread if the lock is chosen and its turn has come.
#[perf_event]
pub fn access_attempt(ctx: PerfEventContext) -> u32 {
    let Some(sampler) = ACCESS.get_ptr_mut(0) else { return 0 };
    // SAFETY: the kernel returned a valid entry; several CPUs count in it atomically.
    let sampler = unsafe { &mut *sampler };
    let lock = first_argument(&ctx);
    // SAFETY: only looked for.
    if sampler.remaining == 0 || sampler.chosen != 0 && unsafe { ACCESS_LOCKS.get(lock) }.is_none() {
        return 0;
    }
    add(&mut sampler.seen, 1);
    // Of several threads one finds 1.
    if fetch_add(&mut sampler.remaining, u64::MAX) == 1 && !stop(sampler.signal) {
        add(&mut sampler.refused, 1);
        sampler.remaining = 1;
    }
    0
}

/// Where a thread that is being followed is to be stopped.
#[perf_event]
pub fn access_stop(_ctx: PerfEventContext) -> u32 {
    let Some(sampler) = ACCESS.get_ptr_mut(0) else { return 0 };
    // SAFETY: as above.
    let sampler = unsafe { &mut *sampler };
    if !stop(sampler.signal) {
        add(&mut sampler.refused, 1);
    }
    0
}

/// Whether the signal is on its way.
#[inline(always)]
fn stop(signal: u32) -> bool {
    // SAFETY: to the current thread, which is at a breakpoint in its own code.
    unsafe { bpf_send_signal_thread(signal) == 0 }
}

#[inline(always)]
fn first_argument(ctx: &PerfEventContext) -> u64 {
    let data = ctx.as_ptr().cast::<bpf_perf_event_data>();
    // SAFETY: such a program's context begins with the thread's registers.
    #[cfg(bpf_target_arch = "x86_64")]
    return unsafe { (*data).regs.rdi };
    // SAFETY: as above.
    #[cfg(bpf_target_arch = "aarch64")]
    return unsafe { (*data).regs.regs[0] };
}
