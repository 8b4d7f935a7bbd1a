//! When [virtual threads](crate::virtual_thread) of Java's leave the thread that carries them, and when they go on: each time, whatever for. Where that is too
//! often for a budget, user space takes these probes away. Of those that are parked for something it is recorded, since locks of `java.util.concurrent` are waited for in that way, and only the stack
//! tells. Of those that make others wait it is [kept](goroutine) as what they did meanwhile.

use crate::context::cookie_of;
use crate::emit::emit_for;
use crate::follow;
use crate::gate::pass_ungated;
use crate::goroutine;
use crate::maps::{CONFIG, count};
use crate::memory::{peek, read};
use crate::off_cpu::Absence;
use crate::stack::take_stack;
use crate::thread::{Thread, now};
use crate::virtual_thread::{IS_X86_64, carrier, note, object, over};
use aya_ebpf::EbpfContext;
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use lockbpf_common::counter::Counter;
use lockbpf_common::function;
use lockbpf_common::gate;
use lockbpf_common::off_cpu::Reason;
use lockbpf_common::record::{FutexFields, FutexRecord, FutexResult, TOP_WORDS};
use lockbpf_common::stack_copy::how;
use lockbpf_common::task::of_virtual;
use lockbpf_common::thin::Weight;
use lockbpf_common::virtual_thread::{
    COMPACT_SHIFT, Carrier, PARKED, VirtualWait, parked_by, parked_for, standing_for, stands_for, uncoloured,
};

/// The functions by which virtual threads leave, and go on. The first argument is what the machine knows of the thread.
#[uprobe]
pub fn virtual_absence(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    let Some((t, epoch)) = pass_ungated(cookie) else { return 0 };
    let Some(carrier) = carrier(t) else { return 0 };
    let (thread, returns): (u64, u64) = (ctx.arg(0).unwrap_or(0), ctx.arg(1).unwrap_or(0));
    let Some(id) = read::<u64>(thread + u64::from(carrier.id)) else { return 0 };
    if gate::function(cookie) == function::VIRTUAL_LEAVES {
        let parked = parked(&carrier, thread, id);
        return leaves(ctx.as_ptr(), t, id, parked, epoch);
    }
    // The machine also comes by when a function returns to frames that it had left out so far.
    if returns & 0xff == 0 { goes_on(t, id, epoch, now) } else { 0 }
}

/// What the virtual thread that the thread runs is parked for ([`parked_for`]); 0 if it is not. Locks of `java.util.concurrent` tell, and much else
/// does; threads that sleep or wait for input are not parked for anything.
#[inline(always)]
fn parked(carrier: &Carrier, thread: u64, id: u64) -> u64 {
    if carrier.blocker == 0 {
        return 0;
    }
    let Some(own) = object(thread, carrier.runs) else { return 0 };
    match pointed_at(carrier, own + u64::from(carrier.blocker)) {
        Some(blocker) => parked_for(owner(carrier, own, blocker).filter(|&owner| owner != id).map_or(0, of_virtual)),
        None => 0,
    }
}

/// The number of the virtual thread that has what another one (`own`) is parked for, if that is a lock. Else what is read means nothing; then it is no
/// object of the same class.
#[inline(always)]
fn owner(carrier: &Carrier, own: u64, blocker: u64) -> Option<u64> {
    if carrier.owner == 0 || carrier.number == 0 {
        return None;
    }
    let owner = pointed_at(carrier, blocker + u64::from(carrier.owner))?;
    if class(carrier, owner)? != class(carrier, own)? {
        return None;
    }
    peek::<u64>(owner + u64::from(carrier.number))
}

/// The address of the object that is pointed at there; `None` for null.
#[inline(always)]
fn pointed_at(carrier: &Carrier, at: u64) -> Option<u64> {
    if carrier.pointer == 4 {
        let narrow = u64::from(peek::<u32>(at)?);
        return if narrow == 0 { None } else { Some(carrier.base + (narrow << (carrier.shift & 31))) };
    }
    match uncoloured(peek::<u64>(at)?, IS_X86_64) {
        Some(0) | None => None,
        Some(address) => Some(address),
    }
}

/// What tells the class of an object.
#[inline(always)]
fn class(carrier: &Carrier, object: u64) -> Option<u64> {
    if carrier.compact != 0 {
        Some(peek::<u64>(object)? >> COMPACT_SHIFT)
    } else {
        peek::<u32>(object + 8).map(u64::from)
    }
}

/// A virtual thread is about to leave the thread that carries it. Notes it if it is parked, or makes others wait. Where waits are thinned, one that is
/// parked stands for several: it is of no use without its stack, so both are thinned at once.
#[inline(never)]
fn leaves(ctx: *mut c_void, t: &Thread, id: u64, parked: u64, epoch: u64) -> u32 {
    let now = now();
    let parked = match follow::one_of(t) {
        _ if parked == 0 => 0,
        Some(exponent) => standing_for(parked, exponent),
        None => {
            count(Counter::Thinned);
            0
        }
    };
    if parked == 0 && !goroutine::is_watched(t.process, goroutine::of_virtual(of_virtual(id)), now) {
        // The last time it may not have left after all, and so not have gone on.
        let _ = over(t, id, |wait| wait.lock == 0);
        return 0;
    }
    let (_, owner) = parked_by(parked);
    if owner != 0 {
        // One without a place is charged, and what it did is not known.
        let _ = goroutine::watch(t.process, goroutine::of_virtual(owner), now);
    }
    let stack = take_stack(ctx, t.process, t.slot, how::OFTEN);
    note(t, id, VirtualWait { lock: 0, site: parked, attempt_ns: now, epoch, tid: of_virtual(id), stack });
    0
}

/// A virtual thread goes on. If it had not left for a monitor, it did something else instead of running.
#[inline(never)]
fn goes_on(t: &Thread, id: u64, epoch: u64, now: u64) -> u32 {
    let Some(wait) = over(t, id, |wait| wait.lock == 0).filter(|wait| wait.epoch == epoch) else { return 0 };
    let VirtualWait { attempt_ns: since_ns, site: parked, tid, stack, .. } = wait;
    let reason = Reason::Sleeping as u32;
    goroutine::keep(t, goroutine::of_virtual(tid), &Absence { since_ns, end_ns: now, run_delay_ns: 0, stack, reason });
    let wait_ns = now.saturating_sub(since_ns);
    let config = CONFIG.load();
    let (is_parked, owner) = parked_by(parked);
    // Only its stack tells what for, if there is one.
    if !is_parked || wait_ns < config.stack_wait_ns || wait_ns < config.min_wait_ns {
        return 0;
    }
    if owner != 0 {
        goroutine::tell(t, goroutine::of_virtual(owner), owner, (since_ns, now));
    }
    let fields = FutexFields {
        end_ns: now,
        wait_ns,
        word: id,
        process: t.process,
        tid,
        expected: PARKED,
        owner,
        waker: 0,
        stack,
        result: FutexResult::Slept as u8,
        weight: Weight { waits: stands_for(parked) as u8, stacks: 0 },
    };
    let record = FutexRecord { fields: FutexRecord::pack(&fields), top: [0; TOP_WORDS] };
    emit_for(t.slot, &record, Counter::FutexRecords);
    0
}
