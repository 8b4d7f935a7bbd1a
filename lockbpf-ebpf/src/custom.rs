//! Functions on locks that the user has described ([`lockbpf_common::custom`]). Where a lock says that it is free, it counts as acquired at
//! the attempt; else its function is watched to its return, if it may be.

mod block;
mod point;

use crate::calls::{given_back, return_address, returns_here};
use crate::context::{cookie_of, instruction_pointer, is_return_half, stack_pointer};
use crate::counts;
use crate::custom_call::CustomCall;
use crate::gate::pass;
use crate::held::Held;
use crate::maps::{FutexWord, count};
use crate::off_cpu::record_absence;
use crate::section::{End, acquired, attempt, close, contend, contend_held, failed, fits, hold, release_held, settle};
use crate::section_sums::place as recent_place;
use crate::signal::is_above_interrupted;
use crate::spin;
use crate::thread::{Thread, now};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::{btf_map, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::ffi::c_void;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::custom::{
    Function, Introduced, Kind, MAX_FUNCTIONS, MAX_KINDS, MAX_LOCKS, MAX_READS, NAME, Place, distance, does, fails,
    has_failed, number, sort, via,
};
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, flag, mutex_kind};
use lockbpf_common::via::{is_custom, is_rwlock, is_spin};

/// The described functions, written before the programs are attached.
#[btf_map]
static CUSTOM_FUNCTIONS: Array<Function, { MAX_FUNCTIONS as usize }> = Array::new();

/// The described kinds of locks, likewise.
#[btf_map]
static CUSTOM_KINDS: Array<Kind, { MAX_KINDS as usize }> = Array::new();

/// Locks of these kinds, each entered once. Only what is used takes memory (7 MB at most).
#[btf_map]
static CUSTOM_LOCKS: HashMap<FutexWord, Introduced, { MAX_LOCKS as usize }, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// What a session's entry handler returns so that the return half is skipped.
const DECLINE: u32 = 1;

/// How far a function can be watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Not to its return.
    Entry,
    /// To its return, where that is of interest.
    Session,
    /// To its return in any case.
    Return,
}

/// Entry of the functions that are not watched to their return.
#[uprobe]
pub fn custom(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    if let Some(t) = pass(cookie) {
        enter(&ctx, t, cookie, Watch::Entry);
    }
    0
}

/// Both halves of the functions that are watched to their return. Declared by hand, as the session for the C library's functions is.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn custom_session(ctx: *mut c_void) -> u32 {
    let ctx = ProbeContext::new(ctx);
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return DECLINE };
    if returns_here(&ctx, t) {
        returned(t, RetProbeContext::new(ctx.as_ptr()).ret(), now());
        return 0;
    }
    if is_return_half(&ctx) {
        return DECLINE;
    }
    let watch = if is_above_interrupted(t) { Watch::Entry } else { Watch::Session };
    u32::from(!enter(&ctx, t, cookie, watch))
}

/// Entry of the functions that are watched to their return, without sessions.
#[uprobe]
pub fn custom_called(ctx: ProbeContext) -> u32 {
    let cookie = cookie_of(&ctx);
    if let Some(t) = pass(cookie) {
        enter(&ctx, t, cookie, Watch::Return);
    }
    0
}

/// Return of those. Without a call in progress it began before the observation.
#[uretprobe]
pub fn custom_returned(ctx: RetProbeContext) -> u32 {
    if let Some(t) = pass(cookie_of(&ctx))
        && returns_here(&ctx, t)
    {
        returned(t, ctx.ret(), now());
    }
    0
}

