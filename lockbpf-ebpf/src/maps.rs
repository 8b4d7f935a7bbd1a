//! Every map, with the reason for its size. All are bounded; a full one is counted ([`Counter`]), never ignored.

use crate::atomic::fetch_add;
use crate::library::Call;
use crate::python::PythonStack;
use crate::reading::Counting;
use crate::signal::Suspensions;
use crate::thread::Thread;
use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{
    Array, ArrayOfMaps, CgroupArray, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf, StackTrace,
};
use aya_ebpf::macros::btf_map;
use core::marker::PhantomData;
use lockbpf_common::access::{MAX_LOCKS, Sampler};
use lockbpf_common::config::{
    Config, Control, MAX_CALLS, MAX_CPUS, MAX_ORDERS, MAX_PROCESSES, MAX_STACKS, MAX_SUMS, MAX_TARGETS, MAX_THREADS,
    MAX_WAITS, MORE_STACKS, STACK_DEPTH, Seen,
};
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{Events, SiteCounts, ThreadCounts};
use lockbpf_common::focus::{Focus, FocusKey, MAX_FOCUSED};
use lockbpf_common::gate::{Account, Gate, MAX_SLOTS};
use lockbpf_common::kernel::Kernel;
use lockbpf_common::library::{CallKey, CallSums};
use lockbpf_common::order::{OrderKey, OrderSums};
use lockbpf_common::process::{Child, MAX_CHILDREN, ProcessEntry, SERIALS as SERIES};
use lockbpf_common::python::{Interpreter, MAX_PLACES, PythonPlace};
use lockbpf_common::stack_copy::{KnownKey, KnownStack, MAX_KNOWN, StackCopy};
use lockbpf_common::sums::{SumKey, Sums, ThreadSums};
use lockbpf_common::transition::{MAX_TRANSITIONS, TransitionKey, TransitionSums};
use lockbpf_common::waiting::Waiting;

/// Set by user space before loading.
#[unsafe(no_mangle)]
pub static CONFIG: Global<Config> = Global::new(Config {
    min_wait_ns: 0,
    stack_wait_ns: 0,
    self_pid: 0,
    mode: 0,
    task_group_leader: 0,
    task_start_boottime: 0,
    task_state: 0,
    task_run_delay: 0,
    task_thread_pid: 0,
    pid_level: 0,
    pid_numbers: 0,
    reserved: 0,
    comm: [0; 2],
});

/// Offset of `task_struct::tgid`, for programs that read another task's: set by user space before loading.
#[unsafe(no_mangle)]
pub static TASK_TGID: Global<u32> = Global::new(0);

/// Offset of `task_struct::real_parent`; set by user space before loading.
#[unsafe(no_mangle)]
pub static TASK_PARENT: Global<u32> = Global::new(0);

/// Offset of `task_struct::mm`, for the program that reads another task's.
#[unsafe(no_mangle)]
pub static TASK_MM: Global<u32> = Global::new(0);

/// The events that are counted in sections; if none are, the verifier leaves out all that has to do with them. Set by user space
/// before loading.
#[unsafe(no_mangle)]
pub static EVENTS: Global<Events> = Global::new(Events::new(0, 0));

/// Changed by user space while running: one entry.
#[btf_map]
pub static CONTROL: Array<Control, 1> = Array::new();

/// What programs have seen of the lease, which they alone write.
#[btf_map]
pub static LEASE: Array<Seen, 1> = Array::new();

/// What is in the focus: one entry, changed by user space while running.
#[btf_map]
pub static FOCUS: Array<Focus, 1> = Array::new();

/// Locks in the focus, put in by user space, and by the programs where others depend on them.
#[btf_map]
pub static FOCUSED: HashMap<FocusKey, u32, { MAX_FOCUSED as usize }> = HashMap::new();

/// Whether each process's full tier is open: one entry per slot.
#[btf_map]
pub static GATES: Array<Gate, { MAX_SLOTS as usize }> = Array::new();

/// What observing each process took: per CPU, so that the counting itself disturbs nobody.
#[btf_map]
pub static ACCOUNTS: PerCpuArray<Account, { MAX_SLOTS as usize }> = PerCpuArray::new();

/// How much of the waits of each slot's processes is recorded ([`lockbpf_common::thin`]): its level, written by user space.
#[btf_map]
pub static THINNING: Array<u32, { MAX_SLOTS as usize }> = Array::new();

