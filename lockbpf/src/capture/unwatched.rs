//! Locks that no probe watches: of files (`flock`, `fcntl`), the semaphores of System V, and those of the kernel itself where their tracepoints are
//! not used. Whoever waits for one sleeps in a system call of its own, or in a function of the kernel's, in which a look at the threads now and then
//! finds it. That tells how many wait; of a file's lock also which file that is, and the kernel's list (`/proc/locks`) whose it is.

use crate::proc;
use crate::quality::{FileHolder, KERNEL_LOCK, Unwatched};
use crate::rights;
use crate::untrusted::{shown, shown_bytes};
use procfs::FromRead;
use procfs::process::Syscall;
use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often threads are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// lockbpf looks at this many threads each time. In a process with more, each of them stands for several.
const MAX_THREADS: usize = 64;
/// Processes remembered.
const MAX_PROCESSES: usize = 65_536;
/// lockbpf remembers this many files of a process, and tells waits for the locks of further ones without a file.
const MAX_FILES: usize = 64;
/// Processes remembered that had the lock of one file.
const MAX_HOLDERS: usize = 64;
/// The kernel's list of the locks of files.
const LOCKS: &str = "/proc/locks";

/// Functions of the kernel in which threads sleep uninterruptibly for one of its locks, and for nothing else: of address spaces, directories,
/// files and pipes (Linux 5.15 to 7.0). Those below them, of the locks themselves, are left out of what the kernel tells.
const KERNEL: &[&[&str]] = &[
    &["vm_mmap_pgoff", "__vm_munmap", "vm_munmap", "lock_mm_and_find_vma", "do_user_addr_fault", "do_page_fault"],
    &["__do_sys_brk", "__x64_sys_brk", "do_mprotect_pkey", "do_madvise", "madvise_lock", "__do_sys_mremap", "dup_mmap"],
    &["lookup_slow", "__lookup_slow", "filename_create", "start_dirop", "__start_dirop", "do_unlinkat", "do_rmdir"],
    &["lock_rename", "lock_two_directories", "open_last_lookups", "iterate_dir"],
    &["ext4_buffered_write_iter", "generic_file_write_iter", "xfs_ilock", "btrfs_inode_lock"],
    &["pipe_write", "anon_pipe_write", "pipe_read", "anon_pipe_read", "pipe_lock"],
];

/// Commands of `fcntl` that wait for a lock.
const WAITING_COMMANDS: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];

/// What was found of observed processes so far.
#[derive(Debug)]
pub struct Looks {
    /// Whether the kernel's locks are meant, too.
    kernel: bool,
    next: Instant,
    /// The process that was looked at last.
    last: u32,
    found: HashMap<u32, Found>,
}

/// What was found of one process.
#[derive(Debug, Default)]
struct Found {
    looks: u64,
    /// By call, and path of the file.
    waits: HashMap<(&'static str, Option<String>), Waits>,
}

/// What was found of waits for one lock.
#[derive(Debug, Default)]
struct Waits {
    /// Σ threads over the looks.
    threads: f64,
    /// Looks at which the kernel's list named somebody.
    of_looks: u64,
    /// Those that it named, with their names, and how often.
    holders: HashMap<u32, (String, u64)>,
}

impl Waits {
    /// These have the lock.
    fn meet(&mut self, holders: &BTreeSet<u32>) {
        self.of_looks += u64::from(!holders.is_empty());
        for &pid in holders {
            if self.holders.len() >= MAX_HOLDERS && !self.holders.contains_key(&pid) {
                continue;
            }
            let comm = || shown_bytes(proc::read(format!("/proc/{pid}/comm")).unwrap_or_default().trim_ascii_end());
            self.holders.entry(pid).or_insert_with(|| (comm(), 0)).1 += 1;
        }
    }

    fn holder(&self) -> Option<FileHolder> {
        let (&pid, (comm, looks)) = self.holders.iter().max_by_key(|&(&pid, &(_, looks))| (looks, Reverse(pid)))?;
        Some(FileHolder { pid, comm: comm.clone(), looks: *looks, of_looks: self.of_looks })
    }
}

/// By process that waits for the lock of a file: who has that lock; nobody if it waits for those of several files.
type Holders = HashMap<u32, BTreeSet<u32>>;

impl Looks {
    /// Nothing was found yet. `kernel`: the kernel's own locks are not observed either.
    #[must_use]
    pub fn new(kernel: bool) -> Self {
        Self { kernel, next: Instant::now(), last: 0, found: HashMap::new() }
    }

    /// Looks at the next ones of these processes, if it is time.
    pub fn look(&mut self, pids: impl FnOnce() -> Vec<u32>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let mut pids = pids();
        pids.sort_unstable();
        let seen = pids.partition_point(|&pid| pid <= self.last);
        pids.rotate_left(seen);
        let mut left = MAX_THREADS;
        let holders = LazyCell::new(|| holders(&fs::read_to_string(LOCKS).unwrap_or_default()));
        for pid in pids {
            let Some(looked) = self.look_at(pid, || &holders) else { continue };
            self.last = pid;
            left = left.saturating_sub(looked);
            if left == 0 {
                break;
            }
        }
    }

