//! Waits that were in progress before the observation began, from `/proc/PID/task/TID/syscall`: a thread that blocks in
//! futex wait shows the word it waits for. lockbpf tells the kernel side, which then sees the wait end. If the thread still waits when the
//! observation ends, no probe has ever seen it.

use super::CaptureError;
use super::owner::Owners;
use crate::event::Via;
use crate::id::{Lock, Process, Tid};
use crate::observation::OpenWait;
use crate::proc;
use crate::units::Time;
use aya::Ebpf;
use aya::maps::HashMap as BpfHashMap;
use lockbpf_common::config::MAX_THREADS;
use lockbpf_common::waiting::Asleep;
use std::collections::HashMap;

/// Number of the futex system call.
#[cfg(target_arch = "x86_64")]
const NR_FUTEX: u64 = 202;
#[cfg(target_arch = "aarch64")]
const NR_FUTEX: u64 = 98;

/// A futex wait as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// Address of the word.
    pub(super) word: u64,
    /// The value that it expects in the word.
    pub(super) expected: u32,
    /// Whether it ends by itself at some time.
    pub(super) has_deadline: bool,
    /// Where the thread's stack ended when it entered the system call.
    pub(super) stack_pointer: u64,
    /// Where it goes on when it returns from the system call.
    pub(super) program_counter: u64,
    /// How often the thread has left the CPU. Who waits in the same place again has left it once more.
    pub(super) switches: u64,
}

/// The futex wait in which a thread sleeps at this moment, if it does. Two equal ones are the same wait: it slept all the time in
/// between.
pub(super) fn sleep(pid: u32, tid: Tid) -> Option<Blocked> {
    let of = |file| proc::text(format!("/proc/{pid}/task/{}/{file}", tid.0)).ok();
    let wait = parse(&of("syscall")?)?;
    // After the call: if it left that in between, it has not left the CPU again yet.
    Some(Blocked { switches: switches(&of("status")?)?, ..wait })
}

/// Whether a thread is blocked in some other system call than a wait on a word of `[from, from + size)`. One that runs, or is about
/// to, may be on its way out of it.
pub(super) fn is_elsewhere(pid: u32, tid: Tid, from: u64, size: u64) -> bool {
    let line = proc::text(format!("/proc/{pid}/task/{}/syscall", tid.0)).unwrap_or_default();
    let mut fields = line.split_ascii_whitespace();
    let Some(Ok(call)) = fields.next().map(str::parse::<u64>) else { return false };
    let word = fields.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    // futex, futex_waitv, futex_wait.
    !matches!(call, NR_FUTEX | 449 | 455) || call == NR_FUTEX && word.is_some_and(|w| w.wrapping_sub(from) >= size)
}

/// How often a thread has left the CPU, by its status.
fn switches(status: &str) -> Option<u64> {
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(of("voluntary_ctxt_switches:")?.wrapping_add(of("nonvoluntary_ctxt_switches:")?))
}

/// The threads of some processes that were blocked in futex wait at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    blocked: HashMap<(u32, Tid), Blocked>,
}

impl Snapshot {
    /// Looks at every thread of the given processes. What cannot be read is left out: it only adds to what probes see.
    #[must_use]
    pub fn take(pids: &[u32]) -> Self {
        let mut blocked = HashMap::new();
        for &pid in pids {
            for tid in proc::threads(pid).unwrap_or_default() {
                if let Some(wait) = sleep(pid, Tid(tid)) {
                    blocked.insert((pid, Tid(tid)), wait);
                }
            }
        }
        Self { blocked }
    }

