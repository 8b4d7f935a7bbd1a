//! What a condition of the gate compares, of the whole program or of a lock.

use super::super::change::{Change, SECOND};
use super::super::findings::{frequency, per_second, time};
use super::super::schema::{Diff, LockDiff};
use crate::report::text::percent;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Wait,
    Hold,
    Held,
    Contended,
    Acquisitions,
}

impl Quantity {
    /// The quantity of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Wait, Self::Hold, Self::Held, Self::Contended, Self::Acquisitions];
        all.into_iter().find(|quantity| quantity.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Hold => "hold",
            Self::Held => "held",
            Self::Contended => "contended",
            Self::Acquisitions => "acquisitions",
        }
    }

    /// What it is in words.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Wait => "waiting",
            Self::Hold => "mean hold",
            Self::Held => "time held",
            Self::Contended => "contended share",
            Self::Acquisitions => "acquisitions",
        }
    }

    /// The units that a bound may have, and what they are in this quantity's: ns, shares, or numbers, per s if it is a rate.
    pub(super) fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Wait | Self::Hold => &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", SECOND)],
            Self::Held | Self::Contended => &[("%", 0.01)],
            Self::Acquisitions => &[("", 1.0)],
        }
    }

    /// A value of [`Self::of_all`] or [`Self::of_lock`] in words.
    pub(super) fn show(self) -> fn(f64) -> String {
        match self {
            Self::Wait => per_second,
            Self::Hold => time,
            Self::Held | Self::Contended => percent,
            Self::Acquisitions => frequency,
        }
    }

    /// This quantity of the whole program, before and after.
    pub(super) fn of_all(self, diff: &Diff) -> Change {
        let all = &diff.overall;
        match self {
            // Threads that wait on average are seconds of waiting in a second.
            Self::Wait => all.waiting_threads.times(SECOND),
            Self::Hold => all.mean_hold_ns,
            Self::Held => all.holding_threads,
            Self::Contended => all.contended_share,
            Self::Acquisitions => all.dynamic_locks_per_s,
        }
    }

    /// This quantity of one lock, before and after.
    pub(super) fn of_lock(self, lock: &LockDiff) -> Change {
        match self {
            Self::Wait => lock.wait_ns_per_s,
            Self::Hold => lock.mean_hold_ns,
            Self::Held => lock.held_share,
            Self::Contended => lock.contended_share,
            Self::Acquisitions => lock.acquisitions_per_s,
        }
    }
}
