//! Points (USDT) of a program or library: the notes (`.note.stapsdt`, as `<sys/sdt.h>` writes them) that tell where they are, what they pass and
//! where the program counts who watches.

use super::elf::Header;
use object::Endianness;
use object::elf::{PF_W, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// Whose notes they are, and of which type.
const OWNER: &[u8] = b"stapsdt";
const TYPE: u32 = 3;
/// Notes of one file that are read.
const MAX_POINTS: usize = 65_536;

/// A point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point<'data> {
    /// Who has it.
    pub(super) provider: &'data str,
    /// What it is called.
    pub(super) name: &'data str,
    /// What it passes, as the note has it.
    arguments: &'data str,
    /// Its instruction's address.
    pub(super) vaddr: u64,
    /// Where in the file the program counts who watches it; 0 if it does not.
    pub(super) counter: u64,
}

/// The points of a file; none of a damaged one.
pub(super) fn points(data: &[u8]) -> Vec<Point<'_>> {
    read(data).unwrap_or_default()
}

fn read(data: &[u8]) -> object::read::Result<Vec<Point<'_>>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let segments = header.program_headers(endian, data)?;
    let base = sections.section_by_name(endian, b".stapsdt.base").map(|(_, section)| section.sh_addr(endian));
    let mut points = Vec::new();
    for section in sections.iter().filter(|s| sections.section_name(endian, s).is_ok_and(|n| n == b".note.stapsdt")) {
        let Some(mut notes) = section.notes(endian, data)? else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() != OWNER || note.n_type(endian) != TYPE || points.len() >= MAX_POINTS {
                continue;
            }
            points.extend(point(note.desc(), base, segments, endian));
        }
    }
    Ok(points)
}

/// The point of a note: three addresses and three texts.
fn point<'data>(
    note: &'data [u8],
    base: Option<u64>,
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
) -> Option<Point<'data>> {
    let (addresses, texts) = note.split_at_checked(24)?;
    let mut addresses = addresses.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes));
    let (vaddr, linked, counter) = (addresses.next()?, addresses.next()?, addresses.next()?);
    let mut texts = texts.split(|&byte| byte == 0).map(str::from_utf8);
    let mut text = || texts.next()?.ok();
    // A prelinked file was moved after its notes were written.
    let moved = base.map_or(0, |base| base.wrapping_sub(linked));
    let counter = if counter == 0 { 0 } else { counted(counter.wrapping_add(moved), segments, endian)? };
    let (provider, name, arguments) = (text()?, text()?, text().unwrap_or_default());
    Some(Point { provider, name, arguments, vaddr: vaddr.wrapping_add(moved), counter })
}

/// Where in the file a variable is that can be written; `None` if it is in none.
fn counted(vaddr: u64, segments: &[ProgramHeader64<Endianness>], endian: Endianness) -> Option<u64> {
    segments.iter().find_map(|segment| {
        let flags = segment.p_flags(endian);
        let is_data = segment.p_type(endian) == PT_LOAD && flags & PF_W != 0 && flags & PF_X == 0;
        let inside = vaddr.checked_sub(segment.p_vaddr(endian)).filter(|&inside| inside < segment.p_filesz(endian))?;
        segment.p_offset(endian).checked_add(inside).filter(|_| is_data)
    })
}

/// Where a point passes an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// In this register, by its place among the saved ones.
    pub(super) register: u8,
    /// So many bytes behind where the register points to.
    pub(super) memory: Option<i16>,
}

impl Point<'_> {
    /// Where it passes the address that is its argument of this number; `None` if that is in no such place.
    pub(super) fn operand(&self, number: u32) -> Option<Operand> {
        // A place may be written with blanks: each argument begins with its size.
        let starts = self
            .arguments
            .match_indices('@')
            .map(|(at, _)| self.arguments.get(..at).map_or(0, |before| before.rfind(' ').map_or(0, |blank| blank + 1)));
        let starts: Vec<usize> = starts.collect();
        let at = usize::try_from(number).ok()?;
        let (start, end) = (*starts.get(at)?, starts.get(at + 1).copied().unwrap_or(self.arguments.len()));
        let (size, place) = self.arguments.get(start..end)?.trim_end().split_once('@')?;
        if !matches!(size, "8" | "-8") {
            return None;
        }
        if cfg!(target_arch = "aarch64") { on_aarch64(place) } else { on_x86(place) }
    }
}

/// `%rdi`, `-16(%rbp)`, `(%rax)`.
fn on_x86(place: &str) -> Option<Operand> {
    /// `struct pt_regs` of x86-64.
    const SAVED: [&str; 20] = [
        "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "", "",
        "", "", "rsp",
    ];
    let register = |text: &str| {
        let name = text.strip_prefix('%').filter(|name| !name.is_empty())?;
        SAVED.iter().position(|saved| *saved == name).map(|at| at as u8)
    };
    let Some((offset, inner)) = place.split_once('(') else {
        return Some(Operand { register: register(place)?, memory: None });
    };
    let offset = if offset.is_empty() { 0 } else { offset.parse().ok()? };
    Some(Operand { register: register(inner.strip_suffix(')')?)?, memory: Some(offset) })
}

