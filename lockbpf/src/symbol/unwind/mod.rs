//! Unwinding of copied stacks by the unwind information in the files of the process. Code without any (generated code, mostly)
//! is passed by its frame pointer, if it keeps one.
//!
//! Files and stacks are the observed program's, hence untrusted: every read is checked, frames and expressions are bounded.

mod row;
mod step;
mod table;
mod tables;

#[cfg(test)]
mod tests;

use super::files::{FileId, Files, ObjectFile};
use super::guard::guarded;
use super::kept::Kept;
use super::reader::Reader;
use super::space::{AddressSpace, Place};
use crate::unwind::{End, Interpreted, MACHINE, Registers, StackCopy, Unwound};
use std::ops::Range;
use step::{Caller, Step};
pub(super) use tables::{Tables, Told};

/// Frames of one stack.
const MAX_FRAMES: usize = 256;

/// What is known of an address in memory outside of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// That there is no code.
    Nothing,
    /// There may be code.
    Code,
    /// An interpreter. It keeps a frame pointer, and the interpreted method's address in the frame.
    Interpreter {
        /// Words from the frame pointer down to that address.
        below: u64,
    },
    /// Code whose frames have so many bytes. The return address is the last word, the caller's frame pointer the word before it.
    Frame(u64),
}

/// Applies rules to a stack, a few times over.
#[cfg(fuzzing)]
pub(super) fn apply(row: row::Row, copy: &StackCopy) {
    let mut registers = copy.registers;
    for _ in 0..4 {
        let Ok(Some(caller)) = row.step(&registers, copy) else { return };
        registers = caller.registers;
    }
}

/// Unwinds, and keeps the rules that it met.
#[derive(Debug)]
pub(super) struct Unwinder {
    reader: Reader,
    told: Kept<(FileId, u64), Told>,
    functions: Kept<(FileId, u64), Option<Range<u64>>>,
}

#[cfg(test)]
impl Default for Unwinder {
    fn default() -> Self {
        Self::new(Reader::new(Vec::new()))
    }
}

impl Unwinder {
    /// Knows nothing yet, and asks for it.
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, told: Kept::default(), functions: Kept::default() }
    }

    /// The calls that a stack stands for. `outside` tells of addresses in memory outside of files.
    pub(super) fn unwind(
        &mut self,
        copy: &StackCopy,
        space: &AddressSpace,
        files: &Files,
        outside: impl Fn(u64) -> Outside,
    ) -> Unwound {
        let mut registers = copy.registers;
        let ip = registers.ip;
        let first = match space.place(ip, files) {
            Some(Place::File(id, address)) if self.begins(id, address, files) => ip.wrapping_add(1),
            _ => ip,
        };
        let mut unwound = Unwound {
            addresses: vec![first],
            slots: Some(Vec::new()),
            end: End::Deep,
            by_frame_pointers: false,
            interpreted: Vec::new(),
        };
        let mut returns = copy.returns.into_iter().filter(|&address| address != 0).peekable();
        // The instruction whose frame it is: the interrupted one, else the call before a return address.
        let mut at = ip;
        while unwound.addresses.len() < MAX_FRAMES {
            let place = space.place(at, files);
            let code = if matches!(place, Some(Place::File(..))) { Outside::Nothing } else { outside(at) };
            if let Outside::Interpreter { below } = code
                && let Some((slot, method)) = word_below(&registers, copy, below)
                && let Some(address) = unwound.addresses.last_mut()
            {
                *address = method.wrapping_add(1);
                unwound.interpreted.push(Interpreted { address: method, slot });
            }
            let by_information = match place {
                Some(Place::File(id, address)) => self.by_information(id, address, &registers, copy, files),
                _ => None,
            };
            let stepped = match (by_information, code) {
                (Some(stepped), _) => stepped,
                (None, Outside::Frame(bytes)) => by_size(&registers, copy, bytes),
                (None, Outside::Interpreter { .. }) => by_interpreter(&registers, copy),
                (None, _) => {
                    let stepped = by_frame_pointer(&registers, copy);
                    unwound.by_frame_pointers |= matches!(stepped, Ok(Some(_)));
                    stepped
                }
            };
            let Caller { registers: callers, mut address, slot, exact } = match stepped {
                Ok(Some(caller)) => caller,
                Ok(None) => {
                    // In code of which nothing is known, no frame pointer need be one.
                    let is_unknown = place.is_none() && code == Outside::Nothing;
                    unwound.end = if is_unknown { End::NoInformation } else { End::Root };
                    break;
                }
                Err(end) => {
                    unwound.end = end;
                    break;
                }
            };
            if address == 0 {
                unwound.end = End::Root;
                break;
            }
            let call_of = |address: u64| if exact { address } else { address.wrapping_sub(1) };
            let is_call = |call| space.place(call, files).is_some() || outside(call) != Outside::Nothing;
            let mut call = call_of(address);
            let mut known = is_call(call);
            // It may be the kernel's own, where it watches a call to its return; not every such call is watched that way.
            if (!known || returns.peek() == Some(&address))
                && let Some(own) = returns.next()
            {
                address = own;
                call = call_of(address);
                known = is_call(call);
            }
            if !known {
                unwound.end = End::Astray;
                break;
            }
            unwound.addresses.push(address);
            match (slot, &mut unwound.slots) {
                (Some(slot), Some(slots)) => slots.push(slot),
                _ => unwound.slots = None,
            }
            (registers, at) = (callers, call);
        }
        unwound
    }

    /// The function around an address of a file, as the file numbers addresses.
    pub(super) fn function(&mut self, id: FileId, file: &ObjectFile, address: u64) -> Option<Range<u64>> {
        self.functions.get((id, address), || self.reader.function(id, file, address)).clone()
    }

    /// Whether a function begins there. No call returns to such an address: the thread was stopped before its instruction.
    fn begins(&mut self, id: FileId, address: u64, files: &Files) -> bool {
        let function = files.get(id).and_then(|file| self.function(id, file, address));
        function.is_some_and(|function| function.start == address)
    }

    /// The caller by the file's unwind information; `None` if it has none for the address.
    fn by_information(
        &mut self,
        id: FileId,
        address: u64,
        registers: &Registers,
        copy: &StackCopy,
        files: &Files,
    ) -> Option<Result<Step, End>> {
        let row = || files.get(id).map(|file| self.reader.row(id, file, address)).unwrap_or_default();
        match self.told.get((id, address), row) {
            Told::Nothing => None,
            Told::Damaged => Some(Err(End::Astray)),
            // What it says was written by others, and what evaluates it may panic.
            Told::Row(row) => Some(guarded(|| row.step(registers, copy)).unwrap_or(Err(End::Astray))),
        }
    }
}

