//! What a thread holds at this moment, by its state on the kernel side. That is exact where every lock operation of its process is observed;
//! elsewhere nothing is told.

use super::Session;
use crate::capture::btf::Btf;
use crate::capture::object;
use crate::capture::raw_program::fd;
use crate::capture::thread_fd;
use crate::id::{Lock, Tid};
use crate::units::Time;
use ::object::{Object, ObjectSection};
use aya::maps::{Array, Map};
use lockbpf_common::config::{Control, MAX_HELD};
use lockbpf_common::kind::Via;
use lockbpf_common::off_cpu::Reason;
use std::sync::OnceLock;

/// Bits of an opening's number below the lapses of the lease, as the kernel side has them.
const LAPSES_SHIFT: u32 = 32;
/// The state changes while it is read: two readings have to agree.
const ATTEMPTS: usize = 3;

/// A lock that a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Address of the lock.
    pub lock: u64,
    /// Return address of the call that got it.
    pub site: u64,
    /// When it was acquired.
    pub since: Time,
    /// By which call; `None` for one that this version does not know.
    pub via: Option<Via>,
}

/// What a thread was doing when it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadNow {
    /// The locks that it holds.
    pub holds: Vec<Hold>,
    /// Why it is off the CPU, and since when; `None` if it is not, as far as was seen.
    pub off: Option<(Reason, Time)>,
}

/// Offsets in the state that the programs keep of a thread, by the object's own types.
#[derive(Debug)]
struct Layout {
    depth: usize,
    slot: usize,
    epoch: usize,
    lapses: usize,
    held: usize,
    held_lock: usize,
    held_site: usize,
    held_acquire: usize,
    held_via: usize,
    held_size: usize,
    pending_lock: usize,
    pending_site: usize,
    pending_attempt: usize,
    pending_acquire: usize,
    pending_via: usize,
    futex_role: usize,
    off_since: usize,
    off_end: usize,
    off_reason: usize,
}

impl Layout {
    fn of_object() -> Option<&'static Self> {
        static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
        LAYOUT.get_or_init(|| Self::read(object::BYTES)).as_ref()
    }

    fn read(object: &[u8]) -> Option<Self> {
        let file = ::object::File::parse(object).ok()?;
        let types = Btf::parse(file.section_by_name(".BTF")?.data().ok()?).ok()?;
        let of = |structure: &str, member: &str| types.member_offset(structure, member).map(|offset| offset as usize);
        let inside = |member: &str, structure: &str, inner: &str| Some(of("Thread", member)? + of(structure, inner)?);
        let held = of("Thread", "held")?;
        Some(Self {
            depth: of("Thread", "depth")?,
            slot: of("Thread", "slot")?,
            epoch: of("Thread", "epoch")?,
            lapses: of("Thread", "lapses")?,
            held,
            held_lock: of("Held", "lock")?,
            held_site: of("Held", "site")?,
            held_acquire: of("Held", "acquire_ns")?,
            held_via: of("Held", "via")?,
            // The next member begins where the array ends.
            held_size: of("Thread", "recent")?.checked_sub(held)? / MAX_HELD,
            pending_lock: inside("pending", "Pending", "lock")?,
            pending_site: inside("pending", "Pending", "site")?,
            pending_attempt: inside("pending", "Pending", "attempt_ns")?,
            pending_acquire: inside("pending", "Pending", "acquire_ns")?,
            pending_via: inside("pending", "Pending", "via")?,
            futex_role: inside("futex", "FutexCall", "role")?,
            off_since: inside("off", "Absence", "since_ns")?,
            off_end: inside("off", "Absence", "end_ns")?,
            off_reason: inside("off", "Absence", "reason")?,
        })
    }

    /// What a state tells, if `is_open` says that it still holds.
    fn decode(&self, state: &[u8], is_open: impl Fn(u32, u64, u64) -> bool) -> Option<ThreadNow> {
        let long = |at: usize| Some(u64::from_ne_bytes(*state.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*state.get(at..)?.first_chunk()?));
        if !is_open(word(self.slot)?, long(self.epoch)?, long(self.lapses)?) {
            return None;
        }
        let depth = (word(self.depth)? as usize).min(MAX_HELD);
        let hold = |i: usize| {
            let at = self.held + i * self.held_size;
            let since = Time(long(at + self.held_acquire)?);
            let via = via(word(at + self.held_via)?);
            Some(Hold { lock: long(at + self.held_lock)?, site: long(at + self.held_site)?, since, via })
        };
        let mut holds = (0..depth).map(hold).collect::<Option<Vec<_>>>()?;
        // A call that cannot fail is not watched to its return: it is over, unless the thread sleeps in it.
        let pending = via(word(self.pending_via)?);
        let settled = matches!(pending, Some(Via::Lock | Via::CondReacquire | Via::ReadLock | Via::WriteLock));
        if settled && word(self.futex_role)? == 0 {
            let since = Time(long(self.pending_acquire)?.max(long(self.pending_attempt)?));
            holds.push(Hold { lock: long(self.pending_lock)?, site: long(self.pending_site)?, since, via: pending });
        }
        let reason = Reason::from_u8(word(self.off_reason)? as u8);
        let off = reason.filter(|_| long(self.off_end) == Some(0)).zip(long(self.off_since).map(Time));
        Some(ThreadNow { holds, off })
    }
}

