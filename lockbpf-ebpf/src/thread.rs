//! A thread's in-flight state, in task storage: what it is about to lock, what it holds, what it sleeps on.

use crate::custom_call::{Blocked, CustomCall};
use crate::futex_call::FutexCall;
use crate::held::Held;
use crate::kernel::KernelWaits;
use crate::lease;
use crate::maps::{
    CGROUP, CONFIG, CONTROL, FREE_SLOTS, STATE, TARGETS, THREAD_COUNTS, THREAD_SUMS, TIDS, WAITS, count, next,
};
use crate::off_cpu::{Absence, KEPT};
use crate::once::Begun;
use crate::process;
use crate::transitions::Way;
use crate::watched::{self, Watched};
use aya_ebpf::bindings::{BPF_LOCAL_STORAGE_GET_F_CREATE, task_struct};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_tail_call, bpf_task_storage_get};
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use lockbpf_common::config::{Config, MAX_HELD, comm_words, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::ThreadCounts;
use lockbpf_common::process::SERIAL_SLOT;
use lockbpf_common::sums::ThreadSums;
use lockbpf_common::task::TaskWait;
use lockbpf_common::virtual_thread::VirtualCall;
use lockbpf_common::waiting::Waiting;

/// Size of the kernel's `struct upid`, which begins with the number.
const UPID_SIZE: usize = 16;
/// Pid namespaces are not nested deeper (32).
const MAX_LEVEL: u32 = 63;
/// Not decided yet (fresh storage, or after exec or a change of name).
const UNDECIDED: u32 = 0;
/// Observed.
const OBSERVED: u32 = 1;
/// A filter excludes it.
const IGNORED: u32 = 2;
/// About to be observed, or no longer: it exits. What it waits for meanwhile is its own, but goes to nobody.
const BETWEEN: u32 = 3;

/// In-flight state. Zeroed storage is the valid initial state.
#[repr(C)]
pub struct Thread {
    /// Process number.
    pub process: u32,
    /// Whether a filter excludes it.
    decision: u32,
    /// Number of its entry in the thread sums, plus one; 0 if there was none left.
    entry: u32,
    /// Locks held: valid entries of `held`.
    pub depth: u32,
    /// Acquisitions that found `held` full; their unlocks are expected.
    pub overflow: u32,
    /// Slot of its process ([`lockbpf_common::gate`]).
    pub slot: u32,
    /// The opening of its gate to which all below but the futex call belongs; 0 for none.
    pub epoch: u64,
    /// Lapses of the lease ([`crate::lease`]) before what it was seen to do.
    pub lapses: u64,
    /// Probe hits so far, modulo 2^32.
    pub hits: u32,
    /// Whether the C library of its probes is musl: 0 or 1.
    musl: u32,
    /// Signal handlers that it is in, from the first one on that interrupted a call on locks.
    pub handlers: u32,
    /// Calls that these interrupted ([`crate::signal`]).
    pub suspended: u32,
    /// The number of the first of these handlers that interrupted a wait for a lock; 0 if none did.
    pub wait_handler: u32,
    /// Explicit padding.
    reserved: u32,
    /// When the first of the held locks was acquired.
    pub union_start_ns: u64,
    /// When the section ended that was in the first vacant place of `held`, if nobody knows yet whether somebody waits for
    /// its lock: the thread's next futex call tells, which wakes them. Else 0.
    pub released_ns: u64,
    /// When the last section or attempt ended of which it has made a record ([`crate::told`]).
    pub told_ns: u64,
    /// The mutex of its process's interpreter lock ([`crate::gil`]); 0 if none is known.
    pub gil: u64,
    /// Since when it waits for that; 0 if it does not.
    pub gil_wait_ns: u64,
    /// The same as futex calls tell it.
    pub gil_futex: crate::gil::Timed,
    /// The absence from the CPU in progress.
    pub off: Absence,
    /// Descriptor of the [goroutine](crate::goroutine) whose absence that is; 0 if it is the thread's own.
    pub goroutine: u64,
    /// The wrapper that the thread is in, if it is.
    pub wrapper: Wrapper,
    /// The initialiser that it found not yet begun.
    pub once: Begun,
    /// The last call of a function on a described lock.
    pub custom: CustomCall,
    /// The call in which it waits for one.
    pub blocked: Blocked,
    /// What the task that it polls has asked for last, of [tokio's locks](crate::tokio).
    pub asks: TaskWait,
    /// Within which function of tokio's.
    pub tokio_call: TokioCall,
    /// What a virtual thread of Java's asks for by the call in progress.
    pub virtual_call: VirtualCall,
    /// Those of tokio's locks that tasks got in it last and did not give back in it, until the thread sleeps.
    pub got: [Got; GOT],
    /// The task that asked last in it for one of these, or the thread's id for who only tried; 0 if it is not known.
    pub task: u64,
    /// When the thread ran again the last time after it had slept, ns: only of threads that poll tasks which ask for such locks.
    pub woken_ns: u64,
    /// Whether such a thread sleeps.
    pub sleeps: u64,
    /// The lock call in progress.
    pub pending: Pending,
    /// A call in progress on a runtime's lock, put aside while the thread takes others inside of it.
    pub slow: Pending,
    /// The futex call in progress.
    pub futex: FutexCall,
    /// The permit of a semaphore taken last, if its lock is not 0: not among the locks held, since another thread may give it back.
    pub permit: Held,
    /// The waits for kernel locks in progress.
    pub kernel: KernelWaits,
    /// Locks held, in order of acquisition while unlocks are last-in first-out.
    pub held: [Held; MAX_HELD],
    /// Slots of sums used last.
    pub recent: [Recent; RECENT],
    /// From which lock it comes.
    pub way: Way,
    /// What it did instead of running, if it makes others wait.
    pub watched: Watched,
}

/// Slots of sums that a thread remembers, each at the place that its key's hash names.
pub const RECENT: usize = 16;

/// Where the sums of a key of the thread's process are. All zero: nowhere, since no lock is at address 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Recent {
    /// The lock.
    pub lock: u64,
    /// Return address of the call that got it.
    pub site: u64,
    /// `Via`.
    pub via: u32,
    /// Slot in the sums.
    pub slot: u32,
}