/// A described function begins. Returns whether its return must be seen.
#[inline(always)]
fn enter(ctx: &ProbeContext, t: &mut Thread, cookie: u64, watch: Watch) -> bool {
    let detail = gate::detail(cookie);
    let Some(f) = CUSTOM_FUNCTIONS.get(u32::from(number(detail))) else { return false };
    let Some(kind) = CUSTOM_KINDS.get(f.kind) else { return false };
    let (returns_to, frame, arguments) = (return_address(ctx), stack_pointer(ctx), arguments(ctx));
    leave_behind(t, frame);
    record_absence(t);
    settle(t);
    let base = match f.argument {
        Function::STATIC => static_word(instruction_pointer(ctx), distance(detail)),
        argument => chosen(arguments, argument),
    };
    let lock = at(base, &f.lock);
    if lock == 0 {
        return false;
    }
    t.custom = CustomCall { lock, frame, returns_to };
    if f.does == does::RELEASE {
        release(ctx, t, kind, now());
        return false;
    }
    let shared = match f.mode_argument {
        Function::FIXED => f.shared != 0,
        mode => chosen(arguments, mode) as u32 == f.shared_value as u32,
    };
    request(t, f, kind, shared, watch)
}

/// The lock of the call that has just begun is asked for. Returns whether its return must be seen.
#[inline(always)]
fn request(t: &mut Thread, f: &Function, kind: &Kind, shared: bool, watch: Watch) -> bool {
    let CustomCall { lock, frame, returns_to } = t.custom;
    let shared = shared && kind.sort == sort::RWLOCK;
    let tries = f.does == does::TRY;
    let via = via(kind.sort, shared, tries);
    let site = t.site(lock, returns_to);
    if !fits(lock, site) {
        return false;
    }
    let recent = &t.recent[recent_place(lock, site)];
    if recent.lock != lock || recent.via != via {
        introduce(t.process, lock, f.kind);
    }
    let state = state(lock, kind, shared);
    let taken = state == TAKEN;
    let owner = if taken { value(lock, &kind.owner) as u32 } else { 0 };
    // Who reads already may read once more.
    let mutex_kind = if kind.recursive != 0 || shared { mutex_kind::RECURSIVE } else { 0 };
    let may_fail = f.fails != fails::NEVER;
    let at_once = match watch {
        Watch::Entry => !may_fail,
        Watch::Session => !may_fail && state == FREE,
        Watch::Return => false,
    };
    if at_once {
        counts::begins(t);
        let known = if t.depth == 0 { MAX_HELD } else { t.find(lock).unwrap_or(MAX_HELD) };
        // As late as possible: what this handler takes should not count as holding.
        let held = Held { kind: mutex_kind, ..t.begun(lock, site, via, now()) };
        if let Some(i) = hold(t, held, known)
            && taken
        {
            contend_held(t, i, owner);
            wait(t, lock, via);
        }
        return false;
    }
    if watch == Watch::Entry {
        // Nobody will tell how it ends.
        return false;
    }
    let p = attempt(t, via, lock, site, now());
    (p.kind, p.returns_to, p.cond, p.fails) = (mutex_kind, returns_to, frame, f.fails);
    if taken && !tries && t.find(lock).is_none() {
        contend(t, owner);
        wait(t, lock, via);
    }
    true
}

/// A watched function has returned.
#[inline(always)]
fn returned(t: &mut Thread, result: u64, now: u64) {
    let p = &t.pending;
    if !is_custom(p.via) {
        return;
    }
    let (attempt_ns, contended) = (p.attempt_ns, p.flags & u32::from(flag::CONTENDED) != 0);
    let (has_failed, tries) = (has_failed(p.fails, result), lockbpf_common::via::is_try(p.via));
    counts::returned(t);
    if contended {
        counts::waited(t);
    }
    if !has_failed {
        acquired(t, attempt_ns, now);
    } else if tries {
        failed(t, Outcome::TryFailed, now);
    } else if contended {
        failed(t, Outcome::TimedOut, now);
    } else {
        failed(t, Outcome::Failed, now);
    }
}

