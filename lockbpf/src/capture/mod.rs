//! Live capture: the eBPF object, where its probes go, and the stream of events that comes back.

pub mod access;
pub mod aside;
pub mod attach;
pub mod awaited;
mod batch;
pub mod btf;
pub mod calibrate;
pub mod calibrate_target;
pub mod cgroup;
mod cpu_clock;
pub mod cpu_use;
pub mod demo_target;
pub mod described;
pub mod earlier;
pub mod edits;
pub mod elf;
pub mod events;
mod exits;
pub mod feature;
pub mod focus;
pub mod gates;
pub mod gil;
pub mod go;
pub mod governor;
pub mod guardian;
pub mod holder;
mod hotplug;
pub mod hotspot;
pub mod inflight;
mod judge;
pub mod kernel;
pub mod launch;
pub mod lease;
pub mod library;
pub mod liveness;
pub mod mangled;
pub mod mapped;
pub mod maps;
mod mmap_events;
mod multi;
pub mod named;
pub mod newcomers;
pub mod object;
pub mod offspring;
mod on_demand;
mod open_stacks;
mod owner;
mod perf_uprobe;
pub mod placer;
mod points;
pub mod privilege;
pub mod probe_table;
pub mod prologue;
pub(crate) mod pthread;
pub mod put_off;
pub mod python;
mod raw_program;
pub mod reader;
pub mod remover;
mod rings;
pub mod seccomp;
pub mod seccomp_target;
pub mod serve;
pub mod session;
pub mod shared;
pub mod site;
pub mod stack_copies;
pub mod suspend;
mod sweeper;
pub mod target;
mod thread_fd;
pub mod unusable;
pub mod unwatched;
pub mod user;
mod verifier;
pub mod waits;
mod witness;

use crate::rights;
use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use std::io;
use std::path::{Path, PathBuf};

/// Why capture could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The kernel refused the maps.
    #[error("failed to create the eBPF maps: {0}")]
    Load(#[source] EbpfError),
    /// The kernel refused a program.
    #[error("failed to load or attach eBPF program {name}")]
    Program {
        /// The program.
        name: String,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// The kernel refused a program with typed arguments.
    #[error("failed to load or attach eBPF program {name}: {reason}")]
    Typed {
        /// The program.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The embedded object, or a program of it, could not be made ready for this kernel.
    #[error("{0}")]
    Unprepared(String),
    /// A map operation failed.
    #[error("failed to access an eBPF map")]
    Map(#[from] MapError),
    /// The embedded object lacks a map that this version expects.
    #[error("the embedded eBPF object has no map {0}: rebuild it with `cargo xtask build-ebpf`")]
    NoMap(&'static str),
    /// The embedded object lacks a program that this version expects.
    #[error("the embedded eBPF object has no program {0}: rebuild it with `cargo xtask build-ebpf`")]
    NoProgram(&'static str),
    /// The number of CPUs is unknown.
    #[error("failed to read the number of CPUs from {path}")]
    Cpus {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread for what must go on meanwhile.
    #[error("failed to start a thread")]
    Thread(#[source] io::Error),
    /// What observing costs could not be measured.
    #[error("failed to calibrate: {0}")]
    Calibrate(#[source] io::Error),
    /// The events that were asked for cannot be counted.
    #[error(transparent)]
    Events(#[from] events::EventsError),
    /// Not one uprobe could be placed.
    #[error("failed to place any uprobe: {0}")]
    NothingAttached(String),
}

/// The nice value of threads on which the target depends: they need little, but that at once.
const NICE: i32 = -10;
/// That of threads for which nobody waits.
const PATIENT: i32 = 19;

/// Lets this thread run before others. If that is refused, windows are less exact.
fn be_quick() {
    set_nice(NICE);
}

/// Lets this thread run before all that are not of real-time classes; what it forks is not. Returns whether that is granted.
fn be_first() -> bool {
    set_class(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
}

/// Ends [`be_first`].
fn be_one_of_many() {
    set_class(libc::SCHED_OTHER, 0);
}

/// Gives this thread a scheduling class, if it may have it. Returns whether it may.
fn set_class(class: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: for this thread; the parameters live.
    unsafe { libc::sched_setscheduler(0, class, &raw const parameters) == 0 }
}

/// Lets all others run before this thread. If that is refused, it runs as they do.
pub fn be_patient() {
    set_nice(PATIENT);
}

/// Gives this thread a nice value, if it may have it.
fn set_nice(nice: i32) {
    let thread = nix::unistd::gettid().as_raw().cast_unsigned();
    // SAFETY: no memory is passed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) };
}

/// Whether the kernel has a tracepoint, as far as tracefs tells.
fn has_tracepoint(category: &str, name: &str) -> bool {
    let mut places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].iter();
    rights::reach(|| places.any(|root| Path::new(root).join("events").join(category).join(name).is_dir()))
}
