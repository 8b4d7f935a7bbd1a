//! Tables by columns.

use bytes::Bytes;

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
    /// Text in UTF-8. Most of it recurs, and is in memory once.
    Text(Vec<Option<Bytes>>),
    /// Lists of text, none of which is missing.
    Texts(Vec<Vec<Bytes>>),
    /// Moments, in microseconds since 1970 (UTC).
    Moment(Vec<Option<i64>>),
}

impl Column {
    /// How many rows it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(values) | Self::Moment(values) => values.len(),
            Self::Decimal(values) => values.len(),
            Self::Flag(values) => values.len(),
            Self::Text(values) => values.len(),
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
