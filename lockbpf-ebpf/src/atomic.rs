//! Atomic additions and maxima. The BPF target declares no compare-and-swap, so `AtomicU64` lacks `fetch_add`; the instructions are
//! there (`BPF_ATOMIC`, kernel 5.12) and the intrinsics compile to them.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

/// A word to which can be added atomically.
pub trait Word: Copy {}
impl Word for u32 {}
impl Word for u64 {}

/// Adds to a word that several CPUs may write at once.
#[inline(always)]
pub fn add<T: Word>(word: &mut T, n: T) {
    // SAFETY: a valid, aligned integer of a map value; all concurrent writers of it use this module.
    unsafe { atomic_xadd::<T, T, { AtomicOrdering::Relaxed }>(word, n) };
}

/// The same, returning the old value. Sequentially consistent, because LLVM 22 compiles the relaxed form to the
/// instruction that does not fetch, even where the result is used.
#[inline(always)]
pub fn fetch_add(word: &mut u64, n: u64) -> u64 {
    // SAFETY: as above.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(word, n) }
}

/// How often others may raise a word in between.
const TRIES: usize = 4;

/// Raises a word that several CPUs may raise at once to at least `n`.
#[inline(always)]
pub fn raise(word: &mut u64, n: u64) {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    let mut seen = *word;
    for _ in 0..TRIES {
        if n <= seen {
            break;
        }
        // SAFETY: as above.
        let (was, raised) = unsafe { atomic_cxchg::<u64, ORDER, ORDER>(word, seen, n) };
        if raised {
            break;
        }
        seen = was;
    }
}
