//! Threads that wait for one another in a circle, and orders of locking that could lead there.
#![forbid(unsafe_code)]

mod cycle;
mod inversion;
mod watch;

pub use cycle::find;
pub use inversion::{Inversion, MAX_INVERSIONS, inversions};
pub use watch::{Wait, Watch};

use crate::id::{Lock, Site, StackId, Tid};
use crate::units::Time;

/// Threads that wait for one another in a circle: none of them will ever go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was found.
    pub found: Time,
    /// The threads, each waiting for a lock that the next one holds, the last for one of the first.
    pub members: Vec<Blocked>,
    /// Whether it was there before the observation began.
    pub before_start: bool,
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
