//! What a long observation tells a monitoring system: counters that never fall, in a bounded number of series, and profiles by stack.
//!
//! A snapshot says what was seen since its observation began ([`crate::report::build_measured`]). Observations are begun anew now and then, so that
//! memory stays bounded, and the programs that they see come and go. [`Ledger`] and [`Profiles`] add up by how much each snapshot's figures
//! have risen, and keep the sums for ever, by names that outlive processes: never by pid or address.
#![forbid(unsafe_code)]

mod buckets;
mod expose;
mod family;
mod labels;
mod ledger;
mod otlp;
mod own;
mod profiles;
mod rise;
mod series;
#[cfg(test)]
mod tests;
mod text;
mod workload;

pub use buckets::BOUNDS_NS;
pub use ledger::{Book, Ledger, Limits, Snapshot};
pub use own::{Own, Pushed};
pub use profiles::{Profiles, Stacks};
pub use text::Dialect;
pub use workload::Workload;
