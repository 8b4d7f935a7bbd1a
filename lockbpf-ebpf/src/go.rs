//! Go's mutexes and read-write locks. Only who finds one taken calls what can be probed: a wait begins there, and ends where
//! that function ends. The release is inlined into its callers and not seen.
//!
//! A goroutine may go on in another thread than it waited in, so what it is about to do is not kept by thread, but by
//! process and goroutine: the address of its descriptor, which Go keeps in a register of its own.

use crate::atomic::{add, raise};
use crate::calls::return_address;
use crate::context::{cookie_of, flags};
use crate::emit::{charge_record, emit_for, reserve, submit};
use crate::focus;
use crate::gate::pass;
use crate::maps::{CONFIG, FutexWord, Waker, count};
use crate::off_cpu::record_absence;
use crate::registers::GOROUTINE;
use crate::section::fits;
use crate::section_sums::{sums, tally};
use crate::stack::walk;
use crate::thread::{Thread, now};
use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{HashMap, LruHashMap};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::{btf_map, uprobe};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use lockbpf_common::config::{MAX_WAITS, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::function;
use lockbpf_common::gate;
use lockbpf_common::goroutine::{self, GoroutineKey, GoroutineWait};
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::record::{LOW48, SectionFields, SectionRecord, TOP_WORDS, WakeFields, WakeRecord};
use lockbpf_common::sums::SumKey;

/// Bytes from a mutex to the semaphore on which its lockers wait (`internal/sync/mutex.go`).
const MUTEX_SEMAPHORE: u64 = 4;
/// Bytes from a read-write lock to the semaphore on which a writer waits for readers (`sync/rwmutex.go`). At its beginning
/// is the mutex on which writers wait for each other.
const WRITER_SEMAPHORE: u64 = 8;
/// Bytes from it to the semaphore on which readers wait for a writer.
const READER_SEMAPHORE: u64 = 12;

/// In `lockSlow`.
const LOCKS: u32 = 0;
/// In the wait of a reader for a writer, or of a writer for readers.
const WAITS: u32 = 1;

/// The last call of `(*RWMutex).Lock` by a goroutine, which need not have waited.
#[derive(Clone, Copy)]
#[repr(C)]
struct Ask {
    /// The lock.
    lock: u64,
    /// Return address of the call.
    site: u64,
    /// When it began, or when it was before the other writers.
    time_ns: u64,
    /// The opening of the gate in which it began.
    epoch: u64,
    /// Whether it has waited for other writers, which has been told.
    told: u64,
}

/// Waits in progress: as many as of threads elsewhere. Preallocated (1.5 MB).
#[btf_map]
static GO_CALLS: HashMap<GoroutineKey, GoroutineWait, { MAX_WAITS as usize }> = HashMap::new();

/// Calls of `(*RWMutex).Lock`, of which the end is not seen. LRU: stale entries make room; a lost one only loses the site of
/// a wait.
#[btf_map]
static GO_ASKS: LruHashMap<GoroutineKey, Ask, { MAX_WAITS as usize }> = LruHashMap::new();

/// Who last woke whom on which semaphore; goroutines as [`tid_of`] has them. LRU: stale entries make room, and a lost one only
/// loses the waker's name.
#[btf_map]
static GO_WAKERS: LruHashMap<FutexWord, Waker, { MAX_WAITS as usize }> = LruHashMap::new();

/// Every probed function of Go's library, told apart by cookies.
#[uprobe]
pub fn go_lock(ctx: ProbeContext) -> u32 {
    let now = now();
    let cookie = cookie_of(&ctx);
    let Some(t) = pass(cookie) else { return 0 };
    if !gate::counts(cookie, flags(&ctx)) {
        return 0;
    }
    let g = goroutine(&ctx);
    let who = GoroutineKey { process: u64::from(t.process), descriptor: g };
    let at = argument(&ctx);
    match gate::function(cookie) {
        function::GO_LOCK_SLOW => lock_slow(&ctx, t, &who, cookie, at),
        function::GO_LOCKED => locked(&ctx, t, &who, now),
        function::GO_WRITE_LOCK => {
            let ask = Ask { lock: at, site: return_address(&ctx), time_ns: now, epoch: t.epoch, told: 0 };
            // A failure only loses the site.
            let _ = GO_ASKS.insert(who, ask, 0);
        }
        function::GO_WAITED => waited(&ctx, t, &who, now),
        function::GO_WAKE => {
            let semaphore = FutexWord { addr: at, process: who.process };
            // SAFETY: copied at once.
            let earlier_ns = unsafe { GO_WAKERS.get(semaphore) }.map_or(0, |waker| waker.time_ns);
            let waker = Waker { time_ns: now, tid: tid_of(cookie, g), ..Waker::NOBODY };
            // A failure only loses the waker's name.
            let _ = GO_WAKERS.insert(semaphore, waker, 0);
            woken(ctx.as_ptr(), t, &waker, at, earlier_ns);
        }
        function::GO_SLEEP => {
            crate::goroutine::sleeps(ctx.as_ptr(), t, g, at);
        }
        _ => wait(&ctx, t, &who, cookie, at),
    }
    0
}

/// What stands for a goroutine where others are told by a thread's id: its number, or if nobody knows where that is, its address.
#[inline(always)]
fn tid_of(cookie: u64, g: u64) -> u32 {
    let offset = gate::goroutine_offset(cookie);
    if offset == 0 {
        return goroutine::of_address(g);
    }
    // SAFETY: a faulting address is an error from the helper, not a fault.
    goroutine::of_number(unsafe { bpf_probe_read_user((g + offset) as *const u64) }.unwrap_or(0))
}

/// The goroutine in progress.
#[inline(always)]
fn goroutine(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context; the offset is that of one of its registers.
    unsafe { *ctx.regs.cast::<u8>().add(GOROUTINE).cast::<u64>() }
}

/// The first argument of a Go function.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn argument(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context.
    unsafe { (*ctx.regs).rax }
}

