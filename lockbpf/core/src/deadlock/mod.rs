//! Threads that wait for one another in a circle, and orders of locking that could lead there.
#![forbid(unsafe_code)]

mod cycle;
mod inversion;
mod watch;

pub use cycle::find;
pub use inversion::{Inversion, MAX_INVERSIONS, inversions};
pub use watch::{Looked, Wait, Watch};

use crate::id::{Lock, Site, StackId, Tid};
use crate::units::Time;

/// Threads that wait for one another in a circle. As long as it stands none of them goes on; whether it stands for ever is known
/// only if nobody else can give back their locks ([`Self::owned`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was found.
    pub found: Time,
    /// When it was seen last.
    pub seen: Time,
    /// When it was over; `None` if it stood to the end of the observation, or of the process.
    pub ended: Option<Time>,
    /// Whether the process ended before the observation did, and nothing shows that the circle had been over before.
    pub exited: bool,
    /// The threads, each waiting for a lock that the next one holds, the last for one of the first.
    pub members: Vec<Blocked>,
    /// Whether it was there before the observation began.
    pub before_start: bool,
    /// Whether each of the locks can be given back by its holder only: the C library refuses it to others.
    pub owned: bool,
}

impl Deadlock {
    /// When the circle closed, as far as was seen: the last of its waits began.
    #[must_use]
    pub fn closed(&self) -> Time {
        self.members.iter().map(|member| member.since).max().unwrap_or(self.found)
    }

    /// Up to when it is known to have stood.
    #[must_use]
    pub fn until(&self) -> Time {
        self.ended.unwrap_or(self.seen)
    }

    /// Whether none of its threads will ever go on: nobody else can let them, and the circle stood when it was looked at last.
    #[must_use]
    pub fn is_for_ever(&self) -> bool {
        self.owned && self.ended.is_none() && !self.exited
    }
}

/// One thread of a deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The thread.
    pub tid: Tid,
    /// What it waits for.
    pub lock: Lock,
    /// Where it asked; `None` if it asked before the observation began.
    pub site: Option<Site>,
    /// Since when, as far as was seen.
    pub since: Time,
    /// Its stack when it asked.
    pub stack: Option<StackId>,
}

/// That a lock was taken while another was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOrder {
    /// The lock held: of several, the one taken last.
    pub outer: Lock,
    /// Where that was requested.
    pub outer_site: Site,
    /// The lock taken.
    pub inner: Lock,
    /// Where that was requested.
    pub inner_site: Site,
    /// A thread that did so.
    pub tid: Tid,
    /// Whether other threads did so, too.
    pub others: bool,
    /// How often.
    pub count: u64,
}
