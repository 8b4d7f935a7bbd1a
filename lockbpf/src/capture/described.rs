//! Functions on locks that the user has described ([`crate::custom`]): where they are in a file, what the kernel side is told of them, and
//! what it tells of their locks.

use super::CaptureError;
use super::elf::{self, Code, Header};
use super::go;
use super::points::{Point, points};
use super::probe_table::{By, Function, Runtime};
use super::prologue::{self, Arch, Reason};
use super::site::{Lack, Site};
use crate::custom::{Catalogue, Function as Row, Key, Pattern, catalogue};
use crate::demangle::demangle;
use crate::id::Lock;
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap, Map, MapData};
use lockbpf_common::custom::{
    Function as Told, Introduced, Kind, detail, distance, does, number, with_distance, with_operand,
};
use lockbpf_common::function::CUSTOM;
use memchr::memmem;
use object::elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, Sym};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// Places of one description in a file.
const MAX_PLACES: usize = 4_096;

/// A description, as far as it matters where its functions are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its number in the catalogue.
    pub number: u16,
    /// A pattern.
    pub text: String,
    /// What the pattern is for.
    pub key: Key,
    /// How many leading arguments matter.
    pub arguments: usize,
    /// The argument that leads to the lock; `None` if the code itself names it.
    pub argument: Option<u32>,
    /// Whether a file without it is as it should be.
    pub is_optional: bool,
}

impl Wanted {
    /// Those of a program or library.
    #[must_use]
    pub fn of(catalogue: &Catalogue, path: &Path) -> Vec<Self> {
        let wanted = |(number, row): (usize, &Row)| Self {
            number: number as u16,
            text: row.pattern.text().to_owned(),
            key: row.key,
            arguments: row.arguments,
            argument: Some(row.kernel.argument).filter(|&argument| argument != Told::STATIC),
            is_optional: row.is_optional,
        };
        catalogue.of_file(path).map(wanted).collect()
    }

    /// A function on which nothing but the arguments is known.
    fn function(&self) -> Function {
        let by = if self.key == Key::Point { By::CustomPoint } else { By::Custom };
        Function { symbol: "", runtime: Runtime::Described, args: self.arguments, code: CUSTOM, by, essential: true }
    }

    /// The detail by which the kernel side knows the description.
    fn detail(&self) -> u32 {
        detail(self.number as u8)
    }

    /// Where the function is probed that is this code.
    fn site(&self, code: &Code, arch: Arch) -> Result<Site, Lack> {
        let site = Site::of(self.function(), code, arch).ok_or(Lack::Harmful)?;
        if self.argument.is_some() {
            return Ok(Site { detail: self.detail(), ..site });
        }
        // Also from the entry it must not be too far, where the user may want the probe.
        let end = prologue::static_word(arch, &code.bytes, code.vaddr).filter(|&end| end <= u8::MAX.into());
        let distance = end.and_then(|end| end.checked_sub(site.placement.offset)).filter(|&distance| distance > 0);
        let distance = distance.ok_or(Lack::NoVariable)?;
        Ok(Site { detail: with_distance(self.detail(), distance as u8), ..site })
    }

    /// Where the point is probed, whose code begins with its instruction.
    fn point(&self, point: &Point<'_>, code: &Code, arch: Arch) -> Result<Site, Lack> {
        let operand = self.argument.and_then(|number| point.operand(number)).ok_or(Lack::Operand)?;
        let Code { vaddr, file_offset, ref bytes, .. } = *code;
        if prologue::is_refused(arch, bytes, vaddr) || prologue::is_rewritten(arch, bytes, 0) {
            return Err(Lack::Harmful);
        }
        let placement = prologue::at_entry(arch, bytes, vaddr, Reason::Point);
        let detail = with_operand(self.detail(), operand.register, operand.memory);
        Ok(Site { function: self.function(), file_offset, placement, detail, counter: point.counter })
    }
}

/// The detail of a probe so many bytes before the one with this; `None` if that is too far from what names the lock.
pub(super) fn ahead(detail: u32, bytes: u64) -> Option<u32> {
    let number = self::detail(number(detail) as u8);
    match distance(detail) {
        0 => Some(number),
        distance => Some(with_distance(number, u8::try_from(distance.checked_add(bytes)?).ok()?)),
    }
}

