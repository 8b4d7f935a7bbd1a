//! What the tables of the configuration have in common: how their fields are read.

use super::super::limits;
use crate::input;
use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer, de};
use std::path::Path;

/// The text of a file that the configuration names, or of itself.
pub(super) fn read(path: &Path) -> Result<String> {
    input::read_text(path).with_context(|| format!("failed to read {}", path.display()))
}

/// A field by its text. What `parse` says against it becomes the error.
pub(super) fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(from)?).map_err(de::Error::custom)
}

/// A size in bytes, as `64M`.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parsed(from, limits::size)
}
