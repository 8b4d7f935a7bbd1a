//! Bytes to events.

use super::super::Malformed;
use super::super::varint::Cursor;
use super::parts::{Parts, durations};
use super::shape::{ACTIONS_WITH_LOCK, Near, OFF_REASONS, Place, Shape, code_in, stack};
use super::{ENDS_PROCESS, MAX_DICTIONARY, NEW_SHAPE, PROCESS, SHAPES, THREAD_EXIT, reference};
use crate::event::{Event, ProcessSeen, ThreadTotals};
use crate::id::{Lock, Process, Tid};
use crate::units::{Nanos, Time};
use crate::untrusted::shown;

/// Turns the payloads of event frames into events, one at a time.
#[derive(Debug, Default)]
pub(in super::super) struct Decoder {
    dictionary: Dictionary,
    payload: Vec<u8>,
    at: usize,
    /// Events of the recording up to here, also those that were not read.
    ordinal: u64,
    /// Whether the definitions that the next frame builds upon are known.
    intact: bool,
}

/// What the event frames since the last fresh one have defined.
#[derive(Debug, Default)]
struct Dictionary {
    shapes: Vec<(Shape, Option<usize>)>,
    places: Vec<Place>,
    locks: Vec<Lock>,
    tids: Vec<Tid>,
    /// By number of the lock: the thread that had it last, and the owner named last.
    holders: Vec<(Option<Tid>, Option<Tid>)>,
    near: Near,
    tid: u64,
    time: u64,
}

impl Decoder {
    /// Begins with a frame. Returns how many events before it were not read; `Err` if it cannot be read, because
    /// definitions that it builds upon were lost.
    pub(in super::super) fn load(&mut self, payload: Vec<u8>, fresh: bool) -> Result<u64, Malformed> {
        (self.payload, self.at) = (payload, 0);
        if fresh {
            (self.dictionary, self.intact) = (Dictionary::default(), true);
        } else if !self.intact {
            self.payload.clear();
            return Err(Malformed::Undefined);
        }
        let mut cursor = Cursor(&self.payload);
        let first = cursor.number().inspect_err(|_| self.intact = false)?;
        self.at = self.payload.len() - cursor.0.len();
        let unread = first.saturating_sub(self.ordinal);
        self.ordinal = self.ordinal.max(first);
        Ok(unread)
    }

    /// An event frame was lost: what comes up to the next fresh one cannot be read.
    pub(in super::super) fn broken(&mut self) {
        self.intact = false;
    }

    /// Events of the recording up to here, also those that were not read.
    pub(in super::super) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The next event of the frame; `None` at its end. After an error the rest of the frame is left out.
    #[inline]
    pub(in super::super) fn next(&mut self) -> Option<Result<Event, Malformed>> {
        let mut cursor = Cursor(self.payload.get(self.at..).unwrap_or_default());
        if cursor.is_empty() {
            return None;
        }
        let result = self.dictionary.event(&mut cursor);
        if result.is_ok() {
            self.at = self.payload.len() - cursor.0.len();
            self.ordinal = self.ordinal.saturating_add(1);
        } else {
            self.at = self.payload.len();
            self.intact = false;
        }
        Some(result)
    }

    /// Gives the memory of the last frame back, to be used again.
    pub(in super::super) fn take_buffer(&mut self) -> Vec<u8> {
        self.at = 0;
        std::mem::take(&mut self.payload)
    }
}

impl Dictionary {
    #[inline]
    fn event(&mut self, from: &mut Cursor) -> Result<Event, Malformed> {
        let code = from.number()?;
        match code {
            PROCESS => return self.process(from).map(Event::Process),
            THREAD_EXIT => {
                self.time = from.delta(self.time)?;
                return totals(Time(self.time), from).map(Event::ThreadExit);
            }
            NEW_SHAPE => {}
            _ => {}
        }
        let (shape, lock) = if code == NEW_SHAPE { self.define(from)? } else { *entry(&self.shapes, code - SHAPES)? };
        let (tid, low) = self.tid(from, 4)?;
        let (holder, last_owner) = lock.and_then(|l| self.holders.get(l)).copied().unwrap_or_default();
        let owner = match low & 3 {
            reference::NONE => None,
            reference::LAST_HOLDER => holder,
            reference::SAME_OWNER => last_owner,
            _ => Some(self.tid(from, 0)?.0),
        };
        let waker = match low >> 2 {
            reference::NONE => None,
            reference::LAST_HOLDER => holder,
            reference::SAME_OWNER => owner,
            _ => Some(self.tid(from, 0)?.0),
        };
        self.time = from.delta(self.time)?;
        let mut told = [0; 2];
        for slot in told.iter_mut().take(durations(&shape)) {
            *slot = from.number()?;
        }
        if let Some(slot) = lock.and_then(|l| self.holders.get_mut(l)) {
            if shape.held() {
                slot.0 = Some(tid);
            }
            if owner.is_some() {
                slot.1 = owner;
            }
        }
        Ok(Parts { shape, tid, time: self.time, owner, waker, durations: told }.event())
    }

