//! What a wait in progress is for, as far as the call and the futex word tell.

use crate::graph::plausible_owner;
use crate::observation::OpenWait;
use lockbpf_common::kind::Via;
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::parking::{FOR_LOCK, FOR_PYTHON};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A lock.
    Lock,
    /// A word that is expected to have the value of a contended lock, and no more is known. A stack may tell.
    Unknown,
    /// A semaphore's permit: it may stand for a lock, or for work that is to come.
    Permit,
    /// Something else: a condition, a barrier, the end of a thread.
    Other,
}

/// What a wait is for.
#[must_use]
pub fn purpose(wait: &OpenWait) -> Purpose {
    match wait.via {
        Via::CondWait | Via::Barrier => Purpose::Other,
        Via::SemWait | Via::TimedSemWait => Purpose::Permit,
        Via::Futex => of_word(wait),
        _ => Purpose::Lock,
    }
}

fn of_word(wait: &OpenWait) -> Purpose {
    match wait.expected {
        // parking_lot's lock stands beside its waiter's word.
        Some(FOR_LOCK) => Purpose::Lock,
        Some(FOR_PYTHON) => Purpose::Permit,
        Some(CONTENDED_VALUE) => match plausible_owner(CONTENDED_VALUE, wait.owner, wait.tid) {
            Some(_) => Purpose::Lock,
            None => Purpose::Unknown,
        },
        _ => Purpose::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Lock, Tid};
    use crate::units::Time;

    fn wait(via: Via, expected: Option<u32>, owner: Option<u32>) -> OpenWait {
        OpenWait {
            tid: Tid(7),
            lock: Lock::default(),
            site: None,
            since: Time(0),
            owner: owner.map(Tid),
            stack: None,
            via,
            expected,
            before_start: false,
        }
    }

    #[test]
    fn only_who_waits_for_a_lock_waits_for_one() {
        for (via, expected, owner, is) in [
            (Via::Lock, None, None, Purpose::Lock),
            (Via::CondReacquire, None, None, Purpose::Lock),
            (Via::JavaMonitor, None, None, Purpose::Lock),
            (Via::CondWait, None, None, Purpose::Other),
            (Via::SemWait, None, None, Purpose::Permit),
            (Via::Futex, Some(2), Some(8), Purpose::Lock),
            (Via::Futex, Some(2), Some(7), Purpose::Unknown),
            (Via::Futex, Some(2), None, Purpose::Unknown),
            (Via::Futex, Some(0), Some(8), Purpose::Other),
            (Via::Futex, Some(FOR_LOCK), None, Purpose::Lock),
            (Via::Futex, Some(FOR_PYTHON), None, Purpose::Permit),
            (Via::Futex, None, None, Purpose::Other),
        ] {
            assert_eq!(purpose(&wait(via, expected, owner)), is, "{via:?} {expected:?} {owner:?}");
        }
    }
}
