//! What a governor tells of its work.

use super::super::gates::Gap;
use crate::governor::{Reading, Sampled};
use crate::quality::FailedProbe;
use crate::units::Nanos;
use std::fmt;

/// A stretch of a process's time: a cycle with its window, or the time for which its gate stayed open.
#[derive(Clone, Copy)]
pub struct Watched {
    /// The process.
    pub pid: u32,
    /// At its beginning.
    pub from: Reading,
    /// At its end.
    pub to: Reading,
    /// The part of this while the gate was open: time, CPU time and cost.
    pub open: (Nanos, Nanos, Nanos),
    /// What samples of the clock found in that part.
    pub sampled: Sampled,
    /// Whether it was open all the time.
    pub whole: bool,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: Nanos| ns.0 as f64 / 1e6;
        let Self { pid, from, to, open: (time, cpu, cost), sampled, whole } = self;
        write!(f, "pid {pid}: {:.1} ms", ms(to.time.since(from.time)))?;
        write!(f, ", of the CPU {:.2}, cost {:.2}", ms(to.cpu - from.cpu), ms(to.cost - from.cost))?;
        let how = if *whole { "all the time" } else { "in a window" };
        write!(f, "; open {how}: {:.1} ms, of the CPU {:.2}, cost {:.2}", ms(*time), ms(*cpu), ms(*cost))?;
        let all = to.sampled - from.sampled;
        write!(
            f,
            "; in own code {} of {} samples there, {} of {}",
            sampled.user, sampled.samples, all.user, all.samples
        )
    }
}

/// What a governor tells while it works.
#[derive(Debug)]
pub enum Told {
    /// A stretch is over. Until [`Governor::go_on`](super::Governor::go_on) the gate of its process stays as it is.
    Stretch(Watched),
    /// Probes could not be placed.
    Failed(Vec<FailedProbe>),
    /// Processes were not observed although they were to be.
    Gaps(Vec<Gap>),
    /// So many processes are beyond the last slot, so far.
    Refused(u64),
}
