//! Functions that only those call who have to wait for a described lock, and those who give one to somebody that waits. A free lock comes to none of
//! them, so their probes need no windows: what a lock's waiters do is seen all the time, and nothing else of it.

use super::{CUSTOM_FUNCTIONS, CUSTOM_KINDS, arguments, at, checked_word, chosen, introduce, value};
use crate::calls::return_address;
use crate::context::{cookie_of, stack_pointer};
use crate::custom_call::Blocked;
use crate::gate::pass_ungated;
use crate::maps::{CONFIG, FutexWord, WAKERS, Waker, count};
use crate::off_cpu::record_absence;
use crate::registers::{FRAME_POINTER, user_register};
use crate::section::fits;
use crate::stack::take_stack;
use crate::thread::{Thread, now, tid};
use crate::unexplained::{given, record_wake};
use crate::unseen::Waited;
use crate::watched::{self, is_due};
use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::counter::Counter;
use lockbpf_common::custom::{Function, Kind, has_failed, number, numbered, numbers};
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::record::{CALLERS, WakeFields};
use lockbpf_common::waiting::Waiting;

/// In place of a process, where [`WAKERS`] knows a single lock by an address that is the same in all processes, which may wake one another.
const INSTANCES: u64 = 1 << 32;

/// Mean time between two stacks of a thread's waits, ns; the same for its wakes. A stack costs more than all else here.
const STACK_NS: u64 = 4_000_000;

/// A thread has to wait.
#[uprobe]
pub fn custom_blocks(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    if let Some((t, epoch)) = pass_ungated(cookie) {
        blocks(&ctx, t, cookie, epoch, now);
    }
    0
}

/// It need not wait any more: whether it has the lock.
#[uretprobe]
pub fn custom_blocked(ctx: RetProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    if let Some((t, epoch)) = pass_ungated(cookie) {
        let Blocked { lock, epoch: of, .. } = t.blocked;
        t.blocked.lock = 0;
        t.end_wait();
        if lock != 0 && of == epoch {
            let failed = function(cookie).is_some_and(|f| has_failed(f.fails, ctx.ret()));
            t.blocked.has_failed = u32::from(failed);
            blocked(ctx.as_ptr(), t, lock, via(cookie), now);
        }
    }
    0
}

/// A thread gives a lock to one that waits for it.
#[uprobe]
pub fn custom_wakes(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    if let Some((t, _epoch)) = pass_ungated(cookie) {
        wakes(&ctx, t, cookie, now);
    }
    0
}

#[inline(always)]
fn function(cookie: u64) -> Option<&'static Function> {
    CUSTOM_FUNCTIONS.get(u32::from(number(gate::detail(cookie))))
}

/// As what a wait counts.
#[inline(always)]
fn via(cookie: u64) -> Via {
    if gate::is_ungated(cookie) { Via::CustomWait } else { Via::CustomLock }
}

/// The lock that is there: by its address, or by the numbers that it has.
#[inline(always)]
fn lock_at(there: u64, kind: &Kind) -> u64 {
    if kind.numbered == 0 || there == 0 {
        return there;
    }
    let Some(number) = checked_word(at(there, &kind.name), kind.name.size) else { return 0 };
    let part = if number < 64 && kind.parted >> number & 1 != 0 { value(there, &kind.part) } else { 0 };
    numbered(number, part)
}

/// The single lock's address; 0 if nothing is known of it.
#[inline(always)]
fn instance(base: u64, f: &Function) -> u64 {
    if f.instance.is_known() { at(base, &f.instance) } else { 0 }
}

/// By what [`WAKERS`] knows the single lock; `None` if there is no telling which one it is.
#[inline(always)]
fn known_by(t: &Thread, lock: u64, instance: u64) -> Option<FutexWord> {
    if instance != 0 {
        return Some(FutexWord { addr: instance, process: INSTANCES });
    }
    let by_address = numbers(lock).is_none();
    by_address.then_some(FutexWord { addr: lock, process: u64::from(t.process) })
}

