//! CPython's global interpreter lock in memory (`struct _gil_runtime_state`, CPython 3.7 to 3.14): a flag, guarded by a mutex and
//! waited for by a condition variable of the C library. The flag's address is the lock's.

/// What the lock is called.
pub const NAME: &str = "Python GIL";
/// What the mutex that guards it is called.
pub const MUTEX_NAME: &str = "Python GIL, mutex";
/// Bytes from the flag to the mutex that guards it, which is locked and unlocked whenever the flag changes.
pub const MUTEX: u64 = 64;
/// Bytes from the flag to the condition variable by which threads wait for it.
pub const CONDITION: u64 = 16;
/// Bytes of the C library's condition variable.
pub const CONDITION_SIZE: u64 = 48;
/// Bytes of the C library's mutex.
const MUTEX_SIZE: u64 = if cfg!(target_arch = "aarch64") { 48 } else { 40 };
/// Bytes from the flag to the condition variable by which a thread that was made to give the lock back waits until another has it.
pub const SWITCH_CONDITION: u64 = MUTEX + MUTEX_SIZE;
/// Bytes from the flag to its mutex.
pub const SWITCH_MUTEX: u64 = SWITCH_CONDITION + CONDITION_SIZE;
/// Bytes from the flag to the end of the structure.
pub const END: u64 = SWITCH_MUTEX + MUTEX_SIZE;
/// Where in a condition variable of glibc's the word is that counts who waits (`__wrefs`), in bytes: from 2.41 on, and from 2.25 on.
pub const WAITERS: [u64; 2] = [28, 36];
/// Bits of that word below the count.
pub const WAITERS_SHIFT: u32 = 3;
