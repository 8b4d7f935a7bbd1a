//! What pictures of a report are drawn from, beside the report itself.

use super::histograms::Histograms;
use super::profile::Profile;
use super::schema::Ns;
use super::timeline::Timeline;

/// What pictures of a report are drawn from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// All waiting by stack.
    pub profile: Profile,
    /// Every recorded wait and hold in time.
    pub timeline: Timeline,
    /// One for each lock, in the report's order.
    pub histograms: Vec<Histograms>,
    /// The critical path from its beginning on, as far as its threads waited, held or are to blame.
    pub path: Vec<Stretch>,
}

/// A stretch of the critical path that one thread was on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The thread: in [`Timeline::threads`].
    pub thread: usize,
    /// Since when, on the clock of the timeline.
    pub from_ns: Ns,
    /// Until when.
    pub to_ns: Ns,
}