/// A function that does nothing but call a probed one, which is then requested where this one was called.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Wrapper {
    /// Its first argument, which is also that of the function it calls; 0 while there is none.
    pub argument: u64,
    /// Its return address.
    pub site: u64,
}

/// Locks of tasks that a thread follows. Where more are held, the oldest ones are not followed.
pub const GOT: usize = 4;

/// One of tokio's locks that a task got in a thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Got {
    /// The lock.
    pub lock: u64,
    /// When that was, ns; 0 for none.
    pub since_ns: u64,
}

/// A function of tokio's that asks for a lock, or gives it back, for its caller.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TokioCall {
    /// The stack pointer at its entry; 0 if there is none.
    pub frame: u64,
    /// Its return address.
    pub returns_to: u64,
    /// What that lock is ([`lockbpf_common::task::tokio_lock`]).
    pub what: u64,
}

/// A lock call in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pending {
    /// The lock; for a condition wait, its mutex.
    pub lock: u64,
    /// Where it was requested: the return address of the call, or of the wrapper around it.
    pub site: u64,
    /// Return address of the call, by which its return is known.
    pub returns_to: u64,
    /// When it began.
    pub attempt_ns: u64,
    /// The condition variable, for a condition wait; the stack pointer at the entry, for a call on a [described lock](crate::custom).
    pub cond: u64,
    /// When the condition wait's sleep ended: the attempt on the mutex.
    pub woken_ns: u64,
    /// Condition wait: from the call that woke it last until it ran; 0 if that is not known.
    pub latency_ns: u64,
    /// When the last sleep for the lock ended.
    pub acquire_ns: u64,
    /// Owner word at the attempt.
    pub owner: u32,
    /// Last waker.
    pub waker: u32,
    /// Stack at the attempt, if contended.
    pub stack: i32,
    /// glibc's mutex kind.
    pub kind: u32,
    /// `Via`; 0 while no call is in progress.
    pub via: u32,
    /// Section flags so far.
    pub flags: u32,
    /// Condition wait: 1 if its last sleep ended at its deadline.
    pub timed_out: u32,
    /// By which results a call on a described lock fails ([`lockbpf_common::custom::fails`]).
    pub fails: u32,
}

