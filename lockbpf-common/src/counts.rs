//! Counts of events (cycles, page faults, …) inside of critical sections. The kernel counts events by CPU; what a thread's own
//! share of them is follows from what they were whenever it came to a CPU and left one.

use crate::sums::BUCKETS;

/// Events counted at one time: the clock, and four more. Each makes each lock operation dearer.
pub const MAX_EVENTS: usize = 5;

/// What is counted, in a word that is constant while the programs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Events(u32);

/// The bits of [`Events`] from here on tell which events may take turns.
const TURNS: u32 = 8;

impl Events {
    /// So many events, of which those in the mask `turns` may take turns, as the processor's do: it has few counters.
    #[must_use]
    pub const fn new(number: u32, turns: u32) -> Self {
        Self(number | turns << TURNS)
    }

    /// How many.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Whether an event may not be counted at times, so that the time in which it is matters.
    #[must_use]
    #[inline(always)]
    pub const fn takes_turns(self, event: usize) -> bool {
        self.0 >> TURNS >> event & 1 != 0
    }

    /// Whether any may. Otherwise the clock is the time on a CPU, and no other time is kept.
    #[must_use]
    #[inline(always)]
    pub const fn any_takes_turns(self) -> bool {
        self.0 >> TURNS != 0
    }
}

// SAFETY: a transparent integer: any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Events {}

/// What events counted while a thread ran, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// Time for which the thread had a CPU, ns: for as long the events should have been counted. 0 in the kernel where no event
    /// takes turns: it is the clock then.
    pub on_cpu_ns: u64,
    /// Time for which it could have run but had none, ns: preempted, or yielding.
    pub preempted_ns: u64,
    /// Of `on_cpu_ns`, the time in which each event was counted, ns: less where events take turns, and 0 in the kernel for those
    /// that never do.
    pub counted_ns: [u64; MAX_EVENTS],
    /// How many there were of each event, meanwhile. The first one is the clock.
    pub counts: [u64; MAX_EVENTS],
}

/// Counts of one [`crate::sums::SumKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SiteCounts {
    /// Sections counted.
    pub sections: u64,
    /// Waits counted.
    pub waits: u64,
    /// Releases counted: only those that woke somebody.
    pub releases: u64,
    /// From acquire to release.
    pub hold: Counts,
    /// From attempt to acquire, of attempts that waited.
    pub wait: Counts,
    /// From the entry of unlock to the end of the call that woke somebody.
    pub release: Counts,
    /// Holds by their clock's count ([`crate::sums::bucket`]).
    pub hold_hist: [u64; BUCKETS],
    /// Waits likewise, those of sections that did not wait left out.
    pub wait_hist: [u64; BUCKETS],
    /// Releases that woke somebody likewise.
    pub release_hist: [u64; BUCKETS],
}

/// Counts of one thread, or of the threads of one process that have exited. But for `execution`, all are the clock's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadCounts {
    /// The thread; 0 for those that have exited.
    pub tid: u32,
    /// Its process number.
    pub process: u32,
    /// How many threads.
    pub threads: u64,
    /// Everything since the first operation on a lock.
    pub execution: Counts,
    /// Inside of calls that wait for a lock.
    pub wait: u64,
    /// Inside of calls that give one back and wake somebody.
    pub release: u64,
    /// The part of these two while no other lock was held.
    pub outside: u64,
    /// With at least one lock held.
    pub held_union: u64,
    /// Summed over the locks held.
    pub held_sum: u64,
}

impl SiteCounts {
    /// Nothing counted yet.
    pub const EMPTY: Self = Self {
        sections: 0,
        waits: 0,
        releases: 0,
        hold: Counts::NONE,
        wait: Counts::NONE,
        release: Counts::NONE,
        hold_hist: [0; BUCKETS],
        wait_hist: [0; BUCKETS],
        release_hist: [0; BUCKETS],
    };
}

impl Counts {
    /// Fills in the times that the kernel side does not keep.
    pub fn complete(&mut self, events: Events) {
        if !events.any_takes_turns() {
            self.on_cpu_ns = self.counts[0];
        }
        for (event, counted_ns) in self.counted_ns.iter_mut().enumerate() {
            if !events.takes_turns(event) {
                *counted_ns = self.on_cpu_ns;
            }
        }
    }

    /// Nothing counted yet.
    pub const NONE: Self = Self { on_cpu_ns: 0, preempted_ns: 0, counted_ns: [0; MAX_EVENTS], counts: [0; MAX_EVENTS] };
}

const _: () = assert!(size_of::<Counts>() == 8 * (2 + 2 * MAX_EVENTS));
const _: () = assert!(size_of::<SiteCounts>() == 24 + 3 * size_of::<Counts>() + 3 * 8 * BUCKETS);
const _: () = assert!(size_of::<ThreadCounts>() == 16 + size_of::<Counts>() + 40);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for SiteCounts {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for ThreadCounts {}
