//! aarch64: a decoder of just those encodings about which everything is certain; what is emulated follows the kernel's
//! `arch/arm64/kernel/probes/decode-insn.c` from 5.15 on. Any other instruction ends the search, and the entry is used.
//!
//! The return address is in `x30`, and a return probe replaces it there. So `x30` must not have been read either: a
//! function that has saved it already would return past the probe. Literal loads are not chosen (kernels before 6.12
//! emulate them wrongly, later ones refuse the probe), nor nops (emulated from 6.13 on only).

use super::{Reason, lands_on_line};

/// Bit of the stack pointer in a register set; 0–30 are `x0`–`x30`.
const SP: u32 = 1 << 31;
/// Bit of the link register.
const LR: u32 = 1 << 30;

/// What an instruction is, as far as placing a probe is concerned.
enum Kind {
    /// Emulated: a branch or a pc-relative address.
    Emulated,
    /// Reads and writes registers only (bit sets), or loads from memory.
    Plain { reads: u32, writes: u32 },
    /// A branch that is not emulated, or not used as a site.
    Branch,
    /// A load or store that may write memory.
    MayWriteMemory,
    /// Anything else.
    Unknown,
}

fn words(code: &[u8]) -> impl Iterator<Item = u32> + '_ {
    code.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes))
}

/// Offset of the first emulated instruction that every call reaches in the state of the entry.
pub(super) fn candidate(code: &[u8], args: usize) -> Result<usize, Reason> {
    let arguments = (1u32 << args.min(8)) - 1;
    for (index, word) in words(code).enumerate() {
        match kind(word) {
            Kind::Emulated => return Ok(index * 4),
            Kind::Plain { reads, writes } if (reads & LR) | (writes & (LR | SP)) != 0 => return Err(Reason::Stack),
            Kind::Plain { writes, .. } if writes & arguments != 0 => return Err(Reason::ArgumentWrite),
            Kind::Plain { .. } => {}
            Kind::Branch => return Err(Reason::Branch),
            Kind::MayWriteMemory => return Err(Reason::MemoryWrite),
            Kind::Unknown => return Err(Reason::Unknown),
        }
    }
    Err(Reason::NoneEmulated)
}

/// What in the rest of the function might bring the same call to `site` a second time, if anything.
pub(super) fn obstacle(code: &[u8], vaddr: u64, site: usize) -> Option<Reason> {
    words(code).enumerate().find_map(|(index, word)| {
        // br and its authenticated forms: opc x000 among the branches to a register.
        if word & 0xfe00_0000 == 0xd600_0000 && (word >> 21) & 7 == 0 {
            return Some(Reason::IndirectJump);
        }
        let target = target(word, vaddr.wrapping_add(index as u64 * 4))?;
        lands_on_line(target, vaddr, site).then_some(Reason::JumpedInto)
    })
}

/// Where a direct branch leads.
fn target(word: u32, at: u64) -> Option<u64> {
    let (shift, bits) = match word {
        w if w & 0x7c00_0000 == 0x1400_0000 => (0, 26), // b, bl
        w if w & 0xff00_0000 == 0x5400_0000 => (5, 19), // b.cond, bc.cond
        w if w & 0x7e00_0000 == 0x3400_0000 => (5, 19), // cbz, cbnz
        w if w & 0x7e00_0000 == 0x3600_0000 => (5, 14), // tbz, tbnz
        _ => return None,
    };
    let unsigned = i64::from(word >> shift & ((1 << bits) - 1));
    let words = unsigned << (64 - bits) >> (64 - bits);
    Some(at.wrapping_add_signed(words * 4))
}

