//! What locks cost on a machine, as `lockbpf calibrate` measured it.

use super::schema::{Overhead, Sleep};
use serde::{Deserialize, Serialize};

/// Name and number of what [`Calibration`] is.
pub const SCHEMA: &str = "lockbpf.calibration/4";

/// A measured time: median and quartiles of several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Median, ns.
    pub median_ns: f64,
    /// Lower quartile, ns.
    pub low_ns: f64,
    /// Upper quartile, ns.
    pub high_ns: f64,
}

/// What locks cost on a machine. Tables begin without any other thread, and go as far as there are CPUs for the threads;
/// beyond that they are extrapolated with their last entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: String,
    /// The processor, as it names itself.
    pub cpu: String,
    /// CPUs that could be used.
    pub cpus: u32,
    /// Measurements of which the figures are the median.
    pub runs: u32,
    /// An empty section of a pthread mutex, by threads that want it at the same time.
    pub mutex: Vec<Figure>,
    /// The same of an MCS lock.
    pub mcs: Vec<Figure>,
    /// The same of a ticket lock.
    pub ticket: Vec<Figure>,
    /// The same of a spin lock.
    pub spin: Vec<Figure>,
    /// LO: an empty section of a QD lock without others.
    pub qd_lock_overhead: Figure,
    /// DO(k): the time for which an empty section is delegated, with k threads beside the helper.
    pub qd_delegation: Vec<Figure>,
    /// From one delegated empty section to the next, where nobody waits for what it has delegated.
    pub qd_detached: Figure,
    /// From the release of a pthread mutex to its acquisition by a thread that sleeps for it.
    pub hand_off: Figure,
    /// What that takes the thread which releases it: its unlock.
    pub wake_call: Figure,
    /// How long a thread keeps a CPU that others want, too.
    pub time_slice: Figure,
    /// O: what lockbpf's own recording costs a lock operation, ns; `None` where it may not observe.
    pub observer_operation_ns: Option<f64>,
}

impl Calibration {
    /// A table's medians as a lock's overhead by waiters.
    #[must_use]
    pub fn overhead(table: &[Figure]) -> Overhead {
        Overhead::ByWaiters(table.iter().map(|figure| figure.median_ns).collect())
    }

    /// What sleeping for a pthread mutex costs, at this place among the runs.
    #[must_use]
    pub fn sleep(&self, at: fn(&Figure) -> f64) -> Sleep {
        Sleep { wake_ns: at(&self.hand_off), call_ns: at(&self.wake_call) }
    }

    /// How long a thread keeps a CPU that others want, too, ns; `None` if nothing was seen of that.
    #[must_use]
    pub fn slice_ns(&self) -> Option<f64> {
        Some(self.time_slice.median_ns).filter(|&ns| ns > 0.0)
    }

    /// Most threads that were measured.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.mutex.len()
    }
}