/// The current time, ns on `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// The current thread's id.
#[inline(always)]
pub fn tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The current thread's id in its own pid namespace; 0 if that cannot be found.
#[inline(always)]
pub fn own_tid() -> u32 {
    let Config { task_thread_pid, pid_level, pid_numbers, .. } = CONFIG.load();
    if pid_numbers == 0 {
        return 0;
    }
    // SAFETY: faulting addresses are errors from the helper, not faults; the offsets come from the running kernel's BTF.
    unsafe {
        let Ok(pid) = bpf_probe_read_kernel(task().cast::<u8>().add(task_thread_pid as usize).cast::<*const u8>())
        else {
            return 0;
        };
        let level = bpf_probe_read_kernel(pid.add(pid_level as usize).cast::<u32>()).unwrap_or(0);
        let number = pid.add(pid_numbers as usize + UPID_SIZE * (level & MAX_LEVEL) as usize);
        bpf_probe_read_kernel(number.cast::<u32>()).unwrap_or(0)
    }
}

/// The current task.
#[inline(always)]
pub fn task() -> *mut task_struct {
    // SAFETY: no arguments.
    unsafe { bpf_get_current_task_btf() }
}

/// The current thread's state if it exists, whether observed or not.
#[inline(always)]
pub fn existing(task: *mut task_struct) -> Option<&'static mut Thread> {
    stay_on_own_stack();
    stored(task)
}

/// The same deep inside of a program, where [`existing`] was called before.
#[inline(always)]
pub fn stored(task: *mut task_struct) -> Option<&'static mut Thread> {
    // SAFETY: STATE is a task-storage map of `Thread`, task is the trusted current task, or a tracepoint's; the storage lives as
    // long as the task, and but for single words only the task itself writes it.
    unsafe { bpf_task_storage_get(STATE.as_ptr(), task.cast(), core::ptr::null_mut(), 0).cast::<Thread>().as_mut() }
}

/// Does nothing, but keeps the program that includes it on the stack of the thread it runs in, by a tail call that the
/// verifier sees and then finds to be dead. Kernels since 6.13 give other programs a stack per CPU; where the kernel is
/// preemptible, a thread preempted in a uprobe's program then has its variables overwritten by the next one there: wrong
/// counts, or an oops (seen on 7.x).
#[inline(always)]
fn stay_on_own_stack() {
    // lockbpf's process id is never 0, and the verifier knows it.
    if CONFIG.load().self_pid == 0 {
        // SAFETY: never reached.
        unsafe { bpf_tail_call(core::ptr::null_mut(), core::ptr::null_mut(), 0) };
    }
}

/// The current thread's state if the observation is on and the thread is part of it.
#[inline(always)]
pub fn current() -> Option<&'static mut Thread> {
    let control = CONTROL.get(0)?;
    if !control.is_active() {
        return None;
    }
    let task = task();
    let t = existing(task);
    if !lease::holds(control) {
        if t.is_some_and(|t| t.observed()) {
            count(Counter::LeaseExpired);
        }
        return None;
    }
    let t = match t {
        Some(t) if t.decision == OBSERVED => t,
        Some(t) if t.decision != UNDECIDED => return None,
        _ => admit(task)?,
    };
    if t.lapses != control.lapses {
        lease::lapsed(t, control.lapses);
    }
    Some(t)
}

/// Whether the current process would be observed, as far as its number, name and parent tell.
#[inline(always)]
pub fn is_target(task: *mut task_struct) -> bool {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: only the key's presence matters.
    may_be_observed(pid) && (unsafe { TARGETS.get(pid) }.is_some() || is_one_of_all(task))
}

/// Whether a number is that of a process which lockbpf would observe: what idles is none, and it does not observe itself.
#[inline(always)]
fn may_be_observed(pid: u32) -> bool {
    pid != 0 && pid != CONFIG.load().self_pid
}

/// Whether the current process is observed without having been named.
#[inline(always)]
fn is_one_of_all(task: *mut task_struct) -> bool {
    CONFIG.load().mode & mode::SYSTEM_WIDE != 0 && !process::is_helper(task)
}

