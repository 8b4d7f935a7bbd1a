//! Gates: the full tier is opened and closed process by process, and what it costs each is counted.
//!
//! Every observed process has a slot. The attach cookie of its uprobes names it, so that a hit finds its gate without
//! asking who it is. While a gate is closed the probes do nothing (they are being placed or removed).

/// Slots: processes whose full tier is opened and closed by itself. Slot 0 is nobody's: what happens before a process has
/// its slot is counted there.
pub const MAX_SLOTS: u32 = 1_024;
/// Closings remembered for sections that were cut by them.
pub const CLOSINGS: usize = 8;

/// Bits of an attach cookie below the slot.
const SLOT_SHIFT: u32 = 16;
const _: () = assert!(MAX_SLOTS <= 1 << (DETAIL_SHIFT - SLOT_SHIFT));
/// Bits of an attach cookie below its detail.
const DETAIL_SHIFT: u32 = 32;
/// The bit of a detail that tells a condition from none. Below it is the condition.
const CONDITIONAL: u32 = 16;
/// Bits of a detail below the bytes, in eights, that a function has still to give back of the stack.
const FRAME_SHIFT: u32 = 5;
/// Bits of a detail below the place of a goroutine's number.
const GOROUTINE_SHIFT: u32 = 8;
/// The bit of an attach cookie that tells a probe on an instruction that must be single-stepped. Below it is the function
/// ([`crate::function`]).
const STEPPED: u64 = 1 << 7;
/// The bit of an attach cookie that tells a function of musl, whose locks have a layout of their own.
const MUSL: u64 = 1 << 8;

/// The bit of an attach cookie that tells of which of two sets of a slot's probes it is: while one takes the other's place, both
/// are there.
const SET: u64 = 1 << 9;

/// The bit of an attach cookie that tells a probe which is always there: no gate closes it.
const UNGATED: u64 = 1 << 10;

/// The attach cookie of a probe that no gate closes.
#[must_use]
#[inline(always)]
pub const fn ungated(cookie: u64) -> u64 {
    cookie | UNGATED
}

/// Whether no gate closes the probe of an attach cookie.
#[must_use]
#[inline(always)]
pub const fn is_ungated(cookie: u64) -> bool {
    cookie & UNGATED != 0
}

/// The attach cookie of a probe of set `set`.
#[must_use]
#[inline(always)]
pub const fn of_set(cookie: u64, set: u64) -> u64 {
    if set & 1 == 0 { cookie } else { cookie | SET }
}

/// Whether the probe of an attach cookie is of the set that counts.
#[must_use]
#[inline(always)]
pub const fn is_of_set(cookie: u64, set: u64) -> bool {
    (cookie & SET != 0) == (set & 1 != 0)
}

/// The attach cookie of a function's probe in a slot's process.
#[must_use]
#[inline(always)]
pub const fn cookie(function: u64, stepped: bool, musl: bool, slot: u32) -> u64 {
    function | if stepped { STEPPED } else { 0 } | if musl { MUSL } else { 0 } | (slot as u64) << SLOT_SHIFT
}

/// Whether an attach cookie is that of a function of musl.
#[must_use]
#[inline(always)]
pub const fn is_musl(cookie: u64) -> bool {
    cookie & MUSL != 0
}

/// Whether the probe of an attach cookie is on an instruction that must be single-stepped.
#[must_use]
#[inline(always)]
pub const fn is_stepped(cookie: u64) -> bool {
    cookie & STEPPED != 0
}

/// The function of an attach cookie.
#[must_use]
#[inline(always)]
pub const fn function(cookie: u64) -> u64 {
    cookie & (STEPPED - 1)
}

/// The slot of an attach cookie.
#[must_use]
#[inline(always)]
pub const fn slot(cookie: u64) -> u32 {
    (cookie >> SLOT_SHIFT) as u16 as u32
}

