//! lockbpf observes the locks of running programs with eBPF and tells which lock holds them back, who blocks whom and
//! why.
//!
//! What it makes of what it observed is the crate `lockbpf-core`, whose modules are also this crate's. Here is what knows the kernel, files
//! and the clock: [`capture`] (eBPF, uprobes, ring buffers) and [`symbol`] (ELF, DWARF), which the report does not know. [`observe`] joins them:
//! it is what programs use that observe. [`cli`] is one of them.

pub use lockbpf_core::{
    access, advice, alert, analysis, barriers, cgroup, correction, costs, deadlock, decode, diff, estimate, event,
    fleet, flight, governor, graph, growth, histogram, id, inside, java, lines, measures, methods, metrics, model,
    names, observation, op, options, order, owners, perturbation, quality, render, report, select, stack, state, sums,
    tally, totals, trace, transitions, units, untrusted, unwind, wakeups,
};

pub mod capture;
pub mod cli;
pub mod custom;
mod demangle;
mod door;
#[cfg(test)]
mod fixture;
pub mod golang;
pub mod helper;
mod input;
pub mod kallsyms;
mod leader;
pub mod locks;
pub mod observe;
mod proc;
pub mod rights;
pub mod sandbox;
pub mod symbol;
