//! User stacks: walked along frame pointers, or copied so that user space can unwind them. A copy is dear (16 KiB), so a stack
//! that was unwound before is recognised: by its return addresses, in the places where they were found then.

use crate::emit::HEADER;
use crate::gate::{charge, charge_stack};
use crate::maps::{
    CONFIG, COPY_LIMIT, FURTHER_STACKS, KNOWN_STACKS, METHODS, SERIALS, STACK_COPIES, STACKS, count, next,
};
use crate::python::{add_frames, python_frames};
use crate::registers::{INSTRUCTION_POINTER, STACK_POINTER, read_register, user_register, user_registers_address};
use crate::section::is_settled;
use crate::thread::{Thread, now, stored, task};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{BPF_F_SKIP_FIELD_MASK, BPF_F_USER_STACK, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::helpers::generated::{bpf_get_stackid, bpf_probe_read_kernel, bpf_probe_read_user};
use core::ffi::c_void;
use lockbpf_common::config::{MAX_STACKS, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::process::SERIAL_COPY;
use lockbpf_common::stack_copy::{
    AT_ONCE, BLOCK, BLOCKS, FIRST_COPY, KnownKey, KnownStack, MAX_COPIES, MAX_SLOTS, REGISTERS, RETURNS, StackCopy,
    WAKE_AFTER, WAYS, how, known_ip, method, place,
};

/// What [`recognise`] says of a stack that was not unwound before.
const NONE: i32 = -1;
/// What [`recognise_by`] says where a different stack is kept.
const OTHER: i32 = -2;
/// What [`copy`] says of a stack of which nothing can be read.
const UNREAD: i32 = -14;

/// Number of the current user stack, or a negative errno, which is counted.
#[inline(always)]
pub fn user_stack<C: EbpfContext>(ctx: &C, t: &Thread) -> i32 {
    take_stack(ctx.as_ptr(), t.process, t.slot, 0)
}

/// The same by the context's address, at the expense of a slot; `how`: [`StackCopy::how`]. A function of its own, so that its instructions are not
/// repeated in every program.
#[inline(never)]
pub fn take_stack(ctx: *mut c_void, process: u32, slot: u32, how: u32) -> i32 {
    let mode = CONFIG.load().mode;
    if mode & mode::COPY_STACKS == 0 {
        return walk(ctx);
    }
    let began = now();
    let stack = take(ctx, (process, slot), how, mode & mode::COMPARE_STACKS != 0);
    charge_stack(slot, began);
    stack
}

#[inline(always)]
fn take(ctx: *mut c_void, (process, slot): (u32, u32), how: u32, compare: bool) -> i32 {
    // SAFETY: copied at once.
    let decided = unsafe { METHODS.get(process) }.copied().unwrap_or(if compare { 0 } else { method::COPY });
    let mut frames = -1;
    if decided == method::FRAMES {
        frames = place_of(ctx);
        if !has_no_place(frames) {
            return frames;
        }
    }
    let stack_pointer = user_register(STACK_POINTER);
    // The C library and the interpreter are called in the same way from any Python function.
    let (functions, how) =
        if decided == method::PYTHON { (python_frames(process), how | how::PYTHON) } else { (0, how) };
    let ip = known_ip(user_register(INSTRUCTION_POINTER), how);
    let known = recognise(process, ip ^ functions, stack_pointer, how);
    if known >= 0 {
        count(Counter::StackKnown);
        return known;
    }
    if decided == 0 {
        frames = place_of(ctx);
    }
    let copied = copy(process, slot, user_registers_address(), frames, how);
    // Where the thread is, is known without its stack.
    if copied == UNREAD && decided != 0 { walk(ctx) } else { copied.max(frames) }
}

/// Number of the user stack that begins with saved registers of the current process, by their address, at the expense of a slot; or a negative
/// number, which is counted. Only if stacks are copied.
#[inline(always)]
pub fn stack_of(process: u32, slot: u32, registers: u64, how: u32) -> i32 {
    if CONFIG.load().mode & mode::COPY_STACKS == 0 || registers == 0 {
        return -1;
    }
    let began = now();
    let registers = registers as *const pt_regs;
    // SAFETY: whoever found the address vouches for the offsets; a faulting address is an error from the helper.
    let (ip, stack_pointer) =
        unsafe { (read_register(registers, INSTRUCTION_POINTER), read_register(registers, STACK_POINTER)) };
    let known = recognise(process, known_ip(ip, how), stack_pointer, how);
    let stack = if known >= 0 {
        count(Counter::StackKnown);
        known
    } else {
        copy(process, slot, registers as u64, -1, how)
    };
    charge_stack(slot, began);
    stack
}

/// The return addresses of the thread's calls that are watched to their return, innermost first; none of another thread's.
#[inline(always)]
fn returns(how: u32) -> [u64; RETURNS] {
    if how & how::OTHERS != 0 {
        return [0; RETURNS];
    }
    let Some(t) = stored(task()) else { return [0; RETURNS] };
    let slow = if t.slow.via == 0 { 0 } else { t.slow.returns_to };
    if t.pending.via == 0 || is_settled(t.pending.via) { [slow, 0] } else { [t.pending.returns_to, slow] }
}

/// The stack's number, if it was unwound before; else a negative one.
#[inline(always)]
fn recognise(process: u32, ip: u64, stack_pointer: u64, how: u32) -> i32 {
    let mut way = 0;
    while way < WAYS {
        let known = recognise_by(process, ip, stack_pointer, way, how);
        if known != OTHER {
            return known;
        }
        way += 1;
    }
    NONE
}

/// The stack's number, if it is the one kept in this way of its place; [`OTHER`] if a different one is, [`NONE`] if none is. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn recognise_by(process: u32, ip: u64, stack_pointer: u64, way: u32, how: u32) -> i32 {
    let Some(known) = KNOWN_STACKS.get_ptr(KnownKey { ip, process, place: place(stack_pointer, way) }) else {
        return NONE;
    };
    // SAFETY: entries are neither changed nor removed while the programs run.
    let known = unsafe { &*known };
    if is_at(known, stack_pointer, &returns(how)) { known.stack as i32 } else { OTHER }
}

/// Whether every word of a known stack is in its place; return addresses of calls that are watched to their return are the thread's `own`.
#[inline(always)]
fn is_at(known: &KnownStack, stack_pointer: u64, own: &[u64; RETURNS]) -> bool {
    let mut i = 0;
    while i < MAX_SLOTS {
        if i as u32 >= known.count {
            return true;
        }
        let mut word = 0u64;
        let address = stack_pointer + 8 * u64::from(known.slots[i]);
        // SAFETY: word is 8 bytes of this stack; a faulting address is an error from the helper.
        let read = unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, address as *const c_void) };
        if read != 0 || word != known.words[i] && !own.contains(&known.words[i]) {
            return false;
        }
        i += 1;
    }
    true
}

