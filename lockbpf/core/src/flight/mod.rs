//! A flight recorder: the last minutes of an observation in bounded memory, made into a recording when it is wanted.
//!
//! The observation is written as *segments*, one after the other. Each is a trace of its own, which begins with what had been summed before it
//! ([`crate::trace::Writer::opening`]) and needs no other one to be read. A [`Ring`] tells when the next one is to begin and which are to go.
//! [`join()`] makes one recording of those that are there: their events, and of sums the difference between the end and the beginning
//! (`difference`). Killed at any moment, segments on disk are readable.
#![forbid(unsafe_code)]

mod difference;
mod join;
mod recorded;
mod ring;
#[cfg(test)]
mod tests;

pub use join::{JoinError, Joined, Part, join};
pub use ring::{Dropped, Holding, Limits, Ring, Segment};