fn via(number: u32) -> Option<Via> {
    u8::try_from(number).ok().and_then(Via::from_u8)
}

impl Session {
    /// When a futex call on a lock's first word last woke waiters, or would have; `None` if that is not known.
    #[must_use]
    pub fn woken(&self, lock: Lock) -> Option<Time> {
        self.witness.woken(lock)
    }

    /// Since when all futex calls were seen.
    #[must_use]
    pub fn seen_since(&self) -> Time {
        self.lease().last_over().unwrap_or(self.started)
    }

    /// What a thread holds now, and why it is off the CPU; `None` where that is not known: its process's gate is closed, it has done
    /// nothing with locks since that opened, or the kernel does not show the state of threads (before 6.9 that of first threads only).
    #[must_use]
    pub fn thread_now(&self, tid: Tid) -> Option<ThreadNow> {
        let layout = Layout::of_object()?;
        let state = self.map("STATE").ok()?;
        let Map::Unsupported(data) = state else { return None };
        let size = data.info().ok()?.value_size() as usize;
        let (map, thread) = (fd(state)?, thread_fd::open(tid)?);
        let control: Array<_, Control> = self.map("CONTROL").ok()?.try_into().ok()?;
        let is_open = |slot: u32, epoch: u64, lapses: u64| {
            let gate = self.witness.gate(slot).filter(|gate| gate.epoch != 0);
            let control = control.get(&0, 0).ok().filter(Control::is_active);
            gate.is_some_and(|gate| epoch == gate.epoch | lapses << LAPSES_SHIFT)
                && control.is_some_and(|control| control.lapses == lapses)
        };
        let look = || layout.decode(&thread_fd::value(map, &thread, size)?, is_open);
        let mut before = look()?;
        for _ in 0..ATTEMPTS {
            let now = look()?;
            if now == before {
                return Some(now);
            }
            before = now;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_tells_where_a_threads_locks_are() {
        let layout = Layout::of_object().expect("the object has types");
        assert_eq!(layout.held_size, 64);
        let mut state = vec![0; layout.held + MAX_HELD * layout.held_size + 4_096];
        let mut put = |at: usize, value: u64| state[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(layout.held + layout.held_lock, 0x10);
        put(layout.held + layout.held_site, 0x20);
        put(layout.held + layout.held_acquire, 30);
        put(layout.held + layout.held_via, Via::WriteLock as u64);
        put(layout.off_since, 40);
        state[layout.depth] = 1;
        state[layout.off_reason] = Reason::Sleeping as u8;
        let now = layout.decode(&state, |_, _, _| true).unwrap();
        let hold = Hold { lock: 0x10, site: 0x20, since: Time(30), via: Some(Via::WriteLock) };
        assert_eq!(now, ThreadNow { holds: vec![hold], off: Some((Reason::Sleeping, Time(40))) });
        assert_eq!(layout.decode(&state, |_, _, _| false), None, "its gate is closed");
        state[layout.off_end] = 1;
        assert_eq!(layout.decode(&state, |_, _, _| true).unwrap().off, None, "it is back");
        assert_eq!(layout.decode(&state[..100], |_, _, _| true), None);
    }
}
