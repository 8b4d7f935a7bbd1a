//! Recordings as tables, for questions about many machines: runs, locks, sites, waits, holds, edges and stacks.
//!
//! What joins recordings are names: of locks, of processes and of places. Addresses and numbers are another thing in every process, so they
//! are no keys. Within a recording `run_id` and `stack_id` are.
#![forbid(unsafe_code)]

mod edges;
mod labels;
#[cfg(test)]
mod rows_tests;
mod run;
mod table;
mod tables;
#[cfg(test)]
mod tests;

pub use edges::Threads;
pub use run::Run;
pub use table::{Column, Table, Words};
pub use tables::{SCHEMA, Tables};
