//! The compiled eBPF object of this architecture, embedded, and its loading.

use super::CaptureError;
use super::btf::TaskOffsets;
use crate::rights;
use aya::{Ebpf, EbpfLoader};
use lockbpf_common::config::{Config, mode};
use lockbpf_common::counts::Events;

#[cfg(target_arch = "x86_64")]
pub(super) static BYTES: &[u8] = aya::include_bytes_aligned!("../../ebpf/lockbpf.x86_64.o");
#[cfg(target_arch = "aarch64")]
pub(super) static BYTES: &[u8] = aya::include_bytes_aligned!("../../ebpf/lockbpf.aarch64.o");

/// A checksum of the object: objects of other versions have another one.
#[must_use]
pub fn fingerprint() -> u32 {
    crc32fast::hash(BYTES)
}

/// What else than locks the object is to be ready for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    /// Events to be counted.
    pub events: Events,
    /// Calls of the C library.
    pub library: bool,
    /// Room for stacks in each of the tables; `None` for all that there is.
    pub walked_stacks: Option<[u32; 2]>,
    /// What the kernel side says of its rare paths.
    pub kernel_log: bool,
}

/// Creates the maps and relocates the programs; none is loaded into the kernel yet.
///
/// # Errors
/// When the kernel refuses a map: rights, memory limits, or a map type it does not have.
pub(super) fn load(config: &Config, task: Option<TaskOffsets>, extras: Extras) -> Result<Ebpf, CaptureError> {
    let Extras { events, library, walked_stacks, kernel_log } = extras;
    let [task_tgid, task_parent, task_mm] = task.map_or([0; 3], |task| [task.tgid, task.real_parent, task.mm]);
    let log_level: u8 = if kernel_log { u8::MAX } else { 0 };
    let mut loader = EbpfLoader::new();
    if config.mode & mode::COPY_STACKS == 0 {
        // The least that a ring buffer can be: it is rounded up to a page.
        loader.map_max_entries("STACK_COPIES", 4_096);
    }
    if events.number() == 0 {
        for map in ["SITE_COUNTS", "THREAD_COUNTS", "EXITED_COUNTS"] {
            loader.map_max_entries(map, 1);
        }
    }
    if config.mode & mode::TRANSITIONS == 0 {
        for map in ["TRANSITIONS", "TRANSITION_SLOTS"] {
            loader.map_max_entries(map, 1);
        }
    }
    if let Some(room) = walked_stacks {
        for (map, room) in ["STACKS", "FURTHER_STACKS"].into_iter().zip(room) {
            loader.map_max_entries(map, room);
        }
    }
    if !library {
        loader.map_max_entries("CALL_SUMS", 1);
    }
    let loader = loader
        // Task storage: aya 0.14 creates it, but has no type for it.
        .allow_unsupported_maps()
        .override_global("CONFIG", config, true)
        .override_global("TASK_TGID", &task_tgid, true)
        .override_global("TASK_PARENT", &task_parent, true)
        .override_global("TASK_MM", &task_mm, true)
        .override_global("EVENTS", &events, true)
        .override_global("AYA_LOG_LEVEL", &log_level, true);
    // What aya finds out of the kernel here holds for all that it does.
    rights::reach(|| loader.load(BYTES)).map_err(CaptureError::Load)
}
