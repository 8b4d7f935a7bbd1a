//! Java's virtual threads, from JDK 24 on: one that waits leaves the thread that carries it, and goes on in any other one. In records a
//! [task](crate::task) stands for it.

/// The record of a wait of a virtual thread has this in place of the expected value: whatever it waited for, which its stack tells, there is no word.
pub const PARKED: u32 = u32::from_ne_bytes(*b"virt");

/// Processes of which it is known where [carriers](Carrier) keep what they run; those with the same remainder displace one another.
pub const MAX_PROCESSES: u32 = 256;

/// Where HotSpot keeps, in what it knows of a thread of the system's (`JavaThread`), which thread of Java's it runs; and where in that one (`Thread`) what
/// it is parked for is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Carrier {
    /// What is added to a pointer of half a word, after it is shifted.
    pub base: u64,
    /// The process's number; 0 if there is none.
    pub process: u32,
    /// Bytes to the number of Java's thread (`_monitor_owner_id`).
    pub id: u32,
    /// Bytes to a handle of Java's thread that is the system's own (`_threadObj`).
    pub own: u32,
    /// Bytes to a handle of the one that it runs (`_vthread`).
    pub runs: u32,
    /// Bytes in that one to a pointer that is null unless it is parked for something (`parkBlocker`); 0 if that is not known.
    pub blocker: u32,
    /// Bytes of a pointer there: 4 or 8.
    pub pointer: u32,
    /// By how many bits a pointer of half a word is shifted.
    pub shift: u32,
    /// Bytes in what a thread is parked for to a pointer to the thread that has it, if it is a lock (`AbstractOwnableSynchronizer`); 0 if that is
    /// not known.
    pub owner: u32,
    /// Bytes in a thread to its number (`Thread.tid`).
    pub number: u32,
    /// Whether an object's class is in the upper bits of its first word (0 or 1), and not in half of the second one.
    pub compact: u32,
}

/// The [`VirtualWait::site`] of a virtual thread that is parked for something; `owner` is the virtual thread that has it, if it is a lock, or 0.
#[must_use]
#[inline(always)]
pub const fn parked_for(owner: u32) -> u64 {
    PARKED_FOR | owner as u64
}

/// Whether it is parked for something, and who has that ([`parked_for`]; 0 if it is not known).
#[must_use]
#[inline(always)]
pub const fn parked_by(site: u64) -> (bool, u32) {
    (site & PARKED_FOR != 0, site as u32)
}

/// The same of one that stands for as many as this power of two.
#[must_use]
#[inline(always)]
pub const fn standing_for(site: u64, exponent: u32) -> u64 {
    site | (exponent as u64) << EXPONENT_SHIFT
}

/// For how many it stands, as a power of two ([`standing_for`]).
#[must_use]
#[inline(always)]
pub const fn stands_for(site: u64) -> u32 {
    (site >> EXPONENT_SHIFT) as u32
}

const PARKED_FOR: u64 = 1 << 32;
const EXPONENT_SHIFT: u32 = 48;

/// A virtual thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct VirtualKey {
    /// The process's number.
    pub process: u64,
    /// Its number (`Thread.threadId()`).
    pub id: u64,
}

/// A call of HotSpot's for a virtual thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VirtualCall {
    /// The monitor; 0 if there is no call in progress.
    pub monitor: u64,
    /// The virtual thread's number.
    pub id: u64,
}

/// A wait of a virtual thread, in progress: for a monitor, or whatever else it does not run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VirtualWait {
    /// The monitor; 0 if it waits for something else.
    pub lock: u64,
    /// Return address of the machine's own call that asks for it; else 0, or [`parked_for`], with [`standing_for`].
    pub site: u64,
    /// When that was, ns.
    pub attempt_ns: u64,
    /// The opening of the gate in which that was; the lapses of the lease, where none matters.
    pub epoch: u64,
    /// What stands for the virtual thread.
    pub tid: u32,
    /// Its stack then, or a negative number: once it waits it has none.
    pub stack: i32,
}

