//! Tables by columns.

use bytes::Bytes;
use std::sync::Arc;

/// A table: columns of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it is called.
    pub name: &'static str,
    /// Its columns, by name.
    pub columns: Vec<(&'static str, Column)>,
}

/// A column. What is not known is `None`.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Whole numbers: counts, and durations in ns.
    Whole(Vec<Option<i64>>),
    /// Decimals: shares and ends of intervals.
    Decimal(Vec<Option<f64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
    /// Text in UTF-8.
    Text(Words),
    /// Lists of text, none of which is missing.
    Texts(Vec<Vec<Bytes>>),
    /// Moments, in microseconds since 1970 (UTC).
    Moment(Vec<Option<i64>>),
}

/// Texts, most of which recur: each is in memory once, and a row has its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// Those that there are.
    words: Arc<[Option<Bytes>]>,
    /// The number of each row's word. What has none has a number beyond them.
    rows: Vec<u32>,
}

impl Words {
    /// Rows with words of these, by their indices.
    pub(super) fn of(words: &Arc<[Option<Bytes>]>, rows: impl Iterator<Item = Option<usize>>) -> Self {
        let number = |at: Option<usize>| at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX);
        Self { words: Arc::clone(words), rows: rows.map(number).collect() }
    }

    /// Those that there are.
    #[must_use]
    pub fn words(&self) -> &[Option<Bytes>] {
        &self.words
    }

    /// The index of each row's word among them; one without a word has an index beyond them.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }
}

impl FromIterator<Option<Bytes>> for Words {
    fn from_iter<I: IntoIterator<Item = Option<Bytes>>>(rows: I) -> Self {
        let words: Arc<[Option<Bytes>]> = rows.into_iter().collect();
        Self::of(&words, (0..words.len()).map(Some))
    }
}

impl Column {
    /// How many rows it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(values) | Self::Moment(values) => values.len(),
            Self::Decimal(values) => values.len(),
            Self::Flag(values) => values.len(),
            Self::Text(words) => words.rows.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }
}