    #[cold]
    fn define(&mut self, from: &mut Cursor) -> Result<(Shape, Option<usize>), Malformed> {
        let defined = match from.byte()? {
            0 => {
                let (number, lock) = self.lock(from)?;
                let process = if lock.is_kernel() { Some(Process(from.number32()?)) } else { None };
                let place = match from.number()?.checked_sub(1) {
                    Some(number) => *entry(&self.places, number)?,
                    None => {
                        let place = self.near.place(from)?;
                        add(&mut self.places, place)?;
                        place
                    }
                };
                (Shape::Section { lock, process, place }, Some(number))
            }
            1 => {
                let (number, word) = self.lock(from)?;
                (self.near.futex(word, from)?, Some(number))
            }
            2 => {
                let process = Process(from.number32()?);
                (Shape::OffCpu { process, reason: code_in(&OFF_REASONS, from)?, stack: stack(from)? }, None)
            }
            kind @ (3 | 4) => {
                let ordered = kind == 3;
                let process = Process(from.number32()?);
                let code = from.byte()?;
                let lock = if code < ACTIONS_WITH_LOCK { Some(self.lock(from)?) } else { None };
                let (number, lock) = lock.unzip();
                (
                    Shape::Op { ordered, process, action: self.near.action(code, lock.unwrap_or_default(), from)? },
                    number,
                )
            }
            5 => {
                let (number, word) = self.lock(from)?;
                let woken = from.number32()?;
                (self.near.wake(word, woken, from)?, Some(number))
            }
            _ => return Err(Malformed::Unknown("shape")),
        };
        add(&mut self.shapes, defined)?;
        Ok(defined)
    }

    fn lock(&mut self, from: &mut Cursor) -> Result<(usize, Lock), Malformed> {
        match from.number()?.checked_sub(1) {
            Some(number) => Ok((number as usize, *entry(&self.locks, number)?)),
            None => {
                let lock = self.near.lock(from)?;
                add(&mut self.locks, lock)?;
                self.holders.push((None, None));
                Ok((self.locks.len() - 1, lock))
            }
        }
    }

    /// A thread, and the bits that came with its number.
    #[inline]
    fn tid(&mut self, from: &mut Cursor, bits: u32) -> Result<(Tid, u64), Malformed> {
        let coded = from.number()?;
        let low = coded & ((1 << bits) - 1);
        match (coded >> bits).checked_sub(1) {
            Some(number) => Ok((*entry(&self.tids, number)?, low)),
            None => {
                self.tid = from.delta(self.tid)?;
                let tid = Tid(u32::try_from(self.tid).map_err(|_| Malformed::TooLarge)?);
                add(&mut self.tids, tid)?;
                Ok((tid, low))
            }
        }
    }

    fn process(&mut self, from: &mut Cursor) -> Result<ProcessSeen, Malformed> {
        self.time = from.delta(self.time)?;
        Ok(ProcessSeen {
            time: Time(self.time),
            process: Process(from.number32()?),
            pid: from.number32()?,
            start: Time(from.number()?),
            comm: shown(from.text()?).into_owned(),
        })
    }
}

/// What one thread did, but for the time.
pub(super) fn totals(time: Time, from: &mut Cursor) -> Result<ThreadTotals, Malformed> {
    let tid = Tid(from.number32()?);
    // With the process goes whether the thread ended it.
    let process = from.number()?;
    let ends_process = process & ENDS_PROCESS != 0;
    Ok(ThreadTotals {
        time,
        tid,
        ends_process,
        process: Process(u32::try_from(process & !ENDS_PROCESS).map_err(|_| Malformed::TooLarge)?),
        acquisitions: from.number()?,
        wait: Nanos(from.number()?),
        kernel_wait: Nanos(from.number()?),
        held_sum: Nanos(from.number()?),
        held_union: Nanos(from.number()?),
        comm: shown(from.text()?).into_owned(),
    })
}

#[inline]
fn entry<T>(table: &[T], number: u64) -> Result<&T, Malformed> {
    usize::try_from(number).ok().and_then(|n| table.get(n)).ok_or(Malformed::Undefined)
}

fn add<T>(table: &mut Vec<T>, value: T) -> Result<(), Malformed> {
    if table.len() >= MAX_DICTIONARY {
        return Err(Malformed::TooMany);
    }
    table.push(value);
    Ok(())
}
