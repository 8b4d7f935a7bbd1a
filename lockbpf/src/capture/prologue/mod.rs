//! Where in a function a probe costs least and still sees what it would see at the entry.
//!
//! The kernel emulates a few instructions in its breakpoint handler; any other it single-steps out of line, which costs
//! about twenty times as much. So a probe is moved from the entry to the first emulated instruction of the straight line
//! that every call runs through, provided that by then nothing has happened that a probe at the entry would have
//! preceded: no branch, no write to memory (a lock word above all), no change of the stack, the return address or an
//! argument. No branch in the function may lead back onto that line, or one call would fire the probe twice. Where any
//! of this is not certain, the probe stays at the entry.

mod aarch64;
mod flag;
mod variable;
mod x86;

pub use variable::static_word;

use serde::{Deserialize, Serialize};
use std::fmt;

/// An instruction set that lockbpf can observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// AMD64, in 64-bit mode.
    X86_64,
    /// ARMv8-A, in 64-bit state, little endian.
    Aarch64,
}

impl Arch {
    /// The instruction set of this machine; `None` where lockbpf has no programs for it.
    #[must_use]
    pub fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// How the kernel gets past the probed instruction: what decides the price of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// In the breakpoint handler, on every kernel from 5.15 on.
    Emulated,
    /// By single-stepping a copy of it out of line, or not certainly otherwise.
    SingleStepped,
}

impl Cost {
    /// Expected time per hit of an empty probe, ns. Measured on x86_64 under nested virtualisation, where an exception
    /// is dear; on bare metal the second figure is nearer to three times the first.
    #[must_use]
    pub const fn expected_ns(self) -> u64 {
        match self {
            Self::Emulated => 510,
            Self::SingleStepped => 10_000,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Emulated => "emulated",
            Self::SingleStepped => "single-stepped",
        })
    }
}

/// Why a probe is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Entry: its instruction is emulated already.
    EntryEmulated,
    /// Past the entry: the first emulated instruction, with everything still as at the entry.
    FirstEmulated,
    /// Entry: a call, return or jump that is not emulated comes first.
    Branch,
    /// Entry: the stack, or the return address, is touched first.
    Stack,
    /// Entry: memory may be written first, and that may be the lock.
    MemoryWrite,
    /// Entry: an argument that the programs read is overwritten first.
    ArgumentWrite,
    /// Entry: an instruction that is not known for certain.
    Unknown,
    /// Entry: the code ends before an emulated instruction.
    NoneEmulated,
    /// Entry: a branch in the function leads back to the cheaper site or before it.
    JumpedInto,
    /// Entry: the function has an indirect jump, which might lead back to the cheaper site.
    IndirectJump,
    /// The branch that tells how the locked instruction before it went, which itself cannot be probed.
    AfterLocked,
    /// The first emulated instruction after a loop that ends once it has changed the lock.
    AfterLoop,
    /// The branches of such a loop that tell how it went.
    LoopExit,
    /// Past the branch that a function takes where a flag of its first argument is not set.
    FlagSet,
    /// The call of the function that this one is a wrapper of.
    Call,
    /// Past the entry: the first emulated instruction, whatever was done before.
    Early,
    /// Entry: how far the function extends is not known, so such jumps cannot be ruled out.
    ExtentUnknown,
    /// Past the NOP of five bytes at the entry, which kernels turn into a call.
    PastNop,
    /// The function's end.
    Return,
    /// A point that the program has for whoever observes it.
    Point,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EntryEmulated => "the entry is emulated",
            Self::FirstEmulated => "first emulated instruction, state as at the entry",
            Self::Branch => "a branch comes first",
            Self::Stack => "the stack changes first",
            Self::MemoryWrite => "memory may be written first",
            Self::ArgumentWrite => "an argument is overwritten first",
            Self::Unknown => "an instruction is not known for certain",
            Self::NoneEmulated => "no emulated instruction",
            Self::JumpedInto => "the cheaper site is in a loop",
            Self::IndirectJump => "an indirect jump might lead to the cheaper site",
            Self::AfterLocked => "the first instruction is locked and cannot be probed, this one tells how it went",
            Self::AfterLoop => "past the loop that changes the lock, which each success leaves once",
            Self::LoopExit => "leaves the loop that changes the lock, by failing or by succeeding",
            Self::FlagSet => "where a flag is set, else the function does nothing",
            Self::Call => "the call inside, arguments as at the entry",
            Self::Early => "first emulated instruction, arguments aside",
            Self::ExtentUnknown => "the function's extent is not known",
            Self::PastNop => "past a NOP that kernels turn into a call, which kills forked children",
            Self::Return => "the function's end",
            Self::Point => "a point of the program's own (USDT)",
        })
    }
}

