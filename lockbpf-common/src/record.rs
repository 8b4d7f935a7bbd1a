//! Ring-buffer records. A section record is seven words (56 bytes; 64 with the ring buffer's own header): what is
//! written while a lock is held must be small (HaLock: recording is memory traffic, and traffic disturbs).
//!
//! Every record begins with its time and a tag, so that a reader can tell them apart and merge them by time.

use crate::kind::{Outcome, Via, flag};
use crate::thin::Weight;

/// Low 48 bits: addresses and durations (78 hours in ns) are packed into them.
pub const LOW48: u64 = (1 << 48) - 1;

/// What a record describes: the top 4 bits of its second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// [`SectionRecord`].
    Section = 1,
    /// [`FutexRecord`].
    Futex = 2,
    /// [`ProcessRecord`].
    Process = 3,
    /// [`ThreadExitRecord`].
    ThreadExit = 4,
    /// [`crate::off_cpu::OffCpuRecord`].
    OffCpu = 5,
    /// [`crate::barrier::BarrierRecord`].
    Barrier = 6,
    /// [`WakeRecord`].
    Wake = 7,
    /// [`crate::kernel::HolderRecord`].
    Holder = 8,
    /// [`crate::kernel::KernelRecord`].
    Kernel = 12,
}

impl Tag {
    /// The tag in a record's second word; `None` for a tag no version has written.
    #[must_use]
    pub const fn of(word: u64) -> Option<Self> {
        Some(match word >> 60 {
            1 => Self::Section,
            2 => Self::Futex,
            3 => Self::Process,
            4 => Self::ThreadExit,
            5 => Self::OffCpu,
            6 => Self::Barrier,
            7 => Self::Wake,
            8 => Self::Holder,
            12 => Self::Kernel,
            _ => return None,
        })
    }
}

/// The fields of one attempt–acquire–release, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionFields {
    /// When the section ended (release, failure or exit), ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// acquire − attempt, ns; for an attempt that failed, end − attempt.
    pub wait_ns: u64,
    /// release − acquire, ns; 0 for an attempt that failed.
    pub hold_ns: u64,
    /// Address of the lock in its process.
    pub lock: u64,
    /// Return address of the call that requested the lock.
    pub site: u64,
    /// Process number as given in a [`ProcessRecord`].
    pub process: u32,
    /// The requesting thread, as the initial pid namespace numbers it.
    pub tid: u32,
    /// Owner word of the lock at the attempt (a tid of the target's pid namespace); 0 if unknown.
    pub owner: u32,
    /// Thread that last woke this lock's waiters before this one went on; 0 if unknown.
    pub waker: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
    /// [`flag`] bits.
    pub flags: u16,
    /// [`Via`] as a number.
    pub via: u8,
    /// [`Outcome`] as a number.
    pub outcome: u8,
    /// Low byte of glibc's mutex kind.
    pub mutex_kind: u8,
}

/// One attempt–acquire–release, packed into seven words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SectionRecord(pub [u64; 7]);

impl SectionRecord {
    /// Packs the fields; values beyond their width are clipped (the kernel side refuses wide addresses before).
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &SectionFields) -> Self {
        Self([
            f.end_ns,
            (Tag::Section as u64) << 60
                | (f.outcome as u64 & 0xf) << 56
                | ((f.flags & 0xff) as u64) << 48
                | f.lock & LOW48,
            (f.via as u64) << 56 | (f.mutex_kind as u64) << 48 | f.site & LOW48,
            (f.process as u64 >> 16) << 48 | if f.wait_ns > LOW48 { LOW48 } else { f.wait_ns },
            (f.process as u64 & 0xffff) << 48 | if f.hold_ns > LOW48 { LOW48 } else { f.hold_ns },
            (f.tid as u64) << 32 | f.owner as u64,
            (f.waker as u64) << 32 | f.stack as u32 as u64,
        ])
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(&self) -> SectionFields {
        let w = &self.0;
        SectionFields {
            end_ns: w[0],
            flags: (w[1] >> 48) as u16 & 0xff,
            lock: w[1] & LOW48,
            via: (w[2] >> 56) as u8,
            outcome: (w[1] >> 56) as u8 & 0xf,
            mutex_kind: (w[2] >> 48) as u8,
            site: w[2] & LOW48,
            process: ((w[3] >> 48) as u32) << 16 | (w[4] >> 48) as u32,
            wait_ns: w[3] & LOW48,
            hold_ns: w[4] & LOW48,
            tid: (w[5] >> 32) as u32,
            owner: w[5] as u32,
            waker: (w[6] >> 32) as u32,
            stack: w[6] as u32 as i32,
        }
    }

    /// The operation and outcome as enums, if every number and flag in the record is one that exists.
    #[must_use]
    pub fn known(f: &SectionFields) -> Option<(Via, Outcome)> {
        if f.flags & !flag::ALL != 0 {
            return None;
        }
        match (Via::from_u8(f.via), Outcome::from_u8(f.outcome)) {
            (Some(via), Some(outcome)) => Some((via, outcome)),
            _ => None,
        }
    }
}