fn kind(word: u32) -> Kind {
    let field = |shift: u32| word >> shift & 31;
    // Register 31 is the stack pointer in some operands, zero in the others.
    let zero_form = |shift| if field(shift) == 31 { 0 } else { 1u32 << field(shift) };
    let stack_form = |shift| 1u32 << field(shift);
    let (rd, rn, rm, ra) = (zero_form(0), stack_form(5), zero_form(16), zero_form(10));
    let sets_flags = word & 0x2000_0000 != 0;

    if word & 0xfc00_0000 == 0x1400_0000 // b
        || word & 0xff00_0010 == 0x5400_0000 // b.cond
        || word & 0x7e00_0000 == 0x3400_0000 // cbz, cbnz
        || word & 0x7e00_0000 == 0x3600_0000 // tbz, tbnz
        || word & 0x1f00_0000 == 0x1000_0000 // adr, adrp
        || word & 0xffff_fc1f == 0xd61f_0000 // br
        || word & 0xffff_fc1f == 0xd65f_0000
    // ret
    {
        return Kind::Emulated;
    }
    if is_nop_or_bti(word) {
        return Kind::Plain { reads: 0, writes: 0 };
    }
    match word & 0x1f80_0000 {
        0x1100_0000 => return Kind::Plain { reads: rn, writes: if sets_flags { rd } else { stack_form(0) } }, // add, sub
        0x1200_0000 => {
            let ands = word & 0x6000_0000 == 0x6000_0000;
            return Kind::Plain { reads: zero_form(5), writes: if ands { rd } else { stack_form(0) } };
        }
        0x1280_0000 => return Kind::Plain { reads: 0, writes: rd }, // movz, movn, movk
        0x1300_0000 => return Kind::Plain { reads: zero_form(5), writes: rd }, // ubfm and kin: shifts, extensions
        0x1380_0000 => return Kind::Plain { reads: zero_form(5) | rm, writes: rd }, // extr
        _ => {}
    }
    match word & 0x1f00_0000 {
        0x0a00_0000 => return Kind::Plain { reads: zero_form(5) | rm, writes: rd }, // and, orr (mov), eor, bics, …
        0x0b00_0000 => {
            // add, sub: the extended form can name the stack pointer.
            let extended = word & 0x0020_0000 != 0;
            let writes = if extended && !sets_flags { stack_form(0) } else { rd };
            return Kind::Plain { reads: rn | rm, writes };
        }
        // adc, ccmp (whose flags look like a destination: harmless), csel, and operations on one or two registers.
        0x1a00_0000 => return Kind::Plain { reads: zero_form(5) | rm, writes: rd },
        0x1b00_0000 => return Kind::Plain { reads: zero_form(5) | rm | ra, writes: rd }, // madd, msub, mulh
        _ => {}
    }
    if is_load(word) {
        return Kind::Plain { reads: rn | rm, writes: rd };
    }
    if word & 0xfff0_0000 == 0xd530_0000 {
        return Kind::Plain { reads: 0, writes: rd }; // mrs
    }
    match word {
        w if w & 0x0a00_0000 == 0x0800_0000 => Kind::MayWriteMemory,
        w if w & 0x1c00_0000 == 0x1400_0000 => Kind::Branch, // also svc, hints, system registers
        _ => Kind::Unknown,
    }
}

fn is_nop_or_bti(word: u32) -> bool {
    word == 0xd503_201f || word & 0xffff_ff3f == 0xd503_241f
}

/// Loads of one general register without write-back: `ldr` with unsigned, unscaled or register offset, of any width.
fn is_load(word: u32) -> bool {
    let store = word & 0x00c0_0000 == 0;
    let form =
        word & 0x3f00_0000 == 0x3900_0000 || word & 0x3f20_0c00 == 0x3800_0000 || word & 0x3f20_0c00 == 0x3820_0800;
    form && !store
}

/// The first instruction as text, and whether the kernel emulates it.
pub(super) fn describe(code: &[u8], vaddr: u64) -> (String, bool) {
    const CONDITIONS: [&str; 16] =
        ["eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv"];
    let Some(word) = words(code).next() else { return ("(unknown)".to_owned(), false) };
    let register = |shift: u32| word >> shift & 31;
    let width = if word & 0x8000_0000 == 0 { 'w' } else { 'x' };
    let to = target(word, vaddr).unwrap_or_default();
    let emulated = matches!(kind(word), Kind::Emulated);
    let text = match word {
        w if w & 0xfc00_0000 == 0x1400_0000 => format!("b {to:#x}"),
        w if w & 0xfc00_0000 == 0x9400_0000 => format!("bl {to:#x}"),
        w if w & 0xff00_0010 == 0x5400_0000 => {
            format!("b.{} {to:#x}", CONDITIONS.get((w & 15) as usize).unwrap_or(&"?"))
        }
        w if w & 0x7f00_0000 == 0x3400_0000 => format!("cbz {width}{}, {to:#x}", register(0)),
        w if w & 0x7f00_0000 == 0x3500_0000 => format!("cbnz {width}{}, {to:#x}", register(0)),
        w if w & 0x7f00_0000 == 0x3600_0000 => format!("tbz {width}{}, {to:#x}", register(0)),
        w if w & 0x7f00_0000 == 0x3700_0000 => format!("tbnz {width}{}, {to:#x}", register(0)),
        w if w & 0x9f00_0000 == 0x1000_0000 => format!("adr x{}", register(0)),
        w if w & 0x9f00_0000 == 0x9000_0000 => format!("adrp x{}", register(0)),
        w if w & 0xffff_fc1f == 0xd61f_0000 => format!("br x{}", register(5)),
        0xd65f_03c0 => "ret".to_owned(),
        0xd503_201f => "nop".to_owned(),
        0xd503_233f => "paciasp".to_owned(),
        w if is_nop_or_bti(w) => "bti".to_owned(),
        w if w & 0xffc0_7fff == 0xa980_7bfd => "stp x29, x30, [sp, …]!".to_owned(),
        w => format!(".inst {w:#010x}"),
    };
    (text, emulated)
}

