//! Who holds a kernel lock that a thread begins to wait for, and where its program called the kernel: a mutex and a read-write semaphore name
//! a task, whose user registers are saved at the top of its kernel stack. A task of the same process has the same memory, so its user
//! stack can be read here.
//!
//! What the lock names need not hold it. A reader's name stays after it has given the lock back, and anybody may give it back at any
//! moment. So nothing is believed before the lock still names the task when all has been read; and of a reader, only if somebody reads, and the
//! task is in a system call as far as its registers tell.

use crate::emit::emit_for;
use crate::maps::{CONFIG, KERNEL, THINNING, count};
use crate::registers::user_registers_address;
use crate::stack::stack_of;
use crate::thread::{Thread, task, tid};
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use lockbpf_common::config::mode;
use lockbpf_common::counter::Counter;
use lockbpf_common::kernel::{Doing, HolderFields, HolderRecord, Kernel, NO_OFFSET, flag};
use lockbpf_common::stack_copy::how;
use lockbpf_common::thin::STACKS_FIRST;

/// Largest number that a kernel gives a thread (`PID_MAX_LIMIT`).
const MAX_TID: u32 = 1 << 22;
/// The lowest bits of an owner word are flags, in both kinds of locks.
const OWNER_FLAGS: u64 = 7;
/// Flag of a mutex that was handed to a waiter which has not taken it yet (`MUTEX_FLAG_PICKUP`).
const PICKUP: u64 = 4;
/// Flag of a read-write semaphore that readers have (`RWSEM_READER_OWNED`).
const READER: u64 = 1;
/// What a reader adds to the count of a read-write semaphore (`RWSEM_READER_SHIFT`); below are flags.
const READERS: u32 = 8;
/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u32 = 2;

/// Who holds a lock.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Holder {
    /// The thread that the lock names; 0 for none. Of several readers it may be the one that came last.
    pub tid: u32,
    /// Number of its user stack; negative if that is not known.
    stack: i32,
    /// What it does ([`Doing`]).
    doing: u32,
    /// Number of the user stack of who waits.
    own_stack: i32,
}

impl Holder {
    /// Looks at a lock that the current thread begins to sleep for. What cannot be read is not known.
    #[inline(always)]
    pub fn of(t: &Thread, lock: u64, flags: u32) -> Self {
        let nobody = Self { tid: 0, stack: -1, doing: 0, own_stack: -1 };
        let Some(kernel) = KERNEL.get(0) else { return nobody };
        let offset = if flags & (flag::RT | flag::PERCPU) != 0 {
            NO_OFFSET
        } else if flags & flag::MUTEX != 0 {
            kernel.mutex_owner
        } else {
            kernel.rwsem_owner
        };
        if offset == NO_OFFSET {
            return nobody;
        }
        let word = read(lock, offset);
        let owner = word & !OWNER_FLAGS;
        // Threads of the kernel itself have their place above user space, too; what is no task has no such number.
        let pid = if owner == 0 { 0 } else { read(owner, kernel.task_pid) as u32 };
        let mut holder = Self { tid: if pid <= MAX_TID { pid } else { 0 }, ..nobody };
        if CONFIG.load().mode & mode::COPY_STACKS != 0 && is_wanted(t) {
            if holder.tid != 0 {
                look(t, &mut holder, owner, flags);
                if holder.stack >= 0 && !holds(lock, offset, word, flags) {
                    count(Counter::HolderGone);
                    holder.stack = -1;
                }
            }
            holder.own_stack = stack_of(t.process, t.slot, user_registers_address(), 0);
        }
        holder
    }

    /// Records it, if it is known where it was.
    #[inline(always)]
    pub fn tell(&self, t: &Thread, lock: u64, time_ns: u64) {
        if self.stack >= 0 {
            self.record(t, lock, time_ns, false);
        }
    }

    /// Records that the current thread has got the lock, and where it had asked for it.
    #[inline(always)]
    pub fn tell_own(&self, t: &Thread, lock: u64, time_ns: u64) {
        if self.own_stack >= 0 {
            self.record(t, lock, time_ns, true);
        }
    }

    /// A function of its own, so that its instructions are not repeated.
    #[inline(never)]
    fn record(&self, t: &Thread, lock: u64, time_ns: u64, own: bool) -> u32 {
        let tid = tid();
        let (holder, stack, doing) =
            if own { (tid, self.own_stack, Doing::Unknown as u32) } else { (self.tid, self.stack, self.doing) };
        let record = HolderRecord::pack(&HolderFields {
            time_ns,
            lock,
            process: t.process,
            holder,
            tid,
            stack,
            doing: doing as u8,
        });
        emit_for(t.slot, &record, Counter::HolderRecords);
        0
    }
}

/// Whether stacks are taken for this wait: where those of waits are thinned ([`lockbpf_common::thin`]), of some.
#[inline(always)]
fn is_wanted(t: &Thread) -> bool {
    let level = THINNING.get(t.slot).copied().unwrap_or(0).min(STACKS_FIRST);
    // SAFETY: no arguments.
    level == 0 || unsafe { bpf_get_prandom_u32() } & ((1 << level) - 1) == 0
}

/// Takes the stack of a task of the current thread's process, and notes what it does.
#[inline(never)]
fn look(t: &Thread, holder: &mut Holder, owner: u64, flags: u32) -> u32 {
    let Some(kernel) = KERNEL.get(0) else { return 0 };
    let own = task() as u64;
    let known = [kernel.task_mm, kernel.task_tgid, kernel.task_stack, kernel.task_on_cpu];
    if owner == own || known.contains(&NO_OFFSET) {
        return 0;
    }
    let memory = read(own, kernel.task_mm);
    let same = read(owner, kernel.task_mm) == memory
        && read(owner, kernel.task_tgid) as u32 == read(own, kernel.task_tgid) as u32;
    if memory == 0 || !same {
        return 0;
    }
    // All tasks have them in the same place of their kernel stacks.
    let place = user_registers_address().wrapping_sub(read(own, kernel.task_stack));
    let registers = read(owner, kernel.task_stack).wrapping_add(place);
    let in_call = kernel.system_call == NO_OFFSET || read(registers, kernel.system_call) as i32 >= 0;
    if flags & flag::MUTEX == 0 && !in_call {
        // Who is in an exception reads at most, and may be back in the program already.
        return 0;
    }
    let state = read(owner, CONFIG.load().task_state) as u32;
    holder.doing = if read(owner, kernel.task_on_cpu) as u32 != 0 {
        Doing::Running
    } else if state == 0 {
        Doing::Runnable
    } else if state & UNINTERRUPTIBLE != 0 {
        Doing::Blocked
    } else {
        Doing::Sleeping
    } as u32;
    holder.stack = stack_of(t.process, t.slot, registers, how::OTHERS);
    0
}

/// Whether a lock still names who it did, and somebody holds it in that way.
#[inline(always)]
fn holds(lock: u64, offset: u32, word: u64, flags: u32) -> bool {
    let now = read(lock, offset);
    if now & !OWNER_FLAGS != word & !OWNER_FLAGS {
        return false;
    }
    if flags & flag::MUTEX != 0 {
        return now & PICKUP == 0;
    }
    if now & READER == 0 {
        return true;
    }
    let Some(Kernel { rwsem_count, .. }) = KERNEL.get(0) else { return false };
    *rwsem_count != NO_OFFSET && read(lock, *rwsem_count) as i64 >> READERS > 0
}

/// A word of the kernel's memory; 0 if it cannot be read.
#[inline(always)]
pub fn read(base: u64, offset: u32) -> u64 {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(u64::from(offset)) as *const u64) }.unwrap_or(0)
}
