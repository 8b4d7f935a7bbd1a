//! What tells one program image from another: under the same pid, and among processes that were forked from one another.

use crate::proc::stat;

/// Tells one program image from the next under the same pid: start of the process in clock ticks since boot, and where
/// the image's first stack begins (0 if that may not be known).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    start: u64,
    pub(super) stack: u64,
}

/// Where the kernel has put an image: its code from where to where, its data likewise, and where its first stack begins. It chooses these
/// anew for each exec, so two processes with the same layout were forked from one another, or run the same program at the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Layout([u64; 5]);

impl Layout {
    /// Where the first stack begins.
    pub(super) fn stack(&self) -> u64 {
        self.0[4]
    }
}

/// Identity and layout of a process, of which `tid` is a thread that goes on; no layout if that may not be known.
pub(super) fn of(pid: u32, tid: u32) -> Option<(Identity, Option<Layout>)> {
    let process = stat(pid)?;
    let start = process.starttime;
    let shown = if tid == pid { process } else { stat(tid)? };
    let data = shown.start_data.zip(shown.end_data);
    let layout = data.map(|(start, end)| Layout([shown.startcode, shown.endcode, start, end, shown.startstack]));
    // Addresses that may not be known, and those of a process that has exited, are shown as 0 or 1.
    let layout = layout.filter(|Layout(addresses)| addresses.iter().all(|&address| address > 1));
    Some((Identity { start, stack: shown.startstack }, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_forked_process_has_its_parents_layout_and_another_program_its_own() {
        let own = std::process::id();
        let (_, layout) = of(own, own).unwrap();
        assert!(layout.is_some_and(|layout| layout.stack() > 0));
        // The shell forks itself for what is in parentheses.
        let mut shell = Command::new("sh")
            .args(["-c", "(sleep 60; :) & echo $!; sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let forked: u32 = line.trim().parse().unwrap();
        let [parent, child] = [shell.id(), forked].map(|pid| of(pid, pid).unwrap());
        kill(Pid::from_raw(forked.cast_signed()), Signal::SIGKILL).unwrap();
        shell.kill().unwrap();
        assert_eq!(parent.1, child.1);
        assert_ne!(parent.1, layout);
        // Not waited for yet, it has none any more.
        while of(shell.id(), shell.id()).unwrap().1.is_some() {
            std::thread::yield_now();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn who_is_not_there_has_none() {
        assert!(of(u32::MAX, u32::MAX).is_none() && of(std::process::id(), u32::MAX).is_none());
    }
}
