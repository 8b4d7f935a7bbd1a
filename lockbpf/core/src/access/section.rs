//! A sampled critical section, as it was followed.

use super::classify::Class;
use super::{Access, Kind};
use crate::unwind::Registers;
use std::collections::BTreeMap;
use std::fmt;

/// One dynamic critical section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The lock's address.
    pub lock: u64,
    /// Whether others may hold it at the same time.
    pub shared: bool,
    /// Return address of the call that requested it.
    pub site: u64,
    /// Its thread at that call: what tells the callers.
    pub asked: Asked,
    /// Who.
    pub tid: u32,
    /// Whether it was inside another one that was followed.
    pub nested: bool,
    /// Its accesses in order, those of sections inside it included; not those of the lock functions themselves.
    pub accesses: Vec<(Access, Class)>,
    /// Conditional branches in it, by address.
    pub branches: BTreeMap<u64, Sides>,
    /// System calls in it.
    pub opaque: Vec<String>,
    /// Instructions followed, but for the lock functions.
    pub instructions: u64,
    /// How often its thread was stopped in it.
    pub stops: u64,
    /// How it ended.
    pub end: End,
}

/// Which ways a conditional branch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// How often it was taken.
    pub taken: u64,
    /// How often it was not.
    pub not_taken: u64,
}

/// A thread at the entry of a lock function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its registers.
    pub registers: Registers,
    /// The address of its stack's top.
    pub base: u64,
    /// The stack from there on, as much as was read of it.
    pub stack: Vec<u8>,
}

/// How a section ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By a release.
    Released,
    /// By a wait for a condition, which releases the lock meanwhile.
    Waits,
    /// It was not followed to its end: why.
    Cut(Cut),
}

/// Why a section was not followed to its end. What was seen until then is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cut {
    /// It has more instructions than are followed.
    Instructions,
    /// It took longer than a thread is held up.
    Time,
    /// More locks were taken inside it than are followed.
    Nesting,
    /// Its lock was taken inside another section, and held on when that ended.
    HeldOn,
    /// A signal for the thread came; it was delivered.
    Signal,
    /// The breakpoint of another observer is in its way.
    Breakpoint,
    /// An instruction that cannot be followed: its name.
    Instruction(String),
    /// Code that cannot be read.
    Unreadable,
    /// A system call from which the thread does not come back here.
    Left(String),
    /// The user ended the pass.
    Interrupted,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions => f.write_str("more instructions than are followed"),
            Self::Time => f.write_str("longer than a thread is held up"),
            Self::Nesting => f.write_str("more locks inside than are followed"),
            Self::HeldOn => f.write_str("held on after the section that it began in"),
            Self::Signal => f.write_str("a signal came"),
            Self::Breakpoint => f.write_str("another observer's breakpoint"),
            Self::Instruction(name) => write!(f, "the instruction {name}"),
            Self::Unreadable => f.write_str("code that cannot be read"),
            Self::Left(name) => write!(f, "the system call {name}"),
            Self::Interrupted => f.write_str("the pass was ended"),
        }
    }
}

/// Why nothing is recorded of a section that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abandoned {
    /// The lock was not acquired: a try or a timed attempt failed.
    NotAcquired,
    /// Waiting for the lock took too long.
    WaitsTooLong,
    /// The thread did not come to where it was to be stopped.
    Lost,
    /// It came there with other registers than it should.
    Mispredicted,
    /// It exited.
    Exited,
    /// A signal came while it asked for the lock.
    Signal,
    /// The kernel refused a breakpoint.
    Refused,
    /// The user stopped lockbpf.
    Interrupted,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAcquired => "the lock was not obtained",
            Self::WaitsTooLong => "waited too long for the lock",
            Self::Lost => "the thread took a way that was not foreseen",
            Self::Mispredicted => "a register was not what was foreseen",
            Self::Exited => "the thread exited",
            Self::Signal => "a signal came while it asked for the lock",
            Self::Refused => "the kernel refused a breakpoint",
            Self::Interrupted => "lockbpf was stopped",
        })
    }
}

impl Section {
    /// Whether it was not followed to its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self.end, End::Cut(_))
    }

    /// How an access is written in a record: `r`, `w`, or both.
    #[must_use]
    pub fn letters(kind: Kind) -> &'static str {
        match kind {
            Kind::Read => "r",
            Kind::Write => "w",
            Kind::Update => "rw",
        }
    }
}
