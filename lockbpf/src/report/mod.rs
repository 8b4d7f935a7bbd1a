//! From an observation to what a person or a program reads: one [`Report`], as JSON by its schema and as text by
//! [`table::render`], so that both always agree. No file is read and no clock looked at here: names come from a
//! [`crate::names::Names`].
#![forbid(unsafe_code)]

mod build;
mod details;
mod durations;
#[cfg(test)]
mod fixture;
mod gather;
mod lock;
mod naming;
mod place;
pub mod schema;
pub mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod verdict;
mod word;

pub use build::{Options, build};
pub use schema::Report;
