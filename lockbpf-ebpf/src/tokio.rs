//! tokio's locks. All are made of one semaphore (`tokio::sync::batch_semaphore`), for which a task asks by a future and which is given
//! back by a function, whether or not it was free or somebody waits: so all is seen where functions begin. Whether an attempt has to
//! wait stands in the semaphore; it is over when the future is polled with nothing missing any more.
//!
//! A task may go on in another thread than it waited in, so what it is about to do is kept by process and future, and who has a lock
//! by process and lock.

use crate::atomic::add;
use crate::calls::return_address;
use crate::context::{cookie_of, stack_pointer};
use crate::emit::emit_for;
use crate::focus;
use crate::gate::pass;
use crate::maps::{CONFIG, count};
use crate::memory::read;
use crate::section::fits;
use crate::section_sums::{NO_WAIT, add_section, add_unseen, at, sums};
use crate::slots::{NO_SLOT, slot_of};
use crate::stack::take_stack;
use crate::task::{TokioLock, gets, gives_back, known, of, record_sleep};
use crate::thread::{Thread, TokioCall, now, tid};
use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, uprobe};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use lockbpf_common::config::{MAX_WAITS, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::function;
use lockbpf_common::gate;
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::record::{SectionFields, SectionRecord};
use lockbpf_common::stack_copy::how;
use lockbpf_common::sums::SumKey;
use lockbpf_common::task::{FutureKey, TOKIO_PERMITS, TaskWait, of_readers, of_waker, tokio_lock};

/// Bytes from `batch_semaphore::Acquire`, by which a task asks (from tokio 1.36 on), to the permits that it still lacks.
const MISSING: u64 = 40;
/// Bytes from `batch_semaphore::Semaphore` to its queue.
const QUEUE: u64 = 8;
/// Bytes from one of those that wait to the permits that it still lacks.
const WAITER_MISSING: u64 = 32;
/// As many permits as this are those of a read-write lock.
const READERS: u64 = 1 << 28;
/// Frames of tokio's functions between the one that is called and the poll are not larger, bytes.
#[cfg(bpf_target_arch = "x86_64")]
const MAX_FRAMES: u64 = 4_096;
/// No semaphore has more.
const MAX_PERMITS: u64 = u64::MAX >> 3;

/// Waits in progress. LRU, since futures whose end is not seen leave theirs behind: a lost one is counted when its wait ends.
#[btf_map]
static TASK_WAITS: LruHashMap<FutureKey, TaskWait, { MAX_WAITS as usize }> = LruHashMap::new();

/// The functions of tokio's semaphore, and those by which they are called, told apart by cookies.
#[uprobe]
pub fn tokio(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return 0 };
    let (first, second) = (ctx.arg(0).unwrap_or(0), ctx.arg(1).unwrap_or(0));
    if gate::function(cookie) == function::TOKIO_DROP {
        dropped(ctx.as_ptr(), t, first, now);
        return 0;
    }
    let frame = stack_pointer(&ctx);
    let caller = caller(t, frame);
    if gate::function(cookie) == function::TOKIO_CALL {
        // The outermost one counts.
        if caller.is_none() {
            t.tokio_call = TokioCall { frame, returns_to: return_address(&ctx), what: u64::from(gate::detail(cookie)) };
        }
        return 0;
    }
    if caller.is_none() {
        t.tokio_call.what = 0;
    }
    t.tokio_call.frame = 0;
    let site = caller.unwrap_or_else(|| return_address(&ctx));
    t.asks = TaskWait { lock: first, site, attempt_ns: now, epoch: t.epoch, tid: 0, via: 0 };
    let has_it = match gate::function(cookie) {
        function::TOKIO_POLL => polled(t, first, second),
        function::TOKIO_TRY => tries(t, second),
        _ => {
            released(ctx.as_ptr(), t, first, second, now);
            return 0;
        }
    };
    t.task = u64::from(t.asks.tid);
    if has_it != 0 {
        acquired(ctx.as_ptr(), t, now);
    }
    0
}

