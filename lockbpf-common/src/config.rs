//! What user space tells the programs before they are loaded, and the names both sides use for maps.

/// Constant for the life of the loaded programs; the verifier prunes what it switches off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// Contended sections that waited less are summed but not recorded, ns.
    pub min_wait_ns: u64,
    /// Stacks are taken of waits that lasted so long, ns.
    pub stack_wait_ns: u64,
    /// lockbpf's own process id: never observed.
    pub self_pid: u32,
    /// [`mode`] bits.
    pub mode: u32,
    /// Offset of `task_struct::group_leader`.
    pub task_group_leader: u32,
    /// Offset of `task_struct::start_boottime`.
    pub task_start_boottime: u32,
    /// Offset of `task_struct::__state`.
    pub task_state: u32,
    /// Offset of `task_struct::sched_info.run_delay`; 0 where the kernel does not keep it.
    pub task_run_delay: u32,
    /// Offset of `task_struct::thread_pid`.
    pub task_thread_pid: u32,
    /// Offset of `pid::level`.
    pub pid_level: u32,
    /// Offset of `pid::numbers`; 0 if it is not known.
    pub pid_numbers: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// Only threads of this name, if [`mode::COMM`]: see [`comm_words`]. As words, since programs read the whole of this,
    /// and each byte would cost them a read and eight bytes of their stack.
    pub comm: [u64; 2],
}

/// A thread's name (NUL-padded) as words, to be compared at once.
#[inline(always)]
#[must_use]
pub fn comm_words(comm: &[u8; 16]) -> [u64; 2] {
    let whole = u128::from_ne_bytes(*comm);
    [whole as u64, (whole >> 64) as u64]
}

/// Bits of [`Config::mode`].
pub mod mode {
    /// Every process but lockbpf itself; otherwise only those in the target map.
    pub const SYSTEM_WIDE: u32 = 1;
    /// Record every section, contended or not.
    pub const ALL_EVENTS: u32 = 1 << 1;
    /// Only threads named [`super::Config::comm`].
    pub const COMM: u32 = 1 << 2;
    /// Only threads in the tid map.
    pub const TIDS: u32 = 1 << 3;
    /// Copy stacks, so that user space can unwind them ([`crate::stack_copy`]).
    pub const COPY_STACKS: u32 = 1 << 4;
    /// Also walk them along frame pointers until a process's [`crate::stack_copy::method`] is decided.
    pub const COMPARE_STACKS: u32 = 1 << 5;
    /// Only threads in the cgroup of the cgroup map, or below it.
    pub const CGROUP: u32 = 1 << 6;
    /// Sum up transitions from lock to lock ([`crate::transition`]).
    pub const TRANSITIONS: u32 = 1 << 7;
    /// Processes that observed ones start are observed, too.
    pub const FOLLOW_FORKS: u32 = 1 << 8;
}

const _: () = assert!(size_of::<Config>() == 72);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Config {}

/// Threads with per-thread sums at one time.
pub const MAX_THREADS: u32 = 16_384;
/// Lock × site pairs with sums.
pub const MAX_SUMS: u32 = 32_768;
/// Processes known at one time.
pub const MAX_PROCESSES: u32 = 8_192;
/// Futex words whose last waker is remembered, waits of goroutines in progress at one time.
pub const MAX_WAITS: u32 = 16_384;
/// Pairs of locks of which one was taken while the other was held.
pub const MAX_ORDERS: u32 = 16_384;
/// Threads × functions of the C library with sums.
pub const MAX_CALLS: u32 = 16_384;
/// Distinct stacks in the kernel's first table.
pub const MAX_STACKS: u32 = 16_384;
/// Stacks in its second table: those whose place in the first one another stack has. Their numbers follow on the first one's.
pub const MORE_STACKS: u32 = 2_048;
/// Beyond the numbers of stacks in both.
pub const WALKED_STACKS: u32 = MAX_STACKS + MORE_STACKS;
/// Frames kept of a stack.
pub const STACK_DEPTH: usize = 32;
/// Targets and tids that can be named on the command line.
pub const MAX_TARGETS: u32 = 4_096;
/// Locks held by one thread at one time.
pub const MAX_HELD: usize = 16;
/// CPUs, each with a ring buffer of its own.
pub const MAX_CPUS: u32 = 1_024;

/// Lapses remembered for sections that were cut by them: a power of two.
pub const LAPSES: usize = 8;

/// What user space changes while the programs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Control {
    /// The lease: user space counts this up again and again, and [`Control::ticks`] after they have seen a new value, programs return
    /// at once. So the target is let be when user space does not get to run any more. 0 before every probe is in place, and before
    /// the first is removed.
    pub renewal: u64,
    /// Ticks of the kernel's clock for which a renewal holds.
    pub ticks: u64,
    /// How often it was renewed too late: what a thread was seen to do before is out of date.
    pub lapses: u64,
    /// When lapse n began, at n mod [`LAPSES`], ns.
    pub lapsed_ns: [u64; LAPSES],
}

impl Control {
    /// Whether the observation is on, though the lease may be over.
    #[must_use]
    #[inline(always)]
    pub const fn is_active(&self) -> bool {
        self.renewal != 0
    }

    /// When what a thread remembers from before a lapse ended, ns.
    #[must_use]
    #[inline(always)]
    pub const fn lapsed_after(&self, lapses: u64) -> u64 {
        self.lapsed_ns[(lapses + 1) as usize & (LAPSES - 1)]
    }
}

const _: () = assert!(LAPSES.is_power_of_two());
const _: () = assert!(size_of::<Control>() == 24 + 8 * LAPSES);

/// The renewal that programs have seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Seen {
    /// [`Control::renewal`].
    pub renewal: u64,
    /// When they saw it, in ticks.
    pub tick: u64,
}

// SAFETY: repr(C), integers only, no padding: any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Control {}
