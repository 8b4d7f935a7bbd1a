//! How to analyse events: what the wait graph and the analyst above it have in common.

/// How to analyse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to keep every node and edge ([`crate::graph::findings::Detail`]): memory grows with the input.
    pub detail: bool,
    /// Whether to give out each section, and each wait that is divided, once nothing can change it any more ([`crate::graph::findings::Told`]):
    /// memory does not grow with the input.
    pub told: bool,
    /// Charge each arrival at a barrier with the whole time since the earlier arrival (SyncProf's overlapping costs) and
    /// not only with the time since the previous one (exclusive, conserving).
    pub overlapping_barriers: bool,
    /// Whether to add up sums from the steps; the kernel's own are used where there are any.
    pub totals: bool,
    /// Steps that the sorter holds back.
    pub hold_back: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            detail: false,
            told: false,
            overlapping_barriers: false,
            totals: true,
            hold_back: crate::order::CAPACITY,
        }
    }
}