/// The detail of a probe on a conditional branch of x86_64 whose hits count if it is taken, by the last four bits of its
/// opcode. 0 is no detail.
#[must_use]
#[inline(always)]
pub const fn condition(code: u8) -> u32 {
    CONDITIONAL | code as u32 & 15
}

/// The detail of a probe in a Go program in which a goroutine's number is so many bytes behind the beginning of its descriptor.
/// A multiple of 8 below 2,048; else it is as if it were not known.
#[must_use]
#[inline(always)]
pub const fn goroutine(offset: u16) -> u32 {
    if !offset.is_multiple_of(8) || offset >= 2_048 { 0 } else { (offset as u32 / 8) << GOROUTINE_SHIFT }
}

/// Where a goroutine's number is in its descriptor, bytes; 0 if that is not known.
#[must_use]
#[inline(always)]
pub const fn goroutine_offset(cookie: u64) -> u64 {
    (cookie >> (DETAIL_SHIFT + GOROUTINE_SHIFT) & 0xff) * 8
}

/// The detail of a probe in a function that has moved its stack pointer by so many bytes; `None` if that cannot be told.
#[must_use]
pub const fn frame(bytes: u16) -> Option<u32> {
    if bytes.is_multiple_of(8) { Some(bytes as u32 / 8) } else { None }
}

/// By how many bytes the function of an attach cookie's probe has moved its stack pointer.
#[must_use]
#[inline(always)]
pub const fn frame_of(cookie: u64) -> u64 {
    (cookie >> DETAIL_SHIFT) * 8
}

/// The detail of a probe in a function of the C library where the stack pointer is so many bytes below the return address; at its
/// end with the [`condition`] under which it is the end, or 0. `None` if it is too far.
#[must_use]
pub const fn end(bytes: u64, condition: u32) -> Option<u32> {
    if bytes.is_multiple_of(8) && bytes >> 3 < 1 << (16 - FRAME_SHIFT) {
        Some((bytes >> 3 << FRAME_SHIFT) as u32 | condition)
    } else {
        None
    }
}

/// How far below the return address the stack pointer is there, by the attach cookie, bytes.
#[must_use]
#[inline(always)]
pub const fn end_frame(cookie: u64) -> u64 {
    (cookie >> (DETAIL_SHIFT + FRAME_SHIFT)) * 8
}

/// The detail of an attach cookie.
#[must_use]
#[inline(always)]
pub const fn detail(cookie: u64) -> u32 {
    (cookie >> DETAIL_SHIFT) as u32
}

/// The attach cookie with a detail.
#[must_use]
#[inline(always)]
pub const fn with_detail(cookie: u64, detail: u32) -> u64 {
    cookie | (detail as u64) << DETAIL_SHIFT
}

/// Whether a hit of an attach cookie's probe counts, by the processor's flags (x86_64 `eflags`).
#[must_use]
#[inline(always)]
pub const fn counts(cookie: u64, flags: u64) -> bool {
    const CARRY: u64 = 1;
    const PARITY: u64 = 1 << 2;
    const ZERO: u64 = 1 << 6;
    const SIGN: u64 = 1 << 7;
    const OVERFLOW: u64 = 1 << 11;
    let condition = detail(cookie);
    if condition & CONDITIONAL == 0 {
        return true;
    }
    let less = (flags & SIGN != 0) != (flags & OVERFLOW != 0);
    let holds = match (condition & 15) >> 1 {
        0 => flags & OVERFLOW != 0,
        1 => flags & CARRY != 0,
        2 => flags & ZERO != 0,
        3 => flags & (CARRY | ZERO) != 0,
        4 => flags & SIGN != 0,
        5 => flags & PARITY != 0,
        6 => less,
        _ => less || flags & ZERO != 0,
    };
    // The last bit negates.
    holds != (condition & 1 != 0)
}