/// The first argument of a Go function.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn argument(ctx: &ProbeContext) -> u64 {
    // SAFETY: regs is the program's context.
    unsafe { (*ctx.regs).regs[0] }
}

/// A goroutine's wait that began while the gate was open as it is now.
#[inline(always)]
fn call(t: &Thread, who: &GoroutineKey) -> Option<GoroutineWait> {
    // SAFETY: copied at once; only the goroutine itself changes its entry, in one thread at a time.
    unsafe { GO_CALLS.get(who) }.copied().filter(|call| call.epoch == t.epoch)
}

/// The call by which a goroutine asks to write, if it is for this lock.
#[inline(always)]
fn ask(t: &Thread, who: &GoroutineKey, lock: u64) -> Option<&'static mut Ask> {
    // SAFETY: only the goroutine itself changes its entry, in one thread at a time.
    let ask = unsafe { &mut *GO_ASKS.get_ptr_mut(who)? };
    (ask.epoch == t.epoch && ask.lock == lock).then_some(ask)
}

/// A wait begins. One that begins twice has had its goroutine's stack moved in between.
#[inline(always)]
fn begin(who: &GoroutineKey, call: &GoroutineWait) {
    if fits(call.lock, call.site) && GO_CALLS.insert(who, call, 0).is_err() {
        count(Counter::WaitsFull);
    }
}

/// `lockSlow` begins: for a mutex, or for that of a read-write lock whose writer asks.
#[inline(always)]
fn lock_slow(ctx: &ProbeContext, t: &Thread, who: &GoroutineKey, cookie: u64, lock: u64) {
    let (via, site, attempt_ns) = match ask(t, who, lock) {
        Some(ask) => (Via::GoWriteLock, ask.site, ask.time_ns),
        None => (Via::GoLock, return_address(ctx), now()),
    };
    let (via, epoch, tid) = (via as u32, t.epoch, tid_of(cookie, who.descriptor));
    begin(who, &GoroutineWait { lock, site, attempt_ns, epoch, tid, via, stage: LOCKS, told: 0 });
}

/// `lockSlow` ends: the mutex is the goroutine's.
#[inline(always)]
fn locked(ctx: &ProbeContext, t: &Thread, who: &GoroutineKey, now: u64) {
    if let Some(call) = call(t, who)
        && call.stage == LOCKS
    {
        let _ = GO_CALLS.remove(who);
        if call.via == Via::GoWriteLock as u32
            && let Some(ask) = ask(t, who, call.lock)
        {
            ask.told = 1;
            ask.time_ns = now;
        }
        acquired(ctx.as_ptr(), t, &call, MUTEX_SEMAPHORE, now);
    }
}

/// A wait on the semaphore at `addr` begins.
#[inline(always)]
fn wait(ctx: &ProbeContext, t: &Thread, who: &GoroutineKey, cookie: u64, addr: u64) {
    let code = gate::function(cookie);
    if code == function::GO_WAIT_ANY
        && let Some(call) = call(t, who)
        && call.stage == LOCKS
        && addr == call.lock + MUTEX_SEMAPHORE
    {
        // Inside of `lockSlow`, which tells all.
        return;
    }
    let mut lock = addr.wrapping_sub(WRITER_SEMAPHORE);
    let asked = if code == function::GO_WAIT_READ { None } else { ask(t, who, lock) };
    let (via, site, attempt_ns, told) = match asked {
        Some(ask) => (Via::GoWriteLock, ask.site, ask.time_ns, ask.told as u32),
        None if code == function::GO_WAIT_WRITE => (Via::GoWriteLock, return_address(ctx), now(), 0),
        None => {
            lock = addr.wrapping_sub(READER_SEMAPHORE);
            (Via::GoReadLock, return_address(ctx), now(), 0)
        }
    };
    let (via, epoch, tid) = (via as u32, t.epoch, tid_of(cookie, who.descriptor));
    begin(who, &GoroutineWait { lock, site, attempt_ns, epoch, tid, via, stage: WAITS, told });
}

