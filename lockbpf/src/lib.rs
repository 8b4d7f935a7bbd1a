//! lockbpf observes the locks of running programs with eBPF and tells which lock holds them back, who blocks whom and
//! why.
//!
//! Floors, from the ground up; a module uses lower floors only:
//! [`units`], [`id`], [`histogram`], [`quality`], [`unwind`] → [`event`], [`decode`], [`op`], [`order`] → [`state`], [`graph`],
//! [`totals`], [`perturbation`] → [`analysis`], [`observation`], [`names`] → [`report`] → [`render`], [`diff`], [`select`], [`model`] →
//! [`advice`]; beside them [`capture`]
//! (eBPF, uprobes, ring buffers) and [`symbol`] (ELF, DWARF), which the report does not know, and the formats of
//! recordings, [`trace`] and [`lines`]; [`cli`] on top joins them. What observes running programs is the feature `live`, without which
//! the rest compiles.

pub mod access;
pub mod advice;
pub mod analysis;
pub mod barriers;
#[cfg(feature = "live")]
pub mod capture;
#[cfg(feature = "live")]
pub mod cli;
pub mod correction;
pub mod costs;
pub mod deadlock;
pub mod decode;
pub mod diff;
#[cfg(feature = "live")]
mod door;
pub mod estimate;
pub mod event;
#[cfg(test)]
mod fixture;
#[cfg(feature = "live")]
pub mod golang;
pub mod governor;
pub mod graph;
pub mod histogram;
pub mod id;
pub mod inside;
mod json;
#[cfg(feature = "live")]
pub mod kallsyms;
pub mod lines;
pub mod locks;
pub mod measures;
pub mod model;
pub mod names;
pub mod observation;
pub mod op;
pub mod order;
pub mod owners;
pub mod perturbation;
pub mod quality;
pub mod render;
pub mod report;
#[cfg(feature = "live")]
pub mod sandbox;
pub mod select;
pub mod stack;
pub mod state;
pub mod sums;
#[cfg(feature = "live")]
pub mod symbol;
pub mod tally;
pub mod totals;
pub mod trace;
pub mod transitions;
pub mod units;
pub mod untrusted;
pub mod unwind;
