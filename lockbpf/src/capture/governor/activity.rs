//! What a process does beside using its CPU time, for trials whether observing changes that.

use super::now;
use crate::governor::trial::Activity;
use std::fs;

/// How often a process has touched pages first, and called for reads and writes, all threads together. What cannot be read
/// stays 0, and tells nothing.
pub(super) fn activity(pid: u32, futex_calls: u64) -> Activity {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (stat, io) = (read("stat"), read("io"));
    Activity { time: now(), done: [futex_calls, faults(&stat).unwrap_or(0), transfers(&String::from_utf8_lossy(&io))] }
}

/// The field `minflt` of `/proc/PID/stat`, the eighth behind the program's name, which may hold anything.
fn faults(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace().nth(7)?.parse().ok()
}

/// The calls counted in `/proc/PID/io`.
fn transfers(io: &str) -> u64 {
    let count = |key: &str| io.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    count("syscr:").unwrap_or(0).saturating_add(count("syscw:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_behind_any_name() {
        let stat = b"12 (a) b) 3 (\xff) S 1 12 12 0 -1 4194560 4711 9 0 0 5 3 0 0 20 0 1 0 100 1 1";
        assert_eq!(faults(stat), Some(4711));
        assert_eq!((faults(b""), faults(b"1 (x"), faults(b"1 (x) S")), (None, None, None));
        assert_eq!(transfers("rchar: 9\nwchar: 8\nsyscr: 5\nsyscw: 7\nread_bytes: 0\n"), 12);
        assert_eq!(transfers(""), 0);
    }

    #[test]
    fn those_of_this_process_grow() {
        let before = activity(std::process::id(), 3);
        let pages = vec![1_u8; 1 << 20];
        let after = activity(std::process::id(), 4);
        assert!(pages[..].iter().all(|&byte| byte == 1));
        assert!(after.done.iter().zip(before.done).all(|(after, before)| *after > before), "{before:?} {after:?}");
    }
}