#[inline(always)]
fn blocks(ctx: &ProbeContext, t: &mut Thread, cookie: u64, epoch: u64, now: u64) {
    let Some(f) = function(cookie) else { return };
    let Some(kind) = CUSTOM_KINDS.get(f.kind) else { return };
    let (base, site) = (chosen(arguments(ctx), f.argument), return_address(ctx));
    let lock = lock_at(at(base, &f.lock), kind);
    if lock == 0 || !fits(lock, site) {
        return;
    }
    if t.blocked.lock != 0 && t.blocked.epoch == epoch {
        // It left the function by a jump.
        count(Counter::AttemptWhileAttempting);
    }
    introduce(t.process, lock, f.kind);
    let owner = value(base, &f.owner) as u32;
    let instance = instance(base, f);
    t.blocked = Blocked { lock, site, attempt_ns: now, epoch, instance, owner, ..t.blocked };
    if !gate::is_ungated(cookie) {
        // Nobody may see it end.
        return;
    }
    t.begin_wait(&Waiting {
        since_ns: now,
        lock,
        site,
        frame: user_register(FRAME_POINTER),
        process: t.process,
        owner,
        via: Via::CustomWait as u32,
        kind: 0,
        expected: stack_pointer(ctx) as u32,
        word_offset: 0,
        tid: tid(),
        check: 0,
    });
}

/// The thread's wait for this lock is over. A function of its own, so that its stack is not that of all.
#[inline(never)]
fn blocked(ctx: *mut c_void, t: &mut Thread, lock: u64, via: Via, now: u64) -> u32 {
    let Blocked { site, attempt_ns, instance, owner, has_failed, .. } = t.blocked;
    let outcome = if has_failed != 0 { Outcome::TimedOut } else { Outcome::Unseen };
    let long = now.saturating_sub(attempt_ns) >= CONFIG.load().stack_wait_ns;
    let takes_stack = long && is_due(&mut t.blocked.stack_ns, STACK_NS, now);
    let stack = if takes_stack { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    let (tid, waker, flags) = (tid(), known_by(t, lock, instance), flag::CONTENDED | flag::SLEPT);
    Waited { lock, site, attempt_ns, tid, owner, stack, waker, flags, via }.tell(t, outcome, now);
    0
}

#[inline(always)]
fn wakes(ctx: &ProbeContext, t: &mut Thread, cookie: u64, now: u64) {
    let Some(f) = function(cookie) else { return };
    let Some(kind) = CUSTOM_KINDS.get(f.kind) else { return };
    let base = chosen(arguments(ctx), f.argument);
    let lock = lock_at(at(base, &f.lock), kind);
    if lock == 0 || !fits(lock, 0) {
        return;
    }
    let instance = instance(base, f);
    let woken = Waker::at(now, tid());
    if instance != 0 {
        // A failure only loses who it was.
        let _ = WAKERS.insert(FutexWord { addr: instance, process: INSTANCES }, woken, 0);
    }
    gives(ctx.as_ptr(), t, lock, now);
}

/// The thread gives this lock to another one. That is recorded if that one may have waited for long enough. A function of its own, for the same reason.
#[inline(never)]
fn gives(ctx: *mut c_void, t: &mut Thread, lock: u64, now: u64) -> u32 {
    let tid = tid();
    let Some(since_ns) = given(t, lock, Waker::at(now, tid)) else { return 0 };
    let long = since_ns >= CONFIG.load().stack_wait_ns;
    let takes_stack = long && is_due(&mut t.blocked.gave_stack_ns, STACK_NS, now);
    let stack = if takes_stack { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    record_absence(t);
    let watched_ns = now.saturating_sub(watched::gave_back(t, now.saturating_sub(since_ns), now, long));
    let process = t.process;
    // Those who give locks back call one another so often that the words at the top of the stack would not reach the program.
    let woken = 1 | CALLERS;
    record_wake(t, &WakeFields { time_ns: now, since_ns, watched_ns, word: lock, process, tid, woken, stack }, ctx)
}
