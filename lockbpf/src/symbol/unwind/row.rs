//! One row of unwind information: by what rules the registers of a frame's caller are found. The process that reads files finds
//! it; here it is applied to a stack.

use super::step::{Caller, Step};
use crate::unwind::{End, MACHINE, Registers, StackCopy};
use gimli::{EndianSlice, EvaluationResult, Expression, LittleEndian, Location, Value};
use serde::{Deserialize, Serialize};

/// Operations of one expression.
const MAX_OPERATIONS: u32 = 1_000;
/// Bytes of one expression.
const MAX_EXPRESSION: usize = 4_096;
/// Registers of one row.
const MAX_REGISTERS: usize = 256;

/// The rules for one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Row {
    /// Where the frame is.
    pub(super) frame: Rule,
    /// The caller's registers, by number.
    pub(super) registers: Vec<(u16, Rule)>,
    /// Which of them is where the caller goes on.
    pub(super) return_address: u16,
    /// Whether the frame is that of a signal's handler.
    pub(super) is_signal: bool,
    /// How expressions are encoded: bytes of an address, version, whether offsets have 64 bits.
    pub(super) encoding: (u8, u16, bool),
}

/// How a value is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rule {
    /// It cannot be.
    Undefined,
    /// As the rules of the machine say, which are not known here.
    Architectural,
    /// As it is in the frame itself.
    Same,
    /// Saved so far from the frame.
    SavedAt(i64),
    /// So far from the frame.
    Offset(i64),
    /// In another register.
    In(u16),
    /// So far from what is in a register.
    Beside(u16, i64),
    /// Saved where an expression says.
    SavedWhere(Vec<u8>),
    /// What an expression says.
    Says(Vec<u8>),
    /// Just this.
    Constant(u64),
}

impl Rule {
    fn is_bounded(&self) -> bool {
        match self {
            Self::SavedWhere(expression) | Self::Says(expression) => expression.len() <= MAX_EXPRESSION,
            _ => true,
        }
    }
}

impl Row {
    /// The row, if it is within bounds: it comes from a process that has read what others wrote.
    pub(in super::super) fn bounded(self) -> Option<Self> {
        let fits = self.registers.len() <= MAX_REGISTERS
            && self.frame.is_bounded()
            && self.registers.iter().all(|(_, rule)| rule.is_bounded());
        fits.then_some(self)
    }

    /// The caller's frame.
    pub(super) fn step(&self, registers: &Registers, copy: &StackCopy) -> Result<Step, End> {
        let frame = Frame { registers, copy, encoding: self.encoding };
        let cfa = match &self.frame {
            Rule::Beside(register, offset) => registers.get(*register).ok_or(End::Astray)?.wrapping_add_signed(*offset),
            Rule::Says(expression) => frame.evaluate(expression, None)?,
            _ => return Err(End::Astray),
        };
        // Frames lie ever higher; only a signal handler may have had a stack of its own.
        let exact = self.is_signal;
        if !exact && registers.stack_pointer().is_some_and(|stack_pointer| cfa < stack_pointer) {
            return Err(End::Astray);
        }
        let mut callers = registers.preserved();
        callers.set(MACHINE.stack_pointer, Some(cfa));
        let mut returns = None;
        for (register, rule) in &self.registers {
            if *register == self.return_address {
                returns = Some(rule);
            } else {
                // One that cannot be had may never be asked for.
                callers.set(*register, frame.value(*register, rule, cfa).ok().map(|(value, _)| value));
            }
        }
        let (value, slot) = match returns {
            Some(Rule::Undefined) => return Ok(None),
            Some(rule) => frame.value(self.return_address, rule, cfa)?,
            // A function that calls nobody may leave it where the call has put it.
            None => (registers.get(self.return_address).ok_or(End::Astray)?, None),
        };
        Ok(Some(Caller { registers: callers, address: value & MACHINE.address_bits, slot, exact }))
    }
}

/// What rules are applied to.
struct Frame<'f> {
    registers: &'f Registers,
    copy: &'f StackCopy,
    encoding: (u8, u16, bool),
}

impl Frame<'_> {
    /// The value that a rule says a register had in the caller, and where in the stack it was saved.
    fn value(&self, register: u16, rule: &Rule, cfa: u64) -> Result<(u64, Option<u64>), End> {
        let saved = |address: u64| Ok((self.copy.word(address)?, Some(address)));
        let known = |value: Option<u64>| Ok((value.ok_or(End::Astray)?, None));
        match rule {
            Rule::Undefined | Rule::Architectural => Err(End::Astray),
            Rule::Same => known(self.registers.get(register)),
            Rule::SavedAt(offset) => saved(cfa.wrapping_add_signed(*offset)),
            Rule::Offset(offset) => known(Some(cfa.wrapping_add_signed(*offset))),
            Rule::In(other) => known(self.registers.get(*other)),
            Rule::Beside(other, offset) => {
                known(self.registers.get(*other).map(|value| value.wrapping_add_signed(*offset)))
            }
            Rule::SavedWhere(expression) => saved(self.evaluate(expression, Some(cfa))?),
            Rule::Says(expression) => known(Some(self.evaluate(expression, Some(cfa))?)),
            Rule::Constant(value) => known(Some(*value)),
        }
    }

    /// What an expression yields; rules for registers begin with the frame's address.
    fn evaluate(&self, expression: &[u8], cfa: Option<u64>) -> Result<u64, End> {
        let (address_size, version, is_64) = self.encoding;
        let format = if is_64 { gimli::Format::Dwarf64 } else { gimli::Format::Dwarf32 };
        let encoding = gimli::Encoding { address_size, version, format };
        let mut evaluation = Expression(EndianSlice::new(expression, LittleEndian)).evaluation(encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate();
        loop {
            result = match result.map_err(|_| End::Astray)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.copy.word(address)?))
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register.0).ok_or(End::Astray)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                _ => return Err(End::Astray),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                _ => Err(End::Astray),
            },
            _ => Err(End::Astray),
        }
    }
}
