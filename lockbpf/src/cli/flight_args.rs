//! The options of the flight recorder.

use super::limits;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes that it may have, unless the user says.
pub(super) const SIZE: u64 = 256 << 20;
/// Dumps that alerts may cause, unless the user says: disks are not to be filled by a bad night.
const DUMPS: u32 = 10;

/// What is kept of an observation, and when that is made into a recording.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FlightArgs {
    /// Keep the last so long of the observation, e.g. 10m, to make a recording of it when it is wanted: `lockbpf dump`, SIGUSR1, or an alert
    /// (--dump-on). All commands read it.
    #[arg(long, value_name = "TIME", value_parser = limits::keep)]
    pub keep: Option<Duration>,
    /// In this many bytes at most: when they are full, less time is kept, which is told. Default: 256M.
    #[arg(long, value_name = "SIZE", value_parser = limits::size, requires = "keep")]
    pub keep_size: Option<u64>,
    /// In this directory, and not in memory: what is kept survives even if lockbpf is killed, and `lockbpf report --from DIR` reads it.
    #[arg(long, value_name = "DIR", requires = "keep")]
    pub keep_dir: Option<PathBuf>,
    /// Make a recording 2 s after an alert of this sort, at most one a minute: of a wait (--wait-over), a hold (--hold-over), a deadlock.
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', requires = "keep")]
    pub dump_on: Vec<DumpOn>,
    /// Where recordings go that nobody waits for: a directory (default: the current one), or a file in whose name {time} stands for the time
    /// (UTC).
    #[arg(long, value_name = "DIR|FILE", requires = "keep")]
    pub dump_to: Option<PathBuf>,
    /// How many recordings alerts may cause. Default: 10.
    #[arg(long, value_name = "N", requires = "dump_on")]
    pub dump_max: Option<u32>,
}

impl FlightArgs {
    /// Bytes that it may have.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.keep_size.unwrap_or(SIZE)
    }

    /// Recordings that alerts may cause.
    #[must_use]
    pub fn dumps(&self) -> u32 {
        self.dump_max.unwrap_or(DUMPS)
    }
}

/// What a recording is made after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum DumpOn {
    /// An alert of a wait.
    Wait,
    /// An alert of a hold.
    Hold,
    /// A deadlock.
    Deadlock,
}
