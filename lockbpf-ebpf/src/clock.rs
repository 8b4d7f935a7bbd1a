//! Samples of the CPU's clock: whether an observed process runs its own code, or the kernel, where probes take their time.

use crate::gate::charge;
use crate::maps::TARGETS;
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;

/// Counts a sample for the process that runs. Nothing is written to the event's buffer.
#[perf_event]
pub fn clock(ctx: PerfEventContext) -> u32 {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: the number is copied at once.
    if let Some(slot) = unsafe { TARGETS.get(pid) }.copied() {
        let user = in_user_code(&ctx);
        charge(slot, |account| {
            account.samples += 1;
            account.user_samples += u64::from(user);
        });
    }
    0
}

/// Whether the interrupted code was the program's own.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn in_user_code(ctx: &PerfEventContext) -> bool {
    // SAFETY: the context begins with the registers, which the verifier lets programs read.
    let registers = unsafe { &*ctx.as_ptr().cast::<aya_ebpf::bindings::pt_regs>() };
    // The privilege level.
    registers.cs & 3 != 0
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn in_user_code(ctx: &PerfEventContext) -> bool {
    // SAFETY: as above.
    let registers = unsafe { &*ctx.as_ptr().cast::<aya_ebpf::bindings::user_pt_regs>() };
    // The exception level.
    registers.pstate & 0xf == 0
}