    /// Looks at the threads of a process; `None` if it is not there, else how many it looked at.
    fn look_at<'a>(&mut self, pid: u32, holders: impl Fn() -> &'a Holders) -> Option<usize> {
        let all: Vec<_> =
            proc::threads(pid).ok()?.into_iter().map(|tid| PathBuf::from(format!("/proc/{pid}/task/{tid}"))).collect();
        if self.found.len() >= MAX_PROCESSES && !self.found.contains_key(&pid) {
            return None;
        }
        let found = self.found.entry(pid).or_default();
        // Others each time.
        let step = all.len().div_ceil(MAX_THREADS).max(1);
        let looked: Vec<&PathBuf> = all.iter().skip(found.looks as usize % step).step_by(step).collect();
        let each = all.len() as f64 / looked.len().max(1) as f64;
        found.looks += 1;
        let mut wanted = BTreeSet::new();
        for (call, file) in looked.iter().filter_map(|task| waits(task, self.kernel)) {
            let mut key = (call, file.and_then(|fd| file_at(pid, fd)));
            if found.waits.len() >= MAX_FILES && !found.waits.contains_key(&key) {
                key.1 = None;
            }
            found.waits.entry(key.clone()).or_default().threads += each;
            if key.1.is_some() {
                wanted.insert(key);
            }
        }
        // The kernel's list does not tell which thread waits for which of several.
        if let (Some(only), 1) = (wanted.first(), wanted.len())
            && let Some(who) = holders().get(&pid)
        {
            found.waits.entry(only.clone()).or_default().meet(who);
        }
        Some(looked.len())
    }

    /// Calls in which threads were found.
    #[must_use]
    pub fn found(&self) -> Vec<Unwatched> {
        let mut all: Vec<Unwatched> = self
            .found
            .iter()
            .flat_map(|(&pid, Found { looks, waits })| {
                let looks = *looks;
                waits.iter().map(move |((call, file), waits)| Unwatched {
                    pid,
                    call: (*call).to_owned(),
                    looks,
                    threads: waits.threads.round() as u64,
                    file: file.clone(),
                    holder: waits.holder(),
                })
            })
            .collect();
        all.sort_by(|a, b| (a.pid, &a.call, &a.file).cmp(&(b.pid, &b.call, &b.file)));
        all
    }
}

/// The path of a process's open file. The file itself is not touched: that may take for ever where it is on another machine.
fn file_at(pid: u32, fd: u64) -> Option<String> {
    let path = proc::link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    Some(shown(&path.to_string_lossy()).into_owned())
}

/// Who waits for whom, by lines like `1: FLOCK  ADVISORY  WRITE 4638 fe:00:131 0 EOF`, below which `1: -> FLOCK  ADVISORY  WRITE 4640 fe:00:131 0 EOF`
/// waits. Locks that belong to an open file (`F_OFD_SETLK`) are nobody's.
fn holders(locks: &str) -> Holders {
    let mut has: HashMap<&str, u32> = HashMap::new();
    let mut waits: Vec<(&str, u32, &str)> = Vec::new();
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [number, "->", _, _, _, pid, file, ..] => waits.extend(pid.parse().ok().map(|pid| (number, pid, file))),
            [number, _, _, _, pid, ..] => has.extend(pid.parse().ok().map(|pid| (number, pid))),
            _ => {}
        }
    }
    let mut holders = Holders::new();
    let mut files: HashMap<u32, &str> = HashMap::new();
    for &(number, pid, file) in &waits {
        files.entry(pid).or_insert(file);
        holders.entry(pid).or_default().extend(has.get(number));
    }
    let several = waits.iter().filter(|(_, pid, file)| files.get(pid) != Some(file));
    several.for_each(|(_, pid, _)| drop(holders.remove(pid)));
    holders
}

/// Where a thread waits for such a lock, if it does, and by which open file.
fn waits(task: &Path, kernel: bool) -> Option<(&'static str, Option<u64>)> {
    let at = rights::reach(|| Syscall::from_file(task.join("syscall"))).ok()?;
    let of_kernel = || kernel && may_wait_in_kernel(&at) && is_uninterruptible(task) && waits_in_kernel(task);
    waits_in(&at).or_else(|| of_kernel().then_some((KERNEL_LOCK, None)))
}

/// Futex calls are watched, and whoever runs waits for nothing.
fn may_wait_in_kernel(at: &Syscall) -> bool {
    matches!(at, Syscall::Blocked { syscall_number, .. } if *syscall_number != libc::SYS_futex)
}

fn is_uninterruptible(task: &Path) -> bool {
    let stat = proc::text(task.join("stat")).unwrap_or_default();
    // Behind the name, which may be anything.
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('D'))
}

