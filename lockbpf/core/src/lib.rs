//! The analysis of lockbpf: what programs did with their locks in; culprits, reports, predictions and advice out. It knows no kernel, no
//! clock, no files and no command line, and has no unsafe code.
//!
//! Floors, from the ground up; a module uses lower floors only:
//! [`units`], [`id`], [`histogram`], [`quality`], [`unwind`] → [`event`], [`decode`], [`op`], [`order`] → [`state`], [`graph`],
//! [`totals`], [`perturbation`] → [`analysis`], [`alert`], [`observation`], [`names`] → [`report`] → [`diff`], [`select`], [`model`] →
//! [`advice`] → [`render`] → [`fleet`]; beside them the formats of recordings, [`trace`] and [`lines`], the
//! flight recorder that keeps the last of a recording, [`flight`], and the code of critical sections followed ahead,
//! [`access`].
#![forbid(unsafe_code)]

pub mod access;
pub mod advice;
pub mod alert;
pub mod analysis;
pub mod barriers;
pub mod cgroup;
pub mod correction;
pub mod costs;
pub mod deadlock;
pub mod decode;
pub mod diff;
pub mod estimate;
pub mod event;
pub mod fleet;
pub mod flight;
pub mod governor;
pub mod graph;
pub mod growth;
pub mod histogram;
pub mod id;
pub mod inside;
pub mod java;
mod json;
pub mod lines;
pub mod measures;
pub mod methods;
pub mod metrics;
pub mod model;
pub mod names;
pub mod observation;
pub mod op;
pub mod options;
pub mod order;
mod otlp;
pub mod owners;
pub mod perturbation;
mod protobuf;
pub mod quality;
pub mod render;
pub mod report;
pub mod select;
pub mod stack;
pub mod state;
pub mod sums;
pub mod tally;
pub mod totals;
pub mod trace;
pub mod transitions;
pub mod units;
pub mod untrusted;
pub mod unwind;
pub mod wakeups;
