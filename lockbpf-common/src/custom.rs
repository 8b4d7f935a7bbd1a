//! Locks that the user has described (`--locks`): what the programs on their functions have to know. The attach cookie's detail has the
//! [`number`] of a function; a function names its kind of lock.

use crate::via::Via;

/// Functions that can be described.
pub const MAX_FUNCTIONS: u32 = 256;
/// Kinds of locks that can be described.
pub const MAX_KINDS: u32 = 32;
/// Locks of these kinds whose kind and name are remembered.
pub const MAX_LOCKS: u32 = 65_536;
/// Bytes of a name that are kept.
pub const NAME: usize = 48;
/// Pointers that lead to a place, one behind the other.
pub const MAX_READS: usize = 3;

/// What a lock that is known by numbers has in place of an address. Nothing of a program is there: on x86-64 such addresses are the kernel's; on aarch64
/// programs are at the very beginning of their space, or from two thirds of it on.
const NUMBERED: u64 = 0x80 << NUMBERS_BITS;
/// Bits of the second number, and of both.
const PART_BITS: u32 = 32;
const NUMBERS_BITS: u32 = 40;

/// The lock of these numbers.
#[must_use]
#[inline(always)]
pub const fn numbered(number: u64, part: u64) -> u64 {
    NUMBERED | (number & 0xff) << PART_BITS | part & ((1 << PART_BITS) - 1)
}

/// The numbers of a lock, if it is known by such.
#[must_use]
#[inline(always)]
pub const fn numbers(lock: u64) -> Option<(u64, u64)> {
    if lock >> NUMBERS_BITS == NUMBERED >> NUMBERS_BITS {
        Some((lock >> PART_BITS & 0xff, lock & ((1 << PART_BITS) - 1)))
    } else {
        None
    }
}

/// Bits of a cookie's detail below what leads to the lock.
const LEAD_SHIFT: u32 = 8;
const _: () = assert!(MAX_FUNCTIONS <= 1 << LEAD_SHIFT);
/// Bits of what leads to the lock below a register's number, and below the bit that tells that the lock is what stands in memory.
const REGISTER_SHIFT: u32 = 16;
const MEMORY_SHIFT: u32 = 21;

/// The detail of a probe in the function of this number.
#[must_use]
#[inline(always)]
pub const fn detail(number: u8) -> u32 {
    number as u32
}

/// The number of the function of a probe with this detail.
#[must_use]
#[inline(always)]
pub const fn number(detail: u32) -> u16 {
    (detail & ((1 << LEAD_SHIFT) - 1)) as u16
}

/// The detail of a probe that is so many bytes before the end of the instruction that names the lock ([`Function::STATIC`]).
#[must_use]
#[inline(always)]
pub const fn with_distance(detail: u32, distance: u8) -> u32 {
    detail | (distance as u32) << LEAD_SHIFT
}

/// How far it is from the probe to the end of the instruction that names the lock, bytes.
#[must_use]
#[inline(always)]
pub const fn distance(detail: u32) -> u64 {
    (detail >> LEAD_SHIFT) as u64
}

/// The detail of a probe at a point that passes the lock in a register, by its place in the saved registers: at most 31. Or so many bytes behind
/// where the register points to, if that is told.
#[must_use]
#[inline(always)]
pub const fn with_operand(detail: u32, register: u8, memory: Option<i16>) -> u32 {
    let lead = match memory {
        None => 0,
        Some(offset) => 1 << MEMORY_SHIFT | offset as u16 as u32,
    };
    detail | (lead | ((register & 31) as u32) << REGISTER_SHIFT) << LEAD_SHIFT
}

/// What was told of [`with_operand`].
#[must_use]
#[inline(always)]
pub const fn operand(detail: u32) -> (u64, Option<i64>) {
    let lead = detail >> LEAD_SHIFT;
    let memory = if lead >> MEMORY_SHIFT & 1 == 0 { None } else { Some(lead as u16 as i16 as i64) };
    ((lead >> REGISTER_SHIFT & 31) as u64, memory)
}

