//! The kernel's statistics of eBPF programs. They cost each run two readings of the clock, so they are on only where
//! programs are timed, never where the target is.

use std::fs;

use anyhow::{Context as _, Result};

const SETTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Keeps the statistics on while it lives.
pub(super) struct BpfStats {
    before: String,
}

impl BpfStats {
    /// Turns them on.
    ///
    /// # Errors
    /// The kernel has none, or does not permit it.
    pub(super) fn enable() -> Result<Self> {
        let before = fs::read_to_string(SETTING).with_context(|| format!("failed to read {SETTING}"))?;
        fs::write(SETTING, "1").with_context(|| format!("failed to write to {SETTING}"))?;
        Ok(Self { before })
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SETTING, &self.before) {
            eprintln!("failed to write {} back to {SETTING}: {error}; write it by hand", self.before.trim());
        }
    }
}