/// A wait on a semaphore ends: the read-write lock is the goroutine's.
#[inline(always)]
fn waited(ctx: &ProbeContext, t: &Thread, who: &GoroutineKey, now: u64) {
    if let Some(call) = call(t, who)
        && call.stage == WAITS
    {
        let _ = GO_CALLS.remove(who);
        let semaphore = if call.via == Via::GoReadLock as u32 { READER_SEMAPHORE } else { WRITER_SEMAPHORE };
        acquired(ctx.as_ptr(), t, &call, semaphore, now);
    }
}

/// A goroutine has given back a lock for which others wait: recorded if they may have waited for long enough, as of a thread that wakes
/// others.
#[inline(never)]
fn woken(ctx: *mut c_void, t: &mut Thread, waker: &Waker, semaphore: u64, earlier_ns: u64) -> u32 {
    let since_ns = if earlier_ns == 0 { u64::MAX } else { waker.time_ns.saturating_sub(earlier_ns) };
    let config = CONFIG.load();
    if since_ns < config.min_wait_ns && config.mode & mode::ALL_EVENTS == 0
        || semaphore > LOW48
        || !is_in_focus(t.process, semaphore)
    {
        return 0;
    }
    let long = since_ns >= config.stack_wait_ns;
    let stack = if long { walk(ctx) } else { -1 };
    record_absence(t);
    if long {
        let descriptor = goroutine(&ProbeContext::new(ctx));
        crate::goroutine::gave_back(t, descriptor, waker.tid, waker.time_ns.saturating_sub(since_ns), waker.time_ns);
    }
    if let Some(mut entry) = reserve::<WakeRecord>() {
        let record = entry.as_mut_ptr();
        // SAFETY: record points to the reserved room; both fields are written in full.
        unsafe {
            (*record).fields = WakeRecord::pack(&WakeFields {
                time_ns: waker.time_ns,
                since_ns,
                watched_ns: 0,
                word: semaphore,
                process: t.process,
                tid: waker.tid,
                woken: 1,
                stack,
            });
            (*record).top = [0; TOP_WORDS];
            (*record).top[0] = return_address(&ProbeContext::new(ctx));
        }
        submit(entry, Counter::WakeRecords);
        charge_record::<WakeRecord>(t.slot);
    }
    0
}

/// Whether any of the locks that may have this semaphore is to be recorded.
#[inline(always)]
fn is_in_focus(process: u32, semaphore: u64) -> bool {
    let is = |offset| focus::includes_word(process, semaphore.wrapping_sub(offset));
    is(MUTEX_SEMAPHORE) || is(WRITER_SEMAPHORE) || is(READER_SEMAPHORE)
}

/// A lock was acquired after a wait. If it was counted after an earlier wait of the same call, only the time is added.
///
/// A function of its own, so that its stack and instructions are not repeated.
#[inline(never)]
fn acquired(ctx: *mut c_void, t: &Thread, call: &GoroutineWait, semaphore: u64, now: u64) -> u32 {
    let GoroutineWait { lock, site, attempt_ns, tid, via, .. } = *call;
    let anew = call.told == 0;
    let wait_ns = now.saturating_sub(attempt_ns);
    let key = SumKey { lock, site, process: t.process, via };
    let config = CONFIG.load();
    let wanted = wait_ns >= config.min_wait_ns || config.mode & mode::ALL_EVENTS != 0;
    let mut stack = -1;
    if let Some(s) = sums(&key, 0, attempt_ns) {
        // Nothing orders the writers of what readers have.
        add(&mut s.acquisitions, u64::from(anew));
        add(&mut s.unseen, u64::from(anew));
        add(&mut s.contended, u64::from(anew));
        add(&mut s.wait_ns, wait_ns);
        if wait_ns > s.wait_max_ns {
            raise(&mut s.wait_max_ns, wait_ns);
        }
        if anew {
            tally(&mut s.wait_hist, wait_ns);
        }
        if wanted && (wait_ns >= config.stack_wait_ns || s.stack < 0) {
            stack = walk(ctx);
            s.stack = if s.stack < 0 { stack } else { s.stack };
        }
    }
    if !wanted || !focus::includes(t.process, lock, site) {
        return 0;
    }
    let woken = FutexWord { addr: lock + semaphore, process: u64::from(t.process) };
    // SAFETY: copied at once.
    let waker = unsafe { GO_WAKERS.get(woken) }.copied();
    let record = SectionRecord::pack(&SectionFields {
        end_ns: now,
        wait_ns,
        hold_ns: 0,
        lock,
        site,
        process: t.process,
        tid,
        owner: 0,
        waker: waker.filter(|w| w.time_ns >= attempt_ns).map_or(0, |w| w.tid),
        stack,
        flags: flag::CONTENDED,
        via: via as u8,
        outcome: Outcome::Unseen as u8,
        mutex_kind: 0,
    });
    emit_for(t.slot, &record, Counter::SectionRecords);
    0
}