/// Where tokio's function returns to in which the stack has come to `frame`: in the program's own that called it. Its return address
/// still stands where its call put it: the next call from there overwrites it.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn caller(t: &Thread, frame: u64) -> Option<u64> {
    let TokioCall { frame: at, returns_to, .. } = t.tokio_call;
    let inside = at.wrapping_sub(frame) < MAX_FRAMES;
    let stands = || crate::memory::peek::<u64>(at) == Some(returns_to);
    (inside && stands()).then_some(returns_to)
}

/// A register had it, so nothing tells.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn caller(_: &Thread, _: u64) -> Option<u64> {
    None
}

/// A task asks for a lock, or asks whether it has it by now: if so, not 0, and since when it has asked is with the thread. A function of its
/// own, so that its stack is not that of all.
#[inline(never)]
fn polled(t: &mut Thread, future: u64, context: u64) -> u32 {
    let Some([semaphore, _, waker]) = read::<[u64; 3]>(future) else { return 0 };
    let Some([missing, asked, queued]) = read::<[u64; 3]>(future + MISSING) else { return 0 };
    let queued = queued & 0xff;
    let fresh = queued == 0;
    if queued > 1 || asked > MAX_PERMITS || missing > asked || fresh && missing != asked {
        count(Counter::TokioOdd);
        return 0;
    }
    let lock = semaphore + TOKIO_PERMITS;
    let Some(permits) = read::<u64>(lock) else { return 0 };
    let key = FutureKey { process: u64::from(t.process), future };
    if !fresh {
        t.asks.tid = of_waker(waker);
        if missing > permits >> 1 {
            // Polled for another reason.
            return 0;
        }
        let is_waker = waker_of(context, true) == waker;
        // SAFETY: copied at once; only the task itself changes its entry, in one thread at a time.
        return match unsafe { TASK_WAITS.get(key) }.filter(|wait| wait.epoch == t.epoch) {
            Some(wait) => {
                t.asks = *wait;
                let _ = TASK_WAITS.remove(key);
                // It has kept a waker of its own by now.
                t.asks.tid = of_waker(waker);
                if let Some(known) = known(t.process, lock) {
                    known.told_waker = u32::from(is_waker);
                }
                1
            }
            None => {
                t.asks.lock = lock;
                // Unless it had the lock already when its turn was over.
                let begun = requests(t, permits, asked).is_some_and(|l| l.tid != t.asks.tid || l.epoch != t.epoch);
                if begun {
                    count(Counter::TokioUnbegun);
                }
                u32::from(begun)
            }
        };
    }
    t.asks.lock = lock;
    let Some(known) = requests(t, permits, asked) else { return 0 };
    t.asks.tid = of_waker(waker_of(context, known.told_waker != 0));
    if permits >> 1 >= asked && !is_held(t, known) {
        let _ = TASK_WAITS.remove(key);
        return 1;
    }
    // A failure loses the wait.
    if TASK_WAITS.insert(key, t.asks, 0).is_err() {
        count(Counter::WaitsFull);
    }
    0
}

/// A thread asks for what it gets at once or not at all: not 0 if it gets it. Which task that is for, is not known.
#[inline(never)]
fn tries(t: &mut Thread, asked: u64) -> u32 {
    t.asks.lock += TOKIO_PERMITS;
    let Some(permits) = read::<u64>(t.asks.lock) else { return 0 };
    t.asks.tid = tid();
    u32::from(permits >> 1 >= asked && requests(t, permits, asked).is_some_and(|known| !is_held(t, known)))
}

/// Whether the lock that is asked for, which has one holder at a time, has just got one: two may find it free at once.
#[inline(always)]
fn is_held(t: &Thread, lock: &TokioLock) -> bool {
    is_exclusive(t.asks.via) && lock.tid != 0 && lock.epoch == t.epoch && lock.tid != t.asks.tid
}

