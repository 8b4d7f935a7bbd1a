//! Shapes: what recurs in events. The same threads take the same locks at the same places over and over, so an event is
//! the number of its shape, its thread, and its times.

use super::super::Malformed;
use super::super::varint::{Cursor, put, put_delta, put_option};
use crate::event::{FutexResult, Outcome, Via, Weight};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Action, Arrival, Attempt, Doing, Failure, Hold, LockKind, OffReason, Released, Round};
use crate::units::Nanos;

/// The bit of a futex wait's result that tells of a weight behind it.
const WEIGHS: u8 = 0x40;

/// Everything of an event but its thread, its times, its owner and its waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Section {
        lock: Lock,
        /// That of the thread, if the lock is the kernel's; else it is the lock's.
        process: Option<Process>,
        place: Place,
    },
    Futex {
        word: Lock,
        site: Option<Site>,
        expected: u32,
        stack: Option<StackId>,
        result: FutexResult,
        weight: Weight,
    },
    Wake {
        word: Lock,
        process: Process,
        site: Option<Site>,
        stack: Option<StackId>,
        woken: u32,
    },
    OffCpu {
        process: Process,
        reason: OffReason,
        stack: Option<StackId>,
    },
    /// The owner and the waker in the action are `None`.
    Op {
        /// Whether it is in order with the steps before it ([`crate::event::Event::Op`]).
        ordered: bool,
        process: Process,
        action: Action,
    },
}

/// What recurs in sections whatever their lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub site: Site,
    pub via: Via,
    pub flags: u16,
    pub outcome: Outcome,
    pub mutex_kind: u8,
    pub stack: Option<StackId>,
}

impl Shape {
    /// The lock whose holders are followed, to name owners by it.
    pub(super) fn lock(&self) -> Option<Lock> {
        match *self {
            Self::Section { lock, .. } => Some(lock),
            Self::Futex { word, .. } | Self::Wake { word, .. } => Some(word),
            Self::OffCpu { .. } => None,
            Self::Op { action, .. } => match action {
                Action::Attempt(Attempt { lock, .. })
                | Action::Acquire { lock, .. }
                | Action::Release { lock, .. }
                | Action::Fail { lock, .. } => Some(lock),
                Action::Barrier(_)
                | Action::CondWait { .. }
                | Action::CondWake { .. }
                | Action::Off { .. }
                | Action::On
                | Action::Join { .. }
                | Action::Holds(_)
                | Action::Exit { .. } => None,
            },
        }
    }

    /// Whether the event says that its thread had the lock.
    pub(super) fn held(&self) -> bool {
        match self {
            Self::Section { place, .. } => {
                !matches!(place.outcome, Outcome::TryFailed | Outcome::TimedOut | Outcome::Failed)
            }
            Self::Op { action, .. } => matches!(action, Action::Acquire { .. }),
            Self::Futex { .. } | Self::Wake { .. } | Self::OffCpu { .. } => false,
        }
    }
}

/// Addresses defined last, from which the next ones differ by little.
#[derive(Debug, Default)]
pub(super) struct Near {
    lock: u64,
    site: u64,
}

impl Near {
    pub(super) fn put_lock(&mut self, out: &mut Vec<u8>, lock: Lock) {
        put(out, u64::from(lock.process.0));
        put_delta(out, self.lock, lock.addr);
        self.lock = lock.addr;
    }

    pub(super) fn lock(&mut self, from: &mut Cursor) -> Result<Lock, Malformed> {
        let process = Process(from.number32()?);
        self.lock = from.delta(self.lock)?;
        Ok(Lock { process, addr: self.lock })
    }

    fn put_site(&mut self, out: &mut Vec<u8>, site: Site) {
        put(out, u64::from(site.process.0));
        put_delta(out, self.site, site.addr);
        self.site = site.addr;
    }

    fn site(&mut self, from: &mut Cursor) -> Result<Site, Malformed> {
        let process = Process(from.number32()?);
        self.site = from.delta(self.site)?;
        Ok(Site { process, addr: self.site })
    }

    pub(super) fn put_place(&mut self, out: &mut Vec<u8>, place: &Place) {
        self.put_site(out, place.site);
        out.extend([place.via as u8, place.outcome as u8, place.mutex_kind]);
        put(out, u64::from(place.flags));
        put_stack(out, place.stack);
    }

