//! The order of steps of equal time, whatever the order in which they came.
//!
//! Each thread's steps are put in an order in which a thread can do them: it ends what it waits for, gives back what it
//! holds, goes through sections without extent, takes locks, begins to wait, leaves the CPU, exits. Among threads, a
//! lock is given back before it is asked for, and that before it is acquired, as far as the threads' own orders allow.

use super::explode::{Item, LAST};
use super::sorter::Key;
use crate::event::Section;
use crate::id::{Process, Tid};
use crate::op::{Action, Op};
use crate::units::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Which steps of an event are in the group, by bit.
const FIRST: u8 = 1;
const MIDDLE: u8 = 1 << 1;
const END: u8 = 1 << LAST;

/// Steps of equal time.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    keys: Vec<Key>,
    entries: Vec<Entry>,
    heads: BinaryHeap<Reverse<Head>>,
}

/// One step, and where it belongs.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    thread: (Tid, Process),
    /// Steps of the same event in the group.
    present: u8,
    /// Its place among the thread's events.
    place: u8,
    /// Its place among all threads' steps.
    phase: u8,
    /// The phase that it must make way for: its own, or that of a lock given back after it.
    urgency: u8,
}

/// The next step of a thread: most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    urgency: u8,
    phase: u8,
    /// Threads in the order of their numbers.
    entry: usize,
}

impl Group {
    /// Puts steps of equal time in order.
    pub(super) fn order(&mut self, keys: &[Key], items: &[Item]) {
        self.keys.clear();
        self.keys.extend_from_slice(keys);
        let Some(first) = keys.first() else { return };
        if keys.iter().all(|key| key.slot == first.slot) {
            // The steps of one event: nearly always the attempt and acquire of a free lock.
            self.keys.sort_unstable_by_key(|key| key.step);
            return;
        }
        self.collect(items);
        self.entries.sort_unstable_by(|a, b| compare(a, b, items));
        let mut releases = false;
        for i in (0..self.entries.len()).rev() {
            let next_thread = self.entries.get(i + 1).map(|next| next.thread);
            let Some(entry) = self.entries.get_mut(i) else { break };
            releases &= next_thread == Some(entry.thread);
            entry.urgency = if releases { entry.phase.min(phase::RELEASE) } else { entry.phase };
            releases |= entry.phase == phase::RELEASE;
        }
        self.merge();
    }

    /// A step by its place in the order.
    pub(super) fn key(&self, place: usize) -> Option<Key> {
        self.keys.get(place).copied()
    }

    fn collect(&mut self, items: &[Item]) {
        self.entries.clear();
        self.keys.sort_unstable_by_key(|key| (key.slot, key.step));
        for event in self.keys.chunk_by(|a, b| a.slot == b.slot) {
            let present = event.iter().fold(0, |bits, key| bits | 1 << key.step);
            for &key in event {
                let Some(item) = items.get(key.slot as usize) else { continue };
                let (process, tid) = item.thread();
                let phase = phase(item, key.step, present);
                let place = place(item, present);
                self.entries.push(Entry { key, thread: (tid, process), present, place, phase, urgency: phase });
            }
        }
    }

    /// Merges the threads' orders.
    fn merge(&mut self) {
        self.keys.clear();
        self.heads.clear();
        let head = |i: usize, e: &Entry| Reverse(Head { urgency: e.urgency, phase: e.phase, entry: i });
        let mut thread = None;
        for (i, entry) in self.entries.iter().enumerate() {
            if thread != Some(entry.thread) {
                thread = Some(entry.thread);
                self.heads.push(head(i, entry));
            }
        }
        while let Some(Reverse(Head { entry: i, .. })) = self.heads.pop() {
            let Some(entry) = self.entries.get(i) else { continue };
            self.keys.push(entry.key);
            if let Some(next) = self.entries.get(i + 1).filter(|next| next.thread == entry.thread) {
                self.heads.push(head(i + 1, next));
            }
        }
    }
}

/// Order among threads.
mod phase {
    /// Belongs to the step before it, or depends on nothing.
    pub(super) const AT_ONCE: u8 = 0;
    /// A lock acquired earlier is given back, an attempt ends without it.
    pub(super) const RELEASE: u8 = 1;
    pub(super) const ATTEMPT: u8 = 2;
    /// A lock is acquired that is given back at once.
    pub(super) const BRIEF_ACQUIRE: u8 = 3;
    pub(super) const ACQUIRE: u8 = 4;
    pub(super) const OFF: u8 = 5;
    pub(super) const EXIT: u8 = 6;
}