/// `x19`, `[x29, -16]`, `[sp]`.
fn on_aarch64(place: &str) -> Option<Operand> {
    let register = |text: &str| match text {
        "sp" => Some(31),
        _ => text.strip_prefix('x')?.parse().ok().filter(|&number: &u8| number < 31),
    };
    let Some(inner) = place.strip_prefix('[') else {
        return Some(Operand { register: register(place).filter(|&number| number < 31)?, memory: None });
    };
    let inner = inner.strip_suffix(']')?;
    let (base, offset) = inner.split_once(',').unwrap_or((inner, "0"));
    Some(Operand { register: register(base.trim())?, memory: Some(offset.trim().parse().ok()?) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixture::{Damage, compiled};
    use proptest::prelude::*;

    /// As `<sys/sdt.h>` writes them.
    pub(in crate::capture) const SOURCE: &str = r#"
        unsigned short watched __attribute__((section(".probes")));
        __asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
            ".weak _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base,1\n.popsection\n");
        #define POINT(name, counter, arguments) __asm__ volatile("990: nop\n"                   \
            ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n" \
            "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b,_.stapsdt.base," counter "\n" \
            ".asciz \"app\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection\n")
        #ifdef __aarch64__
        #define LOCK "8@x0 -4@5"
        #else
        #define LOCK "8@%rdi -4@$5"
        #endif
        int main(void) { POINT("taken", "watched", LOCK); POINT("given", "0", ""); return watched; }"#;

    #[test]
    fn notes_tell_place_and_counter() {
        let data = compiled(&["-O2"], SOURCE);
        let all = points(&data);
        let [taken, given] = &all[..] else { panic!("{all:?}") };
        assert_eq!((taken.provider, taken.name), ("app", "taken"));
        assert!(taken.operand(0).is_some_and(|operand| operand.memory.is_none()) && taken.operand(1).is_none());
        assert_eq!((given.name, given.arguments, given.counter), ("given", "", 0));
        assert!(given.vaddr > taken.vaddr);
        let elf = object::File::parse(&*data).unwrap();
        let section = object::Object::section_by_name(&elf, ".probes").unwrap();
        assert_eq!(object::ObjectSection::file_range(&section).unwrap().0, taken.counter);
        assert_eq!(points(b"\x7fELF"), []);
    }

    #[test]
    fn operands_on_x86() {
        for (text, expected) in [
            ("%rdi", Some((14, None))),
            ("%r15", Some((0, None))),
            ("(%rax)", Some((10, Some(0)))),
            ("-16(%rbp)", Some((4, Some(-16)))),
            ("8(%rsp)", Some((19, Some(8)))),
            ("%edi", None),
            ("$5", None),
            ("%", None),
            ("lock(%rip)", None),
            ("8(%rax,%rdx,8)", None),
            ("99999(%rax)", None),
        ] {
            let expected = expected.map(|(register, memory)| Operand { register, memory });
            assert_eq!(on_x86(text), expected, "{text}");
        }
    }

    #[test]
    fn operands_on_aarch64() {
        for (text, expected) in [
            ("x19", Some((19, None))),
            ("[sp]", Some((31, Some(0)))),
            ("[x29, -16]", Some((29, Some(-16)))),
            ("[sp,8]", Some((31, Some(8)))),
            ("w0", None),
            ("x31", None),
            ("sp", None),
            ("5", None),
            ("[x0, x1]", None),
        ] {
            let expected = expected.map(|(register, memory)| Operand { register, memory });
            assert_eq!(on_aarch64(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_are_told_apart() {
        let point = |arguments| Point { provider: "", name: "", arguments, vaddr: 0, counter: 0 };
        let (first, second) =
            if cfg!(target_arch = "aarch64") { ("8@x1", "8@[sp, 16]") } else { ("8@%rdi", "8@16(%rsp)") };
        let text = format!("{first} -4@5 {second} ");
        let all = point(&text);
        assert!(all.operand(0).is_some_and(|operand| operand.memory.is_none()));
        assert!(all.operand(2).is_some_and(|operand| operand.memory == Some(16)));
        assert_eq!((all.operand(1), all.operand(3), all.operand(u32::MAX)), (None, None, None));
        assert_eq!(point("").operand(0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn damage_never_panics(damage in Damage::any(16), number in 0..6u32) {
            thread_local!(static SAMPLE: Vec<u8> = compiled(&["-O2"], SOURCE));
            let data = damage.of(SAMPLE.with(Clone::clone));
            for point in points(&data) {
                let _ = point.operand(number);
            }
        }

        #[test]
        fn no_arguments_panic(arguments in "[-0-9@%$x,()\\[\\] a-zé]{0,30}", number in 0..6u32) {
            let _ = Point { provider: "", name: "", arguments: &arguments, vaddr: 0, counter: 0 }.operand(number);
        }
    }
}
