//! Calls: the function that a call is in, what it calls, and the variables that are there, with their places.

use super::super::argument::{Base, Value};
use super::info::{Die, Info, Ref};
use super::path;
use gimli::constants as dw;
use gimli::{AttributeValue, Operation};
use std::ops::Range;

/// Variables of one function that are looked at.
const MAX_VARIABLES: usize = 4_096;
/// Operations of an expression that are looked at: no simple place takes more.
const MAX_OPERATIONS: usize = 3;
/// From where the frame pointer points to the canonical frame address, where a function has a frame pointer.
const FRAME: i64 = 16;

/// A call.
pub(super) struct Call {
    /// The code of the function that it is in.
    pub(super) function: Range<u64>,
    /// The function that is called.
    pub(super) callee: String,
    /// Parameters and variables there, with those of functions inlined around the call.
    variables: Vec<(Ref, Die)>,
}

/// What the entries below one are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Declarations.
    Outside,
    /// Parts of the function around the call.
    Inside,
    /// An instruction of no interest.
    Skipped,
}

impl Call {
    /// The call that returns to an address.
    pub(super) fn at(info: &Info, unit: usize, return_addr: u64) -> Option<Self> {
        let pc = return_addr.checked_sub(1)?;
        let (mut function, mut callee, mut variables) = (None, None, Vec::new());
        // What is known of each entry around the present one.
        let mut levels = Vec::new();
        info.walk(unit, |at, die, depth| {
            levels.truncate(depth);
            let level = levels.last().copied().unwrap_or(Level::Outside);
            let around = || info.range_around(at, die, pc);
            let below = match die.tag() {
                dw::DW_TAG_subprogram if level == Level::Outside => {
                    let range = around();
                    let below = if range.is_some() { Level::Inside } else { Level::Skipped };
                    function = range.or(function.take());
                    below
                }
                dw::DW_TAG_inlined_subroutine | dw::DW_TAG_lexical_block
                    if level == Level::Inside && around().is_some() =>
                {
                    Level::Inside
                }
                dw::DW_TAG_call_site | dw::DW_TAG_GNU_call_site if level == Level::Inside => {
                    if returns_to(info, at, die) == Some(return_addr) {
                        callee = called(info, at, die);
                    }
                    Level::Skipped
                }
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable if level == Level::Inside => {
                    if variables.len() < MAX_VARIABLES {
                        variables.push((at, die.clone()));
                    }
                    Level::Skipped
                }
                dw::DW_TAG_compile_unit
                | dw::DW_TAG_partial_unit
                | dw::DW_TAG_namespace
                | dw::DW_TAG_structure_type
                | dw::DW_TAG_class_type => level,
                _ => Level::Skipped,
            };
            levels.push(below);
            below != Level::Skipped
        })?;
        Some(Self { function: function?, callee: callee?, variables })
    }

    /// The member that the argument points to, behind its object's type: of the variable that holds the pointer the argument
    /// was computed from (`ways`); of several the one with the largest object.
    pub(super) fn member(&self, info: &Info, ways: &[Value]) -> Option<String> {
        let mut best: Option<(u64, String)> = None;
        for (at, die) in &self.variables {
            let Some(offset) = ways.iter().find_map(|&way| pointer(info, *at, die, way)) else { continue };
            let found = (|| {
                let object = path::pointee(info, info.type_of(*at, die)?)?;
                let size = path::size(info, object).filter(|&size| offset < size)?;
                let path = path::path(info, object, offset)?;
                let plain = path.is_lock && path.rest == 0 && !path.text.is_empty();
                plain.then_some((size, format!("{}{}", path::type_name(info, object)?, path.text)))
            })();
            best = best.max(found);
        }
        best.map(|(_, member)| member)
    }
}

/// How far into its object a value points, if it was computed from this variable.
fn pointer(info: &Info, at: Ref, die: &Die, value: Value) -> Option<u64> {
    let operations = info.location(at, die, value.at)?;
    let before = match (&operations[..], value.base) {
        ([Operation::Register { register }], Base::Register(base)) if register.0 == base => 0,
        ([Operation::RegisterOffset { register, offset, .. }, Operation::StackValue], Base::Register(base))
            if register.0 == base =>
        {
            *offset
        }
        // gcc tells places from the canonical frame address.
        ([Operation::FrameOffset { offset }], Base::Frame(slot)) if offset + FRAME == slot => 0,
        _ => return None,
    };
    u64::try_from(value.offset.checked_sub(before)?).ok()
}

fn returns_to(info: &Info, at: Ref, die: &Die) -> Option<u64> {
    let value = die.attr_value(dw::DW_AT_call_return_pc).or_else(|| die.attr_value(dw::DW_AT_low_pc))?;
    info.to_address(at, value)
}

/// The name of the function that a call site calls.
fn called(info: &Info, at: Ref, die: &Die) -> Option<String> {
    let origin = die.attr_value(dw::DW_AT_call_origin).or_else(|| die.attr_value(dw::DW_AT_abstract_origin))?;
    let callee = info.follow(at, &origin)?;
    info.name(callee, &info.die(callee)?)
}

impl Info {
    /// The operations that tell where an entry's value is at a place in the code, if these are few.
    fn location(&self, at: Ref, die: &Die, pc: u64) -> Option<Vec<Operation<super::load::Bytes>>> {
        let (info, unit) = self.unit_of(at)?;
        let value = die.attr_value(dw::DW_AT_location)?;
        let expression = match value {
            AttributeValue::Exprloc(expression) => expression,
            list => {
                let mut list = info.dwarf.attr_locations(&unit, list).ok()??;
                loop {
                    let entry = list.next().ok()??;
                    if (entry.range.begin..entry.range.end).contains(&pc) {
                        break entry.data;
                    }
                }
            }
        };
        let mut operations = expression.operations(unit.header.encoding());
        let mut all = Vec::new();
        while let Some(operation) = operations.next().ok()? {
            if all.len() >= MAX_OPERATIONS {
                return None;
            }
            all.push(operation);
        }
        Some(all)
    }

    /// The code of an entry around an address.
    fn range_around(&self, at: Ref, die: &Die, pc: u64) -> Option<Range<u64>> {
        let (info, unit) = self.unit_of(at)?;
        let mut ranges = info.dwarf.die_ranges(&unit, die).ok()?;
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&pc) {
                return Some(range.begin..range.end);
            }
        }
        None
    }

    fn to_address(&self, at: Ref, value: AttributeValue<super::load::Bytes>) -> Option<u64> {
        let (info, unit) = self.unit_of(at)?;
        info.dwarf.attr_address(&unit, value).ok().flatten()
    }
}
