//! What the targets in `fuzz/` feed: files in which functions to be probed are looked for, what is asked about them and answered, and what
//! `/proc` says.

use super::process;
use crate::capture::reader::fuzz;

pub use fuzz::{answers, asks, probes};

/// Text as a process's mappings and status.
pub fn proc(text: &[u8]) {
    process::fuzz(text);
}
