//! Calls of the C library's functions (`--functions`): how many, how long, and what events counted meanwhile. Everything inside
//! of a call is charged to the outermost one. Only if such functions are asked for are these programs loaded.
//!
//! A call is known by where its return address is: whatever ends with the stack pointer there ends it, be it the function itself or
//! one that it has jumped to. A call that begins further up the stack tells that the one before it has ended, by a jump or a
//! cancellation. Ends are seen at the functions' own instructions, or, of functions that nothing can be thrown through, by
//! return probes.

use crate::calls::{return_address, return_address_above};
use crate::context::{cookie_of, flags, instruction_pointer, is_return_half, stack_pointer};
use crate::counts;
use crate::gate::pass;
use crate::maps::{CALL_SUMS, CALLS, count};
use crate::reading::{Reading, stamp};
use crate::thread::{Thread, now, task, tid};
use aya_ebpf::bindings::{BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_task_storage_get;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::counter::Counter;
use lockbpf_common::gate;
use lockbpf_common::library::{CallKey, CallSums, END, ENDLESS};

/// What a session's entry handler returns so that the return half is skipped.
const DECLINE: u32 = 1;
/// Bytes that a return takes off the stack.
#[cfg(bpf_target_arch = "x86_64")]
const RETURNED: u64 = 8;
#[cfg(bpf_target_arch = "aarch64")]
const RETURNED: u64 = 0;

/// The outermost call that a thread is in. Zeroed storage is the valid initial state.
#[repr(C)]
pub struct Call {
    /// The stack pointer at its beginning; 0 while there is no call.
    sp: u64,
    /// Where it returns to.
    returns_to: u64,
    /// When it began.
    start_ns: u64,
    /// The opening of the gate in which it began.
    epoch: u64,
    /// The process of the thread then: not that of a program executed since.
    process: u32,
    /// Which function.
    function: u32,
    /// The thread's events when it began, and when it ended.
    start: Reading,
    end: Reading,
}

/// Entries of functions whose ends are seen at their own instructions, or not at all; and those instructions.
#[uprobe]
pub fn library(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    if !gate::counts(cookie, flags(&ctx)) {
        return 0;
    }
    let Some(t) = pass(cookie) else { return 0 };
    let (frame, function) = (gate::end_frame(cookie), gate::function(cookie));
    let sp = stack_pointer(&ctx) + frame;
    if function == END {
        leave(t, sp);
    } else {
        let ends = gate::detail(cookie) & ENDLESS == 0;
        enter(t, function as u32, sp, return_address_above(&ctx, frame), u32::from(ends));
    }
    0
}

/// Both halves of functions whose ends are seen by a return probe. Declared by hand: aya's `uprobe` attribute would return 0
/// whatever this returns.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn library_session(ctx: *mut c_void) -> u32 {
    let ctx = ProbeContext::new(ctx);
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return DECLINE };
    let sp = stack_pointer(&ctx);
    if returns(instruction_pointer(&ctx), sp) {
        leave(t, sp - RETURNED);
        return 0;
    }
    if is_return_half(&ctx) {
        return DECLINE;
    }
    u32::from(enter(t, gate::function(cookie) as u32, sp, return_address(&ctx), 1) == 0)
}

/// Their entries, without sessions.
#[uprobe]
pub fn library_called(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    if let Some(t) = pass(cookie) {
        enter(t, gate::function(cookie) as u32, stack_pointer(&ctx), return_address(&ctx), 1);
    }
    0
}

/// Their returns, without sessions.
#[uretprobe]
pub fn library_returned(ctx: RetProbeContext) -> u32 {
    if let Some(t) = pass(cookie_of(&ctx)) {
        leave(t, stack_pointer(&ctx) - RETURNED);
    }
    0
}

/// A call begins. Returns whether its end is to be seen: whether it is inside of no other. A function of its own, so that its
/// instructions are not repeated.
#[inline(never)]
fn enter(t: &Thread, function: u32, sp: u64, returns_to: u64, ends: u32) -> u32 {
    let Some(call) = call(u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else {
        count(Counter::StateFull);
        return 0;
    };
    let Some(sums) = sums(t.process, function) else { return 0 };
    if call.sp != 0 && call.epoch == t.epoch && call.process == t.process {
        // A jump from one function to another leaves the return address where it is.
        let same = returns_to == call.returns_to || is_replaced(returns_to);
        if sp < call.sp || sp == call.sp && same {
            sums.nested += 1;
            return 0;
        }
        count(Counter::CallUnended);
    }
    sums.calls += 1;
    call.sp = 0;
    if ends == 0 {
        return 0;
    }
    (call.returns_to, call.epoch, call.process, call.function) = (returns_to, t.epoch, t.process, function);
    call.sp = sp;
    // Last: what this handler takes should not count.
    call.start_ns = now();
    stamp(t, &mut call.start);
    1
}

/// A function ends whose return address is at `sp`: the call in progress, if it is that one.
#[inline(never)]
fn leave(t: &Thread, sp: u64) -> u32 {
    let Some(call) = call(0) else { return 0 };
    if call.sp != sp || sp == 0 || call.epoch != t.epoch || call.process != t.process {
        return 0;
    }
    stamp(t, &mut call.end);
    call.sp = 0;
    let Some(sums) = sums(t.process, call.function) else { return 0 };
    sums.ended += 1;
    sums.wall_ns += now().saturating_sub(call.start_ns);
    if !counts::add_between(t, &mut sums.counts, &call.start, &call.end) {
        sums.uncounted += 1;
    }
    0
}

/// Whether the thread is where the call in progress returns to.
#[inline(always)]
fn returns(at: u64, sp: u64) -> bool {
    call(0).is_some_and(|call| {
        call.sp != 0 && sp == call.sp + RETURNED && (at == call.returns_to || is_replaced(call.returns_to))
    })
}

/// Whether a return address is that by which a return probe has replaced one: the beginning of a page.
#[inline(always)]
fn is_replaced(address: u64) -> bool {
    address & 0xfff == 0
}

/// The call that the thread is in, if it has ever been in one, or `flags` has that made.
#[inline(always)]
fn call(flags: u64) -> Option<&'static mut Call> {
    // SAFETY: CALLS is a task-storage map of `Call`; the current task is trusted; the storage lives as long as it does, and only it
    // reaches it.
    unsafe { bpf_task_storage_get(CALLS.as_ptr(), task().cast(), core::ptr::null_mut(), flags).cast::<Call>().as_mut() }
}

/// This thread's sums of a function.
#[inline(always)]
fn sums(process: u32, function: u32) -> Option<&'static mut CallSums> {
    let key = CallKey { process, tid: tid(), function };
    let entry = CALL_SUMS.get_ptr_mut(key).or_else(|| {
        if CALL_SUMS.insert(key, CallSums::default(), u64::from(BPF_NOEXIST)).is_err() {
            count(Counter::CallsFull);
            return None;
        }
        CALL_SUMS.get_ptr_mut(key)
    });
    // SAFETY: entries are never removed while the programs run; only this thread writes to its own.
    entry.map(|sums| unsafe { &mut *sums })
}
