//! The process in which files of observed programs are parsed. Whatever those contain, and whatever they make a parser do, the process has no
//! rights to misuse: no capabilities, no network, no file system, no other process, bounded memory and CPU time.
//!
//! It gets opened files over a socket ([`socket`]) and answers over it. [`enter`] gives up everything else, for good.

mod process;
pub mod socket;
mod syscalls;
mod trap;

pub use process::{NotRead, Process, READY, is_own, memory, pids, resident};
pub use trap::lend;

use caps::{CapSet, Capability};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

/// The helper that the process is.
pub const COMMAND: &str = "reader";
/// A directory that is nowhere: a path in it stands for the file that is lent ([`lend`]).
pub const LENT: &str = "/.lent";

/// Bytes of memory of its own. Files that it maps do not count.
const MEMORY: u64 = 1 << 30;
/// Seconds of CPU time, if nobody is there who would end it earlier.
const CPU_SECONDS: u64 = 600;
/// Files open at one time: those of all programs, and what belongs to them.
const FILES: u64 = 16_384;

/// Why the process is not confined. Then nothing may be parsed in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A bound.
    #[error("failed to bound its memory, CPU time or files: {0}")]
    Limit(#[from] nix::Error),
    /// Capabilities.
    #[error("failed to give up its capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// System calls.
    #[error("failed to filter its system calls: {0}")]
    Filter(String),
}

/// Gives up everything that parsing does not need. Only the calling thread is confined: to be called before there are others.
///
/// # Errors
/// When anything is left that should have been given up.
pub fn enter() -> Result<(), SandboxError> {
    trap::close_others();
    for (resource, most) in [
        (Resource::RLIMIT_DATA, MEMORY),
        (Resource::RLIMIT_CPU, CPU_SECONDS),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NPROC, 0),
    ] {
        setrlimit(resource, most, most)?;
    }
    let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, FILES.min(hard), FILES.min(hard))?;
    nix::sys::prctl::set_dumpable(false)?;
    // It may be busy when the other end of its socket is closed.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    give_up_capabilities()?;
    trap::install()?;
    syscalls::confine()
}

fn give_up_capabilities() -> Result<(), SandboxError> {
    for capability in caps::all() {
        // Without CAP_SETPCAP there is none that could be gained: nothing can be executed.
        if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    Ok(())
}