const _: () = assert!(size_of::<Carrier>() == 48);
const _: () = assert!(size_of::<VirtualKey>() == 16);
const _: () = assert!(size_of::<VirtualWait>() == 40);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Carrier {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for VirtualKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for VirtualWait {}

/// One of those that wait for a monitor, as HotSpot keeps it (`ObjectWaiter`, JDK 24 and 25): its first members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Waiter {
    /// Its neighbours.
    pub next: u64,
    /// The same on the other side.
    pub previous: u64,
    /// The thread of the system's that waits; 0 if a virtual one does.
    pub thread: u64,
    /// A handle of the virtual thread that waits; 0 if one of the system's does.
    pub virtual_thread: u64,
    /// What the virtual thread waits for.
    pub monitor: u64,
}

impl Waiter {
    /// Whether a virtual thread waits for this monitor; `None` if that is no waiter of the monitor's, and so not laid out as is known.
    #[must_use]
    #[inline(always)]
    pub const fn is_virtual(&self, monitor: u64) -> Option<bool> {
        match (self.thread, self.virtual_thread) {
            (0, 1..) if self.monitor == monitor => Some(true),
            (1.., 0) => Some(false),
            _ => None,
        }
    }
}

/// The lowest of the bits in which a compact object's first word has its class (`markWord::klass_shift`, JDK 24 and 25).
pub const COMPACT_SHIFT: u32 = 42;

/// Pointers from here on are coloured: ZGC's, which has heaps up to 2^46.
const COLOURED: u64 = 1 << 47;
/// On x86_64 a coloured pointer has one of the four bits set that begin here. The bits above that one are the address (`zAddress.hpp`, JDK 21).
const COLOUR: u32 = 12;
/// On other machines the address begins at this bit.
const COLOURS: u32 = 16;

/// The address in a pointer to an object; `None` if it has no colour that is known.
#[must_use]
#[inline(always)]
pub const fn uncoloured(pointer: u64, is_x86_64: bool) -> Option<u64> {
    if pointer < COLOURED {
        return Some(pointer);
    }
    if !is_x86_64 {
        return Some(pointer >> COLOURS);
    }
    match pointer >> COLOUR & 0xf {
        0b0001 => Some(pointer >> (COLOUR + 1)),
        0b0010 => Some(pointer >> (COLOUR + 2)),
        0b0100 => Some(pointer >> (COLOUR + 3)),
        0b1000 => Some(pointer >> (COLOUR + 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_coloured_pointers() {
        assert_eq!(uncoloured(0xf_1234_5678, true), Some(0xf_1234_5678));
        for (colour, shift) in [(0x1000, 13), (0x2000, 14), (0x4000, 15), (0x8000, 16)] {
            let pointer = 0x40_1234_5678_u64 << shift;
            assert_eq!(
                uncoloured(pointer & !0xffff | colour, true).map(|a| a << shift >> 16 << 16),
                Some(pointer >> 16 << 16)
            );
        }
        assert_eq!((uncoloured(1 << 47, true), uncoloured(1 << 50 | 0x3000, true)), (None, None));
        assert_eq!(uncoloured(0x1234_5678_0000_0000, false), Some(0x1234_5678_0000));
    }

    #[test]
    fn what_is_parked_tells_for_what_and_for_how_many() {
        for (owner, exponent) in [(0, 0), ((1 << 27) - 1, 15)] {
            let site = standing_for(parked_for(owner), exponent);
            assert_eq!((parked_by(site), stands_for(site)), ((true, owner), exponent));
        }
        assert_eq!(parked_by(0), (false, 0));
    }

    #[test]
    fn a_waiter_of_another_layout_is_not_believed() {
        let waiter = Waiter { next: 0, previous: 0, thread: 0, virtual_thread: 0x7f00, monitor: 0x5000 };
        assert_eq!(waiter.is_virtual(0x5000), Some(true));
        assert_eq!(Waiter { thread: 0x6000, virtual_thread: 0, monitor: 0, ..waiter }.is_virtual(0x5000), Some(false));
        for odd in [
            Waiter { monitor: 0x5008, ..waiter },
            Waiter { thread: 1, ..waiter },
            Waiter { virtual_thread: 0, ..waiter },
        ] {
            assert_eq!(odd.is_virtual(0x5000), None, "{odd:?}");
        }
    }
}
