//! Keeps the thread that follows another one on that one's CPU: a switch between them is dearer across CPUs. Only this process's own thread
//! is moved, never the target's, which runs where it may and where the scheduler puts it.

use crate::proc;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Stops between two looks at where the followed thread is: a look takes as long as half a stop.
const SELDOM: u32 = 16;

/// Where a followed thread is.
pub(super) struct Beside {
    stat: Option<File>,
    stops: u32,
}

impl Beside {
    /// Moves the calling thread, which is not to outlive the sample, to where a stopped thread is.
    pub(super) fn of(tid: i32) -> Self {
        let beside = Self { stat: proc::open(format!("/proc/{tid}/stat")).ok(), stops: 0 };
        beside.go();
        beside
    }

    /// The thread has stopped again.
    pub(super) fn stopped(&mut self) {
        self.stops += 1;
        if self.stops.is_multiple_of(SELDOM) {
            self.go();
        }
    }

    /// Where that fails, following is only slower.
    fn go(&self) -> Option<()> {
        let cpu = cpu(self.stat.as_ref()?).ok()?;
        if sched_getcpu().ok()? == cpu {
            return None;
        }
        let mut there = CpuSet::new();
        there.set(cpu).ok()?;
        sched_setaffinity(Pid::from_raw(0), &there).ok()
    }
}

/// The CPU that a thread ran on last, by its `stat`.
fn cpu(stat: &File) -> io::Result<usize> {
    let mut text = [0; 1024];
    let read = stat.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..read]);
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Field 39. The second is a name, which may have spaces and parentheses.
fn parse(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_the_39th_field() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        assert_eq!(parse(&format!("1 (a) b) ({})", fields.join(" "))), None);
        assert_eq!(parse(&format!("1 (a) b (c) {}", fields.join(" "))), Some(39));
        assert_eq!(parse("1 (x) S"), None);
    }
}
