//! The watermark of a source that tells of sections when they end.

use crate::event::Event;
use crate::units::{Nanos, Time};

/// A section that is in progress may have begun at least so long ago.
const LEAST: Nanos = Nanos(2_000_000_000);

/// How far back an event that is still to come may begin: judged by those so far. Nothing tells since when locks are held that are
/// given back later, so one that is held for more than twice as long as any before it is late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watermark {
    longest: Nanos,
}

impl Watermark {
    /// Takes note of an event that came.
    pub fn see(&mut self, event: &Event) {
        let lasted = match event {
            Event::Section(section) => section.end.since(section.attempt()),
            Event::OffCpu(off) => off.off,
            Event::FutexWait(_)
            | Event::Wake(_)
            | Event::Process(_)
            | Event::ThreadExit(_)
            | Event::Op(_)
            | Event::Step(_) => Nanos(0),
        };
        self.longest = self.longest.max(lasted);
    }

    /// Before when nothing is to be expected any more, if everything recorded up to `drained` has come, and the waits in progress
    /// began at these times.
    #[must_use]
    pub fn at(&self, drained: Time, waits: impl IntoIterator<Item = Time>) -> Time {
        let back = LEAST.max(self.longest + self.longest);
        waits.into_iter().fold(drained - back, Time::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OffCpu;
    use crate::id::{Process, Tid};
    use crate::op::OffReason;

    #[test]
    fn it_stays_behind_what_may_be_in_progress() {
        let second = 1_000_000_000;
        let mut watermark = Watermark::default();
        assert_eq!(watermark.at(Time(second), []), Time(0));
        assert_eq!(watermark.at(Time(100 * second), []), Time(98 * second));
        assert_eq!(watermark.at(Time(100 * second), [99, 40, 70].map(|at| Time(at * second))), Time(40 * second));
        watermark.see(&Event::OffCpu(OffCpu {
            end: Time(50 * second),
            off: Nanos(5 * second),
            runnable: Nanos(0),
            process: Process(1),
            tid: Tid(1),
            reason: OffReason::Sleeping,
            stack: None,
        }));
        assert_eq!(watermark.at(Time(100 * second), []), Time(90 * second));
    }
}