    pub(super) fn place(&mut self, from: &mut Cursor) -> Result<Place, Malformed> {
        Ok(Place {
            site: self.site(from)?,
            via: Via::from_u8(from.byte()?).ok_or(Malformed::Unknown("call"))?,
            outcome: Outcome::from_u8(from.byte()?).ok_or(Malformed::Unknown("outcome"))?,
            mutex_kind: from.byte()?,
            flags: u16::try_from(from.number()?).map_err(|_| Malformed::TooLarge)?,
            stack: stack(from)?,
        })
    }

    pub(super) fn put_futex(
        &mut self,
        out: &mut Vec<u8>,
        site: Option<Site>,
        expected: u32,
        stack: Option<StackId>,
        (result, weight): (FutexResult, Weight),
    ) {
        let weighs = if weight == Weight::default() { 0 } else { WEIGHS };
        out.push(result as u8 | weighs | u8::from(site.is_some()) << 7);
        out.extend((weighs != 0).then(|| weight.packed()));
        if let Some(site) = site {
            self.put_site(out, site);
        }
        put(out, u64::from(expected));
        put_stack(out, stack);
    }

    pub(super) fn futex(&mut self, word: Lock, from: &mut Cursor) -> Result<Shape, Malformed> {
        let byte = from.byte()?;
        let result = FutexResult::from_u8(byte & !WEIGHS & 0x7f).ok_or(Malformed::Unknown("result of a futex wait"))?;
        let weight = if byte & WEIGHS != 0 { Weight::unpacked(from.byte()?) } else { Weight::default() };
        let site = if byte & 0x80 != 0 { Some(self.site(from)?) } else { None };
        Ok(Shape::Futex { word, site, expected: from.number32()?, stack: stack(from)?, result, weight })
    }

    pub(super) fn put_wake(&mut self, out: &mut Vec<u8>, process: Process, site: Option<Site>, stack: Option<StackId>) {
        out.push(u8::from(site.is_some()));
        put(out, u64::from(process.0));
        if let Some(site) = site {
            self.put_site(out, site);
        }
        put_stack(out, stack);
    }

    pub(super) fn wake(&mut self, word: Lock, woken: u32, from: &mut Cursor) -> Result<Shape, Malformed> {
        let sited = code_in(&[false, true], from)?;
        let process = Process(from.number32()?);
        let site = if sited { Some(self.site(from)?) } else { None };
        Ok(Shape::Wake { word, process, site, stack: stack(from)?, woken })
    }

    /// All of an action but its code, its lock (which [`Shape::lock`] returns), its owner and its waker.
    pub(super) fn put_action(&mut self, out: &mut Vec<u8>, action: &Action) {
        match *action {
            Action::Attempt(a) => {
                self.put_site(out, a.site);
                put_code(out, &LOCK_KINDS, a.kind);
                put_code(out, &CONTENDED, a.contended);
                out.push(u8::from(a.shared));
                put_stack(out, a.stack);
            }
            Action::Acquire { .. } | Action::On | Action::Exit { .. } => {}
            Action::Join { thread, wait } => {
                put(out, u64::from(thread.0));
                put(out, wait.0);
            }
            Action::Holds(hold) => {
                self.put_lock(out, hold.lock);
                put(out, u64::from(hold.holder.0));
                put_code(out, &DOING, hold.doing);
                out.push(u8::from(hold.site.is_some()));
                if let Some(site) = hold.site {
                    self.put_site(out, site);
                }
                put_stack(out, hold.stack);
            }
            Action::Release { how, .. } => put_code(out, &RELEASED, how),
            Action::Fail { how, .. } => put_code(out, &FAILURES, how),
            Action::Barrier(a) => {
                self.put_lock(out, a.barrier);
                put(out, u64::from(a.participants));
                self.put_site(out, a.site);
                self.put_site(out, a.post);
                if a.round != Round::Unknown {
                    out.push(a.round.code());
                }
            }
            Action::CondWait { condition, site } => {
                self.put_lock(out, condition);
                self.put_site(out, site);
            }
            Action::CondWake { condition } => self.put_lock(out, condition),
            Action::Off { reason, stack } => {
                put_code(out, &OFF_REASONS, reason);
                put_stack(out, stack);
            }
        }
    }

