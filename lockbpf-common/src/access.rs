//! What the programs that stop threads for the access profiler are told, and what they count.

/// Locks that can be chosen.
pub const MAX_LOCKS: usize = 256;

/// One entry, written by user space before each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sampler {
    /// The attempt that is so many from now on is the one to be followed; 0 while none is wanted.
    pub remaining: u64,
    /// Attempts on chosen locks that were seen.
    pub seen: u64,
    /// Signals that the kernel did not send.
    pub refused: u64,
    /// The signal that stops a thread.
    pub signal: u32,
    /// 1 if only the locks in the map are chosen, 0 for all.
    pub chosen: u32,
}

const _: () = assert!(size_of::<Sampler>() == 32);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Sampler {}
