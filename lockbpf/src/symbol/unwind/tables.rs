//! The unwind information of files, in the process that reads them.

use super::super::files::{FileId, ObjectFile};
use super::super::guard::guarded;
use super::row::Row;
use super::step::{Context, RowAt};
use super::table::{self, Table};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// What a file's unwind information says of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// Something that makes no sense.
    Damaged,
    /// The rules in force.
    Row(Row),
}

/// Tables of files, read when they are asked for.
#[derive(Debug, Default)]
pub(in super::super) struct Tables {
    tables: HashMap<FileId, Vec<Table>>,
    context: Context,
}

impl Tables {
    /// The rules at an address, as the file numbers it.
    pub(in super::super) fn row(&mut self, id: FileId, file: &ObjectFile, address: u64) -> Told {
        let tables = self.tables.entry(id).or_insert_with(|| read(file));
        let context = &mut self.context;
        let found =
            guarded(|| tables.iter().find_map(|table| table.find(address, RowAt { address, context: &mut *context })));
        match found {
            Some(None) => Told::Nothing,
            Some(Some(None)) => Told::Damaged,
            Some(Some(Some(row))) => Told::Row(row),
            // It panicked: what it was reading is left alone from now on.
            None => {
                self.tables.insert(id, Vec::new());
                Told::Nothing
            }
        }
    }

    /// The function around an address, as the file numbers addresses.
    pub(in super::super) fn function(&mut self, id: FileId, file: &ObjectFile, address: u64) -> Option<Range<u64>> {
        let tables = self.tables.entry(id).or_insert_with(|| read(file));
        tables.iter().find_map(|table| table.function(address))
    }
}

fn read(file: &ObjectFile) -> Vec<Table> {
    guarded(|| table::read(file)).unwrap_or_default()
}
