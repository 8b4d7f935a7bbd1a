//! Merging the per-CPU streams of whole events by the time of their ends. Each CPU's records come in its own order; across CPUs they are held back for a
//! stated window and released in order of time.

use crate::event::Event;
use crate::units::{Nanos, Time};

/// How long an event is held back, so that another CPU's earlier one can still overtake it.
pub const WINDOW: Nanos = Nanos(250_000_000);

/// Holds events back and releases them in order.
#[derive(Debug, Default)]
pub struct Merger {
    held: Vec<Event>,
    released: Time,
    late: u64,
}

impl Merger {
    /// Takes one event, in any order.
    pub fn push(&mut self, event: Event) {
        if event.time() < self.released {
            self.late += 1;
        }
        self.held.push(event);
    }

    /// Releases, in order of time, every event older than `now` by more than the window. Equal times keep their order.
    pub fn release(&mut self, now: Time) -> impl Iterator<Item = Event> + '_ {
        let until = now - WINDOW;
        self.held.sort_by_key(Event::time);
        let ready = self.held.partition_point(|e| e.time() <= until);
        self.released = self.released.max(until);
        self.held.drain(..ready)
    }

    /// Releases the rest: nothing more will come.
    pub fn finish(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.held.sort_by_key(Event::time);
        self.held.drain(..)
    }

    /// Events that came after a later one had been released. They were delivered all the same, out of order.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ProcessSeen;
    use crate::id::Process;

    fn at(time: u64) -> Event {
        Event::Process(ProcessSeen {
            time: Time(time),
            process: Process(1),
            pid: 1,
            start: Time(0),
            comm: String::new(),
        })
    }

    #[test]
    fn streams_are_merged_within_the_window_and_late_ones_counted() {
        let window = WINDOW.0;
        let mut merger = Merger::default();
        for t in [10, 30, 20, window + 25] {
            merger.push(at(t));
        }
        let first: Vec<u64> = merger.release(Time(window + 25)).map(|e| e.time().0).collect();
        assert_eq!(first, [10, 20]);
        merger.push(at(26));
        merger.push(at(24));
        assert_eq!(merger.late(), 1);
        let rest: Vec<u64> = merger.finish().map(|e| e.time().0).collect();
        assert_eq!(rest, [24, 26, 30, window + 25]);
    }
}
