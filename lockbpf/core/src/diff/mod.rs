//! What changed between two recordings, lock by lock and site by site: everything as rates, so that recordings of
//! different lengths compare. Works on two reports; locks and sites are matched by name, event lines' own by their
//! identities.
//!
//! A change is called out if it exceeds a factor, matters as a part of the recording's time, and exceeds what chance
//! explains. Of the occurrences only number, sum and maximum are known, so their spread is taken at its upper bound: the
//! variance of a sum of n random durations that come at random is at most longest × sum.
#![forbid(unsafe_code)]

mod change;
mod compare;
mod findings;
pub mod gate;
pub mod markdown;
mod matching;
mod recording;
pub mod schema;
pub mod table;
#[cfg(test)]
mod tests;

pub use change::Thresholds;
pub use compare::diff;
pub(crate) use recording::family;

/// Why two reports cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// A recording without duration has no rates.
    #[error("recording {0} has no duration: there are no rates to compare")]
    NoDuration(Which),
}

/// One of the two recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first: before.
    A,
    /// The second: after.
    B,
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}
