//! Why something cannot be observed, in the words of whoever asked for it.

use crate::capture::unusable::Unusable;
use std::io;

/// Why a target cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such process or thread.
    #[error("failed to attach to pid {pid}: no such process")]
    NoSuchProcess {
        /// As given.
        pid: u32,
    },
    /// A thread of the kernel's own.
    #[error("failed to attach to pid {pid}: {name} is a kernel thread, and lockbpf observes programs")]
    KernelThread {
        /// As given.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It has exited and waits for its parent.
    #[error("failed to attach to pid {pid}: {name} has exited already (its parent has not collected it)")]
    Zombie {
        /// As given.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// Somebody else's, and the rights to look at it are only lent.
    #[error(
        "failed to observe process {pid} ({name}): it is not yours (its user is {owner}); only members of the group that lockbpf's file belongs to \
         may observe others' processes, or run lockbpf with sudo"
    )]
    NotYours {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// Whose it is.
        owner: String,
    },
    /// Everybody, and the rights to look at them are only lent.
    #[error(
        "failed to observe others' processes: the capabilities of lockbpf's file are for your own ones (--pid, -- CMD); only members of the group \
         that the file belongs to may observe others', or run lockbpf with sudo"
    )]
    OthersNotYours,
    /// Its mappings may not be read.
    #[error(
        "failed to attach to pid {pid}: not permitted to read the mappings of {name}, which belongs to {owner}; \
         CAP_SYS_PTRACE is needed: run lockbpf with sudo, or see `lockbpf doctor`"
    )]
    NotPermitted {
        /// As given.
        pid: u32,
        /// Its name.
        name: String,
        /// User name or id.
        owner: String,
    },
    /// It is there, but none of its lock functions can be probed, and what was asked for needs them.
    #[error("failed to attach to pid {pid} ({name}): {why}; `--futex-only` still shows its waits")]
    Unusable {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// What stands against it.
        why: Unusable,
    },
    /// A command that cannot be observed, or not even started.
    #[error("failed to prepare {command}: {why}")]
    Command {
        /// As given.
        command: String,
        /// What stands against it.
        why: String,
    },
    /// System-wide, and not one C library.
    #[error(
        "failed to find a C library to probe: none of the {0} processes that could be read maps one that lockbpf \
         supports; `--futex-only` still shows waits"
    )]
    NoLibraries(usize),
    /// `/proc` failed otherwise.
    #[error("failed to read {path}: {source}")]
    Proc {
        /// File.
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
}