/// A probe's place in a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Bytes from the function's first instruction.
    pub offset: u64,
    /// How the kernel gets past it.
    pub cost: Cost,
    /// The probed instruction, as text.
    pub instruction: String,
    /// Why there.
    pub reason: Reason,
}

/// The cheapest correct site in a function.
///
/// `code` is the whole function, `vaddr` the address of its first byte, `args` the number of leading argument registers
/// that must be intact at the site. For a function whose extent is not known use [`at_entry`].
#[must_use]
pub fn place(arch: Arch, code: &[u8], vaddr: u64, args: usize) -> Placement {
    if is_rewritten(arch, code, 0) {
        return place_past_nop(arch, code, vaddr, args);
    }
    let candidate = match arch {
        Arch::X86_64 => x86::candidate(code, vaddr, args),
        Arch::Aarch64 => aarch64::candidate(code, args),
    };
    let obstacle = |site| match arch {
        Arch::X86_64 => x86::obstacle(code, vaddr, site),
        Arch::Aarch64 => aarch64::obstacle(code, vaddr, site),
    };
    match candidate {
        Ok(0) => at_entry(arch, code, vaddr, Reason::EntryEmulated),
        Ok(site) => match obstacle(site) {
            Some(reason) => at_entry(arch, code, vaddr, reason),
            None => at(arch, code, vaddr, site, Reason::FirstEmulated),
        },
        Err(reason) => at_entry(arch, code, vaddr, reason),
    }
}

/// The same in a function that begins with a NOP of five bytes, on which no probe may be.
fn place_past_nop(arch: Arch, code: &[u8], vaddr: u64, args: usize) -> Placement {
    let past = |site| at(arch, code, vaddr, site, Reason::PastNop);
    let obstacle = |site| x86::obstacle(code, vaddr, site);
    let candidate = x86::candidate(code, vaddr, args).ok().filter(|&site| obstacle(site).is_none());
    match (candidate, obstacle(x86::NOP5)) {
        (Some(site), _) => past(site),
        (None, None) => past(x86::NOP5),
        (None, Some(reason)) => at_entry(arch, code, vaddr, reason),
    }
}

/// The cheapest place in a function to see that it was called, for whoever needs no arguments, and how far the stack pointer is below
/// the return address there, bytes. A return probe cannot be placed there.
#[must_use]
pub fn place_early(arch: Arch, code: &[u8], vaddr: u64) -> (Placement, u64) {
    let usual = place(arch, code, vaddr, 0);
    if arch != Arch::X86_64 || usual.cost == Cost::Emulated {
        return (usual, 0);
    }
    match x86::early(code, vaddr) {
        Some((site, frame)) if x86::obstacle(code, vaddr, site).is_none() => {
            (at(arch, code, vaddr, site, Reason::Early), frame)
        }
        _ => (usual, 0),
    }
}

/// The branch right after a function's first instruction, if that is a locked one and the branch tells how it went; where not even
/// the entry could be probed. Only x86_64 has such functions.
#[must_use]
pub fn after_locked(arch: Arch, code: &[u8], vaddr: u64) -> Option<Placement> {
    let site = if arch == Arch::X86_64 { x86::after_locked(code, vaddr)? } else { return None };
    Some(at(arch, code, vaddr, site, Reason::AfterLocked))
}

