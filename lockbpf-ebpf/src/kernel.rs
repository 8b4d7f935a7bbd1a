//! Waits for the kernel's own locks, by its contention tracepoints (5.19).
//!
//! All that takes time is done at the beginning of a wait, when the thread has nothing better to do; at its end it holds the
//! lock. A wait begins inside of the kernel's locks, any of them, perhaps one of a map's: so nothing here takes a thread's
//! storage into use while it spins, and the end only adds to sums that are there.
//!
//! What a mutex does is told in several beginnings (it spins, then sleeps, then spins again), and inside of a wait for one
//! lock the kernel waits for others, the run queue's for one: those are summed, but not recorded, since that time is told
//! already. Interrupts wait for locks, too, which is none of the thread's business.

use crate::atomic::add;
use crate::emit::emit_for;
use crate::focus;
use crate::futex_call;
use crate::gate::refresh;
use crate::holder::{Holder, read};
use crate::lease;
use crate::maps::{CONFIG, KERNEL, SUMS, count};
use crate::section::{is_settled, mark_outer};
use crate::section_sums::add_time;
use crate::slots::{NO_SLOT, known_slot, slot_of};
use crate::stack::kernel_stack;
use crate::thread::{Thread, current, existing, now, task, tid};
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_task_pt_regs};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use core::ffi::c_void;
use lockbpf_common::config::mode;
use lockbpf_common::counter::Counter;
use lockbpf_common::kernel::{
    FRAMES, KNOWN_SHIFT, Kernel, KernelFields, KernelRecord, MAX_NESTED, NEAR, NO_OFFSET, PROCESS, flag, is_spinning,
    known,
};
use lockbpf_common::kind::{Via, mutex_kind};
use lockbpf_common::sums::SumKey;
use lockbpf_common::via::is_semaphore;

/// Kernel waits in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelWaits {
    /// The innermost last.
    waits: [Wait; MAX_NESTED],
    /// How many.
    depth: u32,
    /// More beyond those: their ends are expected.
    beyond: u32,
    /// Who held the lock of the outermost one, if that sleeps, and where the thread itself asked for it.
    holder: Holder,
}

/// A wait in progress.
#[derive(Clone, Copy)]
#[repr(C)]
struct Wait {
    lock: u64,
    /// Return address of the locking function's call.
    site: u64,
    begin_ns: u64,
    /// Slot of its sums; [`NO_SLOT`] if there was none left.
    slot: u32,
    /// Those of its last beginning.
    flags: u32,
    /// Thread that the lock named as its owner.
    owner: u32,
    /// Whether it is not part of another wait that is told.
    alone: u32,
}

impl KernelWaits {
    /// Forgets them: the thread's image is replaced.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.depth = 0;
        self.beyond = 0;
    }

    /// Whether the thread waits for a lock whose record will say so.
    #[inline(always)]
    pub fn told(&self) -> bool {
        self.depth != 0 && self.waits[0].alone != 0
    }

    /// Where a lock is waited for; `MAX_NESTED` if it is not.
    #[inline(always)]
    fn find(&self, lock: u64) -> usize {
        let mut i = MAX_NESTED;
        while i > 0 {
            i -= 1;
            if i < self.depth as usize && self.waits[i].lock == lock {
                return i;
            }
        }
        MAX_NESTED
    }

    /// Drops those from `i` on, whose ends were not seen.
    #[inline(always)]
    fn cut(&mut self, i: usize) {
        let mut left = MAX_NESTED;
        while left > 0 {
            if self.depth as usize <= i {
                return;
            }
            count(Counter::KernelUnended);
            self.depth -= 1;
            left -= 1;
        }
    }
}

#[raw_tracepoint(tracepoint = "contention_begin")]
pub fn contention_begin(ctx: RawTracePointContext) -> i32 {
    let lock: u64 = ctx.arg(0);
    let flags: u64 = ctx.arg(1);
    begin(&ctx, lock, flags as u32 & flag::ALL);
    0
}