/// What was found of the described functions in a file.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Where they are probed; the detail has the number of the description.
    pub sites: Vec<Site>,
    /// Symbols, as far as they are text, one for each of the sites.
    pub symbols: Vec<String>,
    /// Numbers of descriptions that nothing can be probed by, with the reason.
    pub missing: Vec<(usize, Lack)>,
}

/// Finds the functions that are described of a file; none in a damaged one.
#[must_use]
pub fn find(wanted: &[Wanted], data: &[u8], arch: Arch) -> Found {
    let mut found = Found::default();
    if wanted.is_empty() {
        return found;
    }
    let is_go = go::is_go(data);
    let places = if is_go { Vec::new() } else { places(wanted, data, arch).unwrap_or_default() };
    let mut known = HashSet::new();
    for (at, row) in wanted.iter().enumerate() {
        let place = places.get(at).cloned().unwrap_or_default();
        if place.sites.is_empty() && !row.is_optional {
            let reason = if is_go { Lack::Go } else { place.lack.unwrap_or(Lack::NoSymbol) };
            found.missing.push((row.number.into(), reason));
        }
        for (symbol, site) in place.sites {
            // What is described twice is what it was described as first.
            if known.insert(site.file_offset) {
                found.sites.push(site);
                found.symbols.push(symbol);
            }
        }
    }
    found
}

/// Where the functions of a description are.
#[derive(Clone, Default)]
struct Place {
    sites: Vec<(String, Site)>,
    lack: Option<Lack>,
}

impl Place {
    fn add(&mut self, name: &str, site: Result<Site, Lack>) {
        match site {
            Ok(site) => self.sites.push((name.to_owned(), site)),
            Err(lack) => self.lack = Some(lack),
        }
    }
}

fn places(rows: &[Wanted], data: &[u8], arch: Arch) -> object::read::Result<Vec<Place>> {
    let mut places = vec![Place::default(); rows.len()];
    let patterns: Vec<Pattern> = rows.iter().map(|row| Pattern::new(&row.text)).collect();
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let segments = header.program_headers(endian, data)?;
    let searches: Vec<_> = patterns.iter().map(|pattern| memmem::Finder::new(pattern.identifier())).collect();
    for table in [SHT_DYNSYM, SHT_SYMTAB] {
        let symbols = sections.symbols(endian, data, table)?;
        let strings = elf::strings(&symbols, &sections, endian, data);
        let functions = symbols.iter().take(elf::MAX_SYMBOLS);
        for symbol in functions.filter(|s| s.st_type() == STT_FUNC && !s.is_undefined(endian)) {
            let Some(raw) = elf::name(strings, symbol.st_name(endian)) else { continue };
            let Ok(name) = std::str::from_utf8(raw) else { continue };
            let mut demangled = None;
            for (((place, row), pattern), search) in places.iter_mut().zip(rows).zip(&patterns).zip(&searches) {
                let matches = match row.key {
                    Key::Symbol => pattern.matches(name),
                    Key::Name => {
                        (raw.starts_with(b"_Z") || raw.starts_with(b"_R"))
                            && search.find(raw).is_some()
                            && pattern.matches(demangled.get_or_insert_with(|| demangle(name)))
                    }
                    Key::Point => false,
                };
                if !matches || place.sites.len() >= MAX_PLACES {
                    continue;
                }
                let Some(code) = elf::code(symbol, segments, endian, data) else { continue };
                place.add(name, row.site(&code, arch));
            }
        }
    }
    let all = if rows.iter().any(|row| row.key == Key::Point) { points(data) } else { Vec::new() };
    for point in &all {
        let name = format!("{}:{}", point.provider, point.name);
        for ((place, row), pattern) in places.iter_mut().zip(rows).zip(&patterns) {
            if row.key == Key::Point && pattern.matches(&name) && place.sites.len() < MAX_PLACES {
                let Some(code) = elf::code_at(point.vaddr, 0, segments, endian, data) else { continue };
                place.add(&name, row.point(point, &code, arch));
            }
        }
    }
    Ok(places)
}