/// Copies the stack that begins with saved registers, by their address, at the expense of a slot. Returns the number of the copy, or `frames`, its number by frame pointers, if there can be
/// none, or [`UNREAD`]. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy(process: u32, slot: u32, registers: u64, frames: i32, how: u32) -> i32 {
    let copied = SERIALS.get(SERIAL_COPY).copied().unwrap_or(u64::MAX);
    let limit = COPY_LIMIT.get(0).copied().unwrap_or(0);
    let kept = if how & how::OFTEN == 0 { 0 } else { AT_ONCE / 2 };
    if copied + kept >= limit.min(u64::from(MAX_COPIES)) {
        count(Counter::StackSkipped);
        return frames;
    }
    let Some(mut entry) = STACK_COPIES.reserve_untyped::<StackCopy>(0) else {
        count(Counter::StackRingFull);
        return frames;
    };
    let record: *mut StackCopy = entry.as_mut_ptr();
    let registers = registers as *const pt_regs;
    // SAFETY: the registers are the kernel's own; a faulting address is an error from the helper.
    let stack_pointer = unsafe { read_register(registers, STACK_POINTER) };
    let base = stack_pointer & !(BLOCK as u64 - 1);
    // Counted in the record: no room is left on the stack, and verifiers need not follow each number.
    // SAFETY: the field lies in the reserved room.
    let absent = unsafe { &mut *(&raw mut (*record).absent) };
    *absent = 0;
    let mut end = 0;
    while end < BLOCKS {
        let from = base + (end * BLOCK) as u64;
        // SAFETY: the block lies in the reserved room; a faulting address is an error from the helper.
        let read =
            unsafe { bpf_probe_read_user((&raw mut (*record).stack[end]).cast(), BLOCK as u32, from as *const c_void) };
        if read == 0 {
            end += 1;
        } else if usize::from(*absent) == end {
            // A thread that waits for a page of its stack has its callers on those above; between may be some of a large frame that were
            // never touched.
            *absent += 1;
            end += 1;
        } else {
            break;
        }
    }
    let blocks = end as u16 - *absent;
    if blocks == 0 {
        entry.discard(u64::from(BPF_RB_NO_WAKEUP));
        count(Counter::StackUnread);
        return UNREAD;
    }
    let number = FIRST_COPY + next(SERIAL_COPY) as u32;
    const SAVED: usize = if size_of::<pt_regs>() < 8 * REGISTERS { size_of::<pt_regs>() } else { 8 * REGISTERS };
    // SAFETY: the fields lie in the reserved room, and are plain integers; the registers are the kernel's own.
    unsafe {
        bpf_probe_read_kernel((&raw mut (*record).registers).cast(), SAVED as u32, registers.cast());
        (*record).process = process;
        (*record).number = number;
        (*record).frames = frames;
        (*record).blocks = blocks;
        (*record).how = how;
        (*record).returns = returns(how);
        (*record).python_frames = if how & how::PYTHON == 0 { 0 } else { add_frames(&mut (*record).python) };
    }
    let unread = (BLOCKS - end) * BLOCK;
    charge(slot, |account| account.stack_bytes += (size_of::<StackCopy>() + HEADER - unread) as u64);
    let wakes = copied + (AT_ONCE - WAKE_AFTER) == limit;
    entry.submit(u64::from(if wakes { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }));
    count(Counter::StackCopies);
    number as i32
}

