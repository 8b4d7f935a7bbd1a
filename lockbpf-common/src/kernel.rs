//! The kernel's own locks: what its contention tracepoints (5.19) say, what user space tells the programs about the running
//! kernel, and the record of one wait.

use crate::record::{LOW48, Tag};

/// Stands for the kernel where locks and sites name a process: a kernel lock is one, whoever waits for it.
pub const PROCESS: u32 = u32::MAX;

/// Flags of `contention_begin` (`LCB_F_*` of the kernel's `include/trace/events/lock.h`).
pub mod flag {
    /// Its waiters stay on the CPU; with [`MUTEX`], so far.
    pub const SPIN: u32 = 1;
    /// A shared acquisition.
    pub const READ: u32 = 1 << 1;
    /// An exclusive acquisition of a lock that has shared ones.
    pub const WRITE: u32 = 1 << 2;
    /// A real-time mutex, or what a real-time kernel makes of it.
    pub const RT: u32 = 1 << 3;
    /// A read-write semaphore with readers counted by CPU.
    pub const PERCPU: u32 = 1 << 4;
    /// A mutex.
    pub const MUTEX: u32 = 1 << 5;
    /// All flags that exist.
    pub const ALL: u32 = (1 << 6) - 1;
}

/// Whether its waiters never leave the CPU.
#[must_use]
#[inline(always)]
pub const fn is_spinning(flags: u32) -> bool {
    flags & (flag::SPIN | flag::MUTEX) == flag::SPIN
}

/// The kernel's name for such a lock.
#[must_use]
pub const fn name(flags: u32) -> &'static str {
    let of_readers = flags & (flag::READ | flag::WRITE) != 0;
    match () {
        () if flags & flag::MUTEX != 0 => "mutex",
        () if flags & flag::PERCPU != 0 => "percpu-rwsem",
        () if flags & flag::RT != 0 && of_readers => "rt-rwlock",
        () if flags & flag::RT != 0 => "rt-mutex",
        () if flags & flag::SPIN != 0 && of_readers => "rwlock",
        () if of_readers => "rwsem",
        () => "spin",
    }
}

/// Locks that every process has one of, told by their addresses: in the bits from [`KNOWN_SHIFT`] on of the kind in sums.
pub mod known {
    /// `mm->mmap_lock` of the waiting thread.
    pub const MMAP_LOCK: u32 = 1;
    /// `sighand->siglock` of the waiting thread.
    pub const SIGLOCK: u32 = 2;
}

/// Where [`known`] begins in the kind of sums; below are the [`flag`]s.
pub const KNOWN_SHIFT: u32 = 8;

/// The name of a lock that every process has one of, by the kind in its sums.
#[must_use]
pub const fn known_name(kind: u32) -> Option<&'static str> {
    match kind >> KNOWN_SHIFT & 0xf {
        known::MMAP_LOCK => Some("mmap_lock"),
        known::SIGLOCK => Some("siglock"),
        _ => None,
    }
}

/// Ranges of kernel code that belong to locking.
pub const MAX_RANGES: usize = 4;
/// Frames of a kernel stack among which the caller of the locking functions is looked for.
pub const FRAMES: usize = 16;
/// Those among which it is looked for first.
pub const NEAR: usize = 8;
/// Kernel waits of one thread at a time: the one that it sleeps in, and spin locks inside of it.
pub const MAX_NESTED: usize = 4;
/// Stands for an offset that the running kernel does not have.
pub const NO_OFFSET: u32 = u32::MAX;

/// Addresses from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// The first one.
    pub start: u64,
    /// Beyond the last one.
    pub end: u64,
}

impl Range {
    /// Whether an address is in it.
    #[must_use]
    #[inline(always)]
    pub const fn covers(&self, addr: u64) -> bool {
        addr >= self.start && addr < self.end
    }
}

/// What the programs have to know of the running kernel. Offsets are in bytes, [`NO_OFFSET`] for what it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Kernel {
    /// Code of the locking functions; the caller is the first function outside.
    pub locking: [Range; MAX_RANGES],
    /// Code by which interrupts enter the kernel from user mode (x86-64); empty elsewhere.
    pub interrupts: Range,
    /// Offset of `task_struct::mm`.
    pub task_mm: u32,
    /// Offset of `mm_struct::mmap_lock`.
    pub mmap_lock: u32,
    /// Offset of `task_struct::sighand`.
    pub task_sighand: u32,
    /// Offset of `sighand_struct::siglock`.
    pub siglock: u32,
    /// Offset of `mutex::owner`.
    pub mutex_owner: u32,
    /// Offset of `rw_semaphore::owner`.
    pub rwsem_owner: u32,
    /// Offset of `task_struct::pid`.
    pub task_pid: u32,
    /// Offset of the preemption count in `task_struct` (arm64).
    pub preempt_count: u32,
    /// Offset of `rw_semaphore::count`.
    pub rwsem_count: u32,
    /// Offset of `task_struct::stack`.
    pub task_stack: u32,
    /// Offset of `task_struct::on_cpu`.
    pub task_on_cpu: u32,
    /// Offset of `task_struct::tgid`.
    pub task_tgid: u32,
    /// Offset of the number of the system call in `pt_regs`, whose lower half is negative in an exception or interrupt.
    pub system_call: u32,
    /// Explicit padding.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Kernel>() == 16 * (MAX_RANGES + 1) + 56);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Kernel {}

/// What a thread that holds a kernel lock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Doing {
    /// Not known.
    #[default]
    Unknown = 0,
    /// It is on a CPU.
    Running = 1,
    /// It could run, but has no CPU.
    Runnable = 2,
    /// It sleeps, and no signal ends that.
    Blocked = 3,
    /// It sleeps.
    Sleeping = 4,
}

