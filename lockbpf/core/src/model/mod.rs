//! Predictions: what waits and throughput would be with other numbers of threads, other locks or optimistic execution.
//!
//! A program is a closed queueing network ([`network`]): threads circulate among locks, each a single server, and think in
//! between. [`predict`] answers what a [`schema::Input`] asks: [`mva`] (one class of threads, exactly), [`convolution`]
//! (the same where a lock's overhead depends on its waiters), [`classes`] (several classes, exactly), [`schweitzer`]
//! (approximately, where that would take too long); [`qd`] is the model of queue delegation locks. [`occ`] is PinCS's
//! estimate of optimistic execution, [`conflicts`] how often that would conflict. [`with`] puts other locks into a model, of which [`calibration`] knows what they cost; [`rank`] tells which would be fastest.
//! [`cores`] lets their threads share CPUs. [`simulation`] plays networks event by event: the truth that the rest is tested against. [`crowd`]
//! plays them on fewer CPUs than threads.
//!
//! [`shadow`] is what observing added to recorded times. [`summed`] makes a model of what the kernel side summed up of a program. [`script`] is what the threads of a recording did by
//! themselves: [`profile`] makes a model of it; [`replay`] plays it with
//! one change, and [`what_if`] tells what that would gain.
#![forbid(unsafe_code)]

mod agenda;
mod assumptions;
pub mod calibration;
pub mod check;
pub mod classes;
pub mod conflicts;
pub mod convolution;
pub mod cores;
mod cpus;
pub mod crowd;
mod divide;
mod error;
pub mod mva;
pub mod network;
pub mod occ;
mod pattern;
mod play;
pub mod predict;
pub mod profile;
pub mod qd;
pub mod rank;
pub mod rank_table;
pub mod replay;
pub mod schema;
pub mod schweitzer;
pub mod script;
pub mod shadow;
pub mod simulation;
pub mod sliders;
pub mod summed;
pub mod table;
pub mod tally;
#[cfg(test)]
mod tests;
mod violations;
mod visits;
mod walk;
pub mod what_if;
pub mod with;

pub use error::ModelError;
pub use visits::stationary;
