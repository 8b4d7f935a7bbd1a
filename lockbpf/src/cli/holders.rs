//! Who holds a lock that is waited for now: how locks name their holders, since when, and what those do, in words.

use crate::alert::HeldFor;
use crate::capture::holder::{Doing, Named};
use crate::capture::session::Session;
use crate::id::Lock;
use crate::observation::OpenWait;
use crate::units::Time;
use lockbpf_common::kind::Via;

/// How a lock names its holder, or why it does not.
pub(super) type Naming = Result<Named, &'static str>;

/// How a lock that is waited for by this call names its holder.
pub(super) fn naming_of(via: Via) -> Naming {
    match via {
        Via::Lock | Via::TimedLock | Via::ClockLock | Via::CondReacquire => Ok(Named::Mutex),
        Via::ReadLock | Via::WriteLock | Via::TimedReadLock | Via::TimedWriteLock => Ok(Named::ReadWrite),
        Via::Futex => Ok(Named::Word),
        Via::Kernel => Err("the kernel does not show who holds its locks"),
        _ => Err("locks of this kind do not name their holder"),
    }
}

/// For how long a lock is held for which somebody sleeps, by futex calls: whoever gives it back has to wake one of those.
pub(super) fn held(session: &Session, lock: Lock, first: Option<&OpenWait>, at: Time) -> Option<HeldFor> {
    let first = first.filter(|wait| wait.via == Via::Futex && wait.lock.addr == lock.addr)?;
    match session.woken(lock) {
        Some(woken) if woken >= first.since => Some(HeldFor::AtMost(at.since(woken))),
        _ => (session.seen_since() < first.since).then_some(HeldFor::AtLeast(at.since(first.since))),
    }
}

/// Why nobody was found.
pub(super) fn nobody(named: Named) -> &'static str {
    match named {
        Named::Mutex => "its word names nobody at this moment: it is free, or being handed over",
        Named::ReadWrite => "no writer holds it; readers are not named by the lock",
        Named::Word => "a word that only futex calls show names nobody, or nobody holds it",
    }
}

/// What a thread does.
pub(super) fn in_words(doing: Doing) -> String {
    let call = |number: Option<u32>| match number.and_then(system_call) {
        Some(name) => format!(" in {name}"),
        None => String::new(),
    };
    match doing {
        Doing::Running => "running".to_owned(),
        Doing::Ready => "running, or waiting for a CPU".to_owned(),
        Doing::Preempted => "preempted: it has no CPU".to_owned(),
        Doing::Asleep(number) => format!("asleep{}", call(number)),
        Doing::Blocked(number) => format!("blocked in I/O{}", call(number)),
        Doing::Stopped => "stopped".to_owned(),
        Doing::Unknown => "what it does is not known".to_owned(),
    }
}

/// The name of a system call of this machine.
#[cfg(target_arch = "x86_64")]
fn system_call(number: u32) -> Option<&'static str> {
    Some(syscalls::x86_64::Sysno::new(number as usize)?.name())
}

/// The same where names are not known.
#[cfg(not(target_arch = "x86_64"))]
fn system_call(_number: u32) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_a_thread_does_is_told_in_words() {
        assert_eq!(in_words(Doing::Asleep(Some(74))), "asleep in fsync");
        assert_eq!(in_words(Doing::Blocked(None)), "blocked in I/O");
        assert_eq!(in_words(Doing::Asleep(Some(99_999))), "asleep");
    }
}