impl Doing {
    /// What a number read from a record stands for; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Unknown,
            1 => Self::Running,
            2 => Self::Runnable,
            3 => Self::Blocked,
            4 => Self::Sleeping,
            _ => return None,
        })
    }
}

/// The fields of one look at a thread that holds a kernel lock, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HolderFields {
    /// When it was looked at, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Address of the lock.
    pub lock: u64,
    /// Number of the process, of who holds it and of who looked.
    pub process: u32,
    /// The thread that holds it, as the initial pid namespace numbers it.
    pub holder: u32,
    /// The thread that waits for it, or has waited: the same.
    pub tid: u32,
    /// Number of the holder's user stack.
    pub stack: i32,
    /// [`Doing`] as a number.
    pub doing: u8,
}

/// One look at a holder, packed into five words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HolderRecord(pub [u64; 5]);

impl HolderRecord {
    /// Packs the fields.
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &HolderFields) -> Self {
        Self([
            f.time_ns,
            (Tag::Holder as u64) << 60 | f.doing as u64,
            f.lock,
            (f.process as u64) << 32 | f.tid as u64,
            (f.holder as u64) << 32 | f.stack as u32 as u64,
        ])
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(&self) -> HolderFields {
        let w = &self.0;
        HolderFields {
            time_ns: w[0],
            lock: w[2],
            process: (w[3] >> 32) as u32,
            holder: (w[4] >> 32) as u32,
            tid: w[3] as u32,
            stack: w[4] as u32 as i32,
            doing: w[1] as u8,
        }
    }
}

const _: () = assert!(size_of::<HolderRecord>() == 40);

/// The fields of one wait for a kernel lock, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFields {
    /// When it ended, ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// How long it took, ns.
    pub wait_ns: u64,
    /// Address of the lock.
    pub lock: u64,
    /// Return address of the call of the locking function; 0 if unknown.
    pub site: u64,
    /// Number of the thread's process.
    pub process: u32,
    /// The thread, as the initial pid namespace numbers it.
    pub tid: u32,
    /// Thread that the lock named as its owner when the wait began; 0 if unknown.
    pub owner: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
    /// [`flag`]s.
    pub flags: u8,
    /// Whether the lock was not got: a signal came first.
    pub failed: bool,
}

/// One wait for a kernel lock, packed into six words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelRecord(pub [u64; 6]);

/// In the second word: the wait failed.
const FAILED: u64 = 1 << 56;

impl KernelRecord {
    /// Packs the fields; durations beyond their width are clipped.
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &KernelFields) -> Self {
        let failed = if f.failed { FAILED } else { 0 };
        let wait_ns = if f.wait_ns > LOW48 { LOW48 } else { f.wait_ns };
        Self([
            f.end_ns,
            (Tag::Kernel as u64) << 60 | failed | (f.flags as u64) << 48 | wait_ns,
            f.lock,
            f.site,
            (f.process as u64) << 32 | f.tid as u64,
            (f.owner as u64) << 32 | f.stack as u32 as u64,
        ])
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(&self) -> KernelFields {
        let w = &self.0;
        KernelFields {
            end_ns: w[0],
            wait_ns: w[1] & LOW48,
            lock: w[2],
            site: w[3],
            process: (w[4] >> 32) as u32,
            tid: w[4] as u32,
            owner: (w[5] >> 32) as u32,
            stack: w[5] as u32 as i32,
            flags: (w[1] >> 48) as u8,
            failed: w[1] & FAILED != 0,
        }
    }
}

const _: () = assert!(size_of::<KernelRecord>() == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_wait_survives_packing() {
        for failed in [false, true] {
            let fields = KernelFields {
                end_ns: u64::MAX,
                wait_ns: LOW48,
                lock: 0xff11_0001_0000_0000,
                site: u64::MAX - 1,
                process: u32::MAX - 1,
                tid: 4_194_303,
                owner: 4_194_302,
                stack: -14,
                flags: flag::ALL as u8,
                failed,
            };
            let packed = KernelRecord::pack(&fields);
            assert_eq!(Tag::of(packed.0[1]), Some(Tag::Kernel));
            assert_eq!(packed.unpack(), fields);
        }
    }

    #[test]
    fn a_look_at_a_holder_survives_packing() {
        let fields = HolderFields {
            time_ns: u64::MAX,
            lock: 0xff11_0001_0000_0000,
            process: u32::MAX - 1,
            holder: 4_194_302,
            tid: 4_194_303,
            stack: i32::MAX,
            doing: Doing::Sleeping as u8,
        };
        let packed = HolderRecord::pack(&fields);
        assert_eq!(Tag::of(packed.0[1]), Some(Tag::Holder));
        assert_eq!(packed.unpack(), fields);
        assert_eq!((0..=5).map(Doing::from_u8).filter(Option::is_some).count(), 5);
    }

    #[test]
    fn flags_have_the_names_that_the_kernel_uses() {
        let names = [
            (flag::MUTEX | flag::SPIN, "mutex"),
            (flag::MUTEX, "mutex"),
            (flag::READ, "rwsem"),
            (flag::WRITE, "rwsem"),
            (flag::SPIN, "spin"),
            (flag::SPIN | flag::WRITE, "rwlock"),
            (flag::PERCPU | flag::READ, "percpu-rwsem"),
            (flag::RT, "rt-mutex"),
            (flag::RT | flag::READ, "rt-rwlock"),
        ];
        for (flags, expected) in names {
            assert_eq!(name(flags), expected, "{flags}");
        }
        assert!(is_spinning(flag::SPIN | flag::READ) && !is_spinning(flag::SPIN | flag::MUTEX));
        assert_eq!(known_name(known::MMAP_LOCK << KNOWN_SHIFT | flag::READ), Some("mmap_lock"));
    }
}
