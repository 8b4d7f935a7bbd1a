//! From an observation to what a person or a program reads: one [`Report`], as JSON by its schema and as text by
//! [`table::render`], so that both always agree. No file is read and no clock looked at here: names come from a
//! [`crate::names::Names`].
#![forbid(unsafe_code)]

mod alike;
mod attribution;
mod blame;
mod build;
mod called;
mod calling;
mod columns;
pub mod combine;
mod counted;
mod counters;
mod culprit;
mod danger;
mod details;
mod distrust;
mod divide;
mod doing;
pub mod dot;
mod durations;
mod estimated;
#[cfg(test)]
mod fixture;
mod functions;
mod gather;
mod graph;
pub mod histograms;
mod in_turn;
mod kernel;
mod labels;
mod lock;
pub mod measured;
mod naming;
mod pattern;
mod permits;
mod phrase;
pub mod pictures;
mod place;
mod possible;
pub mod profile;
mod quality;
mod released;
pub mod schema;
mod select;
mod side_by_side;
mod site;
mod sleep;
mod sleepers;
mod slept;
pub mod table;
mod templates;
#[cfg(test)]
mod tests;
pub mod text;
mod threads;
mod throttled;
mod timed;
pub mod timeline;
mod told;
mod unwatched;
mod verdict;
mod warnings;
mod wide;
mod windows;
mod woken;
mod word;
pub mod words;

pub use build::{
    Options, build, build_histograms, build_measured, build_pictures, build_profile, build_rows, build_timeline,
};
pub use labels::{Labels, labels};
pub use possible::violations;
pub use schema::{Parts, Report, Selection};
pub use select::Unmatched;
pub use side_by_side::{MAX_RUNS, side_by_side};
pub use sleepers::{Sleeps, sleeps_for};
pub use told::Rows;