/// Number of the current user stack as frame pointers tell it, or a negative errno, which is counted: for code that is known to
/// keep them.
#[inline(always)]
pub fn walk(ctx: *mut c_void) -> i32 {
    let id = place_of(ctx);
    if has_no_place(id) {
        count(Counter::StackLost);
    }
    id
}

/// The same, but whoever asks counts what is lost, if it is.
#[inline(always)]
fn place_of(ctx: *mut c_void) -> i32 {
    let id = stack_id(ctx, u64::from(BPF_F_USER_STACK));
    if id >= 0 {
        return id;
    }
    // Different stacks have this one's places: without its innermost frame, which readers leave out anyway, it has others.
    stack_id(ctx, u64::from(BPF_F_USER_STACK) | 1)
}

/// Whether this says that there is a stack, and no room for it. -EFAULT: there is nothing beyond the innermost frame, so nothing is lost.
#[inline(always)]
const fn has_no_place(id: i32) -> bool {
    id < 0 && id != -14
}

/// Number of the current kernel stack without its `skip` innermost frames, or a negative errno, which is counted.
#[inline(always)]
pub fn kernel_stack<C: EbpfContext>(ctx: &C, skip: u64) -> i32 {
    let id = stack_id(ctx.as_ptr(), skip & u64::from(BPF_F_SKIP_FIELD_MASK));
    if id < 0 {
        count(Counter::StackLost);
    }
    id
}

/// Number of a stack in one of the two tables, or a negative errno.
#[inline(always)]
fn stack_id(ctx: *mut c_void, flags: u64) -> i32 {
    // SAFETY: ctx is the program's own context and STACKS a stack-trace map.
    let id = unsafe { bpf_get_stackid(ctx, core::ptr::from_ref(&STACKS).cast_mut().cast(), flags) as i32 };
    if !has_no_place(id) {
        return id;
    }
    let more = core::ptr::from_ref(&FURTHER_STACKS).cast_mut().cast();
    // SAFETY: as above.
    let id = unsafe { bpf_get_stackid(ctx, more, flags) as i32 };
    if id < 0 { id } else { id + MAX_STACKS as i32 }
}