/// Losses and volumes: one slot per cause.
#[btf_map]
pub static COUNTERS: PerCpuArray<u64, { Counter::COUNT as usize }> = PerCpuArray::new();

/// Processes to observe, by pid, with their slots. As many as a command line can reasonably name.
#[btf_map]
pub static TARGETS: HashMap<u32, u32, { MAX_TARGETS as usize }> = HashMap::new();

/// Processes that observed ones have started, by pid, until their memory is free of breakpoints.
#[btf_map]
pub static CHILDREN: HashMap<u32, Child, MAX_CHILDREN> = HashMap::new();

/// Processes whose image was replaced by another thread than the first, by pid, and when: until user space has noticed.
#[btf_map]
pub static REPLACED: HashMap<u32, u64, { MAX_TARGETS as usize }> = HashMap::new();

/// The mutex of each process's interpreter lock (CPython), by pid, found by user space. As many as processes can be observed; only
/// what is used takes memory.
#[btf_map]
pub static GILS: HashMap<u32, u64, { MAX_PROCESSES as usize }, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The interpreter of each process that runs Python and of which the functions are known, by process number, found by user space.
#[btf_map]
pub static PYTHONS: HashMap<u32, Interpreter, { MAX_PROCESSES as usize }, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// Places in Python functions where locks were asked for, with their code objects: each is told once. LRU: one that was evicted is told again.
#[btf_map]
pub static PYTHON_PLACES: LruHashMap<FutexWord, u64, { MAX_PLACES }> = LruHashMap::new();

/// Those that are new, until user space has named them: room for 2,000.
#[btf_map]
pub static NEW_PYTHON_PLACES: RingBuf<PythonPlace, { 64 << 10 }> = RingBuf::new();

/// The Python functions that a thread was in last: only of threads that ran some. Freed by the kernel with the thread.
#[btf_map]
pub static PYTHON_STACKS: TaskStorage<PythonStack> = TaskStorage::new();

/// Threads to observe, by tid, if the mode asks for it.
#[btf_map]
pub static TIDS: HashMap<u32, u32, { MAX_TARGETS as usize }> = HashMap::new();

/// The cgroup to observe, put in by user space, if the mode asks for it.
#[btf_map]
pub static CGROUP: CgroupArray<1> = CgroupArray::new();

/// Sums by slot: a thread remembers the slots it used last, so that the hot path needs no hash. 24 MB.
#[btf_map]
pub static SUMS: Array<Sums, { MAX_SUMS as usize }> = Array::new();

/// Slots of [`SUMS`] by process, lock and site. Preallocated (3 MB): allocating in a uprobe while the target holds a lock
/// would make it hold the lock longer.
#[btf_map]
pub static SUM_SLOTS: HashMap<SumKey, u32, { MAX_SUMS as usize }> = HashMap::new();

/// The keys of [`SUMS`], by slot: user space reads those of new slots only, where it would go over all buckets of [`SUM_SLOTS`]. 0.8 MB.
#[btf_map]
pub static SUM_KEYS: Array<SumKey, { MAX_SUMS as usize }> = Array::new();

/// Which locks are taken while which are held. Preallocated (1.9 MB), as above.
#[btf_map]
pub static ORDERS: HashMap<OrderKey, OrderSums, { MAX_ORDERS as usize }> = HashMap::new();

/// Transitions from lock to lock by slot, as for [`SUMS`]: 6 MB, but of one entry unless they are summed.
#[btf_map]
pub static TRANSITIONS: Array<TransitionSums, { MAX_TRANSITIONS as usize }> = Array::new();

/// Slots of [`TRANSITIONS`]. Preallocated (5 MB), as above; likewise of one entry.
#[btf_map]
pub static TRANSITION_SLOTS: HashMap<TransitionKey, u32, { MAX_TRANSITIONS as usize }> = HashMap::new();

/// Sums by thread: slots, so that the hot path needs no hash.
#[btf_map]
pub static THREAD_SUMS: Array<ThreadSums, { MAX_THREADS as usize }> = Array::new();

/// Slots of [`THREAD_SUMS`] that were given back.
#[btf_map]
pub static FREE_SLOTS: Queue<u32, { MAX_THREADS as usize }> = Queue::new();

/// Numbers of living processes, by pid. LRU: an evicted process gets a new number, which splits its sums but loses none.
#[btf_map]
pub static PROCESSES: LruHashMap<u32, ProcessEntry, { MAX_PROCESSES as usize }> = LruHashMap::new();

