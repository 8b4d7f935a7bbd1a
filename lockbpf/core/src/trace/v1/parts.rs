//! Events taken apart into their shape and what is told each time, and put together again.

use super::shape::{Place, Shape};
use crate::event::{Event, FutexWait, OffCpu, Section, Wake};
use crate::id::Tid;
use crate::op::{Action, Attempt, Op};
use crate::units::{Nanos, Time};

/// An event apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub shape: Shape,
    pub tid: Tid,
    pub time: u64,
    pub owner: Option<Tid>,
    pub waker: Option<Tid>,
    /// As many as [`durations`] says.
    pub durations: [u64; 2],
}

/// How many durations are told with a shape.
pub(super) fn durations(shape: &Shape) -> usize {
    match shape {
        Shape::Section { .. } | Shape::OffCpu { .. } | Shape::Wake { .. } => 2,
        Shape::Futex { .. } => 1,
        Shape::Op { .. } => 0,
    }
}

impl Parts {
    /// Takes an event apart; `None` for events that have no shape.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let alone =
            |shape, tid, time: Time| Self { shape, tid, time: time.0, owner: None, waker: None, durations: [0; 2] };
        Some(match event {
            Event::Section(s) => {
                let (via, outcome, mutex_kind) = (s.via, s.outcome, s.mutex_kind);
                let place = Place { site: s.site, via, flags: s.flags, outcome, mutex_kind, stack: s.stack };
                let process = s.lock.is_kernel().then_some(s.process);
                let shape = Shape::Section { lock: s.lock, process, place };
                let durations = [s.wait.0, s.hold.0];
                Self { owner: s.owner, waker: s.waker, durations, ..alone(shape, s.tid, s.end) }
            }
            Event::FutexWait(w) => {
                let (site, expected, stack, result, weight) = (w.site, w.expected, w.stack, w.result, w.weight);
                let shape = Shape::Futex { word: w.word, site, expected, stack, result, weight };
                Self { owner: w.owner, waker: w.waker, durations: [w.wait.0, 0], ..alone(shape, w.tid, w.end) }
            }
            Event::Wake(w) => {
                let (word, process, site, stack, woken) = (w.word, w.process, w.site, w.stack, w.woken);
                let shape = Shape::Wake { word, process, site, stack, woken };
                // 0: not known.
                let since = w.since.map_or(0, |since| since.0.saturating_add(1));
                Self { durations: [since, w.watched.0], ..alone(shape, w.tid, w.time) }
            }
            Event::OffCpu(o) => {
                let shape = Shape::OffCpu { process: o.process, reason: o.reason, stack: o.stack };
                Self { durations: [o.off.0, o.runnable.0], ..alone(shape, o.tid, o.end) }
            }
            Event::Op(op) | Event::Step(op) => {
                let (mut action, mut owner, mut waker) = (op.action, None, None);
                match &mut action {
                    Action::Attempt(a) => owner = a.owner.take(),
                    Action::Acquire { waker: w, .. } => waker = w.take(),
                    _ => {}
                }
                let shape = Shape::Op { ordered: matches!(event, Event::Op(_)), process: op.process, action };
                Self { owner, waker, ..alone(shape, op.tid, op.time) }
            }
            Event::Process(_) | Event::ThreadExit(_) => return None,
        })
    }

    /// Puts an event together.
    #[inline]
    pub(super) fn event(self) -> Event {
        let Self { shape, tid, time, owner, waker, durations: [first, second] } = self;
        let end = Time(time);
        match shape {
            Shape::Section { lock, process, place: Place { site, via, flags, outcome, mutex_kind, stack } } => {
                let (wait, hold) = (Nanos(first), Nanos(second));
                Event::Section(Section {
                    end,
                    wait,
                    hold,
                    lock,
                    site,
                    tid,
                    process: process.unwrap_or(lock.process),
                    owner,
                    waker,
                    stack,
                    flags,
                    via,
                    outcome,
                    mutex_kind,
                })
            }
            Shape::Futex { word, site, expected, stack, result, weight } => {
                let wait = Nanos(first);
                Event::FutexWait(FutexWait {
                    end,
                    wait,
                    word,
                    site,
                    tid,
                    expected,
                    owner,
                    waker,
                    stack,
                    result,
                    weight,
                })
            }
            Shape::Wake { word, process, site, stack, woken } => {
                let since = first.checked_sub(1).map(Nanos);
                let watched = Nanos(second);
                Event::Wake(Wake { time: end, since, watched, word, site, process, tid, woken, stack })
            }
            Shape::OffCpu { process, reason, stack } => {
                Event::OffCpu(OffCpu { end, off: Nanos(first), runnable: Nanos(second), process, tid, reason, stack })
            }
            Shape::Op { ordered, process, mut action } => {
                match &mut action {
                    Action::Attempt(Attempt { owner: slot, .. }) => *slot = owner,
                    Action::Acquire { waker: slot, .. } => *slot = waker,
                    _ => {}
                }
                let op = Op { time: end, tid, process, action };
                if ordered { Event::Op(op) } else { Event::Step(op) }
            }
        }
    }
}
