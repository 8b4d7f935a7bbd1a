//! Copies of user stacks, for unwinding in user space: what the kernel side copies, and what it is told of the stacks that
//! were unwound before, so that it need not copy them again.

use crate::python::{MAX_FRAMES, PythonFrame};

/// Bytes copied at once. A stack is copied from the last multiple of this below its top, so that a block never crosses a
/// page: either all of it can be read, or nothing.
pub const BLOCK: usize = 1_024;
/// Blocks of a stack that are copied at most: 16 KiB.
pub const BLOCKS: usize = 16;
/// Words of the saved user registers: of aarch64 all, of x86-64 the first 21.
pub const REGISTERS: usize = 34;
/// The first number of a copied stack, beyond those of the kernel's own map and of stacks read by user space.
pub const FIRST_COPY: u32 = 1 << 28;
/// Stacks that may be copied until user space has fetched them: 2 MiB, half of their ring buffer.
pub const AT_ONCE: u64 = 128;
/// After so many of them user space is woken, so that it makes them known before they come again.
pub const WAKE_AFTER: u64 = 8;
/// Stacks copied in one observation.
pub const MAX_COPIES: u32 = 1 << 20;
/// Words by which a stack is recognised; deeper ones are copied each time.
pub const MAX_SLOTS: usize = 96;
/// Stacks of one place ([`KnownKey`]) that can be told apart.
pub const WAYS: u32 = 4;
/// Stacks that can be recognised.
pub const MAX_KNOWN: u32 = 8_192;

/// Calls of one thread that are watched to their return at the same time.
pub const RETURNS: usize = 2;

/// How the stacks of a process are taken: values of a map by process number. Without an entry it is not decided: they are
/// walked and copied, and user space compares.
pub mod method {
    /// Walked along frame pointers by the kernel.
    pub const FRAMES: u32 = 1;
    /// Copied only.
    pub const COPY: u32 = 2;
    /// Copied, with the Python functions that the thread is in.
    pub const PYTHON: u32 = 3;
    /// Copied only. A machine makes the code while it runs.
    pub const GENERATED: u32 = 4;

    /// Whether nothing but stacks tells in which functions of the program a thread is: the calls that it makes are the interpreter's or the machine's.
    #[must_use]
    #[inline(always)]
    pub const fn tells_alone(method: u32) -> bool {
        method >= PYTHON
    }
}

/// Bits of [`StackCopy::how`].
pub mod how {
    /// Taken where a lock is given back, and not where it was asked for.
    pub const AT_RELEASE: u32 = 1;
    /// With Python's frames.
    pub const PYTHON: u32 = 2;
    /// The stack is another thread's of the process than the one that takes it.
    pub const OTHERS: u32 = 4;
    /// Taken so often that no room may be left for others: such stacks are copied only while half of [`AT_ONCE`](super::AT_ONCE) is free.
    pub const OFTEN: u32 = 8;
}

/// A user stack and the registers that unwinding it begins with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StackCopy {
    /// Process number.
    pub process: u32,
    /// The number by which records name this stack.
    pub number: u32,
    /// Number of the same stack walked along frame pointers; negative if it was not.
    pub frames: i32,
    /// Blocks that could be read; fewer than [`BLOCKS`] without the absent ones only where the stack's memory ends.
    pub blocks: u16,
    /// Blocks before them that could not: their page is not there, and what is in their place means nothing.
    pub absent: u16,
    /// [`how`] bits.
    pub how: u32,
    /// How many of Python's frames count.
    pub python_frames: u32,
    /// The return addresses of the calls that are watched to their return, innermost first: on the stack the kernel has put
    /// its own in their place. 0 for none.
    pub returns: [u64; RETURNS],
    /// The saved user registers, as the kernel orders them.
    pub registers: [u64; REGISTERS],
    /// Python's frames, innermost first.
    pub python: [PythonFrame; MAX_FRAMES],
    /// The blocks, the first one containing the stack pointer.
    pub stack: [[u8; BLOCK]; BLOCKS],
}

/// Where a stack was taken, as far as the registers and Python's frames tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct KnownKey {
    /// [`known_ip`], exclusive or the [fingerprint](PythonFrame::fingerprint) of Python's frames.
    pub ip: u64,
    /// Process number.
    pub process: u32,
    /// [`place`] of the stack pointer.
    pub place: u32,
}

/// The instruction pointer by which a stack is recognised. Of one taken where a lock is given back other frames are told than of the same
/// stack taken for another purpose, so it has another one: no address of the program's has the highest bit.
#[inline(always)]
#[must_use]
pub const fn known_ip(ip: u64, how: u32) -> u64 {
    ip ^ ((how & how::AT_RELEASE) as u64) << 63
}

/// The last twelve bits of a stack pointer, equal for the same calls in any thread since stacks begin at pages, and which of
/// the stacks of such a place it is.
#[inline(always)]
#[must_use]
pub const fn place(stack_pointer: u64, way: u32) -> u32 {
    (stack_pointer & 0xfff) as u32 | way << 12
}

/// A stack that was unwound before: the same return addresses, and methods that are interpreted, in the same places make the same stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KnownStack {
    /// Its number.
    pub stack: u32,
    /// How many of the following count.
    pub count: u32,
    /// Where the words are, in words above the stack pointer.
    pub slots: [u16; MAX_SLOTS],
    /// They, as they are in memory but for return addresses that the kernel replaces ([`StackCopy::returns`]).
    pub words: [u64; MAX_SLOTS],
}

const _: () = assert!(size_of::<StackCopy>() == 24 + 8 * RETURNS + 8 * REGISTERS + 16 * MAX_FRAMES + BLOCK * BLOCKS);
const _: () = assert!(size_of::<KnownKey>() == 16);
const _: () = assert!(size_of::<KnownStack>() == 8 + 10 * MAX_SLOTS);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for KnownKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for KnownStack {}