/// Numbers given so far ([`lockbpf_common::process`]).
#[btf_map]
pub static SERIALS: Array<u64, SERIES> = Array::new();

/// Waits in progress, by the slots of [`THREAD_SUMS`]: 1 MB. In place, since to insert one and to delete it takes longer than all else that
/// is done about a short wait.
#[btf_map]
pub static WAITS: Array<Waiting, { MAX_THREADS as usize }> = Array::new();

/// Who last called futex wake on a word. LRU: stale entries make room, and a lost one only loses the waker's name.
#[btf_map]
pub static WAKERS: LruHashMap<FutexWord, Waker, { MAX_WAITS as usize }> = LruHashMap::new();

/// Spin locks for which somebody has begun to wait since their last release. LRU: a lost one only loses a record.
#[btf_map]
pub static SPINNERS: LruHashMap<FutexWord, u32, 1_024> = LruHashMap::new();

/// User stacks of waits and of holders that made others wait, walked along frame pointers; kernel stacks of waits for kernel locks.
#[btf_map]
pub static STACKS: StackTrace<{ MAX_STACKS as usize }, 0, STACK_DEPTH> = StackTrace::new();

/// Those whose place in [`STACKS`], which their hash decides, another stack has: they are few, and so are those that meet here again. 0.6 MB.
#[btf_map]
pub static FURTHER_STACKS: StackTrace<{ MORE_STACKS as usize }, 0, STACK_DEPTH> = StackTrace::new();

/// Copied stacks: one ring buffer for all CPUs, since they are rare, and apart from the records, which they must not crowd out.
/// Room for 250; a page where stacks are not copied.
#[btf_map]
pub static STACK_COPIES: RingBuf<StackCopy, { 4 << 20 }> = RingBuf::new();

/// Serial number of the first stack that may not be copied: put forward by user space each time that it has unwound some.
#[btf_map]
pub static COPY_LIMIT: Array<u64, 1> = Array::new();

/// How the stacks of each process are taken ([`lockbpf_common::stack_copy::method`]), once user space has decided it.
#[btf_map]
pub static METHODS: HashMap<u32, u32, { MAX_PROCESSES as usize }, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Stacks that need not be copied again. Written by user space only, each entry once; so only what is used takes memory (8 MB
/// at most).
#[btf_map]
pub static KNOWN_STACKS: HashMap<KnownKey, KnownStack, { MAX_KNOWN as usize }, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// One ring buffer per CPU, put in by user space, so that CPUs do not contend for one.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<u64, 4096>, { MAX_CPUS as usize }> = ArrayOfMaps::new();

/// What the programs on kernel locks have to know of the kernel: one entry, written before they are attached.
#[btf_map]
pub static KERNEL: Array<Kernel, 1> = Array::new();

/// Which attempt the access profiler wants to see: one entry, written by user space before each sample.
#[btf_map]
pub static ACCESS: Array<Sampler, 1> = Array::new();

/// Locks whose sections the access profiler wants to see, put in by user space.
#[btf_map]
pub static ACCESS_LOCKS: HashMap<u64, u32, { MAX_LOCKS }, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// In-flight state per thread, freed by the kernel with the thread.
#[btf_map]
pub static STATE: TaskStorage<Thread> = TaskStorage::new();

/// Calls that signal handlers interrupted: only of threads of which that was seen. Freed by the kernel with the thread.
#[btf_map]
pub static SUSPENDED: TaskStorage<Suspensions> = TaskStorage::new();

/// The clock by CPU, put in by user space, as are the other events below: one map each, since aya makes such maps of one entry for
/// each CPU.
#[btf_map]
pub static EVENT_0: PerfEvents = PerfEvents::new();
/// The second event.
#[btf_map]
pub static EVENT_1: PerfEvents = PerfEvents::new();
/// The third.
#[btf_map]
pub static EVENT_2: PerfEvents = PerfEvents::new();
/// The fourth.
#[btf_map]
pub static EVENT_3: PerfEvents = PerfEvents::new();
/// The fifth.
#[btf_map]
pub static EVENT_4: PerfEvents = PerfEvents::new();

/// An event of each CPU that cannot be read any more once that CPU has been away.
#[btf_map]
pub static WITNESS: PerfEvents = PerfEvents::new();

/// A thread's own counts, freed by the kernel with the thread.
#[btf_map]
pub static THREAD_COUNTING: TaskStorage<Counting> = TaskStorage::new();

/// Counts by the slots of [`SUMS`]: 43 MB, but of one entry unless events are counted.
#[btf_map]
pub static SITE_COUNTS: Array<SiteCounts, { MAX_SUMS as usize }> = Array::new();

/// Counts by the slots of [`THREAD_SUMS`], likewise: 2 MB.
#[btf_map]
pub static THREAD_COUNTS: Array<ThreadCounts, { MAX_THREADS as usize }> = Array::new();

/// Counts of threads that have exited, by process number. Only what is used takes memory.
#[btf_map]
pub static EXITED_COUNTS: HashMap<u32, ThreadCounts, { MAX_PROCESSES as usize }, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The call of the C library's that a thread is in, freed by the kernel with the thread.
#[btf_map]
pub static CALLS: TaskStorage<Call> = TaskStorage::new();

/// Sums of such calls, by thread and function. Preallocated (2 MB), but of one entry unless they are asked for.
#[btf_map]
pub static CALL_SUMS: HashMap<CallKey, CallSums, { MAX_CALLS as usize }> = HashMap::new();

/// A futex word, or another address, of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FutexWord {
    /// Its address.
    pub addr: u64,
    /// The process.
    pub process: u64,
}

