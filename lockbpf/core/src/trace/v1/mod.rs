//! Version 1 of what frames contain. A later version gets a module of its own beside this one, which stays, so that old
//! recordings stay readable.

pub(super) mod accesses;
pub(super) mod decode;
pub(super) mod encode;
pub(super) mod estimates;
pub(super) mod names;
mod parts;
pub(super) mod rows;
pub(super) mod shape;

/// The number of this version.
pub(super) const VERSION: u32 = 1;

/// Code of an event whose shape is defined with it.
const NEW_SHAPE: u64 = 0;
/// Code of [`crate::event::Event::Process`].
const PROCESS: u64 = 1;
/// Code of [`crate::event::Event::ThreadExit`].
const THREAD_EXIT: u64 = 2;
/// Set in the process of a thread's sums: the thread ended it.
const ENDS_PROCESS: u64 = 1 << 32;
/// Codes from here on are numbers of shapes.
const SHAPES: u64 = 3;

/// Entries of one dictionary at most. Writers begin anew at half of it.
const MAX_DICTIONARY: usize = 1 << 18;

/// How a thread that another event names is told: two bits each for the owner and the waker.
mod reference {
    /// There is none.
    pub(super) const NONE: u64 = 0;
    /// The thread that had the lock last, as far as events told before this one.
    pub(super) const LAST_HOLDER: u64 = 1;
    /// The owner (for the waker), or the owner named for this lock before (for the owner).
    pub(super) const SAME_OWNER: u64 = 2;
    /// Its number in the dictionary of threads follows.
    pub(super) const EXPLICIT: u64 = 3;
}
