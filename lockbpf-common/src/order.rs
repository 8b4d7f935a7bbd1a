//! Orders of locking: which lock was taken while which other was held. Kept in the kernel, since nearly all nested
//! sections are uncontended and leave no record.

/// A pair of locks of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct OrderKey {
    /// The lock held: of several, the one taken last.
    pub outer: u64,
    /// The lock taken.
    pub inner: u64,
    /// Process number.
    pub process: u32,
    /// Explicit padding, 0.
    pub reserved: u32,
}

/// What was seen of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OrderSums {
    /// Return address of the call that took the outer lock, the first time.
    pub outer_site: u64,
    /// Return address of the call that took the inner lock, the first time.
    pub inner_site: u64,
    /// How often.
    pub count: u64,
    /// The first thread that did so.
    pub tid: u32,
    /// 1 if other threads did so, too.
    pub others: u32,
}

const _: () = assert!(size_of::<OrderKey>() == 24);
const _: () = assert!(size_of::<OrderSums>() == 32);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for OrderKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for OrderSums {}
