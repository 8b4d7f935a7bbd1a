//! Where a function is probed, or why it is not.

use super::elf::Code;
use super::probe_table::{By, Function};
use super::prologue::{self, Arch, Cost, Placement, Reason};
use lockbpf_common::function::{SEM_BUSY, SEM_POST, SEM_TAKEN, SPIN_TRIED, TOKIO_DROP, TOKIO_POLL, WRAPPER};
use lockbpf_common::gate;
use lockbpf_common::task::{TOKIO_OLD_QUEUED, TOKIO_QUEUED};
use lockbpf_common::via::Via;
use serde::{Deserialize, Serialize};

/// Where a probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The probed function.
    pub function: Function,
    /// Where the probe goes in the file, bytes.
    pub file_offset: u64,
    /// Where that is in the function, at which price and why.
    pub placement: Placement,
    /// What else the program is told by the cookie ([`lockbpf_common::gate::with_detail`]); 0 for nothing.
    pub detail: u32,
    /// Where in the file the program counts who watches (a point's semaphore), bytes; 0 if it does not.
    pub counter: u64,
}

impl Site {
    /// The cheapest correct place; `None` if the kernel would refuse it, or if it would harm the process.
    pub(super) fn of(function: Function, code: &Code, arch: Arch) -> Option<Self> {
        let Code { vaddr, file_offset, ref bytes, complete } = *code;
        let usual = || {
            if complete {
                prologue::place(arch, bytes, vaddr, function.args)
            } else {
                prologue::at_entry(arch, bytes, vaddr, Reason::ExtentUnknown)
            }
        };
        let stepped = || complete && usual().cost == Cost::SingleStepped;
        let mut detail = 0;
        let placement = match function.code {
            SPIN_TRIED => prologue::after_locked(arch, bytes, vaddr)?,
            TOKIO_POLL if complete && prologue::asks_for_byte(arch, bytes, vaddr, TOKIO_OLD_QUEUED) => return None,
            _ if prologue::is_refused(arch, bytes, vaddr) => return None,
            SEM_POST if stepped() => prologue::after_loop(arch, bytes, vaddr).unwrap_or_else(usual),
            // A future that does not wait is dropped without more ado: only the others are of interest.
            TOKIO_DROP => prologue::where_flag_is_set(arch, bytes, vaddr, TOKIO_QUEUED).filter(|_| complete)?,
            WRAPPER if stepped() => match prologue::at_call(arch, bytes, vaddr) {
                Some((placement, frame)) if let Some(told) = gate::frame(frame) => {
                    detail = told;
                    placement
                }
                _ => usual(),
            },
            _ => usual(),
        };
        if prologue::is_rewritten(arch, bytes, placement.offset) {
            return None;
        }
        Some(Self { function, file_offset: file_offset.checked_add(placement.offset)?, placement, detail, counter: 0 })
    }

    /// The cheapest correct places: one, or where that would be single-stepped, perhaps two that tell how the call went.
    pub(super) fn all(function: Function, code: &Code, arch: Arch) -> Vec<Self> {
        let one = Self::of(function, code, arch);
        let dear = one.as_ref().is_some_and(|site| site.placement.cost == Cost::SingleStepped);
        let may_fail = function.code == Via::TrySemWait as u64 && dear && code.complete;
        let exits = may_fail.then(|| prologue::loop_exits(arch, &code.bytes, code.vaddr)).flatten();
        let Some([fails, succeeds]) = exits else { return one.into_iter().collect() };
        let site = |(placement, condition): (Placement, u8), told: u64| {
            let function = Function { code: told, by: By::OtherEntry, ..function };
            let file_offset = code.file_offset.checked_add(placement.offset)?;
            Some(Self { function, file_offset, placement, detail: gate::condition(condition), counter: 0 })
        };
        [site(fails, SEM_BUSY), site(succeeds, SEM_TAKEN)].into_iter().flatten().collect()
    }
}

/// A function that should be probed and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The function.
    pub function: Function,
    /// Why.
    pub reason: Lack,
}

/// Why a function is not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lack {
    /// It has other code than is known.
    OtherCode,
    /// The kernel would refuse it.
    Refused,
    /// The kernel would rewrite the instruction, at the process's cost.
    Rewritten,
    /// The file does not define it.
    Undefined,
    /// An implementation is chosen when a program begins.
    Chosen,
    /// The same, and it is not known which.
    Unresolved,
    /// Its symbol leads nowhere.
    Outside,
    /// Go made the file.
    Go,
    /// No symbol is called as the description has it.
    NoSymbol,
    /// Symbols are, but none of their functions can be probed.
    Harmful,
    /// No instruction of it tells which variable is the lock.
    NoVariable,
    /// A point passes the lock in a way that is not read.
    Operand,
}

impl Lack {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherCode => "its code is not the one that lockbpf knows",
            Self::Refused => prologue::REFUSED,
            Self::Rewritten => prologue::REWRITTEN,
            Self::Undefined => "not defined",
            Self::Chosen => "chosen at run time (IFUNC)",
            Self::Unresolved => "which implementation is used is decided at run time (IFUNC), and could not be read",
            Self::Outside => "its symbol points outside the code",
            Self::Go => {
                "Go passes arguments in ways of its own, and moves its stacks: watching a return would crash it"
            }
            Self::NoSymbol => "nothing in the file is called so",
            Self::Harmful => "no instruction of it can be probed without harm",
            Self::Operand => {
                "it passes the lock neither in a register of 64 bits nor in memory that such a register points to"
            }
            Self::NoVariable => "its code does not tell which variable is the lock (`static`, on x86-64 only)",
        }
    }
}
