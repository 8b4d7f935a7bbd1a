//! Probes as they travel: a function is named by its place in a table that both sides have, so that nothing else can be said of it.

use super::super::described;
use super::super::go;
use super::super::mangled;
use super::super::probe_table::{By, FUNCTIONS, Function, Runtime};
use super::super::prologue::Placement;
use super::super::site::Site;
use super::{At, Row, Tells};
use crate::measures::library;
use lockbpf_common::custom;
use lockbpf_common::function::{CUSTOM, SEM_BUSY, SEM_TAKEN};
use lockbpf_common::library::END;
use lockbpf_common::via::Via;

impl Row {
    /// The row of a function without what its probe tells; `None` if no table has it.
    pub(in crate::capture) fn of(function: &Function) -> Option<Self> {
        let same = |row: &Function| row.symbol == function.symbol && row.code == function.code;
        let row = match function.runtime {
            Runtime::Compiled => Self::Compiled(mangled::ROWS.iter().position(|(row, _)| same(row))? as u16),
            Runtime::Go => Self::Go(go::rows().position(|row| same(&row))? as u16),
            Runtime::Glibc | Runtime::Musl => {
                let same = |row: &Function| row.symbol == function.symbol && row.runtime == function.runtime;
                Self::Libc(FUNCTIONS.iter().position(same)? as u16)
            }
            // Which one is with the probe.
            Runtime::Described => return None,
        };
        Some(row)
    }

    /// The function, as far as the table tells; `None` if it has no such row. Functions of a C library that are called are those of `runtime`.
    pub(in crate::capture) fn function(self, runtime: Runtime) -> Option<Function> {
        match self {
            Self::Libc(row) => FUNCTIONS.get(usize::from(row)).copied(),
            Self::Compiled(row) => mangled::ROWS.get(usize::from(row)).map(|(function, _)| *function),
            Self::Go(row) => go::rows().nth(row.into()),
            Self::Described(number) => described::function(number.into()),
            Self::Call(number) => {
                let row = library::FUNCTIONS.get(usize::from(number))?;
                let (symbol, code) = (row.symbol, number.into());
                Some(Function { symbol, runtime, args: 0, code, by: By::Library, essential: false })
            }
        }
    }
}

impl Tells {
    /// The function that a probe which tells this is for; `None` if there is no such probe.
    fn of(self, row: Row, function: Function) -> Option<Function> {
        match (self, row) {
            (Self::Begin, _) => Some(function),
            (Self::BeginWatched, Row::Call(_)) => Some(Function { by: By::LibraryReturn, ..function }),
            (Self::End, Row::Call(_)) => Some(Function { code: END, ..function }),
            (Self::Failure | Self::Success, Row::Libc(_)) if function.code == Via::TrySemWait as u64 => {
                let code = if self == Self::Success { SEM_TAKEN } else { SEM_BUSY };
                Some(Function { code, by: By::OtherEntry, ..function })
            }
            _ => None,
        }
    }
}

impl At {
    /// A probe, to be sent; `None` if no table has its function.
    pub(in crate::capture) fn of(site: &Site) -> Option<Self> {
        let Site { ref function, file_offset, ref placement, detail, counter } = *site;
        let number = || library::FUNCTIONS.iter().position(|row| row.symbol == function.symbol).map(|at| at as u16);
        let (row, tells) = match (function.by, function.code) {
            (By::Library, END) => (Row::Call(number()?), Tells::End),
            (By::Library, _) => (Row::Call(number()?), Tells::Begin),
            (By::LibraryReturn, _) => (Row::Call(number()?), Tells::BeginWatched),
            (_, CUSTOM) => (Row::Described(custom::number(detail)), Tells::Begin),
            (_, SEM_TAKEN) => (Row::of(function)?, Tells::Success),
            (_, SEM_BUSY) => (Row::of(function)?, Tells::Failure),
            _ => (Row::of(function)?, Tells::Begin),
        };
        let Placement { offset, cost, ref instruction, reason } = *placement;
        Some(Self { row, tells, file_offset, offset, cost, reason, instruction: instruction.clone(), detail, counter })
    }

    /// The probe, as far as tables tell whether there can be such a one.
    pub(in crate::capture) fn site(self, runtime: Runtime) -> Option<Site> {
        let Self { row, tells, file_offset, offset, cost, reason, instruction, detail, counter } = self;
        let function = tells.of(row, row.function(runtime)?)?;
        let is_another = matches!(row, Row::Described(number) if number != custom::number(detail));
        let placement = Placement { offset, cost, instruction, reason };
        (!is_another).then_some(Site { function, file_offset, placement, detail, counter })
    }
}
