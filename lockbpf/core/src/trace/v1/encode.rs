//! Events to bytes.

use super::super::varint::{put, put_delta, put_text};
use super::parts::{Parts, durations};
use super::shape::{Near, OFF_REASONS, Place, Shape, action_code, put_code, put_stack};
use super::{ENDS_PROCESS, MAX_DICTIONARY, NEW_SHAPE, PROCESS, SHAPES, THREAD_EXIT, reference};
use crate::event::{Event, ProcessSeen, ThreadTotals};
use crate::id::{Lock, Tid};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Event frames until definitions begin anew: a damaged frame costs those up to the next fresh one.
const FRESH_EVERY: u32 = 16;

/// Turns events into the payloads of event frames.
#[derive(Debug, Default)]
pub(in super::super) struct Encoder {
    dictionary: Dictionary,
    out: Vec<u8>,
    events: u64,
    /// Frames since, and with, the last fresh one.
    frames: u32,
}

/// What the event frames since the last fresh one have defined.
#[derive(Debug, Default)]
struct Dictionary {
    /// Number of the shape, and of its lock.
    shapes: HashMap<Shape, (u64, Option<usize>), RandomState>,
    places: HashMap<Place, u64, RandomState>,
    locks: HashMap<Lock, usize, RandomState>,
    tids: HashMap<Tid, u64, RandomState>,
    /// By number of the lock: the thread that had it last, and the owner named last.
    holders: Vec<(Option<Tid>, Option<Tid>)>,
    near: Near,
    tid: u64,
    time: u64,
}

impl Encoder {
    /// Takes one event. Returns whether it may name something for the first time.
    pub(in super::super) fn push(&mut self, event: &Event) -> bool {
        if self.out.is_empty() {
            let d = &self.dictionary;
            if self.frames == FRESH_EVERY || d.shapes.len().max(d.tids.len()) > MAX_DICTIONARY / 2 {
                (self.dictionary, self.frames) = (Dictionary::default(), 0);
            }
            self.frames += 1;
            put(&mut self.out, self.events);
        }
        self.events += 1;
        match (Parts::of(event), event) {
            (Some(parts), _) => self.dictionary.put(&mut self.out, &parts),
            (None, Event::Process(seen)) => {
                self.dictionary.put_process(&mut self.out, seen);
                true
            }
            (None, Event::ThreadExit(totals)) => {
                put(&mut self.out, THREAD_EXIT);
                put_delta(&mut self.out, self.dictionary.time, totals.time.0);
                self.dictionary.time = totals.time.0;
                put_totals(&mut self.out, totals);
                true
            }
            (None, _) => false,
        }
    }

    /// Events taken so far.
    pub(in super::super) fn events(&self) -> u64 {
        self.events
    }

    /// Bytes that wait to be written.
    pub(in super::super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// The payload that waits, and whether it is fresh; `None` if no event has come since the last.
    pub(in super::super) fn payload(&self) -> Option<(&[u8], bool)> {
        (!self.out.is_empty()).then_some((self.out.as_slice(), self.frames == 1))
    }

    /// The payload was written: the next one begins.
    pub(in super::super) fn clear(&mut self) {
        self.out.clear();
    }
}

impl Dictionary {
    fn put(&mut self, out: &mut Vec<u8>, parts: &Parts) -> bool {
        let (known, tids) = (self.shapes.get(&parts.shape).copied(), self.tids.len());
        let (number, lock) = known.unwrap_or_else(|| (NEW_SHAPE, self.define(out, &parts.shape)));
        if known.is_some() {
            put(out, number + SHAPES);
        }
        let (holder, last_owner) = lock.and_then(|l| self.holders.get(l)).copied().unwrap_or_default();
        let owner = match parts.owner {
            None => reference::NONE,
            owner if owner == holder => reference::LAST_HOLDER,
            owner if owner == last_owner => reference::SAME_OWNER,
            Some(_) => reference::EXPLICIT,
        };
        let waker = match parts.waker {
            None => reference::NONE,
            waker if waker == holder => reference::LAST_HOLDER,
            waker if waker == parts.owner => reference::SAME_OWNER,
            Some(_) => reference::EXPLICIT,
        };
        self.put_tid(out, parts.tid, owner | waker << 2, 4);
        if let (reference::EXPLICIT, Some(owner)) = (owner, parts.owner) {
            self.put_tid(out, owner, 0, 0);
        }
        if let (reference::EXPLICIT, Some(waker)) = (waker, parts.waker) {
            self.put_tid(out, waker, 0, 0);
        }
        put_delta(out, self.time, parts.time);
        self.time = parts.time;
        for &duration in parts.durations.iter().take(durations(&parts.shape)) {
            put(out, duration);
        }
        if let Some(slot) = lock.and_then(|l| self.holders.get_mut(l)) {
            if parts.shape.held() {
                slot.0 = Some(parts.tid);
            }
            if parts.owner.is_some() {
                slot.1 = parts.owner;
            }
        }
        known.is_none() || self.tids.len() > tids
    }