/// The first emulated instruction past the loop in which a function without locks of its own changes a word, by a locked
/// instruction that may have to be repeated: each call that succeeds gets there once, one that fails never. Only where the entry
/// would be dearer; only on x86_64.
#[must_use]
pub fn after_loop(arch: Arch, code: &[u8], vaddr: u64) -> Option<Placement> {
    let site = if arch == Arch::X86_64 { x86::after_loop(code, vaddr)? } else { return None };
    Some(at(arch, code, vaddr, site, Reason::AfterLoop))
}

/// Where such a function, if it may fail at one place, is left by failing and by succeeding: two conditional branches, each with the
/// condition, of the processor's, under which it is left. Only on x86_64.
#[must_use]
pub fn loop_exits(arch: Arch, code: &[u8], vaddr: u64) -> Option<[(Placement, u8); 2]> {
    let [fails, repeats] = if arch == Arch::X86_64 { x86::loop_exits(code, vaddr)? } else { return None };
    let exit = |(site, condition)| (at(arch, code, vaddr, site, Reason::LoopExit), condition);
    let not = |(site, condition)| (site, condition ^ 1);
    Some([exit(fails), exit(not(repeats))])
}

/// Whether a function asks for a byte at this offset from an address in a register. Only on x86_64.
#[must_use]
pub fn asks_for_byte(arch: Arch, code: &[u8], vaddr: u64, offset: u64) -> bool {
    arch == Arch::X86_64 && flag::asks_for_byte(code, vaddr, offset)
}

/// Where a function goes on if a byte of what its first argument points to is 1, if it begins by asking that and goes elsewhere if not. The argument
/// is as at the entry there. Only on x86_64.
#[must_use]
pub fn where_flag_is_set(arch: Arch, code: &[u8], vaddr: u64, flag: u64) -> Option<Placement> {
    let site = if arch == Arch::X86_64 { flag::where_flag_is_set(code, vaddr, flag)? } else { return None };
    Some(at(arch, code, vaddr, site, Reason::FlagSet))
}

/// The call in a function that does little but call another with the same first argument, and how far the stack pointer is below
/// the return address there, bytes. Only on x86_64: elsewhere the return address is in a register.
#[must_use]
pub fn at_call(arch: Arch, code: &[u8], vaddr: u64) -> Option<(Placement, u16)> {
    let (site, frame) = if arch == Arch::X86_64 { x86::call(code, vaddr)? } else { return None };
    Some((at(arch, code, vaddr, site, Reason::Call), frame))
}

/// Why there is no probe where [`is_refused`].
pub const REFUSED: &str = "its first instruction has a lock prefix, which the kernel does not let anybody probe";
/// Why there is no probe where [`is_rewritten`].
pub const REWRITTEN: &str =
    "it begins with a NOP of five bytes, which kernels from 6.18 on turn into a call that kills forked children";

/// Whether the kernel refuses a probe on the first instruction of this code.
#[must_use]
pub fn is_refused(arch: Arch, code: &[u8], vaddr: u64) -> bool {
    arch == Arch::X86_64 && x86::is_locked(code, vaddr)
}

/// Whether there is a NOP of five bytes at this offset. Kernels from 6.18 on pass it without a trap once it was hit, by a call that they write
/// over it, and that harms the target: where its page is not mapped in forked children, these die of it, and what the call pushes overwrites
/// the red zone (both seen on 6.18; later ones take NOPs of ten bytes).
#[must_use]
pub fn is_rewritten(arch: Arch, code: &[u8], offset: u64) -> bool {
    let rest = usize::try_from(offset).ok().and_then(|offset| code.get(offset..)).unwrap_or_default();
    arch == Arch::X86_64 && x86::is_nop5(rest)
}

/// The entry of a function, for the given reason.
#[must_use]
pub fn at_entry(arch: Arch, code: &[u8], vaddr: u64, reason: Reason) -> Placement {
    at(arch, code, vaddr, 0, reason)
}