/// Whether a thread's innermost function in the kernel is one that locks. The kernel shows the stack to root only.
fn waits_in_kernel(task: &Path) -> bool {
    is_for_lock(&proc::text(task.join("stack")).unwrap_or_default())
}

/// Lines like `[<0>] lock_mm_and_find_vma+0x32/0x100`, innermost first.
fn is_for_lock(stack: &str) -> bool {
    let innermost = stack.lines().next().and_then(|line| line.split_once("] ")?.1.split_once('+'));
    innermost.is_some_and(|(function, _)| KERNEL.iter().any(|row| row.contains(&function)))
}

/// The call in which a thread waits for such a lock, if it does, and the open file by which it does.
fn waits_in(at: &Syscall) -> Option<(&'static str, Option<u64>)> {
    let Syscall::Blocked { syscall_number, argument_registers: [first, second, ..], .. } = *at else { return None };
    // Files and commands are an `int` each.
    let int = |register: u64| register & u64::from(u32::MAX);
    match syscall_number {
        libc::SYS_flock => Some(("flock", Some(int(first)))),
        libc::SYS_fcntl if WAITING_COMMANDS.contains(&int(second)) => Some(("fcntl", Some(int(first)))),
        libc::SYS_semop | libc::SYS_semtimedop => Some(("semop", None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn whoever_waits_for_a_lock_of_a_file_is_found() {
        let held = tempfile::NamedTempFile::new().unwrap();
        held.as_file().lock().unwrap();
        let wanted = File::open(held.path()).unwrap();
        let waiter = std::thread::spawn(move || wanted.lock().unwrap());
        let me = std::process::id();
        let mut looks = Looks::new(false);
        // Beyond the highest pid there is.
        looks.look(|| vec![1 << 25, me]);
        while looks.found().is_empty() {
            let holders = holders(&fs::read_to_string(LOCKS).unwrap());
            looks.look_at(me, || &holders);
        }
        let [found] = &looks.found()[..] else { panic!("{:?}", looks.found()) };
        assert_eq!((found.pid, found.call.as_str()), (me, "flock"));
        assert_eq!(found.file.as_deref(), held.path().to_str());
        let holder = found.holder.as_ref().expect("the kernel lists it");
        assert!(holder.pid == me && holder.looks == holder.of_looks, "{holder:?}");
        assert!(found.threads >= 1 && found.looks >= 1);
        held.as_file().unlock().unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn functions_of_the_kernel_that_wait_for_locks() {
        let lock = "[<0>] vm_mmap_pgoff+0xa5/0x210\n[<0>] do_syscall_64+0x71/0x280\n";
        let disk = "[<0>] folio_wait_bit_common+0x138/0x310\n[<0>] filemap_fault+0x5c6/0x9d0\n[<0>] vm_mmap_pgoff+0xa5/0x210\n";
        assert!(is_for_lock(lock) && !is_for_lock(disk) && !is_for_lock("") && !is_for_lock("vm_mmap_pgoff+0xa5"));
    }

    #[test]
    fn commands_that_do_not_wait_are_none() {
        let at = |syscall_number, second| Syscall::Blocked {
            syscall_number,
            argument_registers: [3, second, 0, 0, 0, 0],
            stack_pointer: 0,
            program_counter: 0,
        };
        let fcntl = Some(("fcntl", Some(3)));
        assert_eq!(waits_in(&at(libc::SYS_fcntl, libc::F_SETLKW as u64)), fcntl);
        assert_eq!(waits_in(&at(libc::SYS_fcntl, 0xffff_ffff_0000_0000 | libc::F_OFD_SETLKW as u64)), fcntl);
        assert_eq!(waits_in(&at(libc::SYS_fcntl, libc::F_GETLK as u64)), None);
        assert_eq!(waits_in(&at(libc::SYS_semop, 0)), Some(("semop", None)));
        assert_eq!(waits_in(&Syscall::Running), None);
    }

    #[test]
    fn who_has_locks_of_files() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4638 fe:00:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4640 fe:00:131 0 EOF\n\
                     2: OFDLCK ADVISORY  WRITE -1 fe:00:132 0 EOF\n2: -> OFDLCK ADVISORY  WRITE -1 fe:00:132 0 EOF\n\
                     3: POSIX  ADVISORY  READ 7 00:1a:9 0 0\n3: -> POSIX  ADVISORY  WRITE 9 00:1a:9 0 0\n\
                     4: POSIX  ADVISORY  READ 8 00:1a:9 5 6\n4:  -> POSIX  ADVISORY  WRITE 9 00:1a:9 5 6\n\
                     5: FLOCK  ADVISORY  WRITE 6 00:1a:8 0 EOF\n5: -> FLOCK  ADVISORY  WRITE 5 00:1a:8 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 5 fe:00:131 0 EOF\nnonsense\n";
        let expected = [(4640, BTreeSet::from([4638])), (9, BTreeSet::from([7, 8]))];
        assert_eq!(holders(locks), Holders::from(expected), "5 waits for two files");
    }
}