#[raw_tracepoint(tracepoint = "contention_end")]
pub fn contention_end(ctx: RawTracePointContext) -> i32 {
    let lock: u64 = ctx.arg(0);
    let failed: u64 = ctx.arg(1);
    if lease::is_on() {
        end(lock, failed as u32 != 0);
    }
    0
}

#[inline(always)]
fn begin(ctx: &RawTracePointContext, lock: u64, flags: u32) {
    let spinning = is_spinning(flags);
    let t = if spinning {
        // Here a thread cannot be admitted: memory would be allocated, perhaps under the scheduler's own locks.
        let Some(t) = known(task()) else { return };
        if in_interrupt() {
            count(Counter::KernelInterrupts);
            return;
        }
        t
    } else {
        let Some(t) = current() else {
            // An exiting thread still waits for its memory's lock. Here a new one has just been admitted.
            if lease::is_on() {
                count_between(existing(task()));
            }
            return;
        };
        t
    };
    refresh(t);
    let now = now();
    let known = t.kernel.find(lock);
    if known < MAX_NESTED {
        t.kernel.cut(known + 1);
        let wait = &mut t.kernel.waits[known & (MAX_NESTED - 1)];
        // A mutex goes on to sleep, or to spin again. Nothing else begins twice, and no mutex spins twice in succession.
        let goes_on = flags & flag::MUTEX != 0 && (flags ^ wait.flags) & flag::SPIN != 0;
        wait.flags = flags;
        if goes_on {
            return;
        }
        t.kernel.cut(known);
    } else if spinning && t.kernel.depth > 0 {
        // A thread that spins cannot do anything else meanwhile.
        let top = (t.kernel.depth - 1) as usize;
        if is_spinning(t.kernel.waits[top & (MAX_NESTED - 1)].flags) {
            t.kernel.cut(top);
        }
    }
    let depth = t.kernel.depth as usize;
    if depth >= MAX_NESTED {
        t.kernel.beyond += 1;
        count(Counter::KernelNested);
        return;
    }
    let alone = depth == 0 && !in_told_wait(t);
    let caller = if depth == 0 {
        caller(ctx)
    } else {
        // The same as of the wait around it, which is inside of the locking functions.
        Caller { site: t.kernel.waits[(depth - 1) & (MAX_NESTED - 1)].site, frame: None }
    };
    let slot = slot(ctx, lock, flags, &caller, now);
    if alone && t.depth > 0 {
        mark_outer(t);
        focus::waits_in_kernel(t, lock, caller.site);
    }
    let owner = if alone && !spinning {
        let holder = Holder::of(t, lock, flags);
        t.kernel.holder = holder;
        holder.tid
    } else {
        0
    };
    t.kernel.waits[depth & (MAX_NESTED - 1)] =
        Wait { lock, site: caller.site, begin_ns: now, slot, flags, owner, alone: u32::from(alone) };
    t.kernel.depth = depth as u32 + 1;
}

/// The current thread's state, if it is observed and known already.
#[inline(always)]
fn known(task: *mut aya_ebpf::bindings::task_struct) -> Option<&'static mut Thread> {
    if !lease::is_on() {
        return None;
    }
    match existing(task) {
        // Here nothing is forgotten either.
        Some(t) if t.observed() => lease::believes(t).then_some(t),
        Some(t) => {
            count_between(Some(t));
            None
        }
        None => {
            if crate::thread::is_target(task) {
                count(Counter::KernelBetween);
            }
            None
        }
    }
}

/// Counts a wait of a thread that is about to be observed, or no longer, while there is observation.
#[inline(always)]
fn count_between(t: Option<&'static mut Thread>) {
    if t.is_some_and(|t| !t.observed() && !t.ignored()) {
        count(Counter::KernelBetween);
    }
}

/// Whether the thread is inside of a wait for a lock of its program, or in a call that waits with a deadline: what it waits for
/// there is part of that.
#[inline(always)]
fn in_told_wait(t: &Thread) -> bool {
    let via = t.pending.via;
    t.futex.role == futex_call::WAIT || via != 0 && !is_settled(via) && !is_semaphore(via) && via != Via::Once as u32
}