fn at(arch: Arch, code: &[u8], vaddr: u64, offset: usize, reason: Reason) -> Placement {
    let (rest, vaddr) = (code.get(offset..).unwrap_or_default(), vaddr.wrapping_add(offset as u64));
    let (instruction, emulated) = match arch {
        Arch::X86_64 => x86::describe(rest, vaddr),
        Arch::Aarch64 => aarch64::describe(rest, vaddr),
    };
    let cost = if emulated { Cost::Emulated } else { Cost::SingleStepped };
    Placement { offset: offset as u64, cost, instruction, reason }
}

/// Whether a branch from inside the function lands after its entry and not past `site`.
fn lands_on_line(target: u64, vaddr: u64, site: usize) -> bool {
    (1..=site as u64).contains(&target.wrapping_sub(vaddr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_onto_the_line_is_one_that_repeats_the_site() {
        for (target, repeats) in [(0x1000, false), (0x1001, true), (0x100e, true), (0x100f, false), (0xfff, false)] {
            assert_eq!(lands_on_line(target, 0x1000, 14), repeats, "{target:#x}");
        }
    }

    #[test]
    fn a_call_is_seen_where_the_stack_has_moved() {
        // sub $0xd8,%rsp; mov %rdi,0x8(%rsp); je; ret
        let code = [0x48, 0x81, 0xec, 0xd8, 0, 0, 0, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x74, 0x00, 0xc3];
        let (placement, frame) = place_early(Arch::X86_64, &code, 0x1000);
        assert_eq!((placement.offset, placement.cost, frame), (12, Cost::Emulated, 0xd8));
        // and $-16,%rsp; je: by how much it moves is not known.
        let code = [0x48, 0x83, 0xe4, 0xf0, 0x74, 0x00, 0xc3];
        let (placement, frame) = place_early(Arch::X86_64, &code, 0x1000);
        assert_eq!((placement.offset, placement.cost, frame), (0, Cost::SingleStepped, 0));
        // push: as it always was.
        assert_eq!(place_early(Arch::X86_64, &[0x55, 0xc3], 0x1000).1, 0);
    }

    #[test]
    fn no_probe_is_on_a_nop_of_five_bytes() {
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        // As -fpatchable-function-entry=5 of clang has it.
        let other = [0x0f, 0x1f, 0x44, 0, 0x08];
        let placed = |code: &[&[u8]], args| {
            let code = code.concat();
            let placement = place(Arch::X86_64, &code, 0x1000, args);
            (placement.offset, placement.cost, placement.reason, is_rewritten(Arch::X86_64, &code, placement.offset))
        };
        // push: emulated. mov, mov: the state of the entry, single-stepped.
        for nop in [nop, other] {
            assert_eq!(placed(&[&nop, &[0x53, 0xc3]], 1), (5, Cost::Emulated, Reason::PastNop, false));
            let stepped = placed(&[&nop, &[0x89, 0xc2, 0x31, 0xff, 0xc3]], 1);
            assert_eq!(stepped, (5, Cost::SingleStepped, Reason::PastNop, false));
        }
        // A loop back to what follows: a call would be seen more than once, so there is no place at all.
        assert!(placed(&[&nop, &[0x89, 0xc2, 0x89, 0xd7, 0xeb, 0xfa]], 1).3);
        // After endbr64 the entry is no NOP.
        assert_eq!(placed(&[&[0xf3, 0x0f, 0x1e, 0xfa], &nop, &[0xc3]], 1).0, 0);
        assert!(!is_rewritten(Arch::X86_64, &[0x90; 5], 0) && !is_rewritten(Arch::Aarch64, &nop, 0));
        assert!(!is_rewritten(Arch::X86_64, &nop, 1) && !is_rewritten(Arch::X86_64, &nop, u64::MAX));
    }

    #[test]
    fn the_entry_serves_where_the_extent_is_unknown() {
        let placement = at_entry(Arch::X86_64, &[0x53, 0xc3], 0x1000, Reason::ExtentUnknown);
        assert_eq!((placement.offset, placement.cost), (0, Cost::Emulated));
        assert_eq!(at_entry(Arch::X86_64, &[], 0, Reason::ExtentUnknown).cost, Cost::SingleStepped);
    }
}
