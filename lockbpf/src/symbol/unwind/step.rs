//! From an address to the rules that are in force there, as the tables of a file have them.

use super::row::{Row, Rule};
use super::table::{Bytes, Visitor};
use crate::unwind::Registers;
use gimli::{BaseAddresses, CfaRule, RegisterRule, UnwindContext, UnwindExpression, UnwindSection};

/// Bytes of one function's entry: the largest known has some ten thousand.
const MAX_ENTRY: usize = 1 << 20;

/// Room to work in, kept from step to step.
#[derive(Debug, Default)]
pub(super) struct Context(Option<Box<UnwindContext<usize>>>);

/// A caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Its registers.
    pub(super) registers: Registers,
    /// Where it goes on.
    pub(super) address: u64,
    /// Where in the stack that was found.
    pub(super) slot: Option<u64>,
    /// Whether the address is that of an interrupted instruction, and not behind a call.
    pub(super) exact: bool,
}

/// What is beyond a frame: its caller's, or nothing, where the thread began.
pub(super) type Step = Option<Caller>;

/// Finds the row for an address in the entry that a table finds.
pub(super) struct RowAt<'s> {
    /// The instruction, as the file numbers it.
    pub(super) address: u64,
    /// Room to work in.
    pub(super) context: &'s mut Context,
}

impl Visitor for RowAt<'_> {
    /// `None` for an entry that is damaged.
    type Output = Option<Row>;

    fn visit<'d, S>(self, section: &S, bases: &BaseAddresses, entry: S::Offset) -> Self::Output
    where
        S: UnwindSection<Bytes<'d>>,
        S::Offset: gimli::UnwindOffset,
    {
        let Self { address, context } = self;
        let fde = section.fde_from_offset(bases, entry, S::cie_from_offset).ok()?;
        if fde.entry_len() > MAX_ENTRY {
            return None;
        }
        let context = context.0.get_or_insert_default();
        let row = fde.unwind_info_for_address(section, bases, context, address).ok()?;
        let bytes = |expression: &UnwindExpression<usize>| Some(expression.get(section).ok()?.0.slice().to_vec());
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Rule::Beside(register.0, *offset),
            CfaRule::Expression(expression) => Rule::Says(bytes(expression)?),
        };
        let rule = |rule: &RegisterRule<usize>| {
            Some(match rule {
                RegisterRule::Undefined => Rule::Undefined,
                RegisterRule::Architectural => Rule::Architectural,
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(offset) => Rule::SavedAt(*offset),
                RegisterRule::ValOffset(offset) => Rule::Offset(*offset),
                RegisterRule::Register(other) => Rule::In(other.0),
                RegisterRule::Expression(expression) => Rule::SavedWhere(bytes(expression)?),
                RegisterRule::ValExpression(expression) => Rule::Says(bytes(expression)?),
                RegisterRule::Constant(value) => Rule::Constant(*value),
            })
        };
        // A rule that cannot be read is that of a register that cannot be had.
        let registers = row.registers().map(|(register, how)| (register.0, rule(how).unwrap_or(Rule::Architectural)));
        let encoding = fde.cie().encoding();
        Some(Row {
            frame,
            registers: registers.collect(),
            return_address: fde.cie().return_address_register().0,
            is_signal: fde.is_signal_trampoline(),
            encoding: (encoding.address_size, encoding.version, encoding.format == gimli::Format::Dwarf64),
        })
    }
}
