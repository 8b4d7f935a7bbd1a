//! What is to come in a play, the earliest first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by their times.
pub(super) struct Agenda<W> {
    events: BinaryHeap<Event<W>>,
    number: u64,
    /// The time of the event that came last, ns.
    pub(super) now: f64,
}

struct Event<W> {
    time: f64,
    /// Tells apart what happens at the same time.
    number: u64,
    what: W,
}

impl<W> Agenda<W> {
    /// Nothing is to come yet.
    pub(super) fn new() -> Self {
        Self { events: BinaryHeap::new(), number: 0, now: 0.0 }
    }

    /// Something happens after so much time, ns.
    pub(super) fn schedule(&mut self, after: f64, what: W) {
        self.number += 1;
        self.events.push(Event { time: self.now + after, number: self.number, what });
    }

    /// What happens next: it is now.
    pub(super) fn next(&mut self) -> Option<W> {
        let Event { time, what, .. } = self.events.pop()?;
        self.now = time;
        Some(what)
    }
}

impl<W> PartialEq for Event<W> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<W> Eq for Event<W> {}

impl<W> PartialOrd for Event<W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W> Ord for Event<W> {
    /// The earliest is the greatest: it leaves the heap first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_of_equals_the_one_that_was_told_first() {
        let mut agenda = Agenda::new();
        for (after, what) in [(3.0, 'c'), (1.0, 'a'), (3.0, 'd'), (1.0, 'b')] {
            agenda.schedule(after, what);
        }
        assert_eq!([(); 2].map(|()| agenda.next()), [Some('a'), Some('b')]);
        agenda.schedule(1.5, 'x');
        assert_eq!(agenda.now, 1.0);
        assert_eq!([(); 4].map(|()| agenda.next()), [Some('x'), Some('c'), Some('d'), None]);
        assert_eq!(agenda.now, 3.0);
    }
}
