//! Waits that are followed where waits are thinned ([`lockbpf_common::thin`]): while one lasts, each wake at its word is recorded, so that
//! whoever gave the lock back meanwhile is known. Nobody is followed where all waits are recorded.

use crate::atomic::add;
use crate::futex_call::WAIT;
use crate::maps::{FutexWord, METHODS, THINNING, WAKERS, Waker};
use crate::thread::Thread;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::{btf_maps::Array, macros::btf_map};
use lockbpf_common::gate::MAX_SLOTS;
use lockbpf_common::stack_copy::method;
use lockbpf_common::thin::{self, Typical, Weight, at_most, is_any, is_followed, of_time, thins_waits};

/// How long the waits of each slot's processes are. Written where waits are thinned, for each of those that are recorded however long they last;
/// of the slot's process before nothing is left after some thirty.
#[btf_map]
static TYPICAL: Array<Typical, { MAX_SLOTS as usize }> = Array::new();

/// For how many waits one stands whose length nobody knows ([`thin::one_of`]).
#[inline(always)]
pub fn one_of(t: &Thread) -> Option<u32> {
    let level = level(t);
    thin::one_of(level, random(level))
}

#[inline(always)]
fn level(t: &Thread) -> u32 {
    THINNING.get(t.slot).copied().unwrap_or(0)
}

/// A random number, if anything is thinned; else 0.
#[inline(always)]
fn random(level: u32) -> u32 {
    // SAFETY: no arguments.
    if level == 0 { 0 } else { unsafe { bpf_get_prandom_u32() } }
}

/// A wait of the thread's begins, for the word of its futex call.
#[inline(always)]
pub fn begins(t: &mut Thread) {
    let level = level(t);
    if !thins_waits(level) {
        return;
    }
    t.futex.random = random(level);
    if is_followed(level, t.futex.random) {
        t.futex.followed = 1;
        let word = FutexWord { addr: t.futex.word, process: u64::from(t.process) };
        match WAKERS.get_ptr_mut(word) {
            // SAFETY: the kernel returned a valid entry.
            Some(known) => add(unsafe { &mut (*known).followers }, 1),
            None => {
                // A failure only leaves the wait less well explained.
                let _ = WAKERS.insert(word, Waker { followers: 1, ..Waker::NOBODY }, 0);
            }
        }
    }
}

/// The thread's wait is over, or was forgotten.
#[inline(always)]
pub fn ends(t: &mut Thread) {
    if t.futex.followed == 0 {
        return;
    }
    t.futex.followed = 0;
    let word = FutexWord { addr: t.futex.word, process: u64::from(t.process) };
    if let Some(known) = WAKERS.get_ptr_mut(word) {
        // SAFETY: as above.
        let known = unsafe { &mut *known };
        if known.followers > 0 {
            add(&mut known.followers, u32::MAX);
        }
    }
}

/// Forgets the wait that the thread was in when it was seen last, if its end was not seen.
#[inline(always)]
pub fn forget(t: &mut Thread) {
    if t.futex.role == WAIT {
        ends(t);
    }
}

/// For how many waits one that lasted so long stands, if it is recorded, and the random number that tells. That of a long wait is that of the
/// wake that ended it, at `woken_ns`, if that is known (another process may have made it): then both are recorded.
#[inline(always)]
pub fn wait(t: &Thread, wait_ns: u64, woken_ns: u64) -> (Weight, u32) {
    let (level, typical) = (level(t), TYPICAL.get_ptr_mut(t.slot));
    let Some(typical) = typical else { return (Weight::default(), 0) };
    let random = if t.futex.random == 0 { random(level) } else { t.futex.random };
    // SAFETY: the kernel returned a valid entry; of two waits at the same time either may be lost.
    let typical = unsafe { &mut *typical };
    let told = Told::of(t, level);
    if thins_waits(level) && is_any(level, random) {
        *typical = typical.with(wait_ns);
    }
    let by_time = told.own_words || typical.is_long(wait_ns);
    let random = if by_time && woken_ns >= t.futex.enter_ns { of_time(woken_ns) } else { random };
    (told.weight(level, wait_ns, *typical), random)
}

/// The same of a wake `now`, the first at its word for so long: whether it is recorded, and with its stack.
#[inline(always)]
pub fn wake(t: &Thread, since_ns: u64, now: u64) -> (bool, bool) {
    let level = level(t);
    let typical = TYPICAL.get(t.slot).copied().unwrap_or_default();
    let told = Told::of(t, level);
    // Whoever sleeps on a word of its own has been awake since.
    let longest_ns = if told.own_words { since_ns } else { at_most(since_ns) };
    let by_time = told.own_words || typical.is_long(longest_ns);
    let random = if by_time { of_time(now) } else { random(level) };
    let is_recorded = by_time && told.weight(level, longest_ns, typical).records(random);
    let records = !thins_waits(level) || t.futex.followers != 0 || is_recorded;
    (records, told.weight(level, since_ns, typical).takes_stack(random))
}

/// What tells of waits in a process.
#[derive(Clone, Copy)]
struct Told {
    /// Only their stacks tell where they were: none of those that are recorded lacks its own.
    by_stacks: bool,
    /// Threads sleep on words of their own, whatever they wait for. Nobody else gives a lock back at such a word, so following a wait tells nothing. Chance decides
    /// on all that ends in the same slice of time instead.
    own_words: bool,
}

impl Told {
    /// At this level. Nothing is looked up where all is recorded.
    #[inline(always)]
    fn of(t: &Thread, level: u32) -> Self {
        // SAFETY: copied at once.
        let taken = if level == 0 { None } else { unsafe { METHODS.get(t.process) }.copied() };
        Self { by_stacks: taken.is_some_and(method::tells_alone), own_words: taken == Some(method::GENERATED) }
    }

    #[inline(always)]
    fn weight(self, level: u32, wait_ns: u64, typical: Typical) -> Weight {
        let weight = Weight::of(level, wait_ns, typical);
        if self.by_stacks { weight.whole() } else { weight }
    }
}

/// A thread gives a lock back `now` that it took `since_ns` ago at the earliest. Returns from when on its absences are recorded: all that time, or less where waits are
/// thinned and the one that ends may be a typical one.
#[inline(always)]
pub fn concerned(t: &Thread, since_ns: u64, now: u64) -> u64 {
    let typical = TYPICAL.get(t.slot).copied().unwrap_or_default();
    let is_typical = thins_waits(level(t)) && typical.is_known() && !typical.is_long(since_ns);
    now.saturating_sub(if is_typical { since_ns.min(typical.concerns_ns()) } else { since_ns })
}