/// The function of a description of the catalogue of this run.
#[must_use]
pub fn function(number: usize) -> Option<Function> {
    catalogue().functions().get(number).map(described)
}

fn described(row: &'static Row) -> Function {
    let by = match row.key {
        Key::Point => By::CustomPoint,
        _ if row.kernel.does == does::BLOCKS => By::CustomBlock,
        _ if row.kernel.does == does::WAKES => By::CustomWake,
        _ if row.is_watched => By::CustomReturn,
        _ => By::Custom,
    };
    let symbol = row.pattern.text();
    Function { symbol, runtime: Runtime::Described, args: row.arguments, code: CUSTOM, by, essential: true }
}

/// Tells the kernel side what is described.
pub(super) fn tell(ebpf: &mut Ebpf, catalogue: &Catalogue) -> Result<(), CaptureError> {
    let map = ebpf.map_mut("CUSTOM_FUNCTIONS").ok_or(CaptureError::NoMap("CUSTOM_FUNCTIONS"))?;
    let mut functions: Array<_, Told> = map.try_into()?;
    for (number, row) in catalogue.functions().iter().enumerate() {
        functions.set(number as u32, row.kernel, 0)?;
    }
    let map = ebpf.map_mut("CUSTOM_KINDS").ok_or(CaptureError::NoMap("CUSTOM_KINDS"))?;
    let mut kinds: Array<_, Kind> = map.try_into()?;
    for (number, kind) in catalogue.kinds().iter().enumerate() {
        kinds.set(number as u32, kind.kernel, 0)?;
    }
    Ok(())
}

/// Described locks that the kernel side has met.
pub struct Met(BpfHashMap<MapData, [u64; 2], Introduced>);

impl Met {
    pub(super) fn of(map: Map) -> Result<Self, CaptureError> {
        Ok(Self(map.try_into()?))
    }

    /// What it knows of a lock.
    #[must_use]
    pub fn get(&self, lock: Lock) -> Option<Introduced> {
        self.0.get(&[lock.addr, lock.process.0.into()], 0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::points::tests as points;
    use crate::fixture::{Damage, compiled};
    use lockbpf_common::custom;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    const SOURCE: &str = "int get(void *l, int mode) { return l != 0 && mode; }\n\
        int put(void *l) { return !l; }\n\
        int m(void *l) __asm__(\"_ZN2db5Latch4lockEv\");\n int m(void *l) { return l != 0; }\n\
        int n(void *l) __asm__(\"_ZN2db5Latch8try_lockEv\");\n int n(void *l) { return !l; }\n\
        int main(void) { return get(0, 1) + put(0); }";

    static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
        let mut catalogue = Catalogue::default();
        let lock = |kind: &str, key: &str, get: &str, put: &str| {
            format!(
                "[[lock]]\nkind = \"{kind}\"\nfiles = [\"app\"]\n[[lock.function]]\n{key} = \"{get}\"\ndoes = \"acquire\"\n\
                 [[lock.function]]\n{key} = \"{put}\"\ndoes = \"release\"\n"
            )
        };
        let text = [
            "format = \"lockbpf.locks/1\"\n",
            &lock("a", "symbol", "get", "put"),
            &lock("b", "name", "db::Latch::*lock", "db::Latch::unlock"),
        ];
        catalogue.add(&text.concat(), "x").unwrap();
        catalogue
    });

    fn found(path: &str, data: &[u8]) -> Found {
        find(&Wanted::of(&CATALOGUE, Path::new(path)), data, Arch::host().unwrap())
    }

