//! `pthread_once`: one thread runs the initialiser and holds the control word meanwhile; others wait for it. A call that finds it
//! done is none of a lock, and is not counted.
//!
//! An initialiser may throw, so the calls are not watched to their return: glibc wakes whoever waits at the end of each
//! initialiser, in vain or not, and that is the release. musl wakes only if somebody waits; of its calls only those that wait are counted.

use crate::calls::return_address;
use crate::counts;
use crate::section::{End, attempt, close, contend, fits, hold_apart};
use crate::thread::{Thread, now};
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::kind::{Outcome, Via};

/// The bits of the control word that are its state. Bits beyond it count glibc's forks.
const STATE: u32 = 3;
/// The state in glibc and musl once the initialiser has been run. Until then it is 0, or odd while somebody runs it.
const DONE: u32 = 2;

/// The initialiser that a thread found not yet begun when it wanted it last.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Begun {
    /// The control word; 0 while there is none.
    pub control: u64,
    site: u64,
    since_ns: u64,
}

/// Entry of `pthread_once`.
#[inline(always)]
pub fn enter(ctx: &ProbeContext, t: &mut Thread) {
    let control: u64 = ctx.arg(0).unwrap_or(0);
    // SAFETY: a faulting address is an error from the helper, not a fault.
    let state = unsafe { bpf_probe_read_user(control as *const u32) }.unwrap_or(DONE);
    if state & STATE == DONE {
        return;
    }
    let site = t.site(control, return_address(ctx));
    if !fits(control, site) {
        return;
    }
    let now = now();
    if state & 1 != 0 {
        attempt(t, Via::Once as u32, control, site, now);
        contend(t, 0);
        return;
    }
    t.once = Begun { control, site, since_ns: now };
    if !t.is_musl() {
        counts::attempt(t);
        let held = t.begun(control, site, Via::Once as u32, now);
        hold_apart(t, &held);
    }
}

/// The thread is about to wait on `word`: if that is the initialiser that it found not yet begun, another thread has begun it in
/// between. Returns 0. A function of its own, so that its instructions burden no other.
#[inline(never)]
pub fn waits(t: &mut Thread, word: u64) -> u32 {
    let Begun { control, site, since_ns } = t.once;
    if t.pending.via != 0 || control == 0 || control != word {
        return 0;
    }
    t.once.control = 0;
    if let Some(top) = (t.depth as usize).checked_sub(1)
        && holds(t, top, word)
    {
        t.depth -= 1;
    }
    attempt(t, Via::Once as u32, control, site, since_ns);
    contend(t, 0);
    0
}

#[inline(always)]
fn holds(t: &Thread, i: usize, word: u64) -> bool {
    let h = &t.held[i & (MAX_HELD - 1)];
    h.via == Via::Once as u32 && h.lock == word
}

/// The thread wakes whoever waits on `word`, at `now`: its initialiser has ended, if it is that control word.
#[inline(always)]
pub fn wakes<C: EbpfContext>(ctx: &C, t: &mut Thread, word: u64, now: u64) {
    let Some(top) = (t.depth as usize).checked_sub(1) else { return };
    if holds(t, top, word) {
        t.once.control = 0;
        close(ctx, t, top, End { now, outcome: Outcome::Released, waited_for: true });
    }
}