/// Decides once per thread whether it is observed, and registers it and its process. A function of its own, so that its
/// stack and instructions burden no hot path.
#[inline(never)]
fn admit(task: *mut task_struct) -> Option<&'static mut Thread> {
    let ids = bpf_get_current_pid_tgid();
    let (pid, tid) = ((ids >> 32) as u32, ids as u32);
    let config = CONFIG.load();
    if !may_be_observed(pid) {
        return None;
    }
    // SAFETY: copied at once.
    let slot = unsafe { TARGETS.get(pid) }.copied();
    if slot.is_none() && !is_one_of_all(task) {
        return None;
    }
    // Before anything is remembered of it: it may join later.
    if config.mode & mode::CGROUP != 0 && CGROUP.current_task_under_cgroup(0) != Ok(true) {
        return None;
    }
    // SAFETY: as in `existing`; a null value asks for zeroed storage.
    let t = unsafe {
        bpf_task_storage_get(
            STATE.as_ptr(),
            task.cast(),
            core::ptr::null_mut(),
            u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE),
        )
        .cast::<Thread>()
        .as_mut()
    };
    let Some(t) = t else {
        count(Counter::StateFull);
        return None;
    };
    let comm = bpf_get_current_comm().unwrap_or_default();
    // SAFETY: only the key's presence matters.
    let tid_excluded = config.mode & mode::TIDS != 0 && unsafe { TIDS.get(tid) }.is_none();
    if tid_excluded || config.mode & mode::COMM != 0 && comm_words(&comm) != config.comm {
        t.decision = IGNORED;
        return None;
    }
    t.decision = BETWEEN;
    t.slot = slot.unwrap_or(0);
    t.gil = crate::gil::mutex();
    t.process = process::number(task, pid, 0, comm);
    // They are those of the number before.
    for recent in &mut t.recent {
        recent.lock = 0;
    }
    t.way.forget_slots();
    watched::begin(t);
    if t.entry == 0 {
        let entry = match FREE_SLOTS.pop() {
            Ok(Some(entry)) => entry,
            _ => next(SERIAL_SLOT) as u32,
        };
        let sums = ThreadSums { tid, process: t.process, comm, ..ThreadSums::default() };
        match THREAD_SUMS.set(entry, sums, 0) {
            Ok(()) => t.entry = entry + 1,
            Err(_) => count(Counter::ThreadsFull),
        }
    }
    t.decision = OBSERVED;
    Some(t)
}