/// What a function does.
pub mod does {
    /// Gets a lock, and waits for it.
    pub const ACQUIRE: u32 = 0;
    /// Gets a lock if it is free.
    pub const TRY: u32 = 1;
    /// Gives a lock back.
    pub const RELEASE: u32 = 2;
    /// A point: the wait for a lock begins.
    pub const WAITS: u32 = 3;
    /// A point: a lock was got.
    pub const ACQUIRED: u32 = 4;
    /// A point: a lock was not got.
    pub const FAILED: u32 = 5;
    /// Is called only by who has to wait for a lock, and returns when that is over.
    pub const BLOCKS: u32 = 6;
    /// Gives a lock to one who waits for it.
    pub const WAKES: u32 = 7;
}

/// What sort of lock a kind is.
pub mod sort {
    /// One holder.
    pub const MUTEX: u32 = 0;
    /// One writer or many readers.
    pub const RWLOCK: u32 = 1;
    /// One holder; its waiters stay on the CPU.
    pub const SPIN: u32 = 2;
}

/// By which results a function tells that it did not get the lock.
pub mod fails {
    /// It always gets it.
    pub const NEVER: u32 = 0;
    /// `int`: 0.
    pub const ZERO: u32 = 1;
    /// `int`: anything but 0.
    pub const NONZERO: u32 = 2;
    /// `int`: below 0.
    pub const NEGATIVE: u32 = 3;
    /// `bool`: false. Above its byte a register may hold anything.
    pub const FALSE: u32 = 4;
    /// `bool`: true.
    pub const TRUE: u32 = 5;
    /// A pointer, or another word of 64 bits: 0.
    pub const NULL: u32 = 6;
}

/// The operation by which a lock of this [`sort`] is requested.
#[must_use]
#[inline(always)]
pub const fn via(sort: u32, shared: bool, tries: bool) -> u32 {
    match (sort, shared, tries) {
        (sort::SPIN, _, false) => Via::CustomSpinLock as u32,
        (sort::SPIN, _, true) => Via::TryCustomSpinLock as u32,
        (sort::RWLOCK, true, false) => Via::CustomReadLock as u32,
        (sort::RWLOCK, true, true) => Via::TryCustomReadLock as u32,
        (sort::RWLOCK, false, false) => Via::CustomWriteLock as u32,
        (sort::RWLOCK, false, true) => Via::TryCustomWriteLock as u32,
        (_, _, false) => Via::CustomLock as u32,
        (_, _, true) => Via::TryCustomLock as u32,
    }
}

/// Whether a result says that the lock was not got, by one of [`fails`].
#[must_use]
#[inline(always)]
pub const fn has_failed(fails: u32, result: u64) -> bool {
    let (byte, int) = (result as u8, result as u32 as i32);
    match fails {
        fails::ZERO => int == 0,
        fails::NONZERO => int != 0,
        fails::NEGATIVE => int < 0,
        fails::FALSE => byte == 0,
        fails::TRUE => byte != 0,
        fails::NULL => result == 0,
        _ => false,
    }
}

/// An address that begins with another one: `base + offsets[0]`, or `*(base + offsets[0]) + offsets[1]`, and so on. Sums wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    /// Added to the base, then to each pointer that is read.
    pub offsets: [i32; MAX_READS + 1],
    /// How many pointers are followed, at most [`MAX_READS`].
    pub reads: u32,
    /// Bytes of what stands at the address; 0 if nothing is to be read there, [`Place::TEXT`] for text up to a NUL.
    pub size: u32,
}

impl Place {
    /// The size of text.
    pub const TEXT: u32 = u32::MAX;
    /// Nowhere.
    pub const NONE: Self = Self { offsets: [0; MAX_READS + 1], reads: 0, size: 0 };

    /// Whether there is such a place.
    #[must_use]
    #[inline(always)]
    pub const fn is_known(&self) -> bool {
        self.size != 0
    }
}

/// A function on locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Function {
    /// Where the lock is, from the argument on.
    pub lock: Place,
    /// Where it stands who holds the lock, from the same argument on: the thread's number as the program knows it.
    pub owner: Place,
    /// Where the single lock is, if its kind is known by numbers, from the same argument on.
    pub instance: Place,
    /// The value of `mode_argument` that asks for shared access.
    pub shared_value: u64,
    /// The number of the argument that leads to the lock, from 0 on; [`Function::STATIC`] if the code itself names it.
    pub argument: u32,
    /// The number of the argument that says how; [`Function::FIXED`] if none does.
    pub mode_argument: u32,
    /// Whether it asks for shared access, if no argument says how.
    pub shared: u32,
    /// Number of its kind.
    pub kind: u32,
    /// [`does`].
    pub does: u32,
    /// [`fails`].
    pub fails: u32,
}