/// Who woke whoever waited on a word last.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Waker {
    /// When that was called last, ns, whether or not somebody waited.
    pub time_ns: u64,
    /// When somebody was woken last, ns.
    pub woke_ns: u64,
    /// By which thread; 0 if unknown.
    pub tid: u32,
    /// Waits in progress on the word that are [followed](crate::follow).
    pub followers: u32,
}

impl Waker {
    /// It is not known.
    pub const NOBODY: Self = Self { time_ns: 0, woke_ns: 0, tid: 0, followers: 0 };

    /// This thread, now.
    #[inline(always)]
    pub const fn at(now: u64, tid: u32) -> Self {
        Self { time_ns: now, woke_ns: now, tid, followers: 0 }
    }
}

/// A BTF-style definition of an array of perf events, which aya-ebpf 0.2 provides only for records.
#[repr(C)]
pub struct PerfEvents {
    r#type: *const [i32; 4],
    key: *const u32,
    value: *const u32,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; 0],
}

// SAFETY: the fields are never dereferenced; they only carry the map's definition in their types.
unsafe impl Sync for PerfEvents {}

impl PerfEvents {
    /// The definition.
    const fn new() -> Self {
        Self {
            r#type: core::ptr::null(),
            key: core::ptr::null(),
            value: core::ptr::null(),
            max_entries: core::ptr::null(),
            map_flags: core::ptr::null(),
        }
    }

    /// The map, for helpers.
    pub const fn as_ptr(&self) -> *mut core::ffi::c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// A BTF-style definition of a task-storage map (kernel 5.11), which aya-ebpf 0.2 does not provide.
#[repr(C)]
pub struct TaskStorage<T> {
    r#type: *const [i32; 29],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
    marker: PhantomData<T>,
}

// SAFETY: the fields are never dereferenced; they only carry the map's definition in their types.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    /// The definition.
    pub const fn new() -> Self {
        Self {
            r#type: core::ptr::null(),
            key: core::ptr::null(),
            value: core::ptr::null(),
            max_entries: core::ptr::null(),
            map_flags: core::ptr::null(),
            marker: PhantomData,
        }
    }

    /// The map, for helpers.
    pub const fn as_ptr(&self) -> *mut core::ffi::c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The next number of a series, from 0; 0 for a series that does not exist.
#[inline(always)]
pub fn next(series: u32) -> u64 {
    // SAFETY: the kernel returned a valid entry; all access to it is atomic.
    SERIALS.get_ptr_mut(series).map_or(0, |n| fetch_add(unsafe { &mut *n }, 1))
}

/// How many numbers of a series have been given.
#[inline(always)]
pub fn given(series: u32) -> u64 {
    // SAFETY: as above; that it may be more by now is of no matter.
    SERIALS.get_ptr(series).map_or(0, |n| unsafe { *n })
}

/// Adds one to a counter of this CPU.
#[inline(always)]
pub fn count(counter: Counter) {
    count_more(counter, 1);
}

/// Adds to a counter of this CPU.
#[inline(always)]
pub fn count_more(counter: Counter, n: u64) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the kernel returned a valid slot of this CPU; programs of one CPU do not preempt one another in a way
        // that matters for a statistic.
        unsafe { *slot += n };
    }
}