    /// Each thread that slept, by process and thread, and in which wait.
    pub(super) fn sleeps(&self) -> impl Iterator<Item = ((u32, Tid), Blocked)> + '_ {
        self.blocked.iter().map(|(&key, &wait)| (key, wait))
    }

    /// Tells the kernel side of them, which then sees their ends: they count from `start` on.
    pub(super) fn tell(&self, ebpf: &mut Ebpf, start: Time) -> Result<(), CaptureError> {
        let map = ebpf.map_mut("ASLEEP").ok_or(CaptureError::NoMap("ASLEEP"))?;
        let mut asleep: BpfHashMap<_, u32, Asleep> = map.try_into()?;
        for (&(_, tid), wait) in self.blocked.iter().take(MAX_THREADS as usize) {
            let &Blocked { word, stack_pointer, .. } = wait;
            asleep.insert(
                tid.0,
                Asleep { word, since_ns: start.0, stack_pointer, expected: wait.expected.into() },
                0,
            )?;
        }
        Ok(())
    }

    /// The waits that were there at the start (`self`) and still are, unless a probe saw them begin (`seen`).
    /// One that expects glibc's value for a contended lock has the owner that is named beside the word, if that is a thread
    /// of the process. Others may be idle, or wait for a lock that names nobody: only who knows of them can say that no lock
    /// holds a program back.
    #[must_use]
    pub fn still_waiting(&self, pids: &[(u32, Process)], start: Time, seen: &[OpenWait]) -> Vec<OpenWait> {
        let mut owners = Owners::default();
        let now = Self::take(&pids.iter().map(|&(pid, _)| pid).collect::<Vec<_>>());
        let mut waits: Vec<OpenWait> = now
            .blocked
            .iter()
            .filter(|&(key, wait)| self.blocked.get(key) == Some(wait))
            .filter(|&((_, tid), _)| seen.iter().all(|w| w.tid != *tid))
            .filter_map(|(&(pid, tid), wait)| {
                let process = pids.iter().find(|&&(p, _)| p == pid)?.1;
                let named = if wait.expected == 2 { owners.of_word(pid, wait.word) } else { None };
                Some(OpenWait {
                    tid,
                    lock: Lock { process, addr: wait.word },
                    site: None,
                    since: start,
                    owner: named.map(|owner| owner.tid).filter(|&owner| owner != tid),
                    stack: None,
                    via: Via::Futex,
                    expected: Some(wait.expected),
                    before_start: true,
                })
            })
            .collect();
        waits.sort_by_key(|w| w.tid);
        waits
    }
}

/// A line of `/proc/PID/task/TID/syscall`: number and arguments in hexadecimal, `running`, or `-1 …`.
fn parse(line: &str) -> Option<Blocked> {
    let mut fields = line.split_ascii_whitespace();
    if fields.next()?.parse::<u64>().ok()? != NR_FUTEX {
        return None;
    }
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (word, op, expected, timeout) = (argument()?, argument()?, argument()?, argument()?);
    let (_, _, stack_pointer, program_counter) = (argument()?, argument()?, argument()?, argument()?);
    // FUTEX_WAIT, LOCK_PI, WAIT_BITSET and LOCK_PI2, whatever their flags.
    let waits = matches!(op & 0x7f, 0 | 6 | 9 | 13);
    let (expected, has_deadline) = (expected as u32, timeout != 0);
    waits.then_some(Blocked { word, expected, has_deadline, stack_pointer, program_counter, switches: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_futex_waits_are_taken() {
        let wait = format!("{NR_FUTEX} 0x7f12 0x80 0x2 0x0 0x0 0x0 0x7ffe 0x7f00");
        let blocked = Blocked {
            word: 0x7f12,
            expected: 2,
            has_deadline: false,
            stack_pointer: 0x7ffe,
            program_counter: 0x7f00,
            switches: 0,
        };
        assert_eq!(parse(&wait), Some(blocked));
        let timed = format!("{NR_FUTEX} 0x7f12 0x89 0x2 0x7ffd 0x0 0xffffffff 0x7ffe 0x7f00");
        assert_eq!(parse(&timed), Some(Blocked { has_deadline: true, ..blocked }));
        let wake = format!("{NR_FUTEX} 0x7f12 0x81 0x1 0x0 0x0 0x0 0x7ffe 0x7f00");
        for line in [&wake, "running", "-1 0x7ffe 0x7f00", "", "202", "0 0x1 0x2 0x3", "202 7f12 80 2"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn whoever_left_the_cpu_in_between_waits_anew() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches(status), Some(695));
        assert_eq!(switches("Name:\tx\n"), None);
    }

    #[test]
    fn a_wait_for_a_lock_that_names_nobody_is_known_too() {
        let pid = std::process::id();
        let lock = std::sync::Mutex::new(());
        let tid = std::sync::atomic::AtomicI32::new(0);
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            scope.spawn(|| {
                tid.store(nix::unistd::gettid().as_raw(), std::sync::atomic::Ordering::SeqCst);
                drop(lock.lock().unwrap());
            });
            let waiter = || Tid(tid.load(std::sync::atomic::Ordering::SeqCst).cast_unsigned());
            while sleep(pid, waiter()).is_none_or(|wait| wait.expected != 2) {
                std::thread::yield_now();
            }
            let (before, start) = (Snapshot::take(&[pid]), Time(7));
            let waits = before.still_waiting(&[(pid, Process(1))], start, &[]);
            let wait = waits.iter().find(|wait| wait.tid == waiter()).expect("it waits");
            assert_eq!((wait.owner, wait.since, wait.before_start), (None, start, true));
            assert_eq!(before.still_waiting(&[(pid, Process(1))], start, &waits), [], "they are known");
            drop(held);
        });
    }

    #[test]
    fn a_process_that_is_gone_has_no_waits() {
        assert!(Snapshot::take(&[u32::MAX]).blocked.is_empty());
    }
}
