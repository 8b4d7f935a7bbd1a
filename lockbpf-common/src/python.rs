//! CPython's frames in memory: what the kernel side has to know of an interpreter to read which Python functions a thread is in, and
//! what it makes of that.

/// Frames that are read of a thread, innermost first; further ones are left out.
pub const MAX_FRAMES: usize = 16;
/// Threads among which the current one is looked for, the youngest first.
pub const MAX_THREADS: usize = 256;
/// Words of a frame that are read.
pub const FRAME_WORDS: usize = 8;

/// Frames that follow the words at the top of a stack of which no copy was made, innermost first.
pub const FRAMES_IN_TOP: usize = 3;
/// The bit that tells them from words of the stack: no address of a program's has it.
pub const IN_TOP: u64 = 1 << 63;

/// Where a process's interpreter keeps what is read, by process number. Offsets in bytes, if nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Interpreter {
    /// Address of the pointer to the first thread of the main interpreter.
    pub threads: u64,
    /// Where the interpreter's code begins.
    pub code_start: u64,
    /// Where it ends.
    pub code_end: u64,
    /// In a thread: the pointer to the next one.
    pub next: u32,
    /// In a thread: the number that the system has for it, in the pid namespace of the process.
    pub native_id: u32,
    /// In a thread: the pointer to what has the pointer to the innermost frame; 0 if the thread has that itself.
    pub holder: u32,
    /// In a thread, or behind that pointer: the pointer to the innermost frame.
    pub innermost: u32,
    /// In a frame: the pointer to the code object, in words.
    pub code: u32,
    /// In a frame: the pointer to the calling frame, in words.
    pub previous: u32,
    /// In a frame: the pointer to the instruction that it is at, in words.
    pub instruction: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// A function that a thread is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonFrame {
    /// Address of its code object.
    pub code: u64,
    /// Address of the instruction that it is at, within the code object.
    pub instruction: u64,
}

impl PythonFrame {
    /// What stands for it among the return addresses of a stack: as those do, it follows the beginning of the instruction.
    #[inline(always)]
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.instruction.wrapping_add(1)
    }

    /// Goes on with a number that tells the frames of one stack from those of another; 0 before the first.
    #[inline(always)]
    #[must_use]
    pub const fn fingerprint(&self, before: u64) -> u64 {
        (before.rotate_left(5) ^ self.instruction).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A place in a Python function where a lock was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonPlace {
    /// Process number.
    pub process: u64,
    /// The place.
    pub frame: PythonFrame,
}

/// Places that are told once each.
pub const MAX_PLACES: usize = 8_192;

const _: () = assert!(size_of::<PythonPlace>() == 24);
const _: () = assert!(size_of::<Interpreter>() == 56);
const _: () = assert!(size_of::<PythonFrame>() == 16);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Interpreter {}
