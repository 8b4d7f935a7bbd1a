//! Locks whose waiters sleep each on a word of its own, in a structure of their thread (parking_lot, CPython from 3.13 on): the lock's address
//! stands beside the word.

/// Value of the word while its thread sleeps.
pub const PARKED: u32 = 1;
/// The record of a wait that counts for the lock has this in place of the expected value. Locks and runtimes do not use it as a value of
/// their words.
pub const FOR_LOCK: u32 = u32::from_ne_bytes(*b"park");
/// The same for a lock of CPython's: many of these stand for a condition, and only the waiter's stack tells.
pub const FOR_PYTHON: u32 = u32::from_ne_bytes(*b"pyth");
/// Bytes from the beginning of the structure to the word.
pub const WORD: u64 = 32;
/// Locks have addresses from here on.
const LOWEST: u64 = 4_096;
/// Addresses of programs have fewer bits.
const ADDRESS_BITS: u32 = 47;
/// Tokens that threads hand over are small numbers: those of parking_lot's own locks have five bits.
const MAX_TOKEN: u64 = 255;

/// `parking_lot_core::ThreadData` of version 0.9, as rustc lays it out on machines of 64 bits: its largest members first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadData {
    /// What the thread is parked for: the lock's address; one more for the second queue of a read-write lock.
    pub key: u64,
    /// The next one in the queue.
    pub next: u64,
    /// What it was told by the thread that woke it last.
    pub unpark_token: u64,
    /// What it tells those who wake it.
    pub park_token: u64,
    /// The word on which it sleeps, and in the byte behind it whether it has a deadline.
    pub word: u64,
}

impl ThreadData {
    /// What it is parked for, if these bytes are such a structure of a thread that is about to sleep.
    #[must_use]
    #[inline(always)]
    pub const fn parked_for(&self) -> Option<u64> {
        let is_link = self.next >> ADDRESS_BITS == 0 && self.next & 7 == 0;
        let are_tokens = self.unpark_token <= MAX_TOKEN && self.park_token <= MAX_TOKEN;
        let (word, has_deadline) = (self.word as u32, (self.word >> 32) as u8);
        let is_word = word == PARKED && has_deadline <= 1;
        if is_link && are_tokens && is_word && self.key >= LOWEST && self.key >> ADDRESS_BITS == 0 {
            Some(self.key)
        } else {
            None
        }
    }
}

/// `struct wait_entry` of CPython 3.13 and 3.14 (`Python/parking_lot.c`) on the stack of a thread that waits, up to the semaphore of the C library in
/// which it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WaitEntry {
    /// What the thread tells whoever wakes it: of one that waits for a mutex, where more stands on its stack.
    pub argument: u64,
    /// What it waits for: the mutex.
    pub address: u64,
    /// The semaphore's value, and in the upper half how many threads wait for it. The word on which it sleeps is the lower half.
    pub semaphore: u64,
}

impl WaitEntry {
    /// Bytes from its beginning to the word.
    pub const WORD: u64 = 16;
    /// Bytes from an object's member behind its head, as a lock's mutex is, back to the pointer to the object's type.
    pub const TYPE: u64 = 8;
    /// Bytes from the beginning of a type to the pointer to its name.
    pub const TYPE_NAME: u64 = 24;
    /// How the name begins of the type whose objects threads wait for in the same way, and that is no lock (`_queue.SimpleQueue`).
    pub const QUEUE: u64 = u64::from_ne_bytes(*b"_queue.S");
    /// Bytes of a thread's stack in which the argument lies above the word.
    const NEAR: u64 = 4_096;

    /// The mutex for which a thread waits with the semaphore at `word`, if these bytes are such an entry.
    #[must_use]
    #[inline(always)]
    pub const fn parked_for(&self, word: u64) -> Option<u64> {
        let is_near = self.argument.wrapping_sub(word) < Self::NEAR;
        let (value, waiters) = (self.semaphore as u32, self.semaphore >> 32);
        let is_address = self.address >= LOWEST && self.address >> ADDRESS_BITS == 0;
        if is_near && value <= 1 && waiters <= 1 && is_address { Some(self.address) } else { None }
    }
}

/// What stands in place of the value that a thread's sleep expects, if that is one for a lock.
#[must_use]
#[inline(always)]
pub const fn in_place_of(expected: u32) -> u32 {
    if expected == 0 { FOR_PYTHON } else { FOR_LOCK }
}

/// Whether a wait with this in place of the expected value counts for a lock.
#[must_use]
#[inline(always)]
pub const fn is_for_lock(expected: u32) -> bool {
    matches!(expected, FOR_LOCK | FOR_PYTHON)
}

/// Whether threads are perhaps parked for this at the second queue of a read-write lock, whose address is that of a word of the machine's: then
/// the lock begins a byte before.
#[must_use]
#[inline(always)]
pub const fn may_be_second_queue(key: u64) -> bool {
    key & 7 == 1
}

/// Whether it is a mutex that is waited for, if it is one, by its byte.
#[must_use]
#[inline(always)]
pub const fn is_waited_for(byte: u8) -> bool {
    byte & 2 != 0
}

/// Places for processes that have such locks, by their numbers modulo this; of several in one place the last is known.
pub const MAX_PROCESSES: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const PARKED_HERE: ThreadData =
        ThreadData { key: 0x7f00_1234_5678, next: 0, unpark_token: 1, park_token: 0, word: 0xabcd_ef01_0000_0001 };

    #[test]
    fn a_parked_thread_tells_its_lock() {
        assert_eq!(PARKED_HERE.parked_for(), Some(0x7f00_1234_5678));
        assert_eq!(ThreadData { next: 0x7f00_0000_0008, word: 1, ..PARKED_HERE }.parked_for(), Some(0x7f00_1234_5678));
    }

    #[test]
    fn a_thread_of_pythons_tells_what_it_waits_for() {
        let at = 0x7f44_3885_74c0;
        let entry = WaitEntry { argument: 0x7f44_3885_7580, address: 0x7f44_3988_5ea0, semaphore: 1 << 32 };
        assert_eq!(entry.parked_for(at), Some(0x7f44_3988_5ea0));
        assert_eq!(WaitEntry { semaphore: 0, ..entry }.parked_for(at), Some(0x7f44_3988_5ea0), "it is about to sleep");
        for other in [
            // Who waits for an event has nothing to tell.
            WaitEntry { argument: 0, ..entry },
            WaitEntry { argument: at - 8, ..entry },
            WaitEntry { address: 8, ..entry },
            WaitEntry { address: u64::MAX, ..entry },
            WaitEntry { semaphore: 2 << 32, ..entry },
            WaitEntry { semaphore: 2, ..entry },
        ] {
            assert_eq!(other.parked_for(at), None, "{other:?}");
        }
    }

    #[test]
    fn anything_else_tells_none() {
        for other in [
            ThreadData { key: 0, ..PARKED_HERE },
            ThreadData { key: u64::MAX, ..PARKED_HERE },
            ThreadData { next: 1, ..PARKED_HERE },
            ThreadData { next: 1 << 60, ..PARKED_HERE },
            ThreadData { unpark_token: 0x5500_0000_0000, ..PARKED_HERE },
            ThreadData { park_token: 256, ..PARKED_HERE },
            // It has been woken, or has no flag behind it.
            ThreadData { word: 0, ..PARKED_HERE },
            ThreadData { word: 2 << 32 | 1, ..PARKED_HERE },
        ] {
            assert_eq!(other.parked_for(), None, "{other:?}");
        }
    }
}