impl Thread {
    /// This thread's sums, if it has an entry.
    #[inline(always)]
    pub fn sums(&self) -> Option<&'static mut ThreadSums> {
        if self.entry == 0 {
            return None;
        }
        // SAFETY: the entry belongs to this thread alone until it exits.
        THREAD_SUMS.get_ptr_mut(self.entry - 1).map(|p| unsafe { &mut *p })
    }

    /// This thread's counts, if it has an entry.
    #[inline(always)]
    pub fn counts(&self) -> Option<&'static mut ThreadCounts> {
        if self.entry == 0 {
            return None;
        }
        // SAFETY: as above.
        THREAD_COUNTS.get_ptr_mut(self.entry - 1).map(|p| unsafe { &mut *p })
    }

    /// The thread begins to wait. User space may read meanwhile: what it reads is whole if it is checked ([`Waiting::is_whole`]).
    #[inline(always)]
    pub fn begin_wait(&self, wait: &Waiting) {
        let Some(place) = self.wait() else { return count(Counter::WaitsFull) };
        let since_ns = wait.since_ns;
        // SAFETY: a valid, aligned entry; volatile, so that the order is kept.
        unsafe { (&raw mut place.check).write_volatile(since_ns as u32) };
        *place = Waiting { since_ns: 0, check: since_ns as u32, ..*wait };
        // SAFETY: as above.
        unsafe { (&raw mut place.since_ns).write_volatile(since_ns) };
    }

    /// It does not wait any more.
    #[inline(always)]
    pub fn end_wait(&self) {
        if let Some(place) = self.wait() {
            place.since_ns = 0;
        }
    }

    #[inline(always)]
    fn wait(&self) -> Option<&'static mut Waiting> {
        if self.entry == 0 {
            return None;
        }
        // SAFETY: as above.
        WAITS.get_ptr_mut(self.entry - 1).map(|p| unsafe { &mut *p })
    }

    /// Gives the entry back, for the thread's exit; returns the sums.
    #[inline(always)]
    pub fn retire(&mut self) -> Option<ThreadSums> {
        self.end_wait();
        let sums = self.sums()?;
        let last = *sums;
        *sums = ThreadSums::default();
        let _ = FREE_SLOTS.push(self.entry - 1, 0);
        self.entry = 0;
        self.decision = BETWEEN;
        Some(last)
    }

    /// Whether this thread is observed.
    #[inline(always)]
    pub fn observed(&self) -> bool {
        self.decision == OBSERVED
    }

    /// Whether a filter excludes this thread.
    #[inline(always)]
    pub fn ignored(&self) -> bool {
        self.decision == IGNORED
    }

    /// Forgets the filter's decision, so that the next operation decides anew.
    #[inline(always)]
    pub fn reconsider(&mut self) {
        self.decision = UNDECIDED;
    }

    /// A section that begins now without a wait.
    #[inline(always)]
    pub fn begun(&self, lock: u64, site: u64, via: u32, acquire_ns: u64) -> Held {
        Held {
            lock,
            site,
            acquire_ns,
            wait_ns: 0,
            owner: 0,
            waker: 0,
            stack: -1,
            via,
            flags: 0,
            recursion: 0,
            kind: 0,
            hits: self.hits,
        }
    }

    /// The section that the attempt in progress leads to.
    #[inline(always)]
    pub fn attempted(&self, acquire_ns: u64, wait_ns: u64) -> Held {
        let Pending { lock, site, owner, waker, stack, via, flags, kind, .. } = self.pending;
        Held { wait_ns, owner, waker, stack, flags, kind, ..self.begun(lock, site, via, acquire_ns) }
    }

    /// Goes on with the call that was put aside, if there is one and no other is in progress.
    #[inline(always)]
    pub fn resume(&mut self) {
        if self.slow.via != 0 && self.pending.via == 0 {
            self.pending = self.slow;
            self.slow.via = 0;
        }
    }

    /// Whether the C library of its probes is musl.
    #[inline(always)]
    pub fn is_musl(&self) -> bool {
        self.musl != 0
    }

    /// Sets which C library its probes are in.
    #[inline(always)]
    pub fn set_musl(&mut self, musl: bool) {
        self.musl = u32::from(musl);
    }

    /// Probe hits since it acquired held lock `i`, beyond the one of the release itself.
    #[inline(always)]
    pub fn inner_hits(&self, i: usize) -> u64 {
        u64::from(self.hits.wrapping_sub(self.held[i & (MAX_HELD - 1)].hits).saturating_sub(1))
    }

    /// Forgets the locks it holds or is about to lock.
    #[inline(always)]
    pub fn forget_locks(&mut self) {
        self.depth = 0;
        self.permit.lock = 0;
        self.wrapper.argument = 0;
        self.once.control = 0;
        self.custom.frame = 0;
        self.gil_wait_ns = 0;
        self.overflow = 0;
        self.released_ns = 0;
        self.pending.via = 0;
        self.slow.via = 0;
        self.handlers = 0;
        self.suspended = 0;
        self.wait_handler = 0;
        if self.off.reason & KEPT == 0 {
            self.off.reason = 0;
        }
        self.way.lose();
    }

    /// Index of a lock that the thread, the current one, holds, most recent first.
    #[inline(always)]
    pub fn find(&self, lock: u64) -> Option<usize> {
        let depth = self.depth as usize;
        if depth == 0 {
            return None;
        }
        let top = (depth - 1) & (MAX_HELD - 1);
        if self.held[top].lock == lock {
            return Some(top);
        }
        if depth == 1 {
            return None;
        }
        let i = find_below(lock) as usize;
        (i < MAX_HELD).then_some(i)
    }
}

/// Index of a lock that the current thread holds and did not take last; `MAX_HELD` if there is none. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_below(lock: u64) -> u32 {
    let Some(t) = stored(task()) else { return MAX_HELD as u32 };
    let depth = t.depth as usize;
    let mut back = 2;
    while back <= MAX_HELD {
        if back > depth {
            break;
        }
        let i = (depth - back) & (MAX_HELD - 1);
        if t.held[i].lock == lock {
            return i as u32;
        }
        back += 1;
    }
    MAX_HELD as u32
}