/// Whether a process's full tier is open. Written by user space only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gate {
    /// Number of this opening, from 1 on; 0 while it is closed. A thread that remembers another one starts anew.
    pub epoch: u64,
    /// Number of the set of probes that counts, from 1 on; 0 before the first was placed.
    pub set: u64,
    /// When it was opened, on `CLOCK_BOOTTIME`, ns: tells threads that were there before from later ones.
    pub opened_boottime_ns: u64,
    /// When opening n was closed, at n mod [`CLOSINGS`]; `CLOCK_MONOTONIC`, ns.
    pub closed_ns: [u64; CLOSINGS],
}

/// What observing a process took, on one CPU: multiplied by calibrated costs in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Account {
    /// Uprobe hits, those at closed gates too.
    pub hits: u64,
    /// How many of these were hits of probes on instructions that must be single-stepped.
    pub stepped: u64,
    /// How many of them were hits of probes that no gate closes.
    pub ungated: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written for them, the ring buffer's headers included.
    pub record_bytes: u64,
    /// Bytes written for copies of stacks, likewise.
    pub stack_bytes: u64,
    /// Futex calls seen.
    pub futex_calls: u64,
    /// Switches of its threads from the CPU while the full tier was on.
    pub switches: u64,
    /// Time in which its stacks were taken, ns, where they may be copied: what that takes depends on the stack.
    pub stack_ns: u64,
    /// Samples of the CPU's clock while its threads ran.
    pub samples: u64,
    /// How many of these found a thread in its own code, not in the kernel.
    pub user_samples: u64,
}

const _: () = assert!(size_of::<Gate>() == 24 + 8 * CLOSINGS);
const _: () = assert!(size_of::<Account>() == 88);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Gate {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Account {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_carry_function_and_slot() {
        for (stepped, musl) in [(false, false), (true, false), (false, true), (true, true)] {
            let cookie = cookie(crate::function::BARRIER_WAIT, stepped, musl, MAX_SLOTS - 1);
            assert_eq!((function(cookie), slot(cookie)), (crate::function::BARRIER_WAIT, MAX_SLOTS - 1));
            assert_eq!((is_stepped(cookie), is_musl(cookie)), (stepped, musl));
            let cookie = with_detail(cookie, condition(4) | goroutine(160));
            assert_eq!((function(cookie), slot(cookie)), (crate::function::BARRIER_WAIT, MAX_SLOTS - 1));
            assert_eq!((goroutine_offset(cookie), goroutine(2_048), goroutine(9)), (160, 0, 0));
        }
    }

    #[test]
    fn sets_are_told_apart() {
        let cookie = with_detail(cookie(5, true, true, 7), 9);
        for (set, other) in [(1, 2), (2, 3)] {
            let of = of_set(cookie, set);
            assert!(is_of_set(of, set) && !is_of_set(of, other));
            assert_eq!((function(of), slot(of), detail(of)), (5, 7, 9));
            let most = with_detail(super::cookie(5, true, true, 7), u32::MAX);
            assert_eq!((function(most), slot(most), detail(most)), (5, 7, u32::MAX));
        }
    }

    #[test]
    fn what_no_gate_closes_is_told_apart() {
        let most = with_detail(of_set(cookie(5, true, true, 7), 1), u32::MAX);
        assert!(is_ungated(ungated(most)) && !is_ungated(most));
        assert_eq!((function(ungated(most)), slot(ungated(most)), detail(ungated(most))), (5, 7, u32::MAX));
    }

    #[test]
    fn ends_carry_frame_and_condition() {
        for (bytes, code) in [(0, 0), (56, condition(5)), (16_376, condition(15))] {
            let detail = end(bytes, code).unwrap();
            let cookie = with_detail(cookie(crate::library::END, true, false, 7), detail);
            assert_eq!(
                (end_frame(cookie), function(cookie), self::detail(cookie)),
                (bytes, crate::library::END, detail)
            );
            assert_eq!(counts(cookie, 1 << 6), code == 0, "not taken with the zero flag");
        }
        assert_eq!((end(4, 0), end(16_384, 0)), (None, None));
    }
}
