//! Steps in order of time, as far as a bounded buffer allows.

use super::explode::{Item, LAST};
use super::ties;
use crate::event::Event;
use crate::op::Op;
use crate::units::Time;
use std::collections::VecDeque;

/// Steps held back unless another number is asked for: about 80 MB of sections.
pub const CAPACITY: usize = 1 << 20;

/// Steps of an input of steps among which a step finds its place; one that comes later still is late.
pub const WINDOW: usize = 1 << 14;

/// One step of a kept event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    pub(super) time: Time,
    /// Where its event is kept.
    pub(super) slot: u32,
    /// Which of its steps.
    pub(super) step: u8,
}

/// Takes events apart into steps and puts these in order of time.
///
/// A section is known when it ends, and its first step may be long past by then. So steps are held back until the source
/// says that no earlier one is to come ([`Self::advance`]), or until the buffer is full; then its oldest quarter is given out.
/// What comes after later steps were given out is late: it is counted, and moved to the time of the last step given out. Absences are counted apart:
/// a thread that gives a lock back by futex calls tells of its absences only then, which may be seconds later. The wait graph takes them as they come.
///
/// At equal times a lock is given back before it is asked for, and that before it is acquired; but each thread's own
/// steps stay in the order in which a thread can do them. The output does not depend on the order of the input, as long
/// as that is within the buffer.
///
/// Steps that come as such ([`Event::Op`]) are in order already, but for a few: each waits for `WINDOW` more, so that
/// earlier ones can overtake it. Equal times keep their order.
#[derive(Clone, Debug)]
pub struct Sorter {
    capacity: usize,
    /// Kept events, and the places of those that are gone, oldest first.
    items: Vec<Item>,
    free: VecDeque<u32>,
    /// Not in order yet.
    batch: Vec<Key>,
    /// In order: given out up to `taken`, to be given out up to `ready`.
    sorted: Vec<Key>,
    taken: usize,
    ready: usize,
    /// Steps that came as such, in order.
    window: VecDeque<Op>,
    /// Steps about to be given out.
    queue: VecDeque<Op>,
    group: ties::Group,
    watermark: Time,
    late: u64,
    late_absences: u64,
}

