//! Process numbers, as both sides give them.

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

/// Number of series in the map of serial numbers.
pub const SERIALS: usize = 5;
/// Index of the last process number given.
pub const SERIAL_PROCESS: u32 = 0;
/// Index of the number of thread slots ever used.
pub const SERIAL_SLOT: u32 = 1;
/// Index of the number of slots for sums ever used.
pub const SERIAL_SUMS: u32 = 2;
/// Index of the number of stacks copied.
pub const SERIAL_COPY: u32 = 3;
/// Index of the number of slots for transitions ever used.
pub const SERIAL_TRANSITIONS: u32 = 4;