/// How a futex wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FutexResult {
    /// Slept and was woken.
    Slept = 0,
    /// Returned at once: the word had changed (`EAGAIN`).
    Again = 1,
    /// The deadline passed (`ETIMEDOUT`).
    TimedOut = 2,
    /// A signal interrupted it (`EINTR` and restart codes).
    Interrupted = 3,
    /// Any other error.
    Failed = 4,
}

impl FutexResult {
    /// The result for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Slept,
            1 => Self::Again,
            2 => Self::TimedOut,
            3 => Self::Interrupted,
            4 => Self::Failed,
            _ => return None,
        })
    }
}

/// The fields of one futex wait that no probed lock call explains, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FutexFields {
    /// When the system call returned, ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Time inside the system call, ns.
    pub wait_ns: u64,
    /// Address of the futex word.
    pub word: u64,
    /// Value of the word that the wait expected (2 for glibc's contended locks).
    pub expected: u32,
    /// Process number.
    pub process: u32,
    /// The waiting thread.
    pub tid: u32,
    /// The 32-bit value 8 bytes behind the word: glibc's owner field if the word is a mutex.
    pub owner: u32,
    /// Thread that last woke the word's waiters; 0 if unknown.
    pub waker: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
    /// [`FutexResult`] as a number.
    pub result: u8,
    /// For how many it stands.
    pub weight: Weight,
}

/// Words copied from the top of the user stack at a futex wait. The return address into the code that called the C
/// library's lock function is among them; a frame-pointer walk from inside the library would skip it.
pub const TOP_WORDS: usize = 16;

/// One futex wait: its packed fields, and the top of the user stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FutexRecord {
    /// The fields, packed.
    pub fields: [u64; 6],
    /// The top of the user stack; zeros where it could not be read.
    pub top: [u64; TOP_WORDS],
}

impl FutexRecord {
    /// Packs the fields.
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &FutexFields) -> [u64; 6] {
        [
            f.end_ns,
            (Tag::Futex as u64) << 60
                | (f.result as u64 & 0xf) << 56
                | (f.weight.packed() as u64) << 48
                | f.word & LOW48,
            f.wait_ns,
            (f.process as u64) << 32 | f.tid as u64,
            (f.expected as u64) << 32 | f.owner as u64,
            (f.waker as u64) << 32 | f.stack as u32 as u64,
        ]
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(w: &[u64; 6]) -> FutexFields {
        FutexFields {
            end_ns: w[0],
            result: (w[1] >> 56) as u8 & 0xf,
            weight: Weight::unpacked((w[1] >> 48) as u8),
            word: w[1] & LOW48,
            wait_ns: w[2],
            process: (w[3] >> 32) as u32,
            tid: w[3] as u32,
            expected: (w[4] >> 32) as u32,
            owner: w[4] as u32,
            waker: (w[5] >> 32) as u32,
            stack: w[5] as u32 as i32,
        }
    }
}

/// In [`WakeFields::woken`]: beside the fields are no words of the stack, but the addresses to which the calls return that led there, innermost first.
pub const CALLERS: u32 = 1 << 31;

/// The fields of one futex call that woke somebody, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeFields {
    /// When the system call was entered, ns on `CLOCK_MONOTONIC`: a lock has just been given back.
    pub time_ns: u64,
    /// How long before that somebody was woken at this word last, ns; [`u64::MAX`] if that is not known.
    pub since_ns: u64,
    /// How long before that the thread's absences from the CPU are all recorded, ns.
    pub watched_ns: u64,
    /// Address of the futex word.
    pub word: u64,
    /// Process number.
    pub process: u32,
    /// The thread that called.
    pub tid: u32,
    /// How many it woke (or moved to another word), perhaps with [`CALLERS`].
    pub woken: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
}

/// One futex call that woke somebody: its packed fields, and the top of the user stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WakeRecord {
    /// The fields, packed.
    pub fields: [u64; 6],
    /// The top of the user stack; zeros where it could not be read. With [`CALLERS`] return addresses, then zeros.
    pub top: [u64; TOP_WORDS],
}