#[cfg(test)]
mod tests {
    use super::super::{Arch, Cost, Placement, place};
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn placed(words: &[u32], args: usize) -> (u64, Reason, String) {
        let Placement { offset, reason, instruction, cost } = place(Arch::Aarch64, &bytes(words), 0x82cd0, args);
        assert!(offset == 0 || cost == Cost::Emulated);
        (offset, reason, instruction)
    }

    /// Debian 12, glibc 2.36, arm64.
    #[test]
    fn glibc_prologues() {
        // pthread_mutex_lock: stp x29, x30, [sp, #-48]!; mov x29, sp
        assert_eq!(
            placed(&[0xa9bd_7bfd, 0x9100_03fd, 0x5400_0421], 1),
            (0, Reason::MemoryWrite, "stp x29, x30, [sp, …]!".to_owned())
        );
        // pthread_mutex_unlock: mov w1, #1; b
        let unlock = [0x5280_0021, 0x17ff_ffa3];
        assert_eq!(placed(&unlock, 1), (4, Reason::FirstEmulated, "b 0x82b60".to_owned()));
        assert_eq!(placed(&unlock, 2), (0, Reason::ArgumentWrite, ".inst 0x52800021".to_owned()));
        // pthread_mutex_timedlock: mov x2, x1; mov w1, #0; b
        assert_eq!(placed(&[0xaa01_03e2, 0x5280_0001, 0x17ff_fd9d], 1).0, 8);
        // pthread_mutex_clocklock: cmp w1, #1; b.hi; b; mov w0, #0x16; ret
        let clocklock = [0x7100_043f, 0x5400_0048, 0x17ff_fda2, 0x5280_02c0, 0xd65f_03c0];
        assert_eq!(placed(&clocklock, 1), (4, Reason::FirstEmulated, "b.hi 0x82cdc".to_owned()));
    }

    #[test]
    fn what_must_not_have_happened_before_the_probe() {
        const B_NE: u32 = 0x5400_0421;
        for (word, reason) in [
            (0xd100_43ff, Reason::Stack),         // sub sp, sp, #16
            (0x927c_ec1f, Reason::Stack),         // and sp, x0, #~15
            (0x8b21_63ff, Reason::Stack),         // add sp, sp, x1
            (0xaa1e_03e9, Reason::Stack),         // mov x9, x30: saved before a return probe could replace it
            (0xf940_03fe, Reason::Stack),         // ldr x30, [sp]
            (0x8b1e_0021, Reason::Stack),         // add x1, x1, x30
            (0x5280_0020, Reason::ArgumentWrite), // mov w0, #1
            (0xf940_0000, Reason::ArgumentWrite), // ldr x0, [x0]
            (0x1a80_1020, Reason::ArgumentWrite), // csel w0, w1, w0, ne
            (0xb900_0001, Reason::MemoryWrite),   // str w1, [x0]
            (0xb840_4401, Reason::MemoryWrite),   // ldr w1, [x0], #4: writes back
            (0x88e1_7c02, Reason::MemoryWrite),   // casa w1, w2, [x0]
            (0x885f_fc01, Reason::MemoryWrite),   // ldaxr w1, [x0]
            (0x1800_0041, Reason::MemoryWrite),   // ldr w1, literal
            (0x9400_0002, Reason::Branch),        // bl
            (0xd63f_0020, Reason::Branch),        // blr x1
            (0xd503_233f, Reason::Branch),        // paciasp
            (0xd400_0001, Reason::Branch),        // svc
            (0x4ea0_1c00, Reason::Unknown),       // mov v0.16b, v0.16b
        ] {
            assert_eq!(placed(&[word, B_NE, 0xd65f_03c0], 1).1, reason, "{word:#x}");
        }
        for word in [
            0xd503_201f, // nop
            0xd503_245f, // bti c
            0xd53b_d041, // mrs x1, tpidr_el0
            0xb940_1001, // ldr w1, [x0, #16]
            0xf85f_8001, // ldur x1, [x0, #-8]
            0xf862_6801, // ldr x1, [x0, x2]
            0x1200_0c21, // and w1, w1, #15
            0x6b02_003f, // cmp w1, w2
            0x531f_7821, // lsl w1, w1, #1
            0x9b03_1041, // madd x1, x2, x3, x4
        ] {
            assert_eq!(placed(&[word, B_NE, 0xd65f_03c0], 1).0, 4, "{word:#x}");
        }
        assert_eq!(placed(&[], 1).1, Reason::NoneEmulated);
    }

