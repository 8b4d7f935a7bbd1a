//! Who holds a lock: glibc's mutex names its owner in its own memory, in the numbers of its pid namespace.

use crate::id::Tid;
use crate::proc;
use crate::rights;
use lockbpf_common::layout::{FUTEX_OWNER_DIED, FUTEX_WAITERS, MutexHead, mutex_head, mutex_kind, rwlock};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The part of a lock word that carries a tid, where it does.
const TID_MASK: u32 = !(FUTEX_WAITERS | FUTEX_OWNER_DIED);
/// What glibc's lock word is while somebody (perhaps) waits, if it carries no tid.
const CONTENDED: u32 = 2;

/// A number that is no process's may be one's after this.
const REREAD: Duration = Duration::from_secs(1);

/// Reads from another process's memory; `None` if it is not there, or not permitted.
pub(in crate::capture) fn read<const N: usize>(pid: u32, addr: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read_into(pid, addr, &mut bytes)?;
    Some(bytes)
}

/// The same, of as many bytes as there is room for.
pub(in crate::capture) fn read_into(pid: u32, addr: u64, bytes: &mut [u8]) -> Option<()> {
    let wanted = bytes.len();
    let remote = RemoteIoVec { base: usize::try_from(addr).ok()?, len: wanted };
    let mut read = |tid: u32| {
        let pid = Pid::from_raw(tid.cast_signed());
        rights::reach(|| process_vm_readv(pid, &mut [IoSliceMut::new(bytes)], &[remote])).ok()
    };
    // A main thread that has ended has no memory, others have.
    let got = read(pid).or_else(|| read(crate::leader::stand_in(pid)?))?;
    (got == wanted).then_some(())
}

/// A holder, as the lock names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The thread.
    pub(super) tid: Tid,
    /// Whether the C library lets nobody else give the lock back.
    pub(super) alone: bool,
}

/// The head of a glibc mutex.
fn mutex(pid: u32, addr: u64) -> Option<MutexHead> {
    let bytes = read::<20>(pid, addr)?;
    let at = |at: u64| field(&bytes, usize::try_from(at).ok()?);
    Some(MutexHead {
        word: at(0)?,
        count: at(mutex_head::COUNT)?,
        owner: at(mutex_head::OWNER)?,
        users: at(mutex_head::USERS)?,
        kind: at(mutex_head::KIND)?,
    })
}

/// A number inside a lock's head.
fn field(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|f| u32::from_ne_bytes(*f))
}

/// The writer that holds a glibc read-write lock; readers are not named.
fn writer(pid: u32, addr: u64) -> Option<u32> {
    let bytes = read::<28>(pid, addr)?;
    let (readers, writer) = (field(&bytes, 0)?, field(&bytes, rwlock::WRITER as usize)?);
    (rwlock::is_taken(readers, true) && writer != 0).then_some(writer)
}

/// The owner as a mutex of a known kind names it.
fn owner_of_mutex(MutexHead { word, owner, kind, .. }: MutexHead) -> Option<u32> {
    let in_word = kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0;
    let owner = match in_word {
        // Its holder died: whoever comes next gets it.
        true if word & FUTEX_OWNER_DIED != 0 => 0,
        true => word & TID_MASK,
        false if word == 0 => 0,
        false => owner,
    };
    (owner != 0).then_some(owner)
}

/// Whether a mutex refuses to be given back by others than its holder: glibc checks that of these kinds.
const fn is_owned(kind: u32) -> bool {
    kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0
        || matches!(kind & mutex_kind::TYPE_MASK, mutex_kind::RECURSIVE | mutex_kind::ERRORCHECK)
}

/// The owner as a futex word names it that may be a mutex's, or anything: only if all around it is as glibc has it. Other locks
/// have data there.
fn owner_of_word(head: MutexHead) -> Option<u32> {
    let MutexHead { word, owner, .. } = head;
    let owner = match word {
        CONTENDED if head.looks_held() => owner,
        _ if word & FUTEX_WAITERS != 0 && word & FUTEX_OWNER_DIED == 0 => word & TID_MASK,
        _ => 0,
    };
    (owner != 0).then_some(owner)
}

/// Names owners as the initial pid namespace numbers them.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Of the processes in a pid namespace of their own: their threads by the number that they have in there. `None` for a
    /// process whose threads have one number only.
    inner: HashMap<u32, Option<HashMap<u32, Tid>>>,
    /// The processes of other pid namespaces than lockbpf's own, by their numbers in there, and when lockbpf read these.
    peers: HashMap<PathBuf, (Instant, HashMap<u32, Tid>)>,
}

impl Owners {
    /// Forgets the threads: some may have ended.
    pub(super) fn forget(&mut self) {
        self.inner.clear();
    }

    /// The thread that holds a mutex.
    pub(super) fn of_mutex(&mut self, pid: u32, addr: u64) -> Option<Owner> {
        let head = mutex(pid, addr)?;
        let tid = self.thread(pid, owner_of_mutex(head)?)?;
        Some(Owner { tid, alone: is_owned(head.kind) })
    }

    /// The thread that writes under a read-write lock.
    pub(super) fn of_rwlock(&mut self, pid: u32, addr: u64) -> Option<Owner> {
        let writer = writer(pid, addr)?;
        Some(Owner { tid: self.thread(pid, writer)?, alone: false })
    }

    /// The thread that holds the mutex which this futex word may be.
    pub(super) fn of_word(&mut self, pid: u32, addr: u64) -> Option<Owner> {
        let head = mutex(pid, addr)?;
        let tid = self.thread(pid, owner_of_word(head)?)?;
        Some(Owner { tid, alone: head.word == CONTENDED && is_owned(head.kind) })
    }