/// The lock of the call that has just begun is given back, at `now`.
#[inline(always)]
fn release(ctx: &ProbeContext, t: &mut Thread, kind: &Kind, now: u64) {
    let lock = t.custom.lock;
    let Some(i) = given_back(t, lock, true) else { return };
    let via = t.held[i & (MAX_HELD - 1)].via;
    // Who did not sleep for it wakes nobody to tell.
    let waited_for = leaves_trace(via) && spin::was_waited_for(t.process, lock);
    if waited_for || is_spin(via) {
        close(ctx, t, i, End { now, outcome: Outcome::Released, waited_for });
        return;
    }
    release_held(ctx, t, i, now, |_| kind.waiters_mask != 0 && value(lock, &kind.taken) & kind.waiters_mask != 0);
}

/// Forgets attempts whose function was left by a jump or an exception: the thread is where it was called, or further out.
#[inline(always)]
fn leave_behind(t: &mut Thread, frame: u64) {
    if is_custom(t.pending.via) && frame >= t.pending.cond {
        t.pending.via = 0;
        count(Counter::AttemptWhileAttempting);
    }
    if is_custom(t.slow.via) && frame >= t.slow.cond {
        t.slow.via = 0;
        count(Counter::AttemptWhileAttempting);
    }
}

/// The thread waits for a lock, perhaps without a system call.
#[inline(always)]
fn wait(t: &Thread, lock: u64, via: u32) {
    if leaves_trace(via) {
        spin::waits(t.process, lock);
    }
}

/// Whether who waits for a lock of this kind is sure to wait for its holder. Of readers each would be told to have been waited for.
#[inline(always)]
const fn leaves_trace(via: u32) -> bool {
    !is_rwlock(via)
}

/// What a lock says of whether whoever asks for it has to wait.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Nothing, or it cannot be read: of a lock that is about to be made, or of one that is made in another way.
const UNKNOWN: u32 = 2;

/// One of these.
#[inline(always)]
fn state(lock: u64, kind: &Kind, shared: bool) -> u32 {
    let place = &kind.taken;
    let at = if place.is_known() { at(lock, place) } else { 0 };
    if at == 0 {
        return UNKNOWN;
    }
    let mask = if shared { kind.shared_mask } else { kind.exclusive_mask };
    match checked_word(at, place.size) {
        Some(word) if (word & mask != 0) != (kind.inverted != 0) => TAKEN,
        Some(_) => FREE,
        None => UNKNOWN,
    }
}

/// Enters a lock of the process that is asked for for the first time, with its name. Returns 0. A function of its own, so that its stack
/// and instructions burden no hot path.
#[inline(never)]
fn introduce(process: u32, lock: u64, of: u32) -> u32 {
    let key = FutexWord { addr: lock, process: u64::from(process) };
    // SAFETY: only looked for.
    if unsafe { CUSTOM_LOCKS.get(key) }.is_some() {
        return 0;
    }
    let Some(kind) = CUSTOM_KINDS.get(of) else { return 0 };
    let mut introduced = Introduced { number: 0, kind: of, is_named: 0, text: [0; NAME] };
    let name = at(lock, &kind.name);
    if kind.numbered != 0 {
        (introduced.number, introduced.is_named) = (lock, 1);
    } else if kind.name.size == Place::TEXT {
        let to = introduced.text.as_mut_ptr();
        // SAFETY: `text` has this size; a faulting address is an error from the helper, not a fault.
        let length = unsafe { bpf_probe_read_user_str(to.cast::<c_void>(), NAME as u32, name as *const c_void) };
        introduced.is_named = u32::from(length > 1);
    } else if kind.name.is_known() && name != 0 {
        introduced.number = word(name, kind.name.size);
        introduced.is_named = 1;
    }
    if CUSTOM_LOCKS.insert(key, introduced, 0).is_err() {
        count(Counter::CustomLocksFull);
    }
    0
}

