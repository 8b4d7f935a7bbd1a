//! Processes that are put off until they have lived for a while: where lockbpf has hardly time to look at them, those that come fastest have
//! gone by then.

use crate::leader;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For how long.
const FRESH: Duration = Duration::from_millis(200);

/// How long a process that is known since then is to wait yet.
#[must_use]
pub(super) fn left(since: Instant) -> Duration {
    FRESH.saturating_sub(since.elapsed())
}

/// Processes in the order in which they came, and what is to be done with each.
#[derive(Debug)]
pub struct PutOff<T>(VecDeque<(Instant, u32, T)>);

impl<T> Default for PutOff<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

/// A process whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown<T> {
    /// The process.
    pub pid: u32,
    /// What is to be done with it.
    pub what: T,
    /// Whether it has gone meanwhile.
    pub is_gone: bool,
}

impl<T> PutOff<T> {
    /// Puts a process off.
    pub fn push(&mut self, pid: u32, what: T) {
        self.0.push_back((Instant::now(), pid, what));
    }

    /// How long until the next one's time has come; `None` if there is none.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.front().map(|&(since, ..)| left(since))
    }

    /// The next one whose time has come; with `all`, the next one whether it has or not.
    pub fn next(&mut self, all: bool) -> Option<Grown<T>> {
        let (_, pid, what) = self.0.pop_front_if(|(since, ..)| all || left(*since).is_zero())?;
        Some(Grown { pid, what, is_gone: leader::is_gone(pid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_for_its_time_unless_there_is_time_for_all() {
        let own = std::process::id();
        let mut put_off = PutOff::default();
        put_off.push(own, 'a');
        put_off.push(1 << 25, 'b');
        assert!(put_off.left().is_some_and(|left| left <= FRESH));
        put_off.0[0].0 = put_off.0[0].0.checked_sub(FRESH).unwrap();
        assert_eq!(put_off.left(), Some(Duration::ZERO));
        assert_eq!(put_off.next(false), Some(Grown { pid: own, what: 'a', is_gone: false }));
        assert_eq!(put_off.next(true), Some(Grown { pid: 1 << 25, what: 'b', is_gone: true }));
        assert_eq!((put_off.next(true), put_off.left()), (None, None));
    }
}
