//! Processes that begin while the whole system is observed. Those that make futex calls tell it themselves; the others are
//! found by looking.

use super::target::translator;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// The processes known so far.
#[derive(Debug, Default)]
pub struct Newcomers {
    known: HashSet<u32>,
}

impl Newcomers {
    /// Knows these.
    #[must_use]
    pub fn new(known: impl IntoIterator<Item = u32>) -> Self {
        Self { known: known.into_iter().collect() }
    }

    /// Processes with a program (kernel threads have none) that were not there at the last look. Those that have gone
    /// since are forgotten.
    pub fn look(&mut self) -> Vec<u32> {
        // A /proc that cannot be read now may be at the next look.
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let there: HashSet<u32> = pids.collect();
        let new = there.difference(&self.known).copied();
        let has_program = |pid: &u32| fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).is_ok();
        // What translates code translates breakpoints, too.
        let new = new.filter(has_program).filter(|&pid| translator(pid).is_none()).collect();
        self.known = there;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::Newcomers;
    use std::process::Command;

    #[test]
    fn who_comes_is_found_once() {
        let mut newcomers = Newcomers::default();
        assert!(newcomers.look().contains(&std::process::id()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(newcomers.look().contains(&child.id()));
        assert!(!newcomers.look().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
