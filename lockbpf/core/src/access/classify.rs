//! What an address is to the thread that accesses it.

use super::{Touch, Way};
use std::ops::Range;

/// Sorts of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// What threads may share: globals, the heap.
    Shared,
    /// An access of a lock itself.
    Lock,
    /// The thread's own stack.
    Stack,
    /// Its thread-local variables, and its own record in the C library.
    ThreadLocal,
    /// Memory that the kernel keeps for it, read only.
    Kernel,
    /// Addresses of functions, which the dynamic linker puts there.
    Linkage,
}

impl Class {
    /// As records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Lock => "lock",
            Self::Stack => "stack",
            Self::ThreadLocal => "thread-local",
            Self::Kernel => "kernel",
            Self::Linkage => "linkage",
        }
    }
}

/// Thread-local variables are looked for so far below the base of their segment.
const BELOW_BASE: u64 = 4 << 10;
/// A C library's record of a thread is at its base, and not larger.
const ABOVE_BASE: u64 = 0x900;

/// The memory that a thread has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its stack.
    pub stack: Range<u64>,
    /// Base of the segment of its thread-local storage.
    pub thread_base: u64,
    /// The kernel's data pages.
    pub kernel: Vec<Range<u64>>,
}

impl Own {
    /// What an access is to this thread, while it holds these locks, each with its size.
    #[must_use]
    pub fn class(&self, touch: &Touch, locks: &[(u64, u64)]) -> Class {
        let Touch { address, way, .. } = *touch;
        let base = self.thread_base;
        let near_base = (base.saturating_sub(BELOW_BASE)..base.saturating_add(ABOVE_BASE)).contains(&address);
        if locks.iter().any(|&(lock, size)| address.wrapping_sub(lock) < size) {
            Class::Lock
        } else if way == Way::Linkage {
            Class::Linkage
        } else if way == Way::ThreadLocal || near_base {
            Class::ThreadLocal
        } else if self.stack.contains(&address) {
            Class::Stack
        } else if self.kernel.iter().any(|pages| pages.contains(&address)) {
            Class::Kernel
        } else {
            Class::Shared
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Kind;

    #[test]
    fn each_sort_of_memory() {
        let kernel = vec![0x9000..0xa000, 0xb000..0xc000];
        let own = Own { stack: 0x10_0000..0x20_0000, thread_base: 0x1f_f700, kernel };
        let class = |address, through_segment| {
            let way = if through_segment { Way::ThreadLocal } else { Way::Plain };
            own.class(&Touch { address, size: 8, kind: Kind::Read, way }, &[(0x5000, 40)])
        };
        let linkage = Touch { address: 0x2000, size: 8, kind: Kind::Read, way: Way::Linkage };
        assert_eq!(own.class(&linkage, &[]), Class::Linkage);
        assert_eq!(class(0x5000, false), Class::Lock);
        assert_eq!(class(0x5027, false), Class::Lock);
        assert_eq!(class(0x5028, false), Class::Shared);
        assert_eq!(class(0x4fff, false), Class::Shared);
        assert_eq!(class(0x1f_0000, false), Class::Stack);
        assert_eq!(class(0x1f_f710, false), Class::ThreadLocal);
        assert_eq!(class(0x1f_f6f8, false), Class::ThreadLocal);
        assert_eq!(class(0x30_0000, true), Class::ThreadLocal);
        assert_eq!(class(0x9008, false), Class::Kernel);
        assert_eq!(class(0x2000, false), Class::Shared);
    }
}
