//! Observing programs: from what is asked for to what was seen.
//!
//! A [`Request`] says whom to observe, and how. [`observe()`] does, and hands each event to a [`Sink`]; a [`Collector`] analyses them, a
//! [`Recorder`] writes them to a trace. An [`Audience`] hears what cannot wait, and may end it all. The command line is one user of this;
//! [`report()`] is all that a small one needs:
//!
//! ```standalone_crate
//! use lockbpf::observe::{self, Request};
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! fn main() -> anyhow::Result<ExitCode> {
//!     // Observing takes helpers, which are this program again.
//!     if let Some(code) = observe::serve() {
//!         return Ok(code);
//!     }
//!     # if let Err(lack) = lockbpf::capture::privilege::require() {
//!     #     assert!(std::env::var_os("CI").is_none(), "{lack}");
//!     #     return Ok(ExitCode::SUCCESS);
//!     # }
//!     # let mut busy = std::process::Command::new("sleep").arg("10").spawn()?;
//!     # let pid = busy.id();
//!     let request = Request { duration: Some(Duration::from_secs(1)), ..Request::of_pid(pid) };
//!     let report = observe::report(&request)?;
//!     match report.culprits.first() {
//!         Some(culprit) => println!("{} holds it back most", culprit.place.symbol),
//!         None => println!("{}", report.verdict.join(" ")),
//!     }
//!     observe::settle(&|_| {});
//!     # busy.kill()?;
//!     # busy.wait()?;
//!     Ok(ExitCode::SUCCESS)
//! }
//! ```
//!
//! It takes the rights that the command line takes: root, or CAP_BPF, CAP_PERFMON and those that docs/production.md lists.

mod arrivals;
mod audience;
mod awaited;
mod budget;
pub(crate) mod calibration_file;
mod carriers;
pub(crate) mod census;
mod collect;
pub(crate) mod cost_cache;
mod counters;
pub(crate) mod cpus;
mod deadlocks;
pub(crate) mod described;
mod ending;
mod focus;
mod functions;
mod interpreters;
mod java;
mod new_stacks;
pub(crate) mod own;
mod parking;
mod placement;
mod prepare;
pub(crate) mod processes;
mod python;
pub(crate) mod record;
mod report;
mod request;
mod run;
mod running;
mod serve;
mod sink;
pub(crate) mod snapshots;
mod stacks;
mod suspend;
mod threads;

pub use crate::capture::launch::How;
pub use audience::{Audience, Log};
pub use collect::Collector;
pub use placement::Place;
pub use record::Recorder;
pub use report::conclude;
pub use report::report;
pub use request::{DEFAULT_STACK_WAIT, Request, Target};
pub use run::observe;
pub use serve::{serve, settle};
pub use sink::{Captured, Live, Sink};
