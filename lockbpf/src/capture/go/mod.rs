//! Go programs: where their locks are probed. Go inlines what takes a free lock into its callers, so only contended
//! acquisitions go through functions that can be probed; those are found by the table that Go programs keep when stripped.
//!
//! A return probe would crash the program, since Go moves its stacks: the end of a function is probed at its own instructions.
//! Nothing is probed that does not look exactly as Go's compiler makes it.

mod functions;

use super::exits;
use super::probe_table::Function;
use super::prologue::{self, Arch, Cost, Placement, Reason};
use super::site::Site;
use super::unusable::Unusable;
use crate::golang::pclntab::{self, Pclntab};
use crate::golang::{Program, buildinfo};
pub(super) use functions::rows;
use functions::{At, FUNCTIONS};
use lockbpf_common::gate;
use object::ReadRef;

/// The first release whose functions take arguments in registers on every processor.
const FIRST: (u32, u32) = (1, 18);
/// Bytes of a function's code; the probed ones are far shorter.
const MAX_CODE: u64 = 16 << 10;

/// Whether Go made a file. Reads little of it: `data` may be a cache over the open file.
#[must_use]
pub fn is_go<'data, R: ReadRef<'data>>(data: R) -> bool {
    Program::read(data).is_some_and(|program| buildinfo::release(&program).is_some())
}

/// Where a Go program's locks are probed; `None` if Go did not make the file.
///
/// # Errors
/// Why they cannot be.
pub fn examine(data: &[u8], arch: Arch) -> Option<Result<Vec<Site>, Unusable>> {
    let program = Program::read(data)?;
    let release = buildinfo::release(&program)?;
    Some(sites(&program, &release, arch))
}

/// Bytes from the beginning of a goroutine's descriptor (`runtime.g`) to its number (`goid`), by release; `None` for releases that
/// nobody has looked at yet.
fn goroutine_number(version: (u32, u32)) -> Option<u16> {
    match version {
        (1, 18..=22 | 25..=27) => Some(152),
        // With `syscallbp`, and still with `gobuf.ret`.
        (1, 23 | 24) => Some(160),
        _ => None,
    }
}

fn sites(program: &Program<&[u8]>, release: &buildinfo::Release, arch: Arch) -> Result<Vec<Site>, Unusable> {
    if release.name.is_empty() || release.version.is_some_and(|version| version < FIRST) {
        return Err(Unusable::OldGo(release.to_string()));
    }
    let table = Pclntab::read(program).ok_or_else(|| Unusable::GoTable(release.to_string()))?;
    let mut sites = Vec::new();
    let mut contended = false;
    let goroutine = gate::goroutine(release.version.and_then(goroutine_number).unwrap_or(0));
    let known = table.functions().filter(|f| FUNCTIONS.iter().any(|(row, _)| row.symbol == f.name));
    // Names are unique, but who knows who wrote the table.
    let known: Vec<_> = known.take(FUNCTIONS.len()).collect();
    let defined = |symbol: &str| known.iter().any(|f| f.name == symbol);
    for function in &known {
        let odd = || Unusable::GoCode { release: release.to_string(), function: function.name.to_owned() };
        let body = Body::read(program, function, arch, goroutine).ok_or_else(odd)?;
        for (row, at) in FUNCTIONS.iter().filter(|(row, _)| row.symbol == function.name) {
            match at {
                At::Entry => sites.push(body.entry(row).ok_or_else(odd)?),
                At::EntryBefore(newer) if !defined(newer) => sites.push(body.entry(row).ok_or_else(odd)?),
                At::Exits => sites.extend(body.exits(row).ok_or_else(odd)?),
                At::ExitsBefore(newer) if !defined(newer) => sites.extend(body.exits(row).ok_or_else(odd)?),
                At::EntryBefore(_) | At::ExitsBefore(_) => {}
            }
            contended |= row.essential;
        }
    }
    // Ends first: a beginning without its end would leave a wait open.
    sites.sort_by_key(|site| (site.function.symbol, !functions::ends(&site.function), site.file_offset));
    if contended { Ok(sites) } else { Err(Unusable::Lacks("sync.(*Mutex).lockSlow".to_owned())) }
}

/// A function's code, found to be as Go's compiler makes it.
struct Body<'d> {
    arch: Arch,
    vaddr: u64,
    file_offset: u64,
    code: &'d [u8],
    /// Where a goroutine's number is ([`lockbpf_common::gate::goroutine`]).
    goroutine: u32,
}

