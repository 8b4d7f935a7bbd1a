//! Goroutines: a goroutine waits, whatever thread it goes on in. Where records tell threads, what stands for it has the top bit,
//! which no thread's id has (the kernel's go up to 2^22).

/// A goroutine of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct GoroutineKey {
    /// The process's number.
    pub process: u64,
    /// Address of its descriptor.
    pub descriptor: u64,
}

/// A wait of a goroutine for a lock, in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GoroutineWait {
    /// The lock.
    pub lock: u64,
    /// Return address of the call that asks for it.
    pub site: u64,
    /// When the wait began, ns.
    pub attempt_ns: u64,
    /// The opening of the gate in which it began.
    pub epoch: u64,
    /// What stands for the goroutine.
    pub tid: u32,
    /// [`crate::via::Via`] as a number.
    pub via: u32,
    /// Where it is: a number of the kernel side's own.
    pub stage: u32,
    /// Whether a wait of the same call for the same lock has been told before.
    pub told: u32,
}

const _: () = assert!(size_of::<GoroutineKey>() == 16);
const _: () = assert!(size_of::<GoroutineWait>() == 48);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for GoroutineKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for GoroutineWait {}

/// Tells a goroutine from a thread.
const GOROUTINE: u32 = 1 << 31;
/// Tells an address from a number.
const ADDRESS: u32 = 1 << 30;
/// Tells a [task](crate::task)'s from a goroutine's address.
const TASK: u32 = 1 << 29;
/// Descriptors are so aligned, as a power of two.
const ALIGN: u32 = 5;

/// What is known of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goroutine {
    /// The low 30 bits of its number.
    Number(u32),
    /// The low 34 bits of its descriptor's address.
    Address(u64),
}

/// What stands for the goroutine of a number.
#[must_use]
#[inline(always)]
pub const fn of_number(number: u64) -> u32 {
    GOROUTINE | number as u32 & (ADDRESS - 1)
}

/// What stands for the goroutine whose descriptor is at an address.
#[must_use]
#[inline(always)]
pub const fn of_address(address: u64) -> u32 {
    GOROUTINE | ADDRESS | (address >> ALIGN) as u32 & (TASK - 1)
}

/// The goroutine that a thread's id stands for; `None` if it is a thread's or a task's.
#[must_use]
pub const fn goroutine(tid: u32) -> Option<Goroutine> {
    match (tid & GOROUTINE != 0, tid & ADDRESS != 0, tid & TASK != 0) {
        (false, ..) | (true, true, true) => None,
        (true, false, _) => Some(Goroutine::Number(tid & (ADDRESS - 1))),
        (true, true, false) => Some(Goroutine::Address(((tid & (TASK - 1)) as u64) << ALIGN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goroutines_are_no_threads() {
        assert_eq!(goroutine(4_194_304), None);
        assert_eq!(goroutine(of_number(17)), Some(Goroutine::Number(17)));
        assert_eq!(goroutine(of_address(0xc0_0000_61a0)), Some(Goroutine::Address(0x61a0)));
    }
}
