//! Follows a stopped thread's code ahead, as far as what it does is certain, so that it need not be stopped at each instruction.
//!
//! Registers are known at the beginning, and stay known through moves, additions and what is read back from the thread's own
//! stack; so are the flags, and with them the branches of counting loops. What is read from other memory is not: another thread
//! may write there. Where an address, a branch or a call depends on that, the thread must be stopped.

use super::operands::{Surroundings, Unknown, touches};
use super::stack::Stack;
use super::state::{Machine, Registers, Vectors};
use super::values::Values;
use super::{Access, Kind, Memory, Touch};
use iced_x86::{
    Code, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpKind,
};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of code that are read at a time: they do not cross a page.
const BLOCK: u64 = 256;
/// The longest instruction, bytes.
const MAX_LENGTH: usize = 15;

/// Code as it was read and decoded.
pub struct Decoded {
    blocks: HashMap<u64, Option<Box<[u8; BLOCK as usize]>>>,
    instructions: HashMap<u64, Rc<(Instruction, InstructionInfo)>>,
    factory: InstructionInfoFactory,
}

impl Default for Decoded {
    fn default() -> Self {
        Self { blocks: HashMap::new(), instructions: HashMap::new(), factory: InstructionInfoFactory::new() }
    }
}

impl Decoded {
    /// The instruction at an address; `None` if it cannot be read or is none.
    pub fn at(&mut self, ip: u64, memory: &mut dyn Memory) -> Option<Rc<(Instruction, InstructionInfo)>> {
        if let Some(known) = self.instructions.get(&ip) {
            return Some(Rc::clone(known));
        }
        let mut bytes = Vec::with_capacity(2 * BLOCK as usize);
        for block in [ip & !(BLOCK - 1), (ip & !(BLOCK - 1)).wrapping_add(BLOCK)] {
            let read = self.blocks.entry(block).or_insert_with(|| {
                let mut bytes = Box::new([0; BLOCK as usize]);
                memory.read(block, &mut *bytes).then_some(bytes)
            });
            let Some(read) = read else { break };
            bytes.extend_from_slice(&**read);
        }
        let code = bytes.get((ip % BLOCK) as usize..)?;
        let code = code.get(..MAX_LENGTH).unwrap_or(code);
        let instruction = iced_x86::Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return None;
        }
        let info = self.factory.info(&instruction).clone();
        let decoded = Rc::new((instruction, info));
        self.instructions.insert(ip, Rc::clone(&decoded));
        Some(decoded)
    }
}

/// Why the next instruction is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is a system call.
    SystemCall {
        /// The instruction after it.
        next: u64,
    },
    /// There is a breakpoint: of another observer, or a debugger.
    Breakpoint,
    /// It cannot be read, or is none.
    Unreadable,
    /// It does what cannot be followed: its name.
    Unsupported(String),
}

/// A conditional branch that was come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The instruction.
    pub at: u64,
    /// Whether it was taken.
    pub taken: bool,
}

/// What a thread will do until it must be stopped.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Accesses, in order.
    pub accesses: Vec<Access>,
    /// Conditional branches of which it is known which way they go, in order.
    pub branches: Vec<Branch>,
    /// The one at the end of which it is not: where it is, where it goes, and what comes after it.
    undecided: Option<(u64, u64, u64)>,
    /// Instructions.
    pub instructions: usize,
    /// Where it must be stopped: it comes to one of these first. Empty if it was followed as far as was wanted.
    pub stops: Vec<u64>,
    /// What the registers will be then.
    pub expected: Values,
}

impl Walk {
    /// The branch at its end, if there is one, of a thread that has then come to this instruction.
    #[must_use]
    pub fn decided(&self, ip: u64) -> Option<Branch> {
        let (at, target, next) = self.undecided.filter(|&(_, target, next)| target != next)?;
        (ip == target || ip == next).then_some(Branch { at, taken: ip == target })
    }
}

/// What a walk needs beside the registers.
pub struct Path<'a> {
    /// The thread's memory.
    pub memory: &'a mut dyn Memory,
    /// Reads its vector registers, if they are wanted.
    pub vectors: &'a mut dyn FnMut() -> Option<Box<Vectors>>,
    /// Its own stack.
    pub stack: Range<u64>,
    /// Where it must be stopped in any case.
    pub marks: &'a dyn Fn(u64) -> bool,
    /// Sizes.
    pub machine: Machine,
}

/// Follows a thread from its next instruction on, over at most so many.
///
/// # Errors
/// When not even the next instruction can be followed.
pub fn walk(code: &mut Decoded, from: &Registers, limit: usize, path: &mut Path<'_>) -> Result<Walk, Obstacle> {
    let (trail, walk) = follow(code, from, limit, path)?;
    // It is stopped wherever it comes to a stop for the first time. At its next instruction it is not stopped once more.
    let early = walk.stops.iter().filter_map(|stop| trail.get(stop)).min();
    match early {
        None => Ok(walk),
        Some(&until) => {
            let (_, mut shorter) = follow(code, from, until, path)?;
            shorter.stops = trail.iter().filter(|&(_, &index)| index == until).map(|(&ip, _)| ip).collect();
            Ok(shorter)
        }
    }
}

/// What comes after an instruction.
enum Next {
    One(u64),
    Either(u64, u64),
    NotKnown,
}