#[inline(always)]
fn end(lock: u64, failed: bool) {
    let Some(t) = existing(task()) else { return };
    if !t.observed() || !lease::believes(t) {
        return;
    }
    let i = t.kernel.find(lock);
    if i >= MAX_NESTED {
        if !in_interrupt() {
            if t.kernel.beyond > 0 {
                t.kernel.beyond -= 1;
            } else {
                count(Counter::KernelUnbegun);
            }
        }
        return;
    }
    let now = now();
    t.kernel.cut(i + 1);
    t.kernel.depth = i as u32;
    let wait = t.kernel.waits[i & (MAX_NESTED - 1)];
    let wait_ns = now.saturating_sub(wait.begin_ns);
    if let Some(sums) = SUMS.get_ptr_mut(wait.slot) {
        // SAFETY: the kernel returned a valid entry. Readers hold the lock together, and whoever gives up does not hold it:
        // all additions are atomic.
        let sums = unsafe { &mut *sums };
        if failed {
            add(&mut sums.errors, 1);
        } else {
            add(&mut sums.acquisitions, 1);
            add(&mut sums.contended, 1);
            add_time(&mut sums.wait_ns, &mut sums.wait_max_ns, &mut sums.wait_hist, wait_ns, true);
        }
    }
    if wait.alone == 0 {
        return;
    }
    if let Some(sums) = t.sums() {
        sums.kernel_wait_ns += wait_ns;
    }
    let config = CONFIG.load();
    if wait_ns >= config.min_wait_ns || config.mode & mode::ALL_EVENTS != 0 {
        record(t, &wait, now, failed);
    }
}

/// A function of its own, so that its stack is not that of the rest.
#[inline(never)]
fn record(t: &Thread, wait: &Wait, now: u64, failed: bool) -> u32 {
    if !focus::includes(PROCESS, wait.lock, wait.site) {
        return 0;
    }
    if !is_spinning(wait.flags) {
        // Just before, so that it is known when the wait begins.
        t.kernel.holder.tell(t, wait.lock, wait.begin_ns - 1);
    }
    let stack = SUMS.get(wait.slot).map_or(-1, |sums| sums.stack);
    let record = KernelRecord::pack(&KernelFields {
        end_ns: now,
        wait_ns: now.saturating_sub(wait.begin_ns),
        lock: wait.lock,
        site: wait.site,
        process: t.process,
        tid: tid(),
        owner: wait.owner,
        stack,
        flags: wait.flags as u8,
        failed,
    });
    emit_for(t.slot, &record, Counter::KernelRecords);
    if !is_spinning(wait.flags) && !failed {
        t.kernel.holder.tell_own(t, wait.lock, now);
    }
    0
}

/// The slot of the sums of a wait. Their stack is taken once: it begins with the caller of the locking function.
#[inline(always)]
fn slot(ctx: &RawTracePointContext, lock: u64, flags: u32, caller: &Caller, now: u64) -> u32 {
    let key = SumKey { lock, site: caller.site, process: PROCESS, via: Via::Kernel as u32 };
    let slot = known_slot(&key);
    if slot != NO_SLOT {
        return slot;
    }
    let kind = mutex_kind::IS_KERNEL | flags | known_lock(lock, flags) << KNOWN_SHIFT;
    let slot = slot_of(&key, kind, now);
    if let Some(frame) = caller.frame
        && let Some(sums) = SUMS.get_ptr_mut(slot)
    {
        // SAFETY: the kernel returned a valid entry; whoever is faster has the same stack, or one as good.
        unsafe { (*sums).stack = kernel_stack(ctx, frame) };
    }
    slot
}

/// The caller of the locking functions.
struct Caller {
    /// Its return address; 0 if it was not found.
    site: u64,
    /// Where it is in the stack, if that was walked.
    frame: Option<u64>,
}

/// Finds the first function outside of locking. Walking the stack is most of what a wait costs here, and costs by the frame: the
/// caller is mostly near.
#[inline(always)]
fn caller(ctx: &RawTracePointContext) -> Caller {
    let mut frame = 0;
    let mut site = near(ctx.as_ptr(), &mut frame);
    if site == 0 {
        site = far(ctx.as_ptr(), &mut frame);
    }
    if site == 0 {
        count(Counter::StackLost);
    }
    Caller { site, frame: if site == 0 { None } else { Some(frame) } }
}