/// What stands at a place that begins at an address; 0 if it cannot be read, or nothing is to be.
#[inline(always)]
fn value(base: u64, place: &Place) -> u64 {
    if place.is_known() { word(at(base, place), place.size) } else { 0 }
}

/// An address that begins with another; 0 if what leads there cannot be read. A function of its own, so that its instructions are not repeated.
#[inline(never)]
fn at(base: u64, place: &Place) -> u64 {
    let mut there = base.wrapping_add(i64::from(place.offsets[0]) as u64);
    let mut read = 0;
    while read < MAX_READS {
        if read as u32 >= place.reads {
            break;
        }
        let pointer = word(there, 8);
        if pointer == 0 {
            return 0;
        }
        read += 1;
        there = pointer.wrapping_add(i64::from(place.offsets[read]) as u64);
    }
    there
}

/// The variable that is named by the instruction that ends so many bytes behind the probe; 0 if that cannot be read.
#[inline(always)]
fn static_word(probe: u64, distance: u64) -> u64 {
    let end = probe.wrapping_add(distance);
    // SAFETY: a faulting address is an error from the helper, not a fault.
    match unsafe { bpf_probe_read_user(end.wrapping_sub(4) as *const i32) } {
        Ok(behind) if distance != 0 => end.wrapping_add(i64::from(behind) as u64),
        _ => 0,
    }
}

/// A word of 1, 2, 4 or 8 bytes; 0 if it cannot be read.
#[inline(always)]
fn word(at: u64, size: u32) -> u64 {
    checked_word(at, size).unwrap_or(0)
}

/// The same, unless it cannot be read.
#[inline(always)]
fn checked_word(at: u64, size: u32) -> Option<u64> {
    let mut word = 0;
    (read_word(at, size, &mut word) != 0).then_some(word)
}

/// Reads it; 0 if it cannot be read, else 1. A function of its own, so that its instructions are not repeated.
#[inline(never)]
fn read_word(at: u64, size: u32, word: &mut u64) -> u32 {
    // SAFETY: faulting addresses are errors from the helper, not faults.
    let read = unsafe {
        match size {
            1 => bpf_probe_read_user(at as *const u8).map(u64::from),
            2 => bpf_probe_read_user(at as *const u16).map(u64::from),
            4 => bpf_probe_read_user(at as *const u32).map(u64::from),
            _ => bpf_probe_read_user(at as *const u64),
        }
    };
    match read {
        Ok(read) => {
            *word = read;
            1
        }
        Err(_) => 0,
    }
}

/// The arguments of the function at whose entry the thread is.
#[inline(always)]
fn arguments(ctx: &ProbeContext) -> [u64; 6] {
    // SAFETY: regs is the program's context. Volatile: each is read at an offset that the verifier knows, and not where it is chosen.
    unsafe {
        let regs = ctx.regs;
        #[cfg(bpf_target_arch = "x86_64")]
        let all = [
            &raw const (*regs).rdi,
            &raw const (*regs).rsi,
            &raw const (*regs).rdx,
            &raw const (*regs).rcx,
            &raw const (*regs).r8,
            &raw const (*regs).r9,
        ];
        #[cfg(bpf_target_arch = "aarch64")]
        let all = [
            &raw const (*regs).regs[0],
            &raw const (*regs).regs[1],
            &raw const (*regs).regs[2],
            &raw const (*regs).regs[3],
            &raw const (*regs).regs[4],
            &raw const (*regs).regs[5],
        ];
        let [a, b, c, d, e, f] = all;
        [
            a.read_volatile(),
            b.read_volatile(),
            c.read_volatile(),
            d.read_volatile(),
            e.read_volatile(),
            f.read_volatile(),
        ]
    }
}

/// One of them, by its number.
#[inline(always)]
fn chosen([a, b, c, d, e, f]: [u64; 6], number: u32) -> u64 {
    match number {
        0 => a,
        1 => b,
        2 => c,
        3 => d,
        4 => e,
        _ => f,
    }
}