    /// Defines a shape; returns the number of its lock.
    fn define(&mut self, out: &mut Vec<u8>, shape: &Shape) -> Option<usize> {
        put(out, NEW_SHAPE);
        let lock = match shape {
            Shape::Section { lock, process, place } => {
                out.push(0);
                let lock = self.put_lock(out, *lock);
                if let Some(process) = process {
                    put(out, u64::from(process.0));
                }
                let next = self.places.len() as u64 + 1;
                match self.places.get(place) {
                    Some(&number) => put(out, number),
                    None => {
                        put(out, 0);
                        self.near.put_place(out, place);
                        self.places.insert(*place, next);
                    }
                }
                Some(lock)
            }
            Shape::Futex { word, site, expected, stack, result, weight } => {
                out.push(1);
                let lock = self.put_lock(out, *word);
                self.near.put_futex(out, *site, *expected, *stack, (*result, *weight));
                Some(lock)
            }
            Shape::Wake { word, process, site, stack, woken } => {
                out.push(5);
                let lock = self.put_lock(out, *word);
                put(out, u64::from(*woken));
                self.near.put_wake(out, *process, *site, *stack);
                Some(lock)
            }
            Shape::OffCpu { process, reason, stack } => {
                out.push(2);
                put(out, u64::from(process.0));
                put_code(out, &OFF_REASONS, *reason);
                put_stack(out, *stack);
                None
            }
            Shape::Op { ordered, process, action } => {
                out.push(if *ordered { 3 } else { 4 });
                put(out, u64::from(process.0));
                out.push(action_code(action));
                let lock = shape.lock().map(|lock| self.put_lock(out, lock));
                self.near.put_action(out, action);
                lock
            }
        };
        self.shapes.insert(*shape, (self.shapes.len() as u64, lock));
        lock
    }

    fn put_lock(&mut self, out: &mut Vec<u8>, lock: Lock) -> usize {
        let next = self.locks.len();
        let number = *self.locks.entry(lock).or_insert(next);
        if number < next {
            put(out, number as u64 + 1);
        } else {
            put(out, 0);
            self.near.put_lock(out, lock);
            self.holders.push((None, None));
        }
        number
    }

    /// Appends a thread's number, with `low` in its `bits` lowest bits, and the thread itself if it is new.
    fn put_tid(&mut self, out: &mut Vec<u8>, tid: Tid, low: u64, bits: u32) {
        match self.tids.get(&tid) {
            Some(&number) => put(out, number << bits | low),
            None => {
                put(out, low);
                put_delta(out, self.tid, u64::from(tid.0));
                self.tid = u64::from(tid.0);
                self.tids.insert(tid, self.tids.len() as u64 + 1);
            }
        }
    }

    fn put_process(&mut self, out: &mut Vec<u8>, seen: &ProcessSeen) {
        put(out, PROCESS);
        put_delta(out, self.time, seen.time.0);
        self.time = seen.time.0;
        put(out, u64::from(seen.process.0));
        put(out, u64::from(seen.pid));
        put(out, seen.start.0);
        put_text(out, &seen.comm);
    }
}

/// Appends what one thread did, but for the time.
pub(super) fn put_totals(out: &mut Vec<u8>, totals: &ThreadTotals) {
    for number in [
        u64::from(totals.tid.0),
        u64::from(totals.process.0) | if totals.ends_process { ENDS_PROCESS } else { 0 },
        totals.acquisitions,
        totals.wait.0,
        totals.kernel_wait.0,
        totals.held_sum.0,
        totals.held_union.0,
    ] {
        put(out, number);
    }
    put_text(out, &totals.comm);
}
