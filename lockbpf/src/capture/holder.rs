//! Who holds a lock right now, and what that thread does: by the lock's own memory, the thread's state on the kernel side, and `/proc`. All
//! of it is read from a running target and may be out of date at once; what cannot be known is left out.

use super::open_stacks;
use super::owner::Owners;
use super::session::{Hold, Session};
use crate::id::{Lock, Process, Tid};
use crate::proc;
use crate::units::Time;
use crate::unwind::Unwind;
use lockbpf_common::off_cpu::Reason;

/// How a lock names its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// As glibc's mutexes do.
    Mutex,
    /// As glibc's read-write locks name their writer.
    ReadWrite,
    /// Perhaps as a mutex, if all around its word looks like one.
    Word,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs.
    Running,
    /// It could run; whether it does, or another thread has the CPU, is not known.
    Ready,
    /// It could run, but has no CPU.
    Preempted,
    /// It sleeps, in this system call if its number is known.
    Asleep(Option<u32>),
    /// It sleeps and cannot be interrupted, as in I/O.
    Blocked(Option<u32>),
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// That could not be read.
    Unknown,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The thread.
    pub tid: Tid,
    /// Since when it holds the lock, and where it got it; `None` where not every lock operation is observed at the moment.
    pub hold: Option<Hold>,
    /// What it does.
    pub doing: Doing,
    /// Since when it is off the CPU, if it is; `None` if that is not known.
    pub off_since: Option<Time>,
    /// Where it sleeps: return addresses, innermost first; empty if it does not, or that could not be read.
    pub stack: Vec<u64>,
}

/// Looks for holders.
#[derive(Debug, Default)]
pub struct Holders {
    owners: Owners,
}

impl Holders {
    /// Forgets what is known of threads, some of which may have ended: before each look.
    pub fn forget(&mut self) {
        self.owners.forget();
    }

    /// The holder of a lock of the process `pid`; `None` if the lock names nobody.
    pub fn of(
        &mut self,
        session: &Session,
        pid: u32,
        lock: Lock,
        named: Named,
        unwinder: &mut dyn Unwind,
    ) -> Option<Holder> {
        let owner = match named {
            Named::Mutex => self.owners.of_mutex(pid, lock.addr),
            Named::ReadWrite => self.owners.of_rwlock(pid, lock.addr),
            Named::Word => self.owners.of_word(pid, lock.addr),
        }?;
        Some(Holder::look(session, pid, lock, owner.tid, unwinder))
    }
}

impl Holder {
    /// What a thread of the process `pid` does that holds a lock.
    pub fn look(session: &Session, pid: u32, lock: Lock, tid: Tid, unwinder: &mut dyn Unwind) -> Self {
        let state = session.thread_now(tid);
        let hold = state.iter().flat_map(|now| &now.holds).find(|hold| hold.lock == lock.addr).copied();
        let off = state.as_ref().and_then(|now| now.off);
        let doing = doing(pid, tid, hold.is_some(), off.map(|(reason, _)| reason));
        let off_since = off.map(|(_, since)| since).filter(|_| !matches!(doing, Doing::Running | Doing::Ready));
        let sleeps = matches!(doing, Doing::Asleep(Some(_)) | Doing::Blocked(Some(_)));
        let stack = if sleeps { stack(lock.process, tid, unwinder) } else { None };
        Self { tid, hold, doing, off_since, stack: stack.unwrap_or_default() }
    }
}

/// What a thread does. `watched`: its absences from the CPU are seen.
fn doing(pid: u32, tid: Tid, watched: bool, off: Option<Reason>) -> Doing {
    let of = |file: &str| proc::text(format!("/proc/{pid}/task/{}/{file}", tid.0)).ok();
    let call = || of("syscall").as_deref().and_then(open_stacks::Call::parse).map(|call| call.number);
    match of("stat").as_deref().and_then(state) {
        Some('R') if off == Some(Reason::Runnable) => Doing::Preempted,
        Some('R') if watched && off.is_none() => Doing::Running,
        Some('R') => Doing::Ready,
        Some('S') => Doing::Asleep(call()),
        Some('D') => Doing::Blocked(call()),
        Some('T' | 't') => Doing::Stopped,
        _ => Doing::Unknown,
    }
}

/// The letter for a thread's state in its `stat`. It follows the name, which may contain anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Where a thread sleeps, if it sleeps in the same system call before its stack is read and after.
fn stack(process: Process, tid: Tid, unwinder: &mut dyn Unwind) -> Option<Vec<u64>> {
    open_stacks::of_blocked(process, tid, unwinder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_state_is_behind_its_name() {
        assert_eq!(state("12 (a) b) S 1 2"), Some('S'));
        assert_eq!(state("12 (x) R"), Some('R'));
        assert_eq!(state("12"), None);
    }

    #[test]
    fn what_a_thread_does_is_known_as_far_as_it_is_shown() {
        let pid = std::process::id();
        let (ready, done) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            ready.send(nix::unistd::gettid().as_raw().cast_unsigned()).unwrap();
            let _ = ends.recv();
        });
        let tid = Tid(done.recv().unwrap());
        while !matches!(doing(pid, tid, false, None), Doing::Asleep(Some(_))) {
            std::thread::yield_now();
        }
        let own = Tid(nix::unistd::gettid().as_raw().cast_unsigned());
        assert_eq!(doing(pid, own, false, None), Doing::Ready, "nobody has seen whether it has a CPU");
        assert_eq!(doing(pid, own, true, None), Doing::Running);
        assert_eq!(doing(pid, own, true, Some(Reason::Runnable)), Doing::Preempted);
        drop(end);
        sleeper.join().unwrap();
        assert_eq!(doing(u32::MAX, own, true, None), Doing::Unknown);
    }
}
