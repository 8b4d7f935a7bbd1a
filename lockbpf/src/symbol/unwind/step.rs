//! From a frame to its caller's, by one row of unwind information.

use super::table::{Bytes, Visitor};
use crate::unwind::{End, MACHINE, Registers, StackCopy};
use gimli::{
    BaseAddresses, CfaRule, EvaluationResult, Expression, Location, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, Value,
};

/// Operations of one expression.
const MAX_OPERATIONS: u32 = 1_000;
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

/// Steps to the caller by the entry that a table finds.
pub(super) struct Stepper<'s> {
    /// The instruction, as the file numbers it.
    pub(super) address: u64,
    /// The registers of its frame.
    pub(super) registers: &'s Registers,
    /// The stack.
    pub(super) copy: &'s StackCopy,
    /// Room to work in.
    pub(super) context: &'s mut Context,
}

impl Visitor for Stepper<'_> {
    type Output = Result<Step, End>;

    fn visit<'d, S>(self, section: &S, bases: &BaseAddresses, entry: S::Offset) -> Self::Output
    where
        S: UnwindSection<Bytes<'d>>,
        S::Offset: gimli::UnwindOffset,
    {
        let Self { address, registers, copy, context } = self;
        let fde = section.fde_from_offset(bases, entry, S::cie_from_offset).map_err(|_| End::Astray)?;
        if fde.entry_len() > MAX_ENTRY {
            return Err(End::Astray);
        }
        let context = context.0.get_or_insert_default();
        let row = fde.unwind_info_for_address(section, bases, context, address).map_err(|_| End::Astray)?;
        let frame = Frame { section, registers, copy, encoding: fde.cie().encoding() };
        let cfa = match *row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                registers.get(register.0).ok_or(End::Astray)?.wrapping_add_signed(offset)
            }
            CfaRule::Expression(expression) => frame.evaluate(&expression, None)?,
        };
        let exact = fde.is_signal_trampoline();
        // Frames lie ever higher; only a signal handler may have had a stack of its own.
        if !exact && registers.stack_pointer().is_some_and(|stack_pointer| cfa < stack_pointer) {
            return Err(End::Astray);
        }
        let return_address = fde.cie().return_address_register();
        let mut callers = registers.preserved();
        callers.set(MACHINE.stack_pointer, Some(cfa));
        for &(register, ref rule) in row.registers() {
            if register != return_address {
                // One that cannot be had may never be asked for.
                callers.set(register.0, frame.value(register, rule, cfa).ok().map(|(value, _)| value));
            }
        }
        let (value, slot) = match row.register(return_address) {
            Some(RegisterRule::Undefined) => return Ok(None),
            Some(rule) => frame.value(return_address, &rule, cfa)?,
            // A function that calls nobody may leave it where the call has put it.
            None => (registers.get(return_address.0).ok_or(End::Astray)?, None),
        };
        Ok(Some(Caller { registers: callers, address: value & MACHINE.address_bits, slot, exact }))
    }
}

/// What rules are applied to.
struct Frame<'f, S> {
    section: &'f S,
    registers: &'f Registers,
    copy: &'f StackCopy,
    encoding: gimli::Encoding,
}

impl<'d, S: UnwindSection<Bytes<'d>>> Frame<'_, S> {
    /// The value that a rule says a register had in the caller, and where in the stack it was saved.
    fn value(
        &self,
        register: gimli::Register,
        rule: &RegisterRule<usize>,
        cfa: u64,
    ) -> Result<(u64, Option<u64>), End> {
        let saved = |address: u64| Ok((self.copy.word(address)?, Some(address)));
        let known = |value: Option<u64>| Ok((value.ok_or(End::Astray)?, None));
        match *rule {
            RegisterRule::Undefined | RegisterRule::Architectural => Err(End::Astray),
            RegisterRule::SameValue => known(self.registers.get(register.0)),
            RegisterRule::Offset(offset) => saved(cfa.wrapping_add_signed(offset)),
            RegisterRule::ValOffset(offset) => known(Some(cfa.wrapping_add_signed(offset))),
            RegisterRule::Register(other) => known(self.registers.get(other.0)),
            RegisterRule::Expression(expression) => saved(self.evaluate(&expression, Some(cfa))?),
            RegisterRule::ValExpression(expression) => known(Some(self.evaluate(&expression, Some(cfa))?)),
            RegisterRule::Constant(value) => known(Some(value)),
        }
    }

    /// What an expression yields; rules for registers begin with the frame's address.
    fn evaluate(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Result<u64, End> {
        let expression: Expression<Bytes<'d>> = expression.get(self.section).map_err(|_| End::Astray)?;
        let mut evaluation = expression.evaluation(self.encoding);
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
