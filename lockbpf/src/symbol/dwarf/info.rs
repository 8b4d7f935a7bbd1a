//! The entries of debug information: units, and the ways from one entry to others.

use super::index::{Index, Storage, number};
use super::load::{Bytes, DwarfError, Sections};
use crate::untrusted::shown_bytes;
use gimli::constants as dw;
use gimli::{
    AttributeValue, DebugAddrBase, DebugInfoOffset, DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase, Dwarf,
    DwarfFileType, Operation, Section, Unit, UnitHeader, UnitOffset, UnitType,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// An entry.
pub(super) type Die = gimli::DebuggingInformationEntry<Bytes, usize>;

/// Entries read for one question; what takes more has no answer.
const MAX_STEPS: u32 = 4_000_000;
/// Children of one entry that are looked at.
const MAX_CHILDREN: usize = 1 << 16;
/// Pieces of code that units are of.
const MAX_RANGES: usize = 1 << 20;
/// Units kept open.
const MAX_OPEN: usize = 64;
/// How often one entry may refer to another for what it does not say itself.
const MAX_ORIGINS: usize = 8;

/// Which entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ref {
    /// Whether it is in the file that several debug files share.
    shared: bool,
    unit: usize,
    offset: UnitOffset,
}

/// Debug information of one file.
pub(super) struct Info {
    pub(super) dwarf: Dwarf<Bytes>,
    /// Units of `.debug_info` by their place, then those of `.debug_types`.
    headers: Vec<UnitHeader<Bytes>>,
    /// How many of them are in `.debug_info`.
    in_info: usize,
    /// Types by signature.
    signatures: HashMap<u64, (usize, UnitOffset)>,
    shared: Option<Box<Info>>,
    open: RefCell<HashMap<usize, Rc<Unit<Bytes>>>>,
    steps: Cell<u32>,
    /// The code of units: start, end, unit; sorted. Made when it is first asked for.
    code: OnceCell<Vec<(u64, u64, usize)>>,
    big_endian: bool,
}

impl Info {
    /// Reads the headers of all units.
    pub(super) fn new(sections: Sections, shared: Option<Sections>) -> Result<Self, DwarfError> {
        let dwarf = sections.dwarf;
        let big_endian = matches!(gimli::Reader::endian(dwarf.debug_info.reader()), gimli::RunTimeEndian::Big);
        let (mut headers, mut signatures) = (Vec::new(), HashMap::new());
        let mut add = |header: UnitHeader<Bytes>| {
            if let UnitType::Type { type_signature, type_offset }
            | UnitType::SplitType { type_signature, type_offset } = header.type_()
            {
                signatures.insert(type_signature.0, (headers.len(), type_offset));
            }
            headers.push(header);
            headers.len()
        };
        // What follows a damaged header cannot be found.
        let (mut all, mut types, mut in_info) = (dwarf.units(), dwarf.type_units(), 0);
        while let Ok(Some(header)) = all.next() {
            in_info = add(header);
        }
        while let Ok(Some(header)) = types.next() {
            add(header);
        }
        let shared = shared.map(|sections| Self::new(sections, None)).transpose()?.map(Box::new);
        let (open, steps, code) = (RefCell::default(), Cell::new(0), OnceCell::new());
        Ok(Self { dwarf, headers, in_info, signatures, shared, open, steps, code, big_endian })
    }

    /// Where variables at addresses that are `wanted` may be told of.
    pub(super) fn index(&self, wanted: impl Fn(u64) -> bool) -> Index {
        let size = self.headers.first().map_or(8, |header| header.address_size());
        let addresses = self.dwarf.debug_addr.reader().bytes();
        let bases: Vec<Option<usize>> = if addresses.is_empty() {
            Vec::new()
        } else {
            (0..self.headers.len()).map(|unit| self.open(unit).map(|unit| unit.addr_base.0)).collect()
        };
        let indexed = |at: usize, nth: u64| {
            let base = bases.get(self.unit_at(at)?).copied().flatten()?;
            let start = usize::try_from(nth).ok()?.checked_mul(size.into())?.checked_add(base)?;
            let bytes = addresses.get(start..start.checked_add(size.into())?)?;
            Some(number(bytes, self.big_endian))
        };
        let indexed: Option<&dyn Fn(usize, u64) -> Option<u64>> =
            if addresses.is_empty() { None } else { Some(&indexed) };
        Index::of(self.dwarf.debug_info.reader().bytes(), size, self.big_endian, wanted, indexed)
    }