/// A function of its own, so that the frames are not on the stack of the rest.
#[inline(never)]
fn near(ctx: *mut c_void, frame: &mut u64) -> u64 {
    search::<NEAR>(ctx, frame)
}

/// As above.
#[inline(never)]
fn far(ctx: *mut c_void, frame: &mut u64) -> u64 {
    search::<FRAMES>(ctx, frame)
}

#[inline(always)]
fn search<const N: usize>(ctx: *mut c_void, frame: &mut u64) -> u64 {
    let mut frames = [0u64; N];
    // SAFETY: ctx is the program's own context, frames has room for as much as is said.
    let bytes = unsafe { bpf_get_stack(ctx, frames.as_mut_ptr().cast(), size_of::<[u64; N]>() as u32, 0) };
    let Some(kernel) = KERNEL.get(0) else { return 0 };
    if bytes <= 0 {
        return 0;
    }
    let mut inside = false;
    for (i, &addr) in frames.iter().enumerate() {
        // The call is before the address to which it returns, perhaps in another function.
        if is_locking(kernel, addr.wrapping_sub(1)) {
            inside = true;
        } else if inside {
            *frame = i as u64;
            return addr;
        }
    }
    0
}

#[inline(always)]
fn is_locking(kernel: &Kernel, addr: u64) -> bool {
    let [a, b, c, d] = &kernel.locking;
    a.covers(addr) || b.covers(addr) || c.covers(addr) || d.covers(addr)
}

/// Which of the locks that every process has one of this is.
#[inline(always)]
fn known_lock(lock: u64, flags: u32) -> u32 {
    let Some(kernel) = KERNEL.get(0) else { return 0 };
    let (which, pointer, offset) = if is_spinning(flags) {
        (known::SIGLOCK, kernel.task_sighand, kernel.siglock)
    } else if flags & flag::MUTEX == 0 {
        (known::MMAP_LOCK, kernel.task_mm, kernel.mmap_lock)
    } else {
        return 0;
    };
    if pointer == NO_OFFSET || offset == NO_OFFSET {
        return 0;
    }
    let object = read(task() as u64, pointer);
    if object != 0 && object.wrapping_add(u64::from(offset)) == lock { which } else { 0 }
}

/// Interrupts in service, in a preemption count: software, hardware and non-maskable ones. Disabled software interrupts are
/// counted in the bits between.
const IN_INTERRUPT: u32 = 0x00ff_0100;
/// Room for a thread's kernel stack, whatever the configuration.
const MAX_STACK: u64 = 1 << 16;

/// Whether an interrupt runs on top of the current thread. Where the preemption count is out of reach (x86-64), by the stack:
/// the kernel has one of its own for interrupts, but for those that come while the thread is in user mode, which enter by
/// code of their own.
#[inline(always)]
fn in_interrupt() -> bool {
    let Some(kernel) = KERNEL.get(0) else { return false };
    if kernel.preempt_count != NO_OFFSET {
        return read(task() as u64, kernel.preempt_count) as u32 & IN_INTERRUPT != 0;
    }
    let [here, registers] = addresses();
    // The saved user registers are at the top of the thread's stack.
    if registers.wrapping_sub(here) > MAX_STACK {
        return true;
    }
    // What the code that entered the kernel called returns to it.
    kernel.interrupts.covers(read(registers.wrapping_sub(8), 0))
}

/// Where the stack is now, and where the thread's user registers are saved.
#[inline(always)]
fn addresses() -> [u64; 2] {
    let mark = 0u64;
    // SAFETY: task() is the trusted current task.
    let registers = unsafe { bpf_task_pt_regs(task()) };
    let pointers = [core::ptr::from_ref(&mark) as u64, registers as u64];
    // Read back by a helper they are numbers to the verifier, with which it lets a program calculate.
    // SAFETY: both are this program's own memory.
    unsafe { bpf_probe_read_kernel(core::ptr::from_ref(&pointers)) }.unwrap_or([0; 2])
}
