//! Advice on locks from what critical sections read and write: whether they conflict at all, and so whether a lock could
//! be split, made reader–writer, taken for a shorter time, left out, or replaced by optimistic execution.
//!
//! [`read`] reads access records, [`Usydg`] is SyncProf's universal graph of them, [`patterns`](patterns()) and
//! [`suggest`](suggest()) are its patterns and suggestions. [`timing`] and [`traced`] take waits from a recording, for
//! PinCS's estimate of optimistic execution ([`crate::model::occ`]) and for predictions ([`predict`]). [`advise`] puts all
//! of it together, [`render`] tells it to people.
#![forbid(unsafe_code)]

mod build;
mod error;
mod fields;
mod items;
mod names;
mod once;
mod optimistic;
mod patterns;
mod places;
pub mod predict;
mod reader;
mod records;
mod schema;
mod sections;
mod sharing;
mod suggest;
#[cfg(test)]
mod tests;
mod text;
pub mod timing;
pub mod traced;
mod usydg;
mod who;

pub use build::{Options, advise};
pub use error::{Problem, RecordError};
pub use names::Names;
pub use patterns::{Adjacent, LONG, LOW_DEGREE, Pair, Pattern, Patterns, Window, patterns};
pub use reader::{MAX_LINE, read, read_gapped};
pub use records::{Branch, Execution, Path, Records, Sets, Touch};
pub use schema::{Advice, Item, Kind, SCHEMA};
pub use suggest::{Independent, Suggestions, suggest};
pub use text::{render, sampled};
pub use usydg::{EdgeSource, Node, Sharing, TracedWait, Usydg, sharing};