    /// Begins a question: the bound of entries is that of one question.
    pub(super) fn begin(&self) {
        self.steps.set(0);
    }

    /// Counts an entry; `None` if these were too many.
    fn step(&self) -> Option<()> {
        self.steps.set(self.steps.get() + 1);
        (self.steps.get() <= MAX_STEPS).then_some(())
    }

    /// The unit that an offset in `.debug_info` is in.
    fn unit_at(&self, at: usize) -> Option<usize> {
        let start = |header: &UnitHeader<Bytes>| header.debug_info_offset().map_or(usize::MAX, |offset| offset.0);
        let headers = self.headers.get(..self.in_info)?;
        let unit = headers.partition_point(|header| start(header) <= at).checked_sub(1)?;
        let header = headers.get(unit)?;
        (at - start(header) < header.length_including_self()).then_some(unit)
    }

    /// The information that an entry is in.
    fn of(&self, at: Ref) -> Option<&Self> {
        if at.shared { self.shared.as_deref() } else { Some(self) }
    }

    /// A unit, without its line numbers.
    pub(super) fn open(&self, unit: usize) -> Option<Rc<Unit<Bytes>>> {
        if let Some(open) = self.open.borrow().get(&unit) {
            return Some(Rc::clone(open));
        }
        let header = self.headers.get(unit)?.clone();
        let abbreviations = self.dwarf.abbreviations(&header).ok()?;
        let (encoding, kind) = (header.encoding(), DwarfFileType::Main);
        let mut opened = Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, kind),
            addr_base: DebugAddrBase(0),
            loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, kind),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, kind),
            line_program: None,
            dwo_id: None,
            header,
        };
        let root = opened.entry(opened.header.root_offset()).ok()?;
        for attr in root.attrs() {
            match attr.value() {
                AttributeValue::DebugStrOffsetsBase(base) => opened.str_offsets_base = base,
                AttributeValue::DebugAddrBase(base) => opened.addr_base = base,
                AttributeValue::DebugLocListsBase(base) => opened.loclists_base = base,
                AttributeValue::DebugRngListsBase(base) => opened.rnglists_base = base,
                _ => {}
            }
        }
        let low_pc = root.attr_value(dw::DW_AT_low_pc);
        opened.low_pc = low_pc.and_then(|value| self.dwarf.attr_address(&opened, value).ok().flatten()).unwrap_or(0);
        let mut open = self.open.borrow_mut();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        Some(Rc::clone(open.entry(unit).or_insert_with(|| Rc::new(opened))))
    }

    /// The information and the unit that an entry is in.
    pub(super) fn unit_of(&self, at: Ref) -> Option<(&Self, Rc<Unit<Bytes>>)> {
        let info = self.of(at)?;
        Some((info, info.open(at.unit)?))
    }

    /// The unit that the code at an address is of.
    pub(super) fn unit_of_code(&self, pc: u64) -> Option<usize> {
        let code = self.code.get_or_init(|| {
            let mut code = Vec::new();
            for number in 0..self.in_info {
                let Some(unit) = self.open(number) else { continue };
                let Ok(mut ranges) = self.dwarf.unit_ranges(&unit) else { continue };
                while let Ok(Some(range)) = ranges.next() {
                    if code.len() < MAX_RANGES {
                        code.push((range.begin, range.end, number));
                    }
                }
            }
            code.sort_unstable();
            code
        });
        let &(_, end, unit) = code.get(code.partition_point(|&(begin, ..)| begin <= pc).checked_sub(1)?)?;
        (pc < end).then_some(unit)
    }

    /// Passes each entry of a unit, with the number of entries that it is inside of, to `visit`, which says whether to go
    /// on below it.
    pub(super) fn walk(&self, number: usize, mut visit: impl FnMut(Ref, &Die, usize) -> bool) -> Option<()> {
        let unit = self.open(number)?;
        let mut raw = unit.entries_raw(None).ok()?;
        let mut die = Die::null();
        let (mut depth, mut passed) = (0_usize, None);
        while !raw.is_empty() {
            let offset = raw.next_offset();
            if !raw.read_entry(&mut die).ok()? {
                depth = depth.checked_sub(1)?;
                passed = passed.filter(|&from| depth > from);
                if depth == 0 {
                    break;
                }
                continue;
            }
            self.step()?;
            let below = passed.is_none() && visit(Ref { shared: false, unit: number, offset }, &die, depth);
            if !die.has_children() {
                continue;
            }
            if !below && passed.is_none() {
                if let Some(AttributeValue::UnitRef(next)) = die.attr_value(dw::DW_AT_sibling)
                    && next > offset
                {
                    raw = unit.entries_raw(Some(next)).ok()?;
                    continue;
                }
                passed = Some(depth);
            }
            depth += 1;
        }
        Some(())
    }

    /// An entry.
    pub(super) fn die(&self, at: Ref) -> Option<Die> {
        self.step()?;
        self.of(at)?.open(at.unit)?.entry(at.offset).ok()
    }

    /// The entries directly below one, with their places.
    pub(super) fn children(&self, at: Ref) -> Option<Vec<(Ref, Die)>> {
        let unit = self.of(at)?.open(at.unit)?;
        let mut cursor = unit.entries_at_offset(at.offset).ok()?;
        let mut children = Vec::new();
        if !cursor.next_entry().ok()? || !cursor.current()?.has_children() || !cursor.next_entry().ok()? {
            return Some(children);
        }
        while let Some(die) = cursor.current() {
            self.step()?;
            if children.len() >= MAX_CHILDREN {
                return None;
            }
            children.push((Ref { offset: die.offset(), ..at }, die.clone()));
            if cursor.next_sibling().ok()?.is_none() {
                break;
            }
        }
        Some(children)
    }

    /// The entry at an offset in `.debug_info`, and those that it is inside of, outermost first.
    pub(super) fn enclosing(&self, at: usize) -> Option<(Ref, Die, Vec<Ref>)> {
        let number = self.unit_at(at)?;
        let unit = self.open(number)?;
        let target = UnitOffset(at.checked_sub(unit.header.debug_info_offset()?.0)?);
        let place = |offset| Ref { shared: false, unit: number, offset };
        let mut outer = Vec::new();
        let mut raw = unit.entries_raw(None).ok()?;
        let mut die = Die::null();
        while raw.next_offset() <= target {
            self.step()?;
            let start = raw.next_offset();
            if !raw.read_entry(&mut die).ok()? {
                outer.pop()?;
                continue;
            }
            if target < raw.next_offset() {
                return Some((place(start), die, outer));
            }
            if die.has_children() {
                match die.attr_value(dw::DW_AT_sibling) {
                    Some(AttributeValue::UnitRef(next)) if start < next && next <= target => {
                        raw = unit.entries_raw(Some(next)).ok()?;
                    }
                    _ => outer.push(place(start)),
                }
            }
        }
        None
    }

    /// The entry that an attribute's value refers to.
    pub(super) fn follow(&self, from: Ref, value: &AttributeValue<Bytes>) -> Option<Ref> {
        let holder = self.of(from)?;
        let absolute = |info: &Self, shared, DebugInfoOffset(at): DebugInfoOffset| {
            let unit = info.unit_at(at)?;
            let start = info.headers.get(unit)?.debug_info_offset()?.0;
            Some(Ref { shared, unit, offset: UnitOffset(at.checked_sub(start)?) })
        };
        match *value {
            AttributeValue::UnitRef(offset) => Some(Ref { offset, ..from }),
            AttributeValue::DebugInfoRef(at) => absolute(holder, from.shared, at),
            AttributeValue::DebugInfoRefSup(at) => absolute(self.shared.as_deref()?, true, at),
            AttributeValue::DebugTypesRef(signature) => {
                let &(unit, offset) = holder.signatures.get(&signature.0)?;
                Some(Ref { unit, offset, ..from })
            }
            _ => None,
        }
    }

    /// An attribute of an entry, or of what the entry is the definition or an instance of.
    pub(super) fn attr(&self, at: Ref, die: &Die, name: gimli::DwAt) -> Option<(Ref, AttributeValue<Bytes>)> {
        let (mut at, mut current) = (at, None);
        for _ in 0..MAX_ORIGINS {
            let die = current.as_ref().unwrap_or(die);
            if let Some(value) = die.attr_value(name) {
                return Some((at, value));
            }
            let origin = [dw::DW_AT_specification, dw::DW_AT_abstract_origin, dw::DW_AT_signature];
            let origin = origin.into_iter().find_map(|name| die.attr_value(name))?;
            at = self.follow(at, &origin)?;
            current = Some(self.die(at)?);
        }
        None
    }

    /// The name of an entry.
    pub(super) fn name(&self, at: Ref, die: &Die) -> Option<String> {
        let (at, value) = self.attr(at, die, dw::DW_AT_name)?;
        let info = self.of(at)?;
        let text = match value {
            AttributeValue::DebugStrRefSup(offset) => self.shared.as_deref()?.dwarf.string(offset).ok()?,
            value => info.dwarf.attr_string(&*info.open(at.unit)?, value).ok()?,
        };
        let text = shown_bytes(text.bytes());
        (!text.is_empty()).then_some(text)
    }

    /// The type of an entry.
    pub(super) fn type_of(&self, at: Ref, die: &Die) -> Option<Ref> {
        let (at, value) = self.attr(at, die, dw::DW_AT_type)?;
        self.follow(at, &value)
    }

    /// A variable's place, if it is a plain one.
    pub(super) fn place(&self, at: Ref, die: &Die) -> Option<(Storage, u64)> {
        let info = self.of(at)?;
        let unit = info.open(at.unit)?;
        let expression = die.attr_value(dw::DW_AT_location)?.exprloc_value()?;
        let mut operations = expression.operations(unit.header.encoding());
        let place = match operations.next().ok()?? {
            Operation::Address { address } => (Storage::Static, address),
            Operation::AddressIndex { index } => (Storage::Static, info.dwarf.address(&unit, index).ok()?),
            Operation::UnsignedConstant { value } => {
                let Operation::TLS = operations.next().ok()?? else { return None };
                (Storage::ThreadLocal, value)
            }
            _ => return None,
        };
        matches!(operations.next(), Ok(None)).then_some(place)
    }

    /// A number that does not depend on anything.
    pub(super) fn constant(die: &Die, name: gimli::DwAt) -> Option<u64> {
        match die.attr_value(name)? {
            AttributeValue::Exprloc(_) | AttributeValue::UnitRef(_) | AttributeValue::DebugInfoRef(_) => None,
            value => value.udata_value(),
        }
    }

    /// Where a member begins in its structure, if that is the same in all of them.
    pub(super) fn member_offset(&self, at: Ref, die: &Die) -> Option<u64> {
        let AttributeValue::Exprloc(expression) = die.attr_value(dw::DW_AT_data_member_location)? else {
            return Self::constant(die, dw::DW_AT_data_member_location);
        };
        // As DWARF 2 tells it.
        let unit = self.of(at)?.open(at.unit)?;
        let mut operations = expression.operations(unit.header.encoding());
        let Operation::PlusConstant { value } = operations.next().ok()?? else { return None };
        matches!(operations.next(), Ok(None)).then_some(value)
    }

    /// Size of the debug information.
    pub(super) fn units(&self) -> usize {
        self.headers.len()
    }
}
