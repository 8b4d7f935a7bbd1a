//! The script that lock waits and holds are usually measured with, as its many copies on the net have it: a uprobe
//! and a uretprobe at the entry of `pthread_mutex_lock`, a uprobe at `pthread_mutex_unlock`, times in maps by thread.

use std::fs;

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

/// The library's path goes where `LIBC` is. The interval tells that the last probe is in place; probes are attached in
/// the order of the script.
const SCRIPT: &str = r#"
uprobe:LIBC:pthread_mutex_lock { @lock[tid] = arg0; @start[tid] = nsecs; }
uretprobe:LIBC:pthread_mutex_lock /@start[tid]/ {
    @wait_ns[@lock[tid]] = hist(nsecs - @start[tid]);
    @since[tid, @lock[tid]] = nsecs;
    delete(@start[tid]); delete(@lock[tid]);
}
uprobe:LIBC:pthread_mutex_unlock /@since[tid, arg0]/ {
    @hold_ns[arg0] = hist(nsecs - @since[tid, arg0]);
    delete(@since[tid, arg0]);
    @sections = count();
}
interval:ms:200 { print(@sections); }
"#;

/// The script for a process.
///
/// # Errors
/// The process has no C library that could be found.
pub(super) fn script(pid: Pid) -> Result<String> {
    let path = format!("/proc/{pid}/maps");
    let maps = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let libc = libc_path(&maps).with_context(|| format!("found no C library in {path}"))?;
    Ok(SCRIPT.replace("LIBC", libc))
}

fn libc_path(maps: &str) -> Option<&str> {
    maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        let name = path.rsplit('/').next()?;
        (name.starts_with("libc.so") || name.starts_with("libc-2.")).then_some(path)
    })
}

/// Whether a line of output tells that sections are being seen, hence that every probe is in place.
pub(super) fn sees_sections(line: &str) -> bool {
    line.strip_prefix("@sections: ").and_then(|count| count.trim().parse().ok()).is_some_and(|count: u64| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_among_mappings() {
        let maps = "7f00-7f01 r--p 0 fe:00 1 /usr/lib/libcap.so.2\n7f01-7f02 rw-p 0 00:00 0 [heap]\n\
                    7f02-7f03 r-xp 0 fe:00 2 /lib/x86_64-linux-gnu/libc.so.6\n";
        assert_eq!(libc_path(maps), Some("/lib/x86_64-linux-gnu/libc.so.6"));
        assert_eq!(libc_path("7f01-7f02 rw-p 0 00:00 0\n"), None);
    }

    #[test]
    fn sections_are_seen_once_there_is_one() {
        assert!(sees_sections("@sections: 12"));
        assert!(!sees_sections("@sections: 0"));
        assert!(!sees_sections("Attaching 4 probes..."));
    }
}
