//! Texts by number.

use super::error::Problem;
use super::once::Once;

/// Texts kept in a table.
const MAX: usize = 1 << 30;

/// Texts, numbered from 0 in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Names(Once<u8>);

impl Names {
    /// The number of a text, a new one if it is new; `what` they are, for the message.
    pub(super) fn number(&mut self, text: &str, what: &'static str) -> Result<u32, Problem> {
        if self.len() >= MAX {
            return self.find(text).ok_or(Problem::TooMany(what));
        }
        Ok(self.0.number(text.as_bytes()))
    }

    /// The number of a text that is known.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.0.find(text.as_bytes())
    }

    /// The text; empty where there is none of this number.
    #[must_use]
    pub fn text(&self, number: u32) -> &str {
        // They came as texts.
        std::str::from_utf8(self.0.get(number)).unwrap_or_default()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All texts, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|number| self.text(number))
    }
}
