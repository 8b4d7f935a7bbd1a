//! Who uses a location.

/// Nobody, one thread, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Who {
    #[default]
    Nobody,
    Only(u32),
    Several,
}

impl Who {
    fn add(&mut self, thread: u32) {
        *self = match *self {
            Self::Nobody => Self::Only(thread),
            Self::Only(only) if only == thread => Self::Only(only),
            Self::Only(_) | Self::Several => Self::Several,
        };
    }

    /// Whether there is anybody beside this thread.
    pub(super) fn other_than(self, thread: u32) -> bool {
        match self {
            Self::Nobody => false,
            Self::Only(only) => only != thread,
            Self::Several => true,
        }
    }
}

/// Who writes a location, and who accesses it at all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub(super) writes: Who,
    pub(super) accesses: Who,
}

impl Use {
    pub(super) fn add(&mut self, thread: u32, write: bool) {
        self.accesses.add(thread);
        if write {
            self.writes.add(thread);
        }
    }

    /// Whether one thread writes what another one accesses.
    pub(super) fn conflicts(self) -> bool {
        match self.writes {
            Who::Nobody => false,
            Who::Only(thread) => self.accesses.other_than(thread),
            Who::Several => true,
        }
    }
}
