//! Calls of the C library's functions, of which the outermost one is charged with everything that happens inside of it.

use crate::counts::Counts;

/// The function of an attach cookie by which a function's end is seen, whichever it is. Others are the functions' numbers.
pub const END: u64 = 127;
/// The detail of an entry whose end is not seen: its calls are only counted.
pub const ENDLESS: u32 = 1;

/// One thread's calls of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CallKey {
    /// The thread's process, by number.
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// The function, by its place in user space's table.
    pub function: u32,
}

/// Sums over these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallSums {
    /// Calls inside of no other.
    pub calls: u64,
    /// Calls inside of others, which are charged with them.
    pub nested: u64,
    /// Calls whose end was seen: all below is theirs.
    pub ended: u64,
    /// Ended calls whose events could not be counted.
    pub uncounted: u64,
    /// From beginning to end, ns.
    pub wall_ns: u64,
    /// What the thread's events counted meanwhile.
    pub counts: Counts,
}

const _: () = assert!(size_of::<CallKey>() == 12);
const _: () = assert!(size_of::<CallSums>() == 40 + size_of::<Counts>());

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for CallKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for CallSums {}
