//! Threads that this thread traces. The kernel ends the tracing when the tracing thread ends, without stopping anybody; so what is
//! traced for a sample is traced by a thread of its own.

use super::memory::ProcessMemory;
use crate::access::Memory as _;
use crate::access::state::{Registers, Vectors};
use crate::rights;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use std::mem::offset_of;
use std::time::Instant;

/// `PTRACE_EVENT_STOP`.
const EVENT_STOP: i32 = 128;
/// `NT_X86_XSTATE`.
const X86_XSTATE: usize = 0x202;
/// The flag by which a breakpoint at the next instruction is passed once.
const RESUME_FLAG: u64 = 1 << 16;

/// What a wait for threads yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A thread is about to receive a signal.
    Signal {
        /// Which thread.
        tid: i32,
        /// Which signal.
        signal: i32,
    },
    /// A thread stops with its whole process.
    Group {
        /// Which thread.
        tid: i32,
    },
    /// It stopped for another reason, of no interest here.
    Other {
        /// Which thread.
        tid: i32,
    },
    /// A thread has ended.
    Ended {
        /// Which thread.
        tid: i32,
    },
    /// Nothing happened.
    Nothing,
}

/// Begins to trace a thread, which goes on undisturbed.
///
/// # Errors
/// When the kernel does not allow it.
pub(super) fn seize(tid: i32) -> nix::Result<()> {
    rights::reach(|| ptrace::seize(Pid::from_raw(tid), Options::empty()))
}

/// Waits for any thread that this thread traces, until a signal comes for this one; `now` does not wait at all.
pub(super) fn wait(now: bool) -> nix::Result<Stop> {
    let flags = libc::__WALL | libc::__WNOTHREAD | if now { libc::WNOHANG } else { 0 };
    let mut status = 0;
    // SAFETY: status is a live integer. By hand, since real-time signals are none to nix.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    let tid = Errno::result(tid)?;
    Ok(match tid {
        0 => Stop::Nothing,
        tid if libc::WIFSTOPPED(status) => {
            let signal = libc::WSTOPSIG(status);
            let group = matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
            match status >> 16 {
                0 => Stop::Signal { tid, signal },
                EVENT_STOP if group => Stop::Group { tid },
                _ => Stop::Other { tid },
            }
        }
        tid => Stop::Ended { tid },
    })
}

/// Whether the `SIGTRAP` for which a thread has stopped means nothing: the processor stopped it at a breakpoint, and a hypervisor lost the
/// reason on the way (seen with Linux 6.18 as a guest, once in some 100,000 stops: register DR6 is empty). The kernel takes that for the
/// instruction `int1`, which it is not. The thread comes to the breakpoint again.
pub(super) fn is_stray_trap(tid: i32) -> bool {
    /// `TRAP_BRKPT`.
    const BREAKPOINT: i32 = 1;
    /// The instruction `int1`, behind which its trap is.
    const INT1: u8 = 0xf1;
    let Ok(info) = ptrace::getsiginfo(Pid::from_raw(tid)) else { return false };
    if info.si_signo != libc::SIGTRAP || info.si_code != BREAKPOINT {
        return false;
    }
    // SAFETY: a SIGTRAP of this code has the address in its place; any bytes there are a value.
    let address = unsafe { info.si_addr() } as u64;
    let mut before = [0];
    registers(tid).is_ok_and(|registers| registers.ip == address)
        && ProcessMemory(tid).read(address.wrapping_sub(1), &mut before)
        && before[0] != INT1
}

/// Whether the signal for which a thread has stopped was sent by the kernel itself, as programs in it do.
pub(super) fn is_from_kernel(tid: i32) -> bool {
    ptrace::getsiginfo(Pid::from_raw(tid)).is_ok_and(|info| info.si_code == libc::SI_KERNEL)
}

/// Lets a stopped thread go on, with a signal or 0.
///
/// # Errors
/// When it is gone.
pub(super) fn resume(tid: i32, signal: i32) -> nix::Result<()> {
    request(libc::PTRACE_CONT, tid, signal)
}

/// Leaves a thread stopped with its process, but hears of its end.
///
/// # Errors
/// When it is gone.
pub(super) fn listen(tid: i32) -> nix::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Lets a stopped thread go on, not traced any more, with a signal or 0.
///
/// # Errors
/// When it is gone.
pub(super) fn detach(tid: i32, signal: i32) -> nix::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal)
}

fn request(request: libc::c_uint, tid: i32, signal: i32) -> nix::Result<()> {
    // SAFETY: these requests take a signal by value and access no memory of this process.
    let result = unsafe { libc::ptrace(request, tid, 0_usize, signal as usize) };
    Errno::result(result).map(drop)
}

/// The registers of a stopped thread.
///
/// # Errors
/// When it is gone.
pub(super) fn registers(tid: i32) -> nix::Result<Registers> {
    let r = ptrace::getregs(Pid::from_raw(tid))?;
    Ok(Registers {
        general: [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15,
        ],
        ip: r.rip,
        flags: r.eflags,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
    })
}

/// Lets a stopped thread pass a breakpoint at its next instruction once.
///
/// # Errors
/// When it is gone.
pub(super) fn pass(tid: i32, registers: &Registers) -> nix::Result<()> {
    if registers.flags & RESUME_FLAG != 0 {
        return Ok(());
    }
    let offset = offset_of!(libc::user, regs) + offset_of!(libc::user_regs_struct, eflags);
    ptrace::write_user(Pid::from_raw(tid), offset as ptrace::AddressType, (registers.flags | RESUME_FLAG) as i64)
}

/// The vector registers of a stopped thread.
pub(super) fn vectors(tid: i32, layout: &super::xstate::Layout) -> Option<Box<Vectors>> {
    let mut area = vec![0_u8; layout.bytes];
    let mut part = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
    // SAFETY: the kernel writes at most iov_len bytes to the area, which lives, and the length to `part`.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, X86_XSTATE, &raw mut part) };
    let read = if result < 0 { return None } else { part.iov_len };
    Some(layout.parse(area.get(..read)?))
}

/// Whether a deadline has passed.
pub(super) fn is_over(deadline: Instant) -> bool {
    Instant::now() >= deadline
}
