//! What a uprobe's context tells: where the thread is, by its registers, and which attachment it has hit.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_get_func_ip};

/// The attachment's cookie.
#[inline(always)]
pub fn cookie_of<C: EbpfContext>(ctx: &C) -> u64 {
    // SAFETY: ctx is the program's own context.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
}

/// Where the thread is.
#[inline(always)]
pub fn instruction_pointer<C: EbpfContext>(ctx: &C) -> u64 {
    let regs = registers(ctx);
    #[cfg(bpf_target_arch = "x86_64")]
    let at = regs.rip;
    #[cfg(bpf_target_arch = "aarch64")]
    let at = regs.pc;
    at
}

/// Whether this is the return half of a session (6.13): the function that is probed is elsewhere. Where the lease was over in between, or
/// the gate closed, nothing else tells.
#[inline(always)]
pub fn is_return_half<C: EbpfContext>(ctx: &C) -> bool {
    // SAFETY: the program's own context.
    let probed = unsafe { bpf_get_func_ip(ctx.as_ptr()) };
    instruction_pointer(ctx) != probed
}

/// The top of its stack.
#[inline(always)]
pub fn stack_pointer<C: EbpfContext>(ctx: &C) -> u64 {
    let regs = registers(ctx);
    #[cfg(bpf_target_arch = "x86_64")]
    let sp = regs.rsp;
    #[cfg(bpf_target_arch = "aarch64")]
    let sp = regs.sp;
    sp
}

/// The processor's flags, by which conditional branches go.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub fn flags<C: EbpfContext>(ctx: &C) -> u64 {
    registers(ctx).eflags
}

/// No probe has a condition here: returns are cheap, or probed elsewhere.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub fn flags<C: EbpfContext>(_: &C) -> u64 {
    0
}

#[inline(always)]
fn registers<C: EbpfContext>(ctx: &C) -> &pt_regs {
    // SAFETY: a uprobe's context is its registers.
    unsafe { &*ctx.as_ptr().cast::<pt_regs>() }
}
