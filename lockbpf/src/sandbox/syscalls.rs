//! The system calls that parsing needs: reading and mapping open files, memory, the socket, the end.

use super::SandboxError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls that are allowed with any arguments. `sendmsg` and `recvmsg` are those of the one socket: there is no way to another.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Where the flags are among the arguments of the calls that look at a file.
const NEWFSTATAT_FLAGS: u8 = 3;
const STATX_FLAGS: u8 = 2;

fn failed(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Filter(error.to_string())
}

/// Restricts the calling thread to them, for good.
pub(super) fn confine() -> Result<(), SandboxError> {
    let allow = program(allowed()?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?;
    // What opens or looks at a file by its path is answered by a handler, from the descriptors that there are.
    let trapped = program(trapped()?, SeccompAction::Allow, SeccompAction::Trap)?;
    seccompiler::apply_filter(&trapped).map_err(failed)?;
    // The first filter has to let the second be installed; once that is there, no more are.
    seccompiler::apply_filter(&allow).map_err(failed)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(failed)?;
    filter.try_into().map_err(failed)
}

fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, SandboxError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // Memory is never executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let not_executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        rules.insert(call, vec![rule(2, SeccompCmpArgLen::Qword, not_executable, 0)?]);
    }
    let command = |command: i32| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command as u64);
    rules.insert(
        libc::SYS_fcntl,
        vec![command(libc::F_DUPFD_CLOEXEC)?, command(libc::F_GETFD)?, command(libc::F_GETFL)?],
    );
    for (call, at) in [(libc::SYS_newfstatat, NEWFSTATAT_FLAGS), (libc::SYS_statx, STATX_FLAGS)] {
        rules.insert(call, vec![flags(at, libc::AT_EMPTY_PATH as u64)?]);
    }
    // The others of these never get this far.
    rules.insert(libc::SYS_openat, Vec::new());
    Ok(rules)
}

fn flags(at: u8, value: u64) -> Result<SeccompRule, SandboxError> {
    rule(at, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(libc::AT_EMPTY_PATH as u64), value)
}

/// Calls of which this is true of one argument.
fn rule(argument: u8, length: SeccompCmpArgLen, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, SandboxError> {
    let condition = SeccompCondition::new(argument, length, op, value).map_err(failed)?;
    SeccompRule::new(vec![condition]).map_err(failed)
}

fn trapped() -> Result<BTreeMap<i64, Vec<SeccompRule>>, SandboxError> {
    Ok(BTreeMap::from([
        (libc::SYS_openat, Vec::new()),
        (libc::SYS_newfstatat, vec![flags(NEWFSTATAT_FLAGS, 0)?]),
        (libc::SYS_statx, vec![flags(STATX_FLAGS, 0)?]),
    ]))
}