fn phase(item: &Item, step: u8, present: u8) -> u8 {
    match (item, step) {
        (Item::Exit { .. }, _) => phase::EXIT,
        (Item::Off(_), LAST) if present == END => phase::AT_ONCE,
        (Item::Off(_), _) => phase::OFF,
        // It waited until now.
        (Item::Step(Op { action: Action::Join { .. }, .. }), _) => phase::EXIT,
        (Item::Step(Op { action: Action::Holds(_), .. }), _) => phase::AT_ONCE,
        // An arrival: asks to pass.
        (Item::Step(_), _) => phase::ATTEMPT,
        (Item::Section(_), 0) => phase::ATTEMPT,
        (Item::Section(_), 1) if present & END != 0 => phase::BRIEF_ACQUIRE,
        (Item::Section(_), 1) => phase::ACQUIRE,
        (Item::Section(_), _) if present == END => phase::RELEASE,
        (Item::Section(_), _) => phase::AT_ONCE,
    }
}

/// Order among the events of one thread.
fn place(item: &Item, present: u8) -> u8 {
    match (item, present) {
        (Item::Off(_), END) => 0,
        // It waited until now, or for the end of a condition wait.
        (Item::Section(_), bits) if bits & FIRST == 0 && (bits & MIDDLE != 0 || !item.releases()) => 1,
        (Item::Section(_), END) => 2,
        (Item::Section(_), bits) if bits & END != 0 => 3,
        (Item::Section(_), bits) if bits & MIDDLE != 0 => 4,
        (Item::Step(Op { action: Action::Join { .. }, .. }), _) => 1,
        (Item::Section(_), _) | (Item::Step(_), _) => 5,
        (Item::Off(_), _) => 6,
        (Item::Exit { .. }, _) => 7,
    }
}

/// By thread, then by what the thread does first; the rest makes the order independent of the input's.
fn compare(a: &Entry, b: &Entry, items: &[Item]) -> Ordering {
    let by_place = (a.thread, a.place, a.present).cmp(&(b.thread, b.place, b.present));
    if by_place != Ordering::Equal || a.key.slot == b.key.slot {
        return by_place.then(a.key.step.cmp(&b.key.step));
    }
    let contents = |entry: &Entry| items.get(entry.key.slot as usize).map(canonical);
    contents(a).cmp(&contents(b)).then(a.key.slot.cmp(&b.key.slot)).then(a.key.step.cmp(&b.key.step))
}

/// Everything that tells two events of one thread apart.
fn canonical(item: &Item) -> impl Ord + use<> {
    match item {
        Item::Section(s) => section(s),
        Item::Off(o) => {
            ([o.end.0, o.off.0, o.runnable.0, 0, 0], [o.reason as u32, o.stack.map_or(0, |s| s.0), 0, 0, 0])
        }
        Item::Step(op) => (step(op), [0; 5]),
        Item::Exit { time: Time(time), .. } => ([*time, 0, 0, 0, 0], [0; 5]),
    }
}

/// Only arrivals, waits for exits and looks at holders come as steps.
fn step(op: &Op) -> [u64; 5] {
    match op.action {
        Action::Join { thread, wait } => [op.time.0, thread.0.into(), wait.0, 0, 0],
        Action::Barrier(a) => [op.time.0, a.barrier.addr, a.site.addr, a.post.addr, u64::from(a.participants)],
        Action::Holds(h) => {
            let site = h.site.map_or(0, |site| site.addr);
            let who = u64::from(h.holder.0) << 8 | h.doing as u64;
            [op.time.0, h.lock.addr, who, site, h.stack.map_or(0, |stack| u64::from(stack.0) + 1)]
        }
        _ => [op.time.0, 0, 0, 0, 0],
    }
}

fn section(s: &Section) -> ([u64; 5], [u32; 5]) {
    // The latest to end is the outermost: of nested sections that begin together, it is the first.
    let order = [u64::MAX - s.end.0, s.wait.0, s.hold.0, s.lock.addr, s.site.addr];
    let marks = u32::from(s.flags) | (s.via as u32) << 16 | (s.outcome as u32) << 20 | u32::from(s.mutex_kind) << 24;
    let thread = |tid: Option<Tid>| tid.map_or(0, |tid| tid.0);
    (order, [thread(s.owner), thread(s.waker), s.stack.map_or(0, |s| s.0), marks, s.site.process.0])
}