impl WakeRecord {
    /// Packs the fields.
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &WakeFields) -> [u64; 6] {
        [
            f.time_ns,
            (Tag::Wake as u64) << 60 | f.word & LOW48,
            f.since_ns,
            (f.process as u64) << 32 | f.tid as u64,
            (f.woken as u64) << 32 | f.stack as u32 as u64,
            f.watched_ns,
        ]
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(w: &[u64; 6]) -> WakeFields {
        WakeFields {
            time_ns: w[0],
            since_ns: w[2],
            watched_ns: w[5],
            word: w[1] & LOW48,
            process: (w[3] >> 32) as u32,
            tid: w[3] as u32,
            woken: (w[4] >> 32) as u32,
            stack: w[4] as u32 as i32,
        }
    }
}

/// A process (or a new image in one, after exec) was seen for the first time and got a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessRecord {
    /// When it was first seen, ns.
    pub time_ns: u64,
    /// [`Tag::Process`] in the top 4 bits; in the lower half the number of the process image that it was forked from, 0 if it is not told of
    /// right at its fork.
    pub tag: u64,
    /// Start of the process, ns since boot (`task_struct::start_boottime`).
    pub start_ns: u64,
    /// The number by which other records name it; never reused within an observation.
    pub process: u32,
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Name of the thread that was seen first.
    pub comm: [u8; 16],
}

/// A thread that was observed has exited; its sums, and its slot is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadExitRecord {
    /// When it exited, ns.
    pub time_ns: u64,
    /// [`Tag::ThreadExit`] in the top 4 bits, and perhaps [`Self::ENDS_PROCESS`].
    pub tag: u64,
    /// What it did.
    pub sums: crate::sums::ThreadSums,
}

impl ThreadExitRecord {
    /// In the tag's word: it exited by ending its process.
    pub const ENDS_PROCESS: u64 = 1;
}

const _: () = assert!(size_of::<SectionRecord>() == 56);
const _: () = assert!(size_of::<FutexRecord>() == 48 + 8 * TOP_WORDS);
const _: () = assert!(size_of::<WakeRecord>() == 48 + 8 * TOP_WORDS);
const _: () = assert!(size_of::<ProcessRecord>() == 48);
const _: () = assert!(size_of::<ThreadExitRecord>() == 16 + size_of::<crate::sums::ThreadSums>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_survives_packing() {
        let fields = SectionFields {
            end_ns: u64::MAX - 7,
            wait_ns: 123_456_789_012,
            hold_ns: LOW48,
            lock: 0x7fff_ffff_fff8,
            site: 0x5555_5555_4321,
            process: 0xdead_beef,
            tid: 4_194_303,
            owner: 77,
            waker: 4_194_301,
            stack: -17,
            flags: flag::ALL,
            via: Via::JavaMonitor as u8,
            outcome: Outcome::Unseen as u8,
            mutex_kind: 0xa3,
        };
        let packed = SectionRecord::pack(&fields);
        assert_eq!(Tag::of(packed.0[1]), Some(Tag::Section));
        assert_eq!(packed.unpack(), fields);
    }

    #[test]
    fn a_futex_wait_survives_packing() {
        let fields = FutexFields {
            end_ns: 1,
            wait_ns: u64::MAX,
            word: 0x7fff_0000_0004,
            process: 3,
            tid: 9,
            expected: 2,
            owner: 8,
            waker: 7,
            stack: -14,
            result: FutexResult::TimedOut as u8,
            weight: Weight { waits: 12, stacks: 3 },
        };
        let packed = FutexRecord::pack(&fields);
        assert_eq!(Tag::of(packed[1]), Some(Tag::Futex));
        assert_eq!(FutexRecord::unpack(&packed), fields);
    }

    #[test]
    fn a_wake_survives_packing() {
        let fields = WakeFields {
            time_ns: u64::MAX - 1,
            since_ns: u64::MAX,
            watched_ns: 77,
            word: 0x7fff_0000_0004,
            process: u32::MAX,
            tid: 9,
            woken: 3,
            stack: -14,
        };
        let packed = WakeRecord::pack(&fields);
        assert_eq!(Tag::of(packed[1]), Some(Tag::Wake));
        assert_eq!(WakeRecord::unpack(&packed), fields);
    }

    #[test]
    fn unknown_numbers_are_refused() {
        let fields = SectionFields { via: 35, ..SectionFields::default() };
        assert_eq!(SectionRecord::known(&fields), None);
        let fields = SectionFields { via: 1, flags: 0x80, ..SectionFields::default() };
        assert_eq!(SectionRecord::known(&fields), None);
        assert_eq!(Tag::of(u64::MAX), None);
    }
}