    /// The living thread of a process with this number in the process's own pid namespace.
    pub(super) fn thread(&mut self, pid: u32, number: u32) -> Option<Tid> {
        match self.inner.entry(pid).or_insert_with(|| inner_numbers(pid)) {
            Some(threads) => threads.get(&number).copied(),
            None => proc::is_there(format!("/proc/{pid}/task/{number}")).then_some(Tid(number)),
        }
    }

    /// The living process with this number in the pid namespace of another one, by its main thread.
    pub(super) fn process(&mut self, pid: u32, number: u32) -> Option<Tid> {
        let of = namespace(pid)?;
        if Some(&of) == namespace(std::process::id()).as_ref() {
            return proc::is_there(format!("/proc/{number}")).then_some(Tid(number));
        }
        let known = self.peers.get(&of).filter(|(read, peers)| peers.contains_key(&number) || read.elapsed() < REREAD);
        if known.is_none() {
            let peers = peers(&of);
            self.peers.insert(of.clone(), (Instant::now(), peers));
        }
        self.peers.get(&of)?.1.get(&number).copied()
    }
}

/// What stands for the pid namespace of a process.
fn namespace(pid: u32) -> Option<PathBuf> {
    proc::link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The processes of a pid namespace by their numbers in there.
fn peers(of: &Path) -> HashMap<u32, Tid> {
    let inside =
        proc::processes().unwrap_or_default().into_iter().filter(|&pid| namespace(pid).is_some_and(|own| own == of));
    let number = |pid: u32| numbers(&proc::text(format!("/proc/{pid}/status")).ok()?);
    inside.filter_map(|pid| Some((number(pid)?.1, Tid(pid)))).collect()
}

/// The threads of a process by their numbers in its pid namespace; `None` if that is the one of `/proc`.
fn inner_numbers(pid: u32) -> Option<HashMap<u32, Tid>> {
    let of = |tid: u32| numbers(&proc::text(format!("/proc/{pid}/task/{tid}/status")).ok()?);
    let (outer, inner) = of(pid)?;
    if outer == inner {
        return None;
    }
    Some(proc::threads(pid).ok()?.into_iter().filter_map(|tid| Some((of(tid)?.1, Tid(tid)))).collect())
}

/// A thread's outermost and innermost number, from the line `NSpid:` of its status.
fn numbers(status: &str) -> Option<(u32, u32)> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse);
    let outer = numbers.next()?.ok()?;
    Some((outer, numbers.next_back().unwrap_or(Ok(outer)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_or_it_is_not() {
        let pid = std::process::id();
        let word = 0x0123_4567_89ab_cdefu64;
        let addr = std::ptr::from_ref(&word) as u64;
        assert_eq!(read(pid, addr), Some(word.to_ne_bytes()));
        for addr in [0, 1, u64::MAX, 1 << 63] {
            assert_eq!(read::<8>(pid, addr), None, "{addr:#x}");
            assert_eq!(Owners::default().of_mutex(pid, addr), None, "{addr:#x}");
        }
        assert_eq!(read::<8>(u32::MAX, addr), None);
    }

    #[test]
    fn owners_of_all_kinds() {
        let owner = |word, owner, kind| owner_of_mutex(MutexHead { word, count: 0, owner, users: 1, kind });
        assert_eq!(owner(2, 77, 0), Some(77));
        assert_eq!(owner(1, 77, 1), Some(77));
        assert_eq!(owner(0, 77, 0), None, "it is free; the owner is left over");
        assert_eq!(owner(FUTEX_WAITERS | 77, 5, mutex_kind::ROBUST), Some(77));
        assert_eq!(owner(77, 5, mutex_kind::PRIO_INHERIT), Some(77));
        assert_eq!(owner(FUTEX_OWNER_DIED | 77, 5, mutex_kind::ROBUST), None);
        let owned = [0, 1, 2, 3, mutex_kind::ROBUST, mutex_kind::PRIO_INHERIT, mutex_kind::SHARED].map(is_owned);
        assert_eq!(owned, [false, true, true, false, true, true, false]);
    }

    #[test]
    fn owners_of_words_that_may_be_anything() {
        let held = MutexHead { word: 2, count: 0, owner: 77, users: 1, kind: 0 };
        assert_eq!(owner_of_word(held), Some(77));
        assert_eq!(owner_of_word(MutexHead { word: FUTEX_WAITERS | 77, ..MutexHead::default() }), Some(77));
        for word in [0, 1, 3, 77, FUTEX_WAITERS | FUTEX_OWNER_DIED | 77] {
            assert_eq!(owner_of_word(MutexHead { word, ..held }), None, "{word:#x}");
        }
        // A capacity of 77, and the beginning of a pointer to what has it.
        assert_eq!(owner_of_word(MutexHead { users: 0, kind: 0x1000, ..held }), None);
    }

    #[test]
    fn threads_are_known_by_two_numbers() {
        assert_eq!(numbers("Name:\tx\nNSpid:\t4242\t7\t3\nThreads:\t1\n"), Some((4242, 3)));
        assert_eq!(numbers("NSpid:\t4242\n"), Some((4242, 4242)));
        for bad in ["", "NSpid:\n", "NSpid:\tx\n", "Pid:\t1\n"] {
            assert_eq!(numbers(bad), None, "{bad:?}");
        }
        let pid = std::process::id();
        let mut owners = Owners::default();
        if inner_numbers(pid).is_none() {
            assert_eq!(owners.thread(pid, pid), Some(Tid(pid)));
        }
        assert_eq!(owners.thread(pid, u32::MAX), None);
    }
}
