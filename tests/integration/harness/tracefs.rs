//! A second observer of kernel locks: the kernel's own trace buffer, with an instance of its own.

use super::privilege::skipped;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TRACEFS: &str = "/sys/kernel/tracing";

/// An instance that records waits for kernel locks.
pub(crate) struct Instance {
    dir: PathBuf,
}

/// One end of a wait for a kernel lock.
#[derive(Clone, Debug)]
pub(crate) struct LockEvent {
    pub(crate) tid: u32,
    /// Whether an interrupt waited, on top of the thread.
    pub(crate) in_interrupt: bool,
    pub(crate) time_ns: u64,
    /// `0xaddress`.
    pub(crate) lock: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// With its flags as the kernel names them.
    Begin(String),
    /// Whether it got the lock.
    End(bool),
}

impl Instance {
    /// Begins to record the threads of a process; `None`, with the proof printed, where the kernel has no such events.
    pub(crate) fn watching(pid: u32) -> Option<Self> {
        if !Path::new(TRACEFS).join("events/lock/contention_begin").is_dir() {
            skipped(&format!("no events/lock/contention_begin in {TRACEFS}"));
            return None;
        }
        let dir = Path::new(TRACEFS).join("instances").join(format!("lockbpf-test-{}-{pid}", std::process::id()));
        fs::create_dir(&dir).expect("failed to make an instance of the trace buffer");
        let instance = Self { dir };
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("failed to list threads");
        // By the events' own filter: the list of `set_event_pid` has a lock, for which the observed threads would wait.
        let threads =
            tasks.filter_map(|task| Some(format!("common_pid=={}", task.ok()?.file_name().to_string_lossy())));
        let filter = threads.collect::<Vec<_>>().join("||");
        for (file, value) in [
            ("trace_clock", "mono"),
            ("buffer_size_kb", "16384"),
            ("options/hash-ptr", "0"),
            ("events/lock/contention_begin/filter", &filter),
            ("events/lock/contention_end/filter", &filter),
            ("events/lock/enable", "1"),
        ] {
            fs::write(instance.dir.join(file), value).unwrap_or_else(|e| panic!("failed to write {file}: {e}"));
        }
        Some(instance)
    }

    /// Forgets what was recorded.
    pub(crate) fn forget(&self) {
        fs::write(self.dir.join("trace"), "").expect("failed to clear the trace buffer");
    }

    /// What was recorded, all of it.
    pub(crate) fn events(&self) -> Vec<LockEvent> {
        fs::write(self.dir.join("events/lock/enable"), "0").expect("failed to stop recording");
        for (name, count) in self.losses() {
            assert_eq!(count, 0, "{name} of the trace buffer");
        }
        let text = fs::read(self.dir.join("trace")).expect("failed to read the trace buffer");
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains(": contention_")).map(parse).collect()
    }

    fn losses(&self) -> BTreeMap<String, u64> {
        let mut losses = BTreeMap::new();
        for cpu in fs::read_dir(self.dir.join("per_cpu")).expect("no CPUs in the trace buffer") {
            let stats = cpu.expect("failed to list the CPUs").path().join("stats");
            let text = fs::read_to_string(stats).expect("failed to read the statistics of the trace buffer");
            for (name, count) in text.lines().filter_map(|line| line.split_once(": ")) {
                if matches!(name, "overrun" | "commit overrun" | "dropped events") {
                    *losses.entry(name.to_owned()).or_default() += count.parse::<u64>().unwrap_or(0);
                }
            }
        }
        losses
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

/// `comm-123     [001] d..2.  4711.123456: contention_begin: 0xffff888100000000 (flags=SPIN)`
fn parse(line: &str) -> LockEvent {
    let parsed = || {
        let (task, rest) = line.split_once(" [")?;
        let (head, event) = rest.split_once(": contention_")?;
        let mut words = head.split_whitespace().skip(1);
        let (context, time) = (words.next()?, words.next()?);
        let (seconds, micros) = time.split_once('.')?;
        let (kind, rest) = event.split_once(": ")?;
        let (lock, detail) = rest.split_once(" (")?;
        let detail = detail.trim_end().strip_suffix(')')?.split_once('=')?.1;
        Some(LockEvent {
            tid: task.trim().rsplit_once('-')?.1.parse().ok()?,
            in_interrupt: context.chars().nth(2)? != '.',
            time_ns: seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000,
            lock: format!("0x{}", lock.trim_start_matches("0x")),
            what: if kind == "begin" { What::Begin(detail.to_owned()) } else { What::End(detail == "0") },
        })
    };
    parsed().unwrap_or_else(|| panic!("a line of the trace buffer that is none: {line}"))
}
