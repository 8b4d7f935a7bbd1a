//! Paths without a file system: a library that opens a file by its path gets a descriptor that is open already.
//!
//! `/proc/self/fd/N` is answered with N, and what is in [`LENT`](super::LENT) with the file that is lent; nothing else is there.

use super::{LENT, SandboxError};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// What is in [`LENT`](super::LENT); -1 for nothing.
static LENT_FILE: AtomicI32 = AtomicI32::new(-1);
/// Longest path that is looked at.
const MAX_PATH: usize = 256;
const OWN: &[u8] = b"/proc/self/fd/";

/// Has every path in [`LENT`](super::LENT) stand for this file, until another is lent, or none.
pub fn lend(file: Option<BorrowedFd<'_>>) {
    LENT_FILE.store(file.map_or(-1, |file| file.as_raw_fd()), Ordering::Relaxed);
}

/// Closes everything but standard input, output and error: what a shell has left open is none of this process's business.
pub(super) fn close_others() {
    // SAFETY: it is called before anything is opened here; a kernel without the call leaves the descriptors open.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// Has calls that a filter traps answered.
pub(super) fn install() -> Result<(), SandboxError> {
    let action = SigAction::new(SigHandler::SigAction(answer), SaFlags::SA_NODEFER, SigSet::empty());
    // SAFETY: the handler only makes system calls and reads this process's memory where a call's own arguments point to.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

/// A trapped call, as the registers have it.
struct Call {
    number: libc::c_long,
    arguments: [u64; 6],
}

#[cfg(target_arch = "x86_64")]
fn call(context: &libc::ucontext_t) -> Call {
    let register = |register: i32| context.uc_mcontext.gregs[register as usize] as u64;
    let arguments =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(register);
    Call { number: register(libc::REG_RAX) as libc::c_long, arguments }
}

#[cfg(target_arch = "x86_64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
}

#[cfg(target_arch = "aarch64")]
fn call(context: &libc::ucontext_t) -> Call {
    let registers = &context.uc_mcontext.regs;
    let [a, b, c, d, e, f, _, _, number, ..] = *registers;
    Call { number: number as libc::c_long, arguments: [a, b, c, d, e, f] }
}

#[cfg(target_arch = "aarch64")]
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    context.uc_mcontext.regs[0] = result as u64;
}

extern "C" fn answer(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO its own context, which no one else uses meanwhile.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let Call { number, arguments: [_, path, third, fourth, fifth, _] } = call(context);
    let result = match descriptor(path) {
        None => -i64::from(libc::ENOENT),
        // SAFETY: these calls write only where the caller of the trapped call wanted its answer.
        Some(fd) => unsafe {
            match number {
                libc::SYS_openat => made(libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3)),
                libc::SYS_newfstatat => made(libc::syscall(libc::SYS_fstat, fd, third)),
                libc::SYS_statx => {
                    let flags = third | libc::AT_EMPTY_PATH as u64;
                    made(libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, fourth, fifth))
                }
                _ => -i64::from(libc::EPERM),
            }
        },
    };
    set_result(context, result);
}

/// A call's result as the kernel gives it.
fn made(result: libc::c_long) -> i64 {
    if result >= 0 {
        return result;
    }
    -i64::from(nix::errno::Errno::last_raw())
}

/// The descriptor that a path stands for. `address` is where the trapped call has it.
fn descriptor(address: u64) -> Option<i32> {
    let mut path = [0_u8; MAX_PATH];
    let mut length = 0;
    while length < MAX_PATH {
        // SAFETY: a path ends with 0, and no byte after that is read. A wrong address ends this process, as its owner deserves.
        let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(address as usize + length).read_volatile() };
        if byte == 0 {
            break;
        }
        path[length] = byte;
        length += 1;
    }
    let path = path.get(..length)?;
    if path.strip_prefix(LENT.as_bytes()).is_some_and(|rest| rest.starts_with(b"/")) {
        return Some(LENT_FILE.load(Ordering::Relaxed)).filter(|&fd| fd >= 0);
    }
    std::str::from_utf8(path.strip_prefix(OWN)?).ok()?.parse().ok().filter(|&fd| fd >= 0)
}