/// Whether who asks in this way is the lock's only holder then.
#[inline(always)]
const fn is_exclusive(via: u32) -> bool {
    via == Via::TokioLock as u32 || via == Via::TokioWriteLock as u32
}

/// A task asks for `asked` permits of the lock in `t.asks`. Returns what is known of the lock; `None` if that is no lock.
#[inline(always)]
fn requests(t: &mut Thread, permits: u64, asked: u64) -> Option<&'static mut TokioLock> {
    if permits & 1 != 0 || asked == 0 || !fits(t.asks.lock, t.asks.site) {
        return None;
    }
    let lock = known(t.process, t.asks.lock)?;
    lock.most = lock.most.max(permits >> 1).max(asked);
    learn(t, lock);
    if lock.what == tokio_lock::CHANNEL {
        count(Counter::TokioChannels);
        return None;
    }
    t.asks.via = via_of(lock, asked);
    Some(lock)
}

/// Takes in what the lock is by what tokio's function says that is about to use it.
#[inline(always)]
fn learn(t: &Thread, lock: &mut TokioLock) {
    let what = t.tokio_call.what as u32;
    lock.what = if what == 0 { lock.what } else { what };
}

/// The operation of a task that asks for `asked` permits of the lock.
#[inline(always)]
fn via_of(lock: &TokioLock, asked: u64) -> u32 {
    let via = match lock.what {
        tokio_lock::MUTEX => Via::TokioLock,
        tokio_lock::SEMAPHORE => Via::TokioPermits,
        _ if is_rwlock(lock) && asked > 1 => Via::TokioWriteLock,
        _ if is_rwlock(lock) => Via::TokioReadLock,
        _ if lock.most > 1 => Via::TokioPermits,
        _ => Via::TokioLock,
    };
    via as u32
}

/// Whether it is a read-write lock: a writer takes all permits, and there are as many as readers can be.
#[inline(always)]
fn is_rwlock(lock: &TokioLock) -> bool {
    lock.what == tokio_lock::RWLOCK || lock.what == 0 && lock.most >= READERS
}

/// What the waker of a context, or the waker that stands in its place, is for: it comes behind the table of functions that are called with it.
#[inline(always)]
fn waker_of(context: u64, is_waker: bool) -> u64 {
    let waker = if is_waker { context } else { read::<u64>(context).unwrap_or(0) };
    read::<u64>(waker + 8).unwrap_or(0)
}

