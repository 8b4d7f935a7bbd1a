//! What is known of [virtual threads](lockbpf_common::virtual_thread) of Java's: which one a thread of the system's runs, and since when those wait that
//! none runs. Seen are their [monitors](crate::virtual_monitor), and [whatever they wait for](crate::virtual_absence).

use crate::maps::count;
use crate::memory::read;
use crate::thread::Thread;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::macros::btf_map;
use lockbpf_common::config::MAX_WAITS;
use lockbpf_common::counter::Counter;
use lockbpf_common::virtual_thread::{Carrier, MAX_PROCESSES, VirtualKey, VirtualWait, uncoloured};

/// What the pointers of the machine's collectors depend on.
pub const IS_X86_64: bool = cfg!(bpf_target_arch = "x86_64");

/// By process: where the threads of the system's tell which of Java's they run, found by user space.
#[btf_map]
static CARRIERS: Array<Carrier, { MAX_PROCESSES as usize }> = Array::new();

/// Waits in progress. LRU, since some leave theirs behind: the oldest goes where there are too many, and is not told.
#[btf_map]
static VIRTUAL_WAITS: LruHashMap<VirtualKey, VirtualWait, { MAX_WAITS as usize }> = LruHashMap::new();

/// Where the process's threads tell what they run; `None` if that is not known.
#[inline(always)]
pub fn carrier(t: &Thread) -> Option<Carrier> {
    let known = CARRIERS.get(t.process % MAX_PROCESSES).copied()?;
    (known.process == t.process && known.process != 0).then_some(known)
}

/// The object of Java's whose handle is there.
#[inline(always)]
pub fn object(thread: u64, handle: u32) -> Option<u64> {
    let pointer = read::<u64>(read::<u64>(thread + u64::from(handle))?)?;
    uncoloured(pointer, IS_X86_64)
}

/// Notes since when a virtual thread does not run.
#[inline(always)]
pub fn note(t: &Thread, id: u64, wait: VirtualWait) {
    // A failure loses the wait.
    if VIRTUAL_WAITS.insert(VirtualKey { process: u64::from(t.process), id }, wait, 0).is_err() {
        count(Counter::WaitsFull);
    }
}

/// The wait of a virtual thread that is over now: since when it did not run. It may have begun before the gate was closed.
#[inline(always)]
pub fn over(t: &Thread, id: u64, is: impl Fn(&VirtualWait) -> bool) -> Option<VirtualWait> {
    let key = VirtualKey { process: u64::from(t.process), id };
    // SAFETY: copied at once; only the virtual thread itself changes its entry, in one thread at a time.
    let wait = unsafe { VIRTUAL_WAITS.get(key) }.copied().filter(is)?;
    let _ = VIRTUAL_WAITS.remove(key);
    Some(wait)
}
