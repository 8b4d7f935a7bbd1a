//! Process numbers, as both sides give them.

/// How the names of lockbpf's helpers begin: by that, and by their parent, the programs know whom to leave out.
pub const HELPER_NAME: [u8; 8] = *b"lockbpf-";

/// A process and the number it was given; the map's key is its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessEntry {
    /// Start of the process, ns since boot; 0 if user space registered it, which cannot know it to the nanosecond.
    pub start_ns: u64,
    /// Its number.
    pub process: u64,
}

// SAFETY: repr(C), integers only, no padding: any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for ProcessEntry {}

/// A process that an observed one has started, until it is certain that none of the observed one's breakpoints is in its memory;
/// the map's key is its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Child {
    /// When it was started, `CLOCK_MONOTONIC`, ns.
    pub forked_ns: u64,
    /// [`child`] bits.
    pub flags: u64,
}

/// Bits of [`Child::flags`].
pub mod child {
    /// Its memory is its parent's until it replaces its image: `vfork`, `posix_spawn`.
    pub const SHARES: u64 = 1;
    /// Probes were in place in its parent, or had been: their removal takes a moment.
    pub const PROBED: u64 = 1 << 1;
}

/// Children at one time.
pub const MAX_CHILDREN: usize = 4_096;

// SAFETY: repr(C), integers only, no padding: any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Child {}

/// Number of series in the map of serial numbers.
pub const SERIALS: usize = 7;
/// Index of the last process number given.
pub const SERIAL_PROCESS: u32 = 0;
/// Index of the number of thread slots ever used.
pub const SERIAL_SLOT: u32 = 1;
/// Index of the number of slots for sums ever used.
pub const SERIAL_SUMS: u32 = 2;
/// Index of the number of slots ever used for sums by site, of locks together.
pub const SERIAL_SITE_SUMS: u32 = 5;
/// Index of the number of slots ever used for sums of all other locks.
pub const SERIAL_OTHER_SUMS: u32 = 6;
/// Index of the number of stacks copied.
pub const SERIAL_COPY: u32 = 3;
/// Index of the number of slots for transitions ever used.
pub const SERIAL_TRANSITIONS: u32 = 4;
