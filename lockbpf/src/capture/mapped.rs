//! Whether processes have mapped other code since it was last looked: a library that was loaded, a program that became
//! another. Asked each second, so that all that follows from it need not be done each second.

use crate::proc;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader};

/// The code that processes had mapped when it was last looked.
#[derive(Debug, Default)]
pub struct Mapped {
    /// By pid: a hash of the lines of `/proc/PID/maps` that stand for code.
    code: HashMap<u32, u64>,
}

impl Mapped {
    /// Whether any of the processes has other code mapped than at the last call. One that is gone has not, and neither has one that is new
    /// and has the code of another, from which it was forked.
    pub fn changed(&mut self, pids: &[u32]) -> bool {
        let known: HashSet<u64> = self.code.values().copied().collect();
        let now: HashMap<u32, u64> = pids.iter().filter_map(|&pid| Some((pid, code(pid)?))).collect();
        let before = std::mem::replace(&mut self.code, now);
        self.code.iter().any(|(pid, code)| before.get(pid).map_or(!known.contains(code), |before| before != code))
    }
}

/// A hash of what a process has mapped as code. Heaps and stacks, which come and go all the time, are not in it.
fn code(pid: u32) -> Option<u64> {
    let mut maps =
        BufReader::with_capacity(1 << 16, proc::open(format!("/proc/{}/maps", crate::leader::face(pid))).ok()?);
    let mut hasher = DefaultHasher::new();
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line).ok()? > 0 {
        if is_code(&line) {
            hasher.write(&line);
        }
        line.clear();
    }
    Some(hasher.finish())
}

/// Whether a line of `/proc/PID/maps` (`START-END rwxp …`) is of executable memory.
fn is_code(line: &[u8]) -> bool {
    let permissions = line.splitn(3, |&b| b == b' ').nth(1);
    permissions.and_then(|p| p.get(2)) == Some(&b'x')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts() {
        assert!(is_code(b"55d0-55d1 r-xp 00001000 08:01 42 /bin/x y\n"));
        for line in [&b"55d0-55d1 rw-p 00000000 00:00 0 [heap]\n"[..], b"55d0-55d1", b""] {
            assert!(!is_code(line));
        }
    }

    #[test]
    fn what_has_not_changed_is_not_looked_at_again() {
        let mut mapped = Mapped::default();
        let pid = std::process::id();
        assert!(mapped.changed(&[pid]));
        assert!(!mapped.changed(&[pid, u32::MAX]));
        // One that another has mapped likewise is no news; who comes again is, since it was forgotten.
        assert!(!mapped.changed(&[]));
        assert!(mapped.changed(&[pid]));
    }
}