/// Bytes of the arguments of a method, of which there may be 255.
const MAX_ARGUMENTS: u64 = 255 * 8;

/// Reads a word at this distance, in words, below the frame pointer. Returns its address and the word, which is not 0.
fn word_below(registers: &Registers, copy: &StackCopy, words: u64) -> Option<(u64, u64)> {
    let slot = registers.get(MACHINE.frame_pointer)?.checked_sub(8 * words)?;
    let word = copy.word(slot).ok().filter(|&word| word != 0)?;
    Some((slot, word))
}

/// The caller by the size of the frame.
fn by_size(registers: &Registers, copy: &StackCopy, bytes: u64) -> Result<Step, End> {
    let stack_pointer = registers.stack_pointer().ok_or(End::NoInformation)?;
    let end = stack_pointer.checked_add(bytes).ok_or(End::NoInformation)?;
    let (slot, frame) = (end.checked_sub(8).ok_or(End::NoInformation)?, end.checked_sub(16).ok_or(End::NoInformation)?);
    let mut callers = registers.preserved();
    callers.set(MACHINE.frame_pointer, Some(copy.word(frame)?));
    callers.set(MACHINE.stack_pointer, Some(end));
    let address = copy.word(slot)? & MACHINE.address_bits;
    Ok(Some(Caller { registers: callers, address, slot: Some(slot), exact: false }))
}

/// The caller of an interpreted method (HotSpot's `frame::sender_for_interpreter_frame`): by the frame pointer, but its stack ends where it had ended
/// before room for arguments was made, which stands below the frame pointer.
fn by_interpreter(registers: &Registers, copy: &StackCopy) -> Result<Step, End> {
    let stepped = by_frame_pointer(registers, copy)?;
    Ok(stepped.map(|mut caller| {
        let above = caller.registers.stack_pointer();
        let end = word_below(registers, copy, 1).map(|(_, end)| end).filter(|end| end % 8 == 0);
        let is_above =
            |end: &u64| above.is_some_and(|above| (above..=above.saturating_add(MAX_ARGUMENTS)).contains(end));
        if let Some(end) = end.filter(is_above) {
            caller.registers.set(MACHINE.stack_pointer, Some(end));
        }
        caller
    }))
}

/// The caller by the frame pointer, for code without unwind information.
fn by_frame_pointer(registers: &Registers, copy: &StackCopy) -> Result<Step, End> {
    let frame = registers.get(MACHINE.frame_pointer).ok_or(End::NoInformation)?;
    let stack_pointer = registers.stack_pointer().ok_or(End::NoInformation)?;
    if frame == 0 {
        // So the outermost frame is marked.
        return Ok(None);
    }
    if frame < stack_pointer || frame % 8 != 0 {
        return Err(End::NoInformation);
    }
    let no_frame = |end| if end == End::Astray { End::NoInformation } else { end };
    let slot = frame.checked_add(8).ok_or(End::NoInformation)?;
    let mut callers = registers.preserved();
    callers.set(MACHINE.frame_pointer, Some(copy.word(frame).map_err(no_frame)?));
    callers.set(MACHINE.stack_pointer, slot.checked_add(8));
    let address = copy.word(slot).map_err(no_frame)? & MACHINE.address_bits;
    Ok(Some(Caller { registers: callers, address, slot: Some(slot), exact: false }))
}