/// Also returns when each instruction but the first was come to for the first time.
fn follow(
    code: &mut Decoded,
    from: &Registers,
    limit: usize,
    path: &mut Path<'_>,
) -> Result<(HashMap<u64, usize>, Walk), Obstacle> {
    let mut trail = HashMap::new();
    let mut stack = Stack::new(path.stack.clone());
    let mut walk = Walk {
        accesses: Vec::new(),
        branches: Vec::new(),
        undecided: None,
        instructions: 0,
        stops: Vec::new(),
        expected: Values::of(from),
    };
    let mut ip = from.ip;
    while walk.instructions < limit {
        let now = walk.instructions == 0;
        if !now && (path.marks)(ip) {
            walk.stops = vec![ip];
            break;
        }
        let step = step(code, ip, now, &walk.expected, &stack, path);
        let (decoded, touched, next) = match step {
            Ok(step) => step,
            Err(obstacle) if now => return Err(obstacle),
            Err(_) => {
                walk.stops = vec![ip];
                break;
            }
        };
        let (instruction, info) = &*decoded;
        if !now {
            trail.entry(ip).or_insert(walk.instructions);
        }
        let stored = walk.expected.stored(instruction, &stack, path.memory);
        walk.expected.apply(instruction, info, &stack, path.memory);
        for touch in touched {
            if touch.kind.writes() {
                stack.write(touch.address, touch.size, stored.filter(|_| touch.kind == Kind::Write));
            }
            walk.accesses.push(Access { at: ip, touch });
        }
        walk.instructions += 1;
        match next {
            Next::One(address) => {
                let (target, next) = (instruction.near_branch_target(), instruction.next_ip());
                if instruction.flow_control() == FlowControl::ConditionalBranch && target != next {
                    walk.branches.push(Branch { at: ip, taken: address == target });
                }
                ip = address;
            }
            Next::Either(a, b) => {
                walk.undecided = Some((ip, a, b));
                walk.stops = vec![a, b];
                break;
            }
            // It was found out before the instruction was taken in.
            Next::NotKnown => break,
        }
    }
    Ok((trail, walk))
}

type Step = (Rc<(Instruction, InstructionInfo)>, Vec<Touch>, Next);

/// One instruction; `now` if it is executed next, so that memory is as it will find it.
fn step(
    code: &mut Decoded,
    ip: u64,
    now: bool,
    values: &Values,
    stack: &Stack,
    path: &mut Path<'_>,
) -> Result<Step, Obstacle> {
    let decoded = code.at(ip, path.memory).ok_or(Obstacle::Unreadable)?;
    let (instruction, info) = &*decoded;
    if let Some(obstacle) = obstacle(instruction) {
        return Err(obstacle);
    }
    let unsupported = || Obstacle::Unsupported(format!("{:?}", instruction.mnemonic()).to_lowercase());
    let mut around = Surroundings { vectors: None, now, machine: path.machine, memory: path.memory };
    let mut touched = touches(instruction, info, values, &mut around);
    if now && touched == Err(Unknown::Vectors) {
        let vectors = (path.vectors)().ok_or_else(unsupported)?;
        touched = touches(instruction, info, values, &mut Surroundings { vectors: Some(&vectors), ..around });
    }
    let touched = touched.map_err(|_| unsupported())?;
    match next(instruction, now, values, stack, path.memory) {
        Next::NotKnown => Err(unsupported()),
        next => Ok((decoded, touched, next)),
    }
}

fn next(instruction: &Instruction, now: bool, values: &Values, stack: &Stack, memory: &mut dyn Memory) -> Next {
    let mut target =
        |address: u64| stack.read(address, 8, memory).or_else(|| if now { memory.word(address) } else { None });
    let known = |ip: Option<u64>| ip.map_or(Next::NotKnown, Next::One);
    match instruction.flow_control() {
        FlowControl::Next => Next::One(instruction.next_ip()),
        FlowControl::UnconditionalBranch | FlowControl::Call => Next::One(instruction.near_branch_target()),
        FlowControl::ConditionalBranch => match values.branches(instruction) {
            Some(true) => Next::One(instruction.near_branch_target()),
            Some(false) => Next::One(instruction.next_ip()),
            None => Next::Either(instruction.near_branch_target(), instruction.next_ip()),
        },
        FlowControl::Return => known(values.get(iced_x86::Register::RSP).and_then(target)),
        FlowControl::IndirectBranch | FlowControl::IndirectCall => match instruction.op0_kind() {
            OpKind::Register => known(values.get(instruction.op0_register())),
            OpKind::Memory => known(values.address(instruction, 0).and_then(&mut target)),
            _ => Next::NotKnown,
        },
        FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => Next::NotKnown,
    }
}

/// What is not followed, whatever the registers are.
fn obstacle(instruction: &Instruction) -> Option<Obstacle> {
    let unsupported = || Some(Obstacle::Unsupported(format!("{:?}", instruction.mnemonic()).to_lowercase()));
    match instruction.code() {
        Code::Syscall => return Some(Obstacle::SystemCall { next: instruction.next_ip() }),
        Code::Int3 => return Some(Obstacle::Breakpoint),
        _ => {}
    }
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            // They change the base of thread-local storage, or the single-step flag.
            Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Popf | Mnemonic::Popfq => unsupported(),
            _ => None,
        },
        FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => unsupported(),
        FlowControl::UnconditionalBranch | FlowControl::Call | FlowControl::ConditionalBranch => {
            let near =
                matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
            if near { None } else { unsupported() }
        }
        FlowControl::Return => {
            if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) {
                None
            } else {
                unsupported()
            }
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            if matches!(instruction.code(), Code::Jmp_rm64 | Code::Call_rm64) { None } else { unsupported() }
        }
    }
}
