//! From names to addresses: the variables and functions of a process that a person means by a part of a name.

use super::Symbols;
use super::files::{FileId, ObjectFile};
use crate::id::{Lock, Process};
use crate::names::Names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// Names looked at for one that is close.
const MAX_COMPARED: usize = 200_000;
/// Names that are told as close.
const MAX_CLOSE: usize = 8;
/// How close a name must be to be told, 1 being the same.
const CLOSE: f64 = 0.75;

/// Locks begin at multiples of this.
const WORD: usize = 4;
/// Places in one variable where a lock is looked for.
const MAX_WORDS: usize = 65_536;

/// What a name is to be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A writable variable: a lock, or what a lock is part of.
    Variable,
    /// A variable that need not be writable.
    Constant,
    /// A function.
    Function,
}

/// A variable or function in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its demangled name.
    pub name: String,
    /// Where it lies.
    pub range: Range<u64>,
}

impl Symbols {
    /// The variables or functions of a process of which the name contains `part`. Reads the symbol tables of every file
    /// that the process has loaded, which may take a second for large ones.
    pub fn find(&mut self, process: Process, kind: Kind, part: &str) -> Vec<Found> {
        let mut all = Vec::new();
        for (id, file, bias) in self.files_of(process, |_| true) {
            let found = self.reader.matching(id, file, kind, part).into_iter().map(|(name, range)| Found {
                name,
                range: range.start.wrapping_add(bias)..range.end.wrapping_add(bias),
            });
            all.extend(found);
        }
        all.sort_by(|a, b| (a.range.start, &a.name).cmp(&(b.range.start, &b.name)));
        // Aliases, and tables of which one repeats the other.
        all.dedup_by(|a, b| a.range == b.range);
        all
    }

    /// The variable of this name in a file of a process whose base name is one of those.
    pub fn variable_in(&self, process: Process, name: &str, is_file: impl Fn(&str) -> bool) -> Option<Range<u64>> {
        self.named_in(process, Kind::Variable, name, is_file)
    }

    /// The same of one that need not be writable.
    pub fn constant_in(&self, process: Process, name: &str, is_file: impl Fn(&str) -> bool) -> Option<Range<u64>> {
        self.named_in(process, Kind::Constant, name, is_file)
    }

    fn named_in(&self, process: Process, kind: Kind, name: &str, is_file: impl Fn(&str) -> bool) -> Option<Range<u64>> {
        self.files_of(process, is_file).into_iter().find_map(|(id, file, bias)| {
            let range = self.reader.exactly(id, file, kind, name)?;
            Some(range.start.wrapping_add(bias)..range.end.wrapping_add(bias))
        })
    }

    /// The locks of a process that are called by this name: a whole one as reports have it, `cache.shards[3].lock`.
    pub fn find_member(&mut self, process: Process, name: &str) -> Vec<Lock> {
        // The variable's own name ends where the members begin; a function's static variable has a scope in front.
        let ends = name.match_indices(['.', '[', '+']).map(|(end, _)| end).filter(|&end| end > 0);
        let heads: BTreeSet<&str> = ends.filter_map(|end| name.get(..end)).chain([name]).collect();
        let mut locks = Vec::new();
        for head in heads {
            let own = head.rsplit("::").next().unwrap_or(head);
            for Found { range, .. } in self.find(process, Kind::Variable, own) {
                let words = range.step_by(WORD).take(MAX_WORDS).map(|addr| Lock { process, addr });
                locks.extend(words.filter(|&lock| self.global(lock).as_deref() == Some(name)).take(1));
            }
            if !locks.is_empty() {
                break;
            }
        }
        locks
    }

    /// The names that are most like one that is not there, closest first.
    pub fn close(&mut self, process: Process, kind: Kind, name: &str) -> Vec<String> {
        let files = self.files_of(process, |_| true);
        let names = files.into_iter().flat_map(|(id, file, _)| self.reader.names(id, file, kind));
        let names: BTreeSet<String> = names.take(MAX_COMPARED).collect();
        let mut close: Vec<(f64, String)> = names
            .into_iter()
            .map(|other| (strsim::jaro_winkler(&other.to_lowercase(), &name.to_lowercase()), other))
            .filter(|&(likeness, _)| likeness >= CLOSE)
            .collect();
        close.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        close.into_iter().take(MAX_CLOSE).map(|(_, name)| name).collect()
    }

    /// The files that a process has loaded, and what is added to their addresses.
    pub(super) fn files_of(&self, process: Process, is_file: impl Fn(&str) -> bool) -> Vec<(FileId, &ObjectFile, u64)> {
        let images = self.processes.get(&process).into_iter().flat_map(|known| known.space.images());
        let file = |(_, bias, id)| Some((id, self.files.get(id).filter(|file| is_file(&file.name))?, bias));
        images.filter_map(file).collect()
    }
}
