//! Texts by number.

use super::error::Problem;
use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// Texts kept in a table.
const MAX: usize = 1 << 30;

/// Texts, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Names(IndexSet<Box<str>, RandomState>);

impl Names {
    /// The number of a text, a new one if it is new; `what` they are, for the message.
    pub(super) fn number(&mut self, text: &str, what: &'static str) -> Result<u32, Problem> {
        if let Some(known) = self.0.get_index_of(text) {
            return Ok(known as u32);
        }
        if self.0.len() >= MAX {
            return Err(Problem::TooMany(what));
        }
        Ok(self.0.insert_full(text.into()).0 as u32)
    }

    /// The number of a text that is known.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.0.get_index_of(text).map(|index| index as u32)
    }

    /// The text; empty where there is none of this number.
    #[must_use]
    pub fn text(&self, number: u32) -> &str {
        self.0.get_index(number as usize).map_or("", |text| text)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All texts, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|text| &**text)
    }
}