    /// The action with this code, on this lock if it has one.
    pub(super) fn action(&mut self, code: u8, lock: Lock, from: &mut Cursor) -> Result<Action, Malformed> {
        Ok(match code {
            0 => Action::Attempt(Attempt {
                lock,
                site: self.site(from)?,
                kind: code_in(&LOCK_KINDS, from)?,
                contended: code_in(&CONTENDED, from)?,
                shared: code_in(&[false, true], from)?,
                owner: None,
                stack: stack(from)?,
            }),
            1 => Action::Acquire { lock, waker: None },
            2 => Action::Release { lock, how: code_in(&RELEASED, from)? },
            3 => Action::Fail { lock, how: code_in(&FAILURES, from)? },
            4 | BARRIER_IN_ROUND => Action::Barrier(Arrival {
                barrier: self.lock(from)?,
                participants: from.number32()?,
                site: self.site(from)?,
                post: self.site(from)?,
                round: if code == 4 { Round::Unknown } else { Round::of_code(from.byte()?.into()) },
            }),
            5 => Action::CondWait { condition: self.lock(from)?, site: self.site(from)? },
            6 => Action::CondWake { condition: self.lock(from)? },
            7 => Action::Off { reason: code_in(&OFF_REASONS, from)?, stack: stack(from)? },
            8 => Action::On,
            9 => Action::Exit { ends: false },
            10 => Action::Exit { ends: true },
            11 => Action::Join { thread: Tid(from.number32()?), wait: Nanos(from.number()?) },
            HOLDS => {
                let (lock, holder, doing) = (self.lock(from)?, Tid(from.number32()?), code_in(&DOING, from)?);
                let site = if code_in(&[false, true], from)? { Some(self.site(from)?) } else { None };
                Action::Holds(Hold { lock, holder, site, stack: stack(from)?, doing })
            }
            _ => return Err(Malformed::Unknown("step")),
        })
    }
}

/// Actions with codes below this have a lock whose holders are followed.
pub(super) const ACTIONS_WITH_LOCK: u8 = 4;

/// An arrival at a barrier of which the round is known.
const BARRIER_IN_ROUND: u8 = 12;
/// A look at who holds a kernel lock.
const HOLDS: u8 = 13;

/// The code of an action.
pub(super) fn action_code(action: &Action) -> u8 {
    match action {
        Action::Attempt(_) => 0,
        Action::Acquire { .. } => 1,
        Action::Release { .. } => 2,
        Action::Fail { .. } => 3,
        Action::Barrier(a) if a.round == Round::Unknown => 4,
        Action::Barrier(_) => BARRIER_IN_ROUND,
        Action::CondWait { .. } => 5,
        Action::CondWake { .. } => 6,
        Action::Off { .. } => 7,
        Action::On => 8,
        Action::Exit { ends: false } => 9,
        Action::Exit { ends: true } => 10,
        Action::Join { .. } => 11,
        Action::Holds(_) => HOLDS,
    }
}

// The codes of values are their places in these tables, which only grow.

pub(in crate::trace) const LOCK_KINDS: [LockKind; 9] = [
    LockKind::Mutex,
    LockKind::Rwlock,
    LockKind::Spin,
    LockKind::Semaphore,
    LockKind::Barrier,
    LockKind::Futex,
    LockKind::Once,
    LockKind::Other,
    LockKind::Gil,
];
const CONTENDED: [Option<bool>; 3] = [None, Some(false), Some(true)];
const RELEASED: [Released; 4] = [Released::Unlock, Released::CondWait, Released::ExitedHolding, Released::Unseen];
const FAILURES: [Failure; 3] = [Failure::TryFailed, Failure::TimedOut, Failure::Error];
const DOING: [Doing; 5] = [Doing::Unknown, Doing::Running, Doing::Runnable, Doing::Blocked, Doing::Sleeping];
pub(super) const OFF_REASONS: [OffReason; 4] =
    [OffReason::Runnable, OffReason::Blocked, OffReason::Sleeping, OffReason::Futex];

/// Appends the code of a value: its place in a table that has them all.
pub(super) fn put_code<T: PartialEq>(out: &mut Vec<u8>, table: &[T], value: T) {
    let place = table.iter().position(|v| *v == value);
    debug_assert!(place.is_some(), "a value without a code");
    out.push(place.map_or(u8::MAX, |at| at as u8));
}

/// The value of the next code.
pub(super) fn code_in<T: Copy>(table: &[T], from: &mut Cursor) -> Result<T, Malformed> {
    table.get(usize::from(from.byte()?)).copied().ok_or(Malformed::Unknown("code"))
}

/// Appends a stack's number.
pub(super) fn put_stack(out: &mut Vec<u8>, stack: Option<StackId>) {
    put_option(out, stack.map(|s| s.0));
}

/// A stack's number.
pub(super) fn stack(from: &mut Cursor) -> Result<Option<StackId>, Malformed> {
    Ok(from.option()?.map(StackId))
}
