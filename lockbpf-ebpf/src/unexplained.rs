//! Waits and wakes of which nothing but the futex calls tells: they are recorded by themselves.

use crate::calls::return_address;
use crate::emit::{charge_record, reserve, submit};
use crate::focus;
use crate::follow;
use crate::futex_call::FutexCall;
use crate::gil;
use crate::maps::{CONFIG, FutexWord, WAKERS, Waker, count};
use crate::off_cpu::record_absence;
use crate::parking;
use crate::python;
use crate::registers::{STACK_POINTER, user_register};
use crate::stack::take_stack;
use crate::thread::{Thread, tid};
use crate::watched;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_probe_read_user};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use lockbpf_common::config::mode;
use lockbpf_common::counter::Counter;
use lockbpf_common::record::{FutexFields, FutexRecord, FutexResult, TOP_WORDS, WakeFields, WakeRecord};
use lockbpf_common::thin::Weight;

/// A wait has ended that nothing but the futex call tells of: records it, or lets another one stand for it. Returns 0. A function of its own,
/// so that its instructions and stack are not repeated.
#[inline(never)]
pub fn unexplained(ctx: *mut c_void, t: &mut Thread, call: &FutexCall, end_ns: u64, result: FutexResult) -> u32 {
    let config = CONFIG.load();
    let wait_ns = end_ns.saturating_sub(call.enter_ns);
    let slept = matches!(result, FutexResult::Slept);
    let wanted = slept && wait_ns >= config.min_wait_ns || config.mode & mode::ALL_EVENTS != 0;
    if !wanted || !focus::includes_wait(t.process, call.word, wait_ns) {
        return 0;
    }
    // SAFETY: copied at once.
    let waker = unsafe { WAKERS.get(FutexWord { addr: call.word, process: u64::from(t.process) }) };
    let waker = waker.copied().unwrap_or(Waker::NOBODY);
    let (weight, random) = follow::wait(t, wait_ns, waker.woke_ns);
    if !weight.records(random) {
        count(Counter::Thinned);
        return 0;
    }
    let takes_stack = weight.takes_stack(random) && wait_ns >= config.stack_wait_ns;
    let stack = if takes_stack { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    record(t, call, &Ended { end_ns, wait_ns, waker: waker.tid, stack, result, weight });
    0
}

/// The current thread has woken others, which nothing else tells of: it has just given back a lock, if the word is one's. Recorded after
/// the wake, which is not to be delayed, and only if somebody may have waited for this long: who is woken has waited for it since the
/// wake before at most. Returns 0. A function of its own, so that its instructions and stack are not repeated in every program.
#[inline(never)]
pub fn woken(ctx: *mut c_void, t: &mut Thread, woken: u32) -> u32 {
    let FutexCall { word, enter_ns, earlier_ns, .. } = t.futex;
    let since_ns = if earlier_ns == 0 { u64::MAX } else { enter_ns.saturating_sub(earlier_ns) };
    let config = CONFIG.load();
    if since_ns < config.min_wait_ns && config.mode & mode::ALL_EVENTS == 0 || !focus::includes_word(t.process, word) {
        return 0;
    }
    let (records, takes_stack) = follow::wake(t, since_ns, enter_ns);
    if !records {
        count(Counter::Thinned);
        return 0;
    }
    let word = parking::given_back(t, word);
    let takes_stack = takes_stack && since_ns >= config.stack_wait_ns;
    let stack = if takes_stack { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    gil::look_again(t);
    record_absence(t);
    // Absences explain no shorter waits.
    let long = since_ns >= config.stack_wait_ns;
    let from_ns = follow::concerned(t, since_ns, enter_ns);
    let complete_ns = watched::gave_back(t, from_ns, enter_ns, long);
    let watched_ns = enter_ns.saturating_sub(complete_ns.max(from_ns));
    let fields =
        WakeFields { time_ns: enter_ns, since_ns, watched_ns, word, process: t.process, tid: tid(), woken, stack };
    record_wake(t, &fields, core::ptr::null_mut())
}

/// Remembers that a thread gives a lock to one that waits for it. How long before that the process's threads gave it last, ns ([`u64::MAX`] if that is not
/// known), if somebody may have waited long enough to be recorded.
#[inline(always)]
pub fn given(t: &Thread, lock: u64, by: Waker) -> Option<u64> {
    let key = FutexWord { addr: lock, process: u64::from(t.process) };
    // SAFETY: copied at once; of two threads at the same time either may be told.
    let earlier_ns = unsafe { WAKERS.get(key) }.map_or(0, |waker| waker.time_ns);
    // A failure only loses who it was.
    let _ = WAKERS.insert(key, by, 0);
    let since_ns = if earlier_ns == 0 { u64::MAX } else { by.time_ns.saturating_sub(earlier_ns) };
    let config = CONFIG.load();
    let is_short = since_ns < config.min_wait_ns && config.mode & mode::ALL_EVENTS == 0;
    if is_short || !focus::includes_word(t.process, lock) { None } else { Some(since_ns) }
}

/// Records that the current thread has woken others; with [`CALLERS`](lockbpf_common::record::CALLERS) `ctx` tells of its calls, else it is null. Returns 0. A function of its own, so that its instructions are not repeated.
#[inline(never)]
pub fn record_wake(t: &Thread, fields: &WakeFields, ctx: *mut c_void) -> u32 {
    if let Some(mut entry) = reserve::<WakeRecord>() {
        let record = entry.as_mut_ptr();
        // SAFETY: record points to the reserved room; both fields are written in full.
        unsafe {
            (*record).fields = WakeRecord::pack(fields);
            copy_top_of_stack(t, fields.stack, &mut (*record).top);
            if !ctx.is_null() {
                put_callers(ctx, &mut (*record).top);
            }
        }
        submit(entry, Counter::WakeRecords);
        charge_record::<WakeRecord>(t.slot);
    }
    0
}

/// What a record tells of a wait's end.
struct Ended {
    end_ns: u64,
    wait_ns: u64,
    waker: u32,
    stack: i32,
    result: FutexResult,
    weight: Weight,
}

/// A function of its own, so that its stack and instructions are not repeated in every program.
#[inline(never)]
fn record(t: &Thread, call: &FutexCall, ended: &Ended) -> u32 {
    let fields = FutexFields {
        end_ns: ended.end_ns,
        wait_ns: ended.wait_ns,
        word: call.word,
        process: t.process,
        tid: tid(),
        expected: call.expected,
        owner: call.owner,
        waker: ended.waker,
        stack: ended.stack,
        result: ended.result as u8,
        weight: ended.weight,
    };
    if let Some(mut entry) = reserve::<FutexRecord>() {
        let record = entry.as_mut_ptr();
        // SAFETY: record points to the reserved room; both fields are written in full.
        unsafe {
            (*record).fields = FutexRecord::pack(&fields);
            copy_top_of_stack(t, ended.stack, &mut (*record).top);
        }
        submit(entry, Counter::FutexRecords);
        charge_record::<FutexRecord>(t.slot);
    }
    0
}

/// Puts return addresses there instead: that of the function at whose entry the thread is, then those that frame pointers lead to.
#[inline(always)]
fn put_callers(ctx: *mut c_void, top: &mut [u64; TOP_WORDS]) {
    const BYTES: u32 = ((TOP_WORDS - 1) * 8) as u32;
    // The probe's own address.
    const SKIPPED: u64 = 1;
    top[0] = return_address(&ProbeContext::new(ctx));
    let to = top[1..].as_mut_ptr();
    // SAFETY: `top` has BYTES bytes behind its first word. The helper ends where a frame pointer leads nowhere.
    let got = unsafe { bpf_get_stack(ctx, to.cast(), BYTES, u64::from(BPF_F_USER_STACK) | SKIPPED) };
    let mut word = 1;
    while word < TOP_WORDS {
        if (word as i64 - 1) * 8 >= i64::from(got) {
            top[word] = 0;
        }
        word += 1;
    }
}

/// Copies the words at the top of the current thread's user stack; zeros if they cannot be read. Without a stack, the Python functions that
/// it is in follow in place of the last ones.
#[inline(always)]
fn copy_top_of_stack(t: &Thread, stack: i32, top: &mut [u64; TOP_WORDS]) {
    let (to, sp) = (core::ptr::from_mut(top), user_register(STACK_POINTER));
    // SAFETY: `top` has this size. A faulting address zeroes it.
    unsafe { bpf_probe_read_user(to.cast(), size_of::<[u64; TOP_WORDS]>() as u32, sp as *const core::ffi::c_void) };
    if t.gil != 0 && stack < 0 {
        python::add_innermost(t, top);
    }
}