impl Default for Sorter {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Sorter {
    /// Holds back up to `capacity` steps.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            // Places are numbered with 32 bits.
            capacity: capacity.clamp(4, 1 << 30),
            items: Vec::new(),
            free: VecDeque::new(),
            batch: Vec::new(),
            sorted: Vec::new(),
            taken: 0,
            ready: 0,
            window: VecDeque::new(),
            queue: VecDeque::new(),
            group: ties::Group::default(),
            watermark: Time(0),
            late: 0,
            late_absences: 0,
        }
    }

    /// Whether an event consists of steps.
    #[must_use]
    pub fn takes(event: &Event) -> bool {
        matches!(event, Event::Op(_)) || Item::of(event).is_some()
    }

    /// Takes one event. Those that consist of no steps (most futex waits, new processes) are ignored. What is ready should be
    /// taken out before more is put in.
    pub fn push(&mut self, event: &Event) {
        if let Event::Op(op) = event {
            return self.insert(*op);
        }
        let Some(item) = Item::of(event) else { return };
        let times = item.times();
        let is_absence = matches!(item, Item::Off(_));
        let slot = self.keep(item);
        let mut late = false;
        for (step, time) in (0..).zip(times) {
            let Some(time) = time else { continue };
            late |= time < self.watermark;
            self.batch.push(Key { time: time.max(self.watermark), slot, step });
        }
        *if is_absence { &mut self.late_absences } else { &mut self.late } += u64::from(late);
        if self.batch.len() >= self.capacity / 4 {
            self.settle();
            let held = self.sorted.len() - self.ready;
            self.release(held.saturating_sub(self.capacity - self.capacity / 4));
        }
    }

    /// Lets everything before `watermark` go: the source knows of no step of an earlier time that is still to come, neither of
    /// an event on its way nor of a section that is open. What comes earlier all the same is late only if it is earlier than
    /// the last step given out. What is ready should be taken out before more is put in.
    pub fn advance(&mut self, watermark: Time) {
        while let Some(op) = self.window.pop_front_if(|op| op.time < watermark) {
            self.pass(op);
        }
        self.settle();
        let held = self.sorted.get(self.ready..).unwrap_or_default();
        self.release(held.partition_point(|key| key.time < watermark));
    }

    /// Steps that are held back.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.window.len() + self.queue.len() + self.batch.len() + self.sorted.len() - self.taken
    }

    /// Takes out what is ready, in order.
    pub fn pop_ready(&mut self) -> Ready<'_> {
        Ready(self)
    }

    /// Takes out everything: nothing more will come.
    pub fn finish(&mut self) -> Ready<'_> {
        while let Some(op) = self.window.pop_front() {
            self.pass(op);
        }
        self.settle();
        self.release(self.sorted.len() - self.ready);
        Ready(self)
    }

    /// Events of which at least one step came too late for its place, but for absences.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Absences of which at least one step did.
    #[must_use]
    pub fn late_absences(&self) -> u64 {
        self.late_absences
    }

    /// A step among those that came as such.
    fn insert(&mut self, mut op: Op) {
        if op.time < self.watermark {
            self.late += 1;
            op.time = self.watermark;
        }
        if self.window.back().is_none_or(|last| last.time <= op.time) {
            self.window.push_back(op);
        } else {
            let place = self.window.partition_point(|earlier| earlier.time <= op.time);
            self.window.insert(place, op);
        }
        if self.window.len() > WINDOW
            && let Some(oldest) = self.window.pop_front()
        {
            self.pass(oldest);
        }
    }

    /// A step that is in order: after everything older.
    fn pass(&mut self, op: Op) {
        if self.batch.len() + self.sorted.len() > self.taken {
            self.settle();
            let held = self.sorted.get(self.ready..).unwrap_or_default();
            self.release(held.partition_point(|key| key.time <= op.time));
            while self.expand() {}
        }
        self.watermark = self.watermark.max(op.time);
        self.queue.push_back(op);
    }

    fn keep(&mut self, item: Item) -> u32 {
        let free = self.free.pop_front().and_then(|slot| Some((slot, self.items.get_mut(slot as usize)?)));
        match free {
            Some((slot, place)) => {
                *place = item;
                slot
            }
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        }
    }

    /// Puts the batch in order with the rest.
    fn settle(&mut self) {
        self.sorted.drain(..self.taken);
        self.ready -= self.taken;
        self.taken = 0;
        self.batch.sort_unstable_by_key(|key| key.time);
        // From the end: a batch overlaps only with the latest steps.
        let mut old = self.sorted.len();
        let mut new = self.batch.len();
        let mut end = old + new;
        self.sorted.resize(end, Key::default());
        while new > 0 {
            end -= 1;
            if old > self.ready && self.sorted[old - 1].time > self.batch[new - 1].time {
                old -= 1;
                self.sorted[end] = self.sorted[old];
            } else {
                new -= 1;
                self.sorted[end] = self.batch[new];
            }
        }
        self.batch.clear();
    }

    /// Lets the oldest `steps` go, and those of the same time as the last of them.
    fn release(&mut self, steps: usize) {
        self.ready = (self.ready + steps).min(self.sorted.len());
        let Some(last) = self.ready.checked_sub(1).filter(|_| steps > 0).and_then(|last| self.sorted.get(last)) else {
            return;
        };
        self.watermark = self.watermark.max(last.time);
        let after = self.sorted.get(self.ready..).unwrap_or_default();
        self.ready += after.iter().take_while(|key| key.time == last.time).count();
    }

    /// Moves the next steps of equal time to the queue; `false` if there are none.
    fn expand(&mut self) -> bool {
        let ready = self.sorted.get(self.taken..self.ready).unwrap_or_default();
        let Some(&first) = ready.first() else { return false };
        if ready.get(1).is_none_or(|next| next.time != first.time) {
            self.taken += 1;
            self.give(first);
            return true;
        }
        let equal = ready.iter().take_while(|key| key.time == first.time).count();
        self.group.order(ready.get(..equal).unwrap_or_default(), &self.items);
        self.taken += equal;
        for i in 0..equal {
            if let Some(key) = self.group.key(i) {
                self.give(key);
            }
        }
        true
    }

    /// Moves one step to the queue.
    fn give(&mut self, key: Key) {
        let Some(item) = self.items.get(key.slot as usize) else { return };
        self.queue.push_back(item.step(key.step, key.time));
        if key.step == LAST {
            self.free.push_back(key.slot);
        }
    }
}

/// Steps in order; what is not taken stays.
#[derive(Debug)]
pub struct Ready<'a>(&'a mut Sorter);

impl Iterator for Ready<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        loop {
            if let Some(op) = self.0.queue.pop_front() {
                return Some(op);
            }
            if !self.0.expand() {
                return None;
            }
        }
    }
}
