//! The options of alerts.

use super::limits;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What is told at once, and to whom.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct AlertArgs {
    /// Tell at once of a wait for a lock that lasts longer than this, while it lasts: who waits, where, who holds the lock, since when, doing
    /// what. On stderr, one line each, of one lock at most one a second; of the same wait again when it has doubled.
    #[arg(long, value_name = "TIME", value_parser = limits::threshold)]
    pub wait_over: Option<Duration>,
    /// The same of a hold that lasts longer than this: as far as acquisitions are seen at the time, or a waiter tells who holds.
    #[arg(long, value_name = "TIME", value_parser = limits::threshold)]
    pub hold_over: Option<Duration>,
    /// Also write alerts to this file, a line of JSON each, with stacks; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Also run this command of the shell for alerts, with the alert's JSON on its standard input: one at a time, for 10 s at most.
    #[arg(long, value_name = "COMMAND")]
    pub on_alert: Option<OsString>,
}
