//! The private child that filters its system calls and returns from a function: it exits, unless the kernel kills it there.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::alarm;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

/// What it prints when it may be watched.
pub(super) const READY: &str = "ready\n";
/// Its longest life, s.
const LIFE_S: u32 = 10;

/// The function that is watched to its return.
#[inline(never)]
pub(super) extern "C" fn watched() {
    black_box(());
}

/// Waits for a line, then filters and returns. The exit status tells whether it could.
#[must_use]
pub fn run() -> ExitCode {
    // Not before exec: the kernel forgets it when it executes a file that has capabilities.
    let _ = set_pdeathsig(Signal::SIGKILL);
    alarm::set(LIFE_S);
    match wait() {
        Ok(()) => filtered(),
        Err(_) => ExitCode::FAILURE,
    }
}

fn wait() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(READY.as_bytes())?;
    out.flush()?;
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// From the filter on, nothing but the end is allowed.
fn filtered() -> ExitCode {
    let call = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call comes first in what a filter sees.
        call(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        call(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        call(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        call(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let on: libc::c_ulong = 1;
    let off: libc::c_ulong = 0;
    // SAFETY: prctl reads the filter, which lives until after the call, and _exit ends the process without any of its clean-up.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, off, off, off) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::c_ulong::from(libc::SECCOMP_MODE_FILTER), &raw const filter) != 0
        {
            return ExitCode::FAILURE;
        }
        watched();
        libc::_exit(0)
    }
}
