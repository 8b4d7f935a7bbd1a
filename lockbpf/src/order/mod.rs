//! Order in time. [`Merger`] puts whole events in the order of their ends; [`Sorter`] takes them apart into steps, since
//! a section is delivered when it ends but began earlier, and puts the steps in order.
#![forbid(unsafe_code)]

mod explode;
mod merge;
mod sorter;
#[cfg(test)]
mod tests;
mod ties;

pub use merge::{Merger, WINDOW};
pub use sorter::{CAPACITY, Ready, Sorter};
