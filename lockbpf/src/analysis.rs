//! One iterator of events in, one observation out: the same for live capture, trace files and synthetic events.
#![forbid(unsafe_code)]

/// How to analyse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to keep every node and edge ([`crate::graph::findings::Detail`]): memory grows with the input.
    pub detail: bool,
    /// Charge each arrival at a barrier with the whole time since the earlier arrival (SyncProf's overlapping costs) and
    /// not only with the time since the previous one (exclusive, conserving).
    pub overlapping_barriers: bool,
}