    #[test]
    fn a_way_back_to_the_site_keeps_the_probe_at_the_entry() {
        let line = [0xb940_1001, 0x7100_043f, 0x5400_0048]; // ldr w1, [x0, #16]; cmp w1, #1; b.hi
        let then = |word| placed(&[line[0], line[1], line[2], word, 0xd65f_03c0], 1);
        assert_eq!(then(0xd503_201f).0, 8);
        for (back, reason) in [
            (0x17ff_ffff, Reason::JumpedInto),    // b to the site
            (0x17ff_fffe, Reason::JumpedInto),    // b before it
            (0x17ff_fffd, Reason::FirstEmulated), // b to the entry: a call of its own
            (0x54ff_ffe1, Reason::JumpedInto),    // b.ne to the site
            (0x35ff_ffe1, Reason::JumpedInto),    // cbnz w1 to the site
            (0x3707_ffe1, Reason::JumpedInto),    // tbnz w1, #0 to the site
            (0xd61f_0020, Reason::IndirectJump),  // br x1
            (0xd71f_0822, Reason::IndirectJump),  // braa x1, x2
        ] {
            assert_eq!(then(back).1, reason, "{back:#x}");
        }
    }

    #[test]
    fn the_entry_may_be_emulated() {
        assert_eq!(placed(&[0xb000_0902, 0xd65f_03c0], 1), (0, Reason::EntryEmulated, "adrp x2".to_owned()));
        assert_eq!(placed(&[0xb400_0040, 0xd65f_03c0], 1).2, "cbz x0, 0x82cd8");
    }

    /// Whether the kernel emulates this word on every version from 5.15 on: its masks, by mnemonic.
    fn kernel_emulates(w: u32) -> bool {
        [
            (0xfc00_0000, 0x1400_0000),
            (0xff00_0010, 0x5400_0000),
            (0x7f00_0000, 0x3400_0000),
            (0x7f00_0000, 0x3500_0000),
            (0x7f00_0000, 0x3600_0000),
            (0x7f00_0000, 0x3700_0000),
            (0x9f00_0000, 0x1000_0000),
            (0x9f00_0000, 0x9000_0000),
            (0xffff_fc1f, 0xd61f_0000),
            (0xffff_fc1f, 0xd65f_0000),
        ]
        .iter()
        .any(|&(mask, value)| w & mask == value)
    }

    proptest! {
        /// A word before the site never names an argument, x30 or (as a destination) the stack pointer in a way that
        /// would matter, and is never of the store, branch or vector groups.
        #[test]
        fn random_words_never_break_the_rule(
            likely in prop::collection::vec(
                prop_oneof![
                    any::<u32>(),
                    (0u32..32, 0u32..32).prop_map(|(d, n)| 0x9100_0000 | n << 5 | d),
                    (0u32..32, 0u32..32).prop_map(|(d, m)| 0xaa00_03e0 | m << 16 | d),
                    (0u32..32, 0u32..32).prop_map(|(t, n)| 0xb940_0000 | n << 5 | t),
                    any::<u32>().prop_map(|imm| 0x5400_0000 | (imm & 0xff_ffef)),
                ],
                0..10,
            ),
            vaddr: u64,
            args in 0usize..9,
        ) {
            let code = bytes(&likely);
            let site = place(Arch::Aarch64, &code, vaddr, args).offset as usize / 4;
            if site > 0 {
                prop_assert!(kernel_emulates(likely[site]));
                for &word in &likely[..site] {
                    let destination = word & 31;
                    prop_assert!(!kernel_emulates(word));
                    prop_assert!(destination != 30, "{word:#x} writes x30");
                    let nop_or_hint = word >> 12 == 0xd5032;
                    prop_assert!(nop_or_hint || destination >= args.min(8) as u32, "{word:#x} writes an argument");
                    let group = word >> 25 & 15;
                    prop_assert!([0b1000, 0b1001, 0b0101, 0b1101, 0b1100, 0b0100, 0b1010].contains(&group), "{word:#x}");
                    if group & 0b0101 == 0b0100 && word >> 22 & 3 == 0 {
                        prop_assert!(false, "{word:#x} stores");
                    }
                }
            }
        }

        #[test]
        fn noise_never_panics(code in prop::collection::vec(any::<u8>(), 0..64), vaddr: u64, args: usize) {
            let _ = place(Arch::Aarch64, &code, vaddr, args);
        }
    }
}
