//! Locks whose waiters sleep each on a word of its own, in a structure of their thread (parking_lot): the lock's address stands beside
//! the word.

/// Value of the word while its thread sleeps.
pub const PARKED: u32 = 1;
/// The record of a wait that counts for the lock has this in place of the expected value. Locks and runtimes do not use it as a value of
/// their words.
pub const FOR_LOCK: u32 = u32::from_ne_bytes(*b"park");
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