impl<'d> Body<'d> {
    fn read(program: &Program<&'d [u8]>, function: &pclntab::Function<'_>, arch: Arch, goroutine: u32) -> Option<Self> {
        let executable = |s: &&crate::golang::Segment| {
            s.executable && function.entry.checked_sub(s.vaddr).is_some_and(|inside| inside < s.size)
        };
        program.segments().iter().find(executable)?;
        let size = Some(function.size).filter(|size| (1..=MAX_CODE).contains(size))?;
        let code = program.at(function.entry, size)?;
        let body =
            Self { arch, vaddr: function.entry, file_offset: program.file_offset(function.entry)?, code, goroutine };
        body.checks_stack().then_some(body)
    }

    /// Whether it begins as every Go function that calls another does: by comparing the stack pointer with what the goroutine
    /// may use, and a branch. Nothing else is found there by chance.
    fn checks_stack(&self) -> bool {
        match self.arch {
            // cmp 0x10(%r14),%rsp; jbe
            Arch::X86_64 => self.code.strip_prefix(&[0x49, 0x3b, 0x66, 0x10]).is_some_and(|rest| match rest.first() {
                Some(0x76) => true,
                Some(0x0f) => rest.get(1) == Some(&0x86),
                _ => false,
            }),
            // ldr x16, [x28, #16]
            Arch::Aarch64 => self.code.starts_with(&0xf940_0b90_u32.to_le_bytes()),
        }
    }

    /// The branch that follows: registers and stack are still as the caller left them, and it is emulated.
    fn entry(&self, function: &Function) -> Option<Site> {
        let placement = prologue::place(self.arch, self.code, self.vaddr, 0);
        (placement.reason == Reason::FirstEmulated).then(|| self.site(function, placement, exits::ALWAYS))?
    }

    fn exits(&self, function: &Function) -> Option<Vec<Site>> {
        let exits = exits::of(self.arch, self.code, self.vaddr)?;
        // Go never ends a function by a jump to another.
        if exits.ends.is_empty() {
            return None;
        }
        exits
            .ends
            .into_iter()
            .map(|exit| {
                let cost = if exit.emulated { Cost::Emulated } else { Cost::SingleStepped };
                let reason = Reason::Return;
                let placement = Placement { offset: exit.offset, cost, instruction: exit.instruction, reason };
                self.site(function, placement, exit.condition)
            })
            .collect()
    }

    fn site(&self, function: &Function, placement: Placement, condition: u32) -> Option<Site> {
        let file_offset = self.file_offset.checked_add(placement.offset)?;
        Some(Site { function: *function, file_offset, placement, detail: condition | self.goroutine, counter: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Damage;
    use crate::golang::fixture;
    use lockbpf_common::function::{GO_LOCK_SLOW, GO_LOCKED};
    use proptest::prelude::*;

    /// Where a byte of the first function is in the file.
    const CODE: usize = 0x200;

    #[test]
    fn the_slow_path_is_probed_at_branches() {
        for (old, place) in [(true, 152), (false, 152)] {
            let sites = examine(&fixture::program(old), Arch::X86_64).unwrap().unwrap();
            let told: Vec<_> =
                sites.iter().map(|s| (s.function.code, s.file_offset, s.placement.cost, s.detail)).collect();
            let goroutine = gate::goroutine(place);
            let equal = gate::condition(4) | goroutine;
            assert_eq!(
                told,
                [(GO_LOCKED, 0x20a, Cost::Emulated, equal), (GO_LOCK_SLOW, 0x204, Cost::Emulated, goroutine),]
            );
        }
    }

    #[test]
    fn what_is_not_as_go_makes_it_is_not_probed() {
        for (at, byte) in [(0, 0x48), (4, 0x77), (8, 0x06), (14, 0xfa)] {
            let mut data = fixture::program(false);
            data[CODE + at] = byte;
            let refused = examine(&data, Arch::X86_64).unwrap().unwrap_err();
            assert!(matches!(refused, Unusable::GoCode { .. }), "{at}: {refused}");
        }
        let mut old = fixture::program(true);
        let release = memchr::memmem::find(&old, b"go1.19").unwrap();
        old[release + 5] = b'7';
        assert_eq!(examine(&old, Arch::X86_64), Some(Err(Unusable::OldGo("go1.17.8".to_owned()))));
        assert_eq!(examine(b"", Arch::X86_64), None);
    }

    proptest! {
        #[test]
        fn damage_never_panics(damage in Damage::any(8), arm: bool) {
            let data = damage.of(fixture::program(false));
            let _ = examine(&data, if arm { Arch::Aarch64 } else { Arch::X86_64 });
        }
    }
}
