//! The saved user registers of the current thread.

use crate::thread::task;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_task_pt_regs;
use core::mem::offset_of;

/// Offset of the instruction pointer in the saved registers.
#[cfg(bpf_target_arch = "x86_64")]
pub const INSTRUCTION_POINTER: usize = offset_of!(pt_regs, rip);
#[cfg(bpf_target_arch = "aarch64")]
pub const INSTRUCTION_POINTER: usize = offset_of!(pt_regs, pc);
/// Offset of the stack pointer.
#[cfg(bpf_target_arch = "x86_64")]
pub const STACK_POINTER: usize = offset_of!(pt_regs, rsp);
#[cfg(bpf_target_arch = "aarch64")]
pub const STACK_POINTER: usize = offset_of!(pt_regs, sp);
/// Offset of the frame pointer.
#[cfg(bpf_target_arch = "x86_64")]
pub const FRAME_POINTER: usize = offset_of!(pt_regs, rbp);
#[cfg(bpf_target_arch = "aarch64")]
pub const FRAME_POINTER: usize = offset_of!(pt_regs, regs) + 8 * 29;
/// Offset of the register in which Go keeps the descriptor of the goroutine in progress.
#[cfg(bpf_target_arch = "x86_64")]
pub const GOROUTINE: usize = offset_of!(pt_regs, r14);
#[cfg(bpf_target_arch = "aarch64")]
pub const GOROUTINE: usize = offset_of!(pt_regs, regs) + 8 * 28;
/// Offsets of the first three system call arguments.
#[cfg(bpf_target_arch = "x86_64")]
pub const ARGUMENTS: [usize; 3] = [offset_of!(pt_regs, rdi), offset_of!(pt_regs, rsi), offset_of!(pt_regs, rdx)];
#[cfg(bpf_target_arch = "aarch64")]
pub const ARGUMENTS: [usize; 3] =
    [offset_of!(pt_regs, regs), offset_of!(pt_regs, regs) + 8, offset_of!(pt_regs, regs) + 16];

/// Offset of the number of the system call that the thread is in.
#[cfg(bpf_target_arch = "x86_64")]
const SYSTEM_CALL: usize = offset_of!(pt_regs, orig_rax);
#[cfg(bpf_target_arch = "aarch64")]
const SYSTEM_CALL: usize = offset_of!(pt_regs, regs) + 8 * 8;
/// `exit_group`.
#[cfg(bpf_target_arch = "x86_64")]
const NR_EXIT_GROUP: u64 = 231;
#[cfg(bpf_target_arch = "aarch64")]
const NR_EXIT_GROUP: u64 = 94;

/// System calls in which threads of asynchronous runtimes sleep that have nothing to run: `futex`, `poll`, `epoll_wait`, `ppoll`, `epoll_pwait`,
/// `io_uring_enter`, `epoll_pwait2`.
#[cfg(bpf_target_arch = "x86_64")]
const PARKING: [u64; 7] = [202, 7, 232, 271, 281, 426, 441];
#[cfg(bpf_target_arch = "aarch64")]
const PARKING: [u64; 5] = [98, 22, 73, 426, 441];

/// Whether the current thread is in one of these.
#[inline(always)]
pub fn parks() -> bool {
    let call = system_call();
    let mut i = 0;
    while i < PARKING.len() {
        if PARKING[i] == call {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether the current thread, which exits, has called `exit_group`. The other threads of its process are killed, in whatever they are.
#[inline(always)]
pub fn ends_process() -> bool {
    system_call() == NR_EXIT_GROUP
}

/// The number of the system call that the current thread is in.
#[inline(always)]
pub fn system_call() -> u64 {
    user_register(SYSTEM_CALL)
}

/// The current thread's user registers, as they were at its entry into the kernel; in a uprobe, as they are at the probe.
#[inline(always)]
pub fn user_registers() -> *const pt_regs {
    // SAFETY: task() is the trusted current task.
    unsafe { bpf_task_pt_regs(task()) as *const pt_regs }
}

/// Their address as a number, with which a program may calculate: reading the pointer through a helper makes it one to the verifier.
#[inline(always)]
pub fn user_registers_address() -> u64 {
    let pointer = user_registers() as u64;
    // SAFETY: this program's own memory.
    unsafe { bpf_probe_read_kernel(&raw const pointer) }.unwrap_or(0)
}

/// One of them, by its offset.
#[inline(always)]
pub fn user_register(offset: usize) -> u64 {
    // SAFETY: these registers come from the kernel.
    unsafe { read_register(user_registers(), offset) }
}

/// A register of a saved set, by its offset; 0 if it cannot be read.
///
/// # Safety
/// `regs` comes from the kernel; the offset is one of `pt_regs`.
#[inline(always)]
pub unsafe fn read_register(regs: *const pt_regs, offset: usize) -> u64 {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_kernel(regs.cast::<u8>().add(offset).cast::<u64>()) }.unwrap_or(0)
}
