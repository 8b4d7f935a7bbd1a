//! Busy loops beside the tests: a machine is seldom idle when somebody observes it.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// Processes that only use a CPU; they end when this is dropped.
pub(super) struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts so many.
    ///
    /// # Errors
    /// No shell can be started.
    pub(super) fn start(number: u32) -> Result<Self> {
        let mut hogs = Self(Vec::new());
        for _ in 0..number {
            let mut shell = Command::new("sh");
            // It ends with whoever started it, too: then its parent is another one.
            shell.args([
                "-c",
                "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; done",
            ]);
            hogs.0.push(shell.stdin(Stdio::null()).spawn().context("failed to start a busy loop")?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // One that has ended already needs neither.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_busy_and_end() {
        let hogs = Hogs::start(2).unwrap();
        let pids: Vec<u32> = hogs.0.iter().map(Child::id).collect();
        let alive = || pids.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).count();
        assert_eq!(alive(), 2);
        drop(hogs);
        assert_eq!(alive(), 0);
    }
}