/// A lock is the task's that has asked for it by the thread's last call. A function of its own, so that its stack and instructions are not
/// repeated.
#[inline(never)]
fn acquired(ctx: *mut c_void, t: &mut Thread, now: u64) -> u32 {
    let Some(lock) = known(t.process, t.asks.lock) else { return 0 };
    let wait_ns = now.saturating_sub(t.asks.attempt_ns);
    if t.asks.via == Via::TokioLock as u32 && is_rwlock(lock) {
        // Until now it was not known to be one. Who writes asks for more than one permit.
        t.asks.via = Via::TokioReadLock as u32;
    }
    if lock.what == tokio_lock::CHANNEL {
        return 0;
    }
    let via = t.asks.via;
    if is_exclusive(via) {
        let has_holder = lock.tid != 0 && lock.epoch == t.epoch;
        lock.had += 1;
        lock.had_twice += u32::from(has_holder && lock.tid != t.asks.tid);
        if lock.what != tokio_lock::MUTEX && lock.had_twice >= 4 && lock.had_twice >= lock.had >> 2 {
            // Too often for an oversight.
            (lock.what, lock.tid) = (tokio_lock::SEMAPHORE, 0);
            t.asks.via = Via::TokioPermits as u32;
        } else if has_holder && lock.tid == t.asks.tid && wait_ns == 0 {
            // Polled once more, since the task's turn was over when it had the lock.
            return 0;
        } else {
            (lock.acquire_ns, lock.wait_ns, lock.site, lock.readers_ns) = (now, wait_ns, t.asks.site, 0);
            (lock.epoch, lock.via, lock.tid, lock.slept_ns) = (t.epoch, via, t.asks.tid, 0);
            gets(t, t.asks.lock, now);
            let long = wait_ns >= CONFIG.load().stack_wait_ns;
            lock.stack = if long { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
            return 0;
        }
    } else if via == Via::TokioReadLock as u32 {
        if lock.readers_ns == 0 || lock.epoch != t.epoch {
            (lock.readers_ns, lock.reader_site, lock.epoch, lock.tid) = (now, t.asks.site, t.epoch, 0);
        } else if lock.reader_site != t.asks.site {
            lock.reader_site = 0;
        }
    }
    let waker = if lock.waker_ns > t.asks.attempt_ns { lock.waker } else { 0 };
    share(ctx, t, waker, now)
}

/// A permit that others may have as well is a task's; that it is given back is not seen.
#[inline(never)]
fn share(ctx: *mut c_void, t: &Thread, waker: u32, now: u64) -> u32 {
    let TaskWait { lock, site, attempt_ns, via, .. } = t.asks;
    let wait_ns = now.saturating_sub(attempt_ns);
    let config = CONFIG.load();
    let waited = wait_ns > 0;
    let wanted = waited && wait_ns >= config.min_wait_ns || config.mode & mode::ALL_EVENTS != 0;
    let mut stack = -1;
    if let Some(s) = sums(&SumKey { lock, site, process: t.process, via }, 0, attempt_ns) {
        add_unseen(s, wait_ns);
        if wanted && (wait_ns >= config.stack_wait_ns || s.stack < 0) {
            stack = take_stack(ctx, t.process, t.slot, 0);
            s.stack = if s.stack < 0 { stack } else { s.stack };
        }
    }
    if !wanted || !focus::includes(t.process, lock, site) {
        return 0;
    }
    let (flags, outcome) = (if waited { flag::CONTENDED } else { 0 }, Outcome::Unseen as u8);
    emit(t, &SectionFields { end_ns: now, wait_ns, waker, stack, flags, outcome, ..asked(t) });
    0
}

/// A section as it is asked for by the thread's last call.
#[inline(always)]
fn asked(t: &Thread) -> SectionFields {
    let TaskWait { lock, site, tid, via, .. } = t.asks;
    let (process, via) = (t.process, via as u8);
    SectionFields { lock, site, process, tid, via, ..SectionFields::default() }
}

#[inline(always)]
fn emit(t: &Thread, section: &SectionFields) {
    emit_for(t.slot, &SectionRecord::pack(section), Counter::SectionRecords);
}

/// A future is dropped while it waits: the task has given up.
#[inline(never)]
fn dropped(ctx: *mut c_void, t: &mut Thread, future: u64, now: u64) -> u32 {
    let key = FutureKey { process: u64::from(t.process), future };
    // SAFETY: copied at once; only the task itself changes its entry, in one thread at a time.
    let Some(wait) = (unsafe { TASK_WAITS.get(key) }) else { return 0 };
    t.asks = *wait;
    let _ = TASK_WAITS.remove(key);
    let TaskWait { lock, site, attempt_ns, epoch, via, .. } = t.asks;
    if epoch != t.epoch || of(t.process, lock).is_some_and(|known| known.what == tokio_lock::CHANNEL) {
        return 0;
    }
    let wait_ns = now.saturating_sub(attempt_ns);
    if let Some(s) = sums(&SumKey { lock, site, process: t.process, via }, 0, attempt_ns) {
        add(&mut s.timeouts, 1);
        add(&mut s.timeout_ns, wait_ns);
    }
    if !focus::includes(t.process, lock, site) {
        return 0;
    }
    let stack = if wait_ns >= CONFIG.load().stack_wait_ns { take_stack(ctx, t.process, t.slot, 0) } else { -1 };
    let (flags, outcome) = (flag::CONTENDED, Outcome::TimedOut as u8);
    emit(t, &SectionFields { end_ns: now, wait_ns, stack, flags, outcome, ..asked(t) });
    0
}

/// So many permits are given back.
#[inline(never)]
fn released(ctx: *mut c_void, t: &mut Thread, semaphore: u64, added: u64, now: u64) -> u32 {
    if added == 0 {
        return 0;
    }
    let Some([first, last]) = read::<[u64; 2]>(semaphore + QUEUE) else { return 0 };
    let address = semaphore + TOKIO_PERMITS;
    gives_back(t, address);
    let Some(lock) = known(t.process, address) else { return 0 };
    lock.most = lock.most.max(added);
    learn(t, lock);
    if lock.what == tokio_lock::CHANNEL || lock.what == tokio_lock::SEMAPHORE {
        lock.tid = 0;
    }
    let waited_for = first | last != 0;
    if waited_for {
        (lock.waker_ns, lock.waker) = (now, if lock.tid != 0 { lock.tid } else { tid() });
    }
    let own = lock.epoch == t.epoch;
    if lock.tid == 0 {
        if lock.readers_ns == 0 || !is_rwlock(lock) {
            return 0;
        }
        let over = if waited_for {
            read::<u64>(last + WAITER_MISSING).is_some_and(|missing| missing <= added)
        } else {
            read::<u64>(address).is_some_and(|permits| (permits >> 1) + added >= lock.most)
        };
        if !over {
            return 0;
        }
        // To those who waited for all readers these have one section together.
        (lock.acquire_ns, lock.wait_ns, lock.stack, lock.slept_ns) = (lock.readers_ns, 0, -1, 0);
        lock.site = if lock.reader_site == 0 { t.asks.site } else { lock.reader_site };
        (lock.via, lock.tid, lock.readers_ns) = (Via::TokioReadLock as u32, of_readers(address), 0);
    }
    if own {
        close(ctx, t, lock, address, u64::from(waited_for) << 63 | now);
    }
    lock.tid = 0;
    0
}

/// The section of a lock's only holder ends; `end`: when, ns, and in the top bit whether somebody waits.
#[inline(never)]
fn close(ctx: *mut c_void, t: &Thread, held: &TokioLock, lock: u64, end: u64) -> u32 {
    let (now, waited_for) = (end & (u64::MAX >> 1), end >> 63 != 0);
    let hold_ns = now.saturating_sub(held.acquire_ns);
    let (site, via, wait_ns) = (held.site, held.via, held.wait_ns);
    let slot = slot_of(&SumKey { lock, site, process: t.process, via }, 0, held.acquire_ns);
    // Readers have been counted when they got it.
    if slot != NO_SLOT && via != Via::TokioReadLock as u32 {
        add_section(slot, hold_ns, if wait_ns > 0 { wait_ns } else { NO_WAIT }, 0, 1);
    }
    let config = CONFIG.load();
    let waited = wait_ns > 0 && wait_ns >= config.min_wait_ns;
    if !(waited || waited_for || config.mode & mode::ALL_EVENTS != 0) || !focus::includes(t.process, lock, site) {
        return 0;
    }
    let mut flags = if waited { flag::CONTENDED } else { 0 } | if waited_for { flag::WAITED_FOR } else { 0 };
    let mut stack = held.stack;
    if stack < 0
        && let Some(s) = at(slot)
    {
        if s.stack < 0 || waited_for && hold_ns >= config.stack_wait_ns << 3 {
            stack = take_stack(ctx, t.process, t.slot, how::AT_RELEASE);
            flags |= flag::STACK_AT_RELEASE;
        }
        if s.stack < 0 {
            s.stack = stack;
        }
    }
    if waited_for {
        record_sleep(t, held);
    }
    emit(
        t,
        &SectionFields {
            end_ns: now,
            wait_ns: if waited { wait_ns } else { 0 },
            hold_ns,
            lock,
            site,
            process: t.process,
            tid: held.tid,
            stack,
            flags,
            via: via as u8,
            outcome: Outcome::Released as u8,
            ..SectionFields::default()
        },
    );
    0
}
