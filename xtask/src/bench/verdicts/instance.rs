//! A running program, and what it does.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

use super::{compiler::Built, programs::Onset};
use crate::bench::{child::Child, interrupt};

/// What a program gets to settle in.
const SETTLE: Duration = Duration::from_millis(400);

/// A running program.
pub(super) struct Instance {
    child: Child,
    /// What it told of itself.
    pub(super) facts: Facts,
}

/// What a program tells when it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The lock's first address and the one behind it.
    pub(super) lock: Option<(u64, u64)>,
    /// The culprit's code, likewise.
    pub(super) place: Option<(u64, u64)>,
    /// Processes to be observed besides.
    pub(super) pids: Vec<String>,
}

impl Instance {
    /// Starts a program; `cured` without its culprit.
    ///
    /// # Errors
    /// It does not begin to work.
    pub(super) fn start(built: &Built, cured: bool) -> Result<Self> {
        let mut child = Child::start(&mut built.command(cured))?;
        let facts = child.expect_out(Facts::parse)?;
        interrupt::sleep(SETTLE)?;
        Ok(Self { child, facts })
    }

    /// Its first process.
    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// The options that name all of its processes.
    pub(super) fn target(&self) -> Vec<String> {
        let pids = [self.child.pid().to_string()].into_iter().chain(self.facts.pids.iter().cloned());
        pids.flat_map(|pid| ["--pid".to_owned(), pid]).collect()
    }

    /// Tells it that its culprit may begin.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn begin(&mut self, onset: Onset) -> Result<()> {
        if onset != Onset::Start {
            self.child.tell("begin")?;
            interrupt::sleep(SETTLE)?;
        }
        Ok(())
    }

    /// Operations per second, window by window.
    ///
    /// # Errors
    /// It is gone, or the benchmark was interrupted.
    pub(super) fn windows(&mut self, length: Duration, count: usize) -> Result<Vec<f64>> {
        let mut rates = Vec::with_capacity(count);
        let mut last = self.done()?;
        for _ in 0..count {
            interrupt::sleep(length)?;
            let next = self.done()?;
            rates.push((next.0 - last.0) as f64 / (next.1 - last.1).as_secs_f64());
            last = next;
        }
        Ok(rates)
    }

    fn done(&mut self) -> Result<(u64, Instant)> {
        self.child.tell("n")?;
        let done = self.child.expect_out(|line| line.parse().ok()).context("it does not tell what it has done")?;
        Ok((done, Instant::now()))
    }
}

impl Facts {
    /// `ready lock=ADDRESS+SIZE place=ADDRESS-ADDRESS pids=PID,PID`, all but the first word optional.
    fn parse(line: &str) -> Option<Self> {
        let facts: BTreeMap<_, _> =
            line.strip_prefix("ready")?.split_whitespace().filter_map(|w| w.split_once('=')).collect();
        let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let range = |(from, to): (&str, &str)| Some((address(from)?, address(to)?));
        let sized = |(from, size): (&str, &str)| Some((address(from)?, address(from)? + size.parse::<u64>().ok()?));
        Some(Self {
            lock: facts.get("lock").and_then(|text| sized(text.split_once('+')?)),
            place: facts.get("place").and_then(|text| range(text.split_once('-')?)),
            pids: facts.get("pids").map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_follow_the_first_word() {
        assert_eq!(Facts::parse("ready"), Some(Facts::default()));
        let told = Facts::parse("ready lock=0x10+40 place=0x4-0x8 pids=1,2").unwrap();
        assert_eq!((told.lock, told.place), (Some((16, 56)), Some((4, 8))));
        assert_eq!(told.pids, ["1", "2"]);
        assert_eq!(Facts::parse("begin"), None);
    }
}