    #[test]
    fn functions_are_found_by_symbol_and_by_name() {
        let data = compiled(&["-O2"], SOURCE);
        let all = found("/bin/app", &data);
        let mut numbers: Vec<_> =
            all.symbols.iter().zip(&all.sites).map(|(s, site)| (s.as_str(), custom::number(site.detail))).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [("_ZN2db5Latch4lockEv", 2), ("_ZN2db5Latch8try_lockEv", 2), ("get", 0), ("put", 1)]);
        assert!(all.sites.iter().all(|site| site.function.code == CUSTOM));
        assert_eq!(all.missing, [(3, Lack::NoSymbol)]);
        let rows: Vec<_> = CATALOGUE.functions().iter().map(described).collect();
        let watched: Vec<_> = rows.iter().map(|row| (row.symbol, row.by == By::CustomReturn)).collect();
        let expected = [("get", true), ("put", false), ("db::Latch::*lock", true), ("db::Latch::unlock", false)];
        assert_eq!(watched, expected);
        assert!(found("/bin/other", &data).missing.is_empty(), "nothing is described of it");
    }

    /// Of a point each place counts, and where the program counts.
    #[test]
    fn points_are_found_by_their_notes() {
        let data = compiled(&["-O2", "-s"], points::SOURCE);
        let wanted = |number, text: &str, argument| Wanted {
            number,
            text: text.to_owned(),
            key: Key::Point,
            arguments: 2,
            argument: Some(argument),
            is_optional: false,
        };
        let rows =
            [wanted(0, "app:tak*", 0), wanted(1, "app:taken", 1), wanted(2, "app:given", 0), wanted(3, "o:t", 0)];
        let found = find(&rows, &data, Arch::host().unwrap());
        assert_eq!(found.missing, [(1, Lack::Operand), (2, Lack::Operand), (3, Lack::NoSymbol)]);
        let [taken] = &found.sites[..] else { panic!("{found:?}") };
        assert_eq!((found.symbols[0].as_str(), taken.function.by), ("app:taken", By::CustomPoint));
        assert!(taken.counter != 0 && taken.placement.reason == Reason::Point, "{taken:?}");
        assert_eq!((custom::number(taken.detail), custom::operand(taken.detail).1), (0, None));
    }

    #[test]
    fn a_stripped_library_has_what_others_may_call() {
        let data = compiled(&["-O2", "-shared", "-fPIC", "-s"], SOURCE);
        assert_eq!(found("/lib/app", &data).sites.len(), 4);
        let data = compiled(&["-O2", "-s"], SOURCE);
        assert_eq!(found("/lib/app", &data).missing.len(), 4);
    }

    #[test]
    fn nothing_is_probed_in_a_program_of_gos() {
        let go = crate::golang::fixture::program(false);
        let refused = found("/bin/app", &go);
        assert!(
            refused.sites.is_empty() && refused.missing.iter().all(|(_, reason)| *reason == Lack::Go),
            "{refused:?}"
        );
        assert_eq!(refused.missing.len(), 4);
    }

    /// Only on x86-64 does a single instruction tell.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_variable_that_code_names() {
        let source = "static int l, m;\n void other(void) { m = 1; }\n\
            void begin(void) { while (__sync_lock_test_and_set(&l, 1)) ; }\n\
            void end(void) { __atomic_exchange_n(&l, 0, __ATOMIC_SEQ_CST); }\n int main(void) { begin(); end(); }";
        let wanted = |number, text: &str| Wanted {
            number,
            text: text.to_owned(),
            key: Key::Symbol,
            arguments: 0,
            argument: None,
            is_optional: false,
        };
        let rows = [wanted(3, "begin"), wanted(4, "end"), wanted(5, "other")];
        let data = compiled(&["-O2", "-fno-inline"], source);
        let found = find(&rows, &data, Arch::X86_64);
        assert_eq!(found.missing, [(5, Lack::NoVariable)]);
        let named = |site: &Site| {
            let end = (site.file_offset + custom::distance(site.detail)) as usize;
            let last = data[end - 4..end].try_into().unwrap();
            (custom::number(site.detail), end as u64 + i64::from(i32::from_le_bytes(last)) as u64)
        };
        let [(3, begin), (4, end)] = found.sites.iter().map(named).collect::<Vec<_>>()[..] else { panic!("{found:?}") };
        assert_eq!(begin, end);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn damage_never_panics(damage in Damage::any(16)) {
            thread_local!(static SAMPLE: Vec<u8> = compiled(&["-O2"], SOURCE));
            let data = damage.of(SAMPLE.with(Clone::clone));
            let _ = found("/bin/app", &data);
        }
    }
}
