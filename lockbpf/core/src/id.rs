//! Identities: what makes two observations speak of the same process, thread, lock or place in the code.

use lockbpf_common::record::LOW48;
use lockbpf_common::sums::OTHER_LOCKS;
use serde::Serialize;

/// A process image: (pid, start time) with a new number after each exec, so that a reused pid or a replaced image is
/// never confused with its predecessor. Unique within one observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Process(pub u32);

impl Process {
    /// Stands for the kernel where a lock or a site is its own: a kernel lock is one, whoever waits for it.
    pub const KERNEL: Self = Self(lockbpf_common::kernel::PROCESS);
}

/// A thread, as the initial pid namespace numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// A lock: an address in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// The process.
    pub process: Process,
    /// Address of the lock object.
    pub addr: u64,
}

impl Lock {
    /// Bytes of the largest lock of the C libraries: glibc's read-write lock.
    pub const LARGEST: u64 = 56;

    /// Whether it is one of the kernel's own. Of those only the waiting is seen, not for how long they are held.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        self.process == Process::KERNEL
    }

    /// Whether it stands for all locks of its process that were summed together by site, since there was no room for sums of each.
    #[must_use]
    pub fn is_others(self) -> bool {
        // Real addresses have 48 bits, or, in the kernel, all of the upper ones set.
        self.addr & !LOW48 == OTHER_LOCKS
    }
}

/// A place in the code of a process: the return address of the call that requested a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The process.
    pub process: Process,
    /// Return address.
    pub addr: u64,
}

impl Site {
    /// The site as if it were a lock's address: whatever threads wait for there.
    #[must_use]
    pub fn as_lock(self) -> Lock {
        Lock { process: self.process, addr: self.addr }
    }
}

/// Number of a stack kept in the kernel's stack map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack of a record; `None` where the record carries an errno instead.
    #[must_use]
    pub fn from_raw(raw: i32) -> Option<Self> {
        u32::try_from(raw).ok().map(Self)
    }
}
