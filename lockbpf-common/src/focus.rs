//! Focus: which locks are recorded, while the others are only counted. Changed by user space while the programs run.

/// Locks in the focus at one time: those that user space named, and those that the kernel side found they depend on.
pub const MAX_FOCUSED: u32 = 8_192;
/// Ranges of addresses in the focus.
pub const MAX_RANGES: usize = 32;

/// Bits of [`Focus::mode`]; while it is 0, everything is recorded.
pub mod mode {
    /// Only what has to do with the locks and sites in the focus.
    pub const ON: u32 = 1;
    /// Sites are in the focus. Futex waits outside probed calls are then all recorded, since their sites are found in
    /// user space only.
    pub const SITES: u32 = 1 << 1;
    /// Long futex waits outside probed calls are recorded, too: who sleeps for nothing that was known to matter when the focus was chosen.
    pub const LONG: u32 = 1 << 2;
}

/// Futex waits from this time on are long, ns: no thread has many of them.
pub const LONG_NS: u64 = 1_000_000_000;

/// A lock in the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FocusKey {
    /// Address of the lock.
    pub lock: u64,
    /// Process number.
    pub process: u64,
}

/// Addresses in the focus: a variable that locks are part of, or a function that requests them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// Locks: the first address. Sites: the address before the first, since a return address lies behind its call.
    pub start: u64,
    /// Locks: the address after the last. Sites: the last.
    pub end: u64,
    /// Process number.
    pub process: u32,
    /// 1 for sites, 0 for locks.
    pub sites: u32,
}

/// What is in the focus beside single locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Focus {
    /// [`mode`] bits.
    pub mode: u32,
    /// Valid entries of `ranges`.
    pub used: u32,
    /// The ranges.
    pub ranges: [Range; MAX_RANGES],
}

impl Range {
    /// Whether an address lies in it.
    #[must_use]
    #[inline(always)]
    pub const fn covers(&self, lock: u64, site: u64) -> bool {
        if self.sites != 0 { site > self.start && site <= self.end } else { lock >= self.start && lock < self.end }
    }
}

const _: () = assert!(size_of::<FocusKey>() == 16);
const _: () = assert!(size_of::<Focus>() == 8 + MAX_RANGES * 24);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for FocusKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Focus {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_variables_and_of_return_addresses() {
        let variable = Range { start: 0x100, end: 0x128, process: 1, sites: 0 };
        assert!(variable.covers(0x100, 0) && variable.covers(0x127, 0));
        assert!(!variable.covers(0x128, 0x100) && !variable.covers(0xff, 0x100));
        let function = Range { sites: 1, ..variable };
        assert!(function.covers(0, 0x101) && function.covers(0, 0x128));
        assert!(!function.covers(0x101, 0x100) && !function.covers(0x101, 0x129));
    }
}
