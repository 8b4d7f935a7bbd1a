//! Processes that observed ones have started and that are not observed: of a server whose parent only waits for its workers, nothing is seen.

use crate::proc;
use crate::untrusted::shown_bytes;
use std::collections::BTreeSet;

/// Names told.
const NAMED: usize = 3;

/// Which processes that these have started are not among them, in a sentence; `None` if there are none.
#[must_use]
pub fn note(observed: &BTreeSet<u32>) -> Option<String> {
    let children: BTreeSet<u32> = observed.iter().flat_map(|&pid| children(pid)).collect();
    let others: Vec<u32> = children.difference(observed).copied().collect();
    let names: BTreeSet<String> = others.iter().filter_map(|&pid| name(pid)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let (count, what) = match others.len() {
        0 => return None,
        1 => ("1 process that is".to_owned(), "it"),
        several => (format!("{several} processes that are"), "them"),
    };
    let told = match names.len() {
        0 => String::new(),
        1..=NAMED => format!(", named {}", names.join(", ")),
        _ => ", of several names".to_owned(),
    };
    let how = match names.as_slice() {
        [only] if only.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) => {
            format!("`--system-wide --comm {only}` observes {what}")
        }
        _ => format!("`--pid` observes {what}"),
    };
    Some(format!("What was observed has started {count} not observed{told}: {how}."))
}

/// The processes that one has started, as far as they are there.
fn children(pid: u32) -> Vec<u32> {
    let threads = proc::threads(pid).unwrap_or_default().into_iter();
    let started = threads.filter_map(|tid| proc::text(format!("/proc/{pid}/task/{tid}/children")).ok());
    started.flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn name(pid: u32) -> Option<String> {
    let comm = proc::read(format!("/proc/{pid}/comm")).ok()?;
    Some(shown_bytes(comm.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_that_are_not_observed_are_named() {
        // A shell that would become its last command has another one behind it.
        let mut parent = Command::new("sh").args(["-c", "cat; :"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = parent.id();
        let told = loop {
            match note(&BTreeSet::from([pid])) {
                Some(told) if told.contains("named cat") => break told,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(
            told,
            "What was observed has started 1 process that is not observed, named cat: `--system-wide --comm cat` observes it."
        );
        let with_child: BTreeSet<u32> = children(pid).into_iter().chain([pid]).collect();
        assert_eq!((with_child.len(), note(&with_child)), (2, None));
        drop(parent.stdin.take());
        parent.wait().unwrap();
    }
}