impl Function {
    /// No argument says how.
    pub const FIXED: u32 = u32::MAX;
    /// No argument leads to the lock, but the last four bytes of an instruction: how far behind it the lock is.
    pub const STATIC: u32 = u32::MAX;
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Kind {
    /// Where a lock says whether it is taken, from the lock on.
    pub taken: Place,
    /// Where it says who holds it: the thread's number as the program knows it.
    pub owner: Place,
    /// What it is called, from the lock on: a number, or text.
    pub name: Place,
    /// The second number of locks that are known by numbers.
    pub part: Place,
    /// The bits of the first numbers, up to 63, of which the second one tells locks apart.
    pub parted: u64,
    /// The bits of [`Kind::taken`] of which one at least is set while an exclusive attempt has to wait.
    pub exclusive_mask: u64,
    /// The same for a shared attempt.
    pub shared_mask: u64,
    /// The bits of which one at least is set while somebody (perhaps) waits; 0 if they are not known.
    pub waiters_mask: u64,
    /// [`sort`].
    pub sort: u32,
    /// Whether its holder may get it once more.
    pub recursive: u32,
    /// Whether the bits of the masks are 0 while it is taken, not while it is free.
    pub inverted: u32,
    /// Whether locks are known by their numbers, wherever they are in memory.
    pub numbered: u32,
}

/// What is known of a lock of such a kind, found when it was asked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Introduced {
    /// The number that stands for its name.
    pub number: u64,
    /// Number of its kind.
    pub kind: u32,
    /// Whether the number or text could be read.
    pub is_named: u32,
    /// Its name, padded with NULs.
    pub text: [u8; NAME],
}

const _: () = assert!(size_of::<Place>() == 24);
const _: () = assert!(size_of::<Function>() == 3 * 24 + 8 + 24);
const _: () = assert!(size_of::<Kind>() == 4 * 24 + 4 * 8 + 16);
const _: () = assert!(size_of::<Introduced>() == 16 + NAME);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Function {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Kind {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Introduced {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_tells_the_function_and_what_leads_to_the_lock() {
        let told = with_distance(detail(255), 27);
        assert_eq!((number(told), distance(told)), (255, 27));
        for (register, memory) in [(0, None), (31, None), (20, Some(0)), (31, Some(i16::MIN)), (4, Some(i16::MAX))] {
            let told = with_operand(detail(200), register, memory);
            assert_eq!((number(told), operand(told)), (200, (register.into(), memory.map(i64::from))));
        }
    }

    #[test]
    fn numbers_make_a_lock() {
        for (number, part) in [(0, 0), (255, 0xffff_ffff), (4, 16_390)] {
            let lock = numbered(number, part);
            assert!(lock <= crate::record::LOW48);
            assert_eq!(numbers(lock), Some((number, part)));
        }
        // Programs of aarch64 begin at 0xaaaa…, and map files at 0xffff….
        for address in [0, 0x40_0000, 0x7fff_ffff_ffff, 0xaaaa_aaaa_a000, 0xffff_8000_0000, u64::MAX] {
            assert_eq!(numbers(address), None, "{address:#x}");
        }
    }

    #[test]
    fn results_are_read_at_their_width() {
        // The upper half of a register is nobody's where an `int` is returned, and all above the byte where a `bool` is.
        let dirty = 0xdead_beef_0000_0000;
        for (fails, result, failed) in [
            (fails::NEVER, 0, false),
            (fails::ZERO, dirty, true),
            (fails::ZERO, dirty | 1, false),
            (fails::NONZERO, dirty, false),
            (fails::NEGATIVE, dirty | 0xffff_ffff, true),
            (fails::NEGATIVE, 1, false),
            (fails::FALSE, dirty | 0x100, true),
            (fails::TRUE, dirty | 0x101, true),
            (fails::TRUE, dirty | 0x100, false),
            (fails::NULL, dirty, false),
            (fails::NULL, 0, true),
        ] {
            assert_eq!(has_failed(fails, result), failed, "{fails} {result:#x}");
        }
    }
}
