//! CPUs that are taken away and come back while events are counted.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use crate::{lockbpf::Observer, machine};

/// A CPU that can be taken away.
pub(crate) struct Removable {
    number: usize,
    switch: PathBuf,
}

impl Removable {
    /// The second CPU; `None` on a machine that has one only.
    pub(crate) fn find() -> Option<Self> {
        let switch = PathBuf::from("/sys/devices/system/cpu/cpu1/online");
        switch.exists().then_some(Self { number: 1, switch })
    }

    /// Takes it away and gives it back, and waits until that was noticed.
    pub(crate) fn away_and_back(&self, observer: &mut Observer) -> Result<()> {
        for state in ["0", "1"] {
            fs::write(&self.switch, state).with_context(|| format!("failed to write to {}", self.switch.display()))?;
        }
        observer.listen_for_log(&format!("events are counted on CPU {} again", self.number))
    }

    /// Keeps all threads of a process on it.
    pub(crate) fn confine(&self, pid: u32) -> Result<()> {
        let mut only = CpuSet::new();
        only.set(self.number).context("there is no such CPU")?;
        let threads = machine::threads(pid)?;
        ensure!(!threads.is_empty(), "process {pid} has no threads");
        threads.into_iter().try_for_each(|tid| {
            sched_setaffinity(Pid::from_raw(tid), &only).with_context(|| format!("failed to confine thread {tid}"))
        })
    }
}
