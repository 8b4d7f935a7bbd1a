//! Where the kernel side has which sums. It adds slots and takes none away, so that only the new ones are read: windows end many times a
//! second, and each time the sums of their processes are.

use crate::capture::CaptureError;
use crate::capture::batch;
use crate::id::Process;
use crate::units::{Nanos, Time};
use aya::Ebpf;
use aya::maps::{Array, Map};
use lockbpf_common::process::{SERIAL_OTHER_SUMS, SERIAL_SITE_SUMS, SERIAL_SUMS};
use lockbpf_common::sums::{OTHER_SUMS, OWN_SUMS, SITE_SUMS, SumKey, Sums};
use std::collections::HashMap;
use std::ops::Range;

/// A slot is given out before its key is there, by a program that may be preempted meanwhile. One that comes later than this is in no window,
/// only in what is read at the end.
const UNDER_WAY: Nanos = Nanos(200_000_000);

/// Each series of slots: its number, and which slots it gives out.
const SERIES: [(u32, Range<u32>); 3] =
    [(SERIAL_SUMS, OWN_SUMS), (SERIAL_SITE_SUMS, SITE_SUMS), (SERIAL_OTHER_SUMS, OTHER_SUMS)];

/// Sums that are read together at most.
const AT_ONCE: usize = 256;

/// A key and its slot.
pub(super) type SumSlot = (SumKey, u32);

/// All slots that are in use.
///
/// # Errors
/// When a map cannot be read.
pub(super) fn all(ebpf: &Ebpf) -> Result<Vec<SumSlot>, CaptureError> {
    let mut all = Vec::new();
    for (room, given) in SERIES.map(|(_, room)| room).into_iter().zip(given(ebpf)?) {
        all.extend(used(ebpf, room.start..given)?);
    }
    Ok(all)
}

/// Reads the sums in these slots. Those of one process are often next to one another, since few have windows at a time: they are read together.
///
/// # Errors
/// When the map cannot be read.
pub(super) fn each(
    map: &Map,
    mut slots: Vec<SumSlot>,
    mut take: impl FnMut(&SumKey, Sums),
) -> Result<(), CaptureError> {
    let array: Array<_, Sums> = map.try_into()?;
    slots.sort_unstable_by_key(|&(_, slot)| slot);
    for run in slots.chunk_by(|&(_, a), &(_, b)| a + 1 == b) {
        for part in run.chunks(AT_ONCE) {
            match part {
                [(key, slot)] => take(key, array.get(slot, 0)?),
                [(_, first), ..] => {
                    let read = batch::range::<Sums>(map, *first..first + part.len() as u32)?;
                    part.iter().zip(read).for_each(|((key, _), sums)| take(key, sums));
                }
                [] => {}
            }
        }
    }
    Ok(())
}

/// Slots by process, as far as they are known.
#[derive(Debug)]
pub(super) struct SumSlots {
    settled: HashMap<Process, Vec<SumSlot>>,
    /// Those whose keys may have been under way.
    fresh: Vec<SumSlot>,
    marks: [Mark; SERIES.len()],
}

/// How far a series has been read.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Keys before this slot are known.
    settled: u32,
    /// Slots before this one had been given out by then.
    given: u32,
    at: Time,
}

impl Default for SumSlots {
    fn default() -> Self {
        let marks = SERIES.map(|(_, room)| Mark { settled: room.start, given: room.start, at: Time(0) });
        Self { settled: HashMap::new(), fresh: Vec::new(), marks }
    }
}

impl SumSlots {
    /// Reads what is new.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(super) fn renew(&mut self, ebpf: &Ebpf, now: Time) -> Result<(), CaptureError> {
        self.fresh.clear();
        for (mark, given) in self.marks.iter_mut().zip(given(ebpf)?) {
            let read = used(ebpf, mark.settled..given)?;
            mark.go_on(given, now);
            let (settled, fresh): (Vec<_>, Vec<_>) = read.into_iter().partition(|&(_, slot)| slot < mark.settled);
            for slot in settled {
                self.settled.entry(Process(slot.0.process)).or_default().push(slot);
            }
            self.fresh.extend(fresh);
        }
        Ok(())
    }

    /// Those of the processes that are wanted.
    pub(super) fn of(&self, wanted: impl Fn(Process) -> bool) -> Vec<SumSlot> {
        let settled = self.settled.iter().filter(|(process, _)| wanted(**process)).flat_map(|(_, slots)| slots);
        settled.chain(self.fresh.iter().filter(|(key, _)| wanted(Process(key.process)))).copied().collect()
    }
}

impl Mark {
    /// Slots before `given` have been given out `now`, and read after that.
    fn go_on(&mut self, given: u32, now: Time) {
        if now.since(self.at) >= UNDER_WAY {
            self.settled = self.given;
            (self.given, self.at) = (given, now);
        }
    }
}

/// The slots of each series that come next.
fn given(ebpf: &Ebpf) -> Result<[u32; SERIES.len()], CaptureError> {
    let serials: Array<_, u64> = ebpf.map("SERIALS").ok_or(CaptureError::NoMap("SERIALS"))?.try_into()?;
    let mut all = [0; SERIES.len()];
    for (given, (series, room)) in all.iter_mut().zip(SERIES) {
        // The series goes on when there is no room any more.
        let nth = serials.get(&series, 0)?.min(u64::from(room.end - room.start));
        *given = room.start + nth as u32;
    }
    Ok(all)
}

/// Those of these slots that have keys. The others never will, or not yet.
fn used(ebpf: &Ebpf, slots: Range<u32>) -> Result<Vec<SumSlot>, CaptureError> {
    if slots.is_empty() {
        return Ok(Vec::new());
    }
    let keys = ebpf.map("SUM_KEYS").ok_or(CaptureError::NoMap("SUM_KEYS"))?;
    let keys = batch::range::<SumKey>(keys, slots.clone())?;
    // Processes are numbered from 1.
    Ok(keys.into_iter().zip(slots).filter(|(key, _)| key.process != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_under_way_is_read_again() {
        let mut mark = Mark { settled: 0, given: 0, at: Time(0) };
        let ms = |ms: u64| Time(1_000_000 * ms);
        let mut settled = |given: u32, at: u64| {
            mark.go_on(given, ms(at));
            mark.settled
        };
        // The map is read at least 200 ms after the slot was given out, and then that slot is known.
        assert_eq!((settled(7, 1_000), settled(9, 1_199)), (0, 0));
        assert_eq!((settled(9, 1_200), settled(9, 1_399)), (7, 7));
        assert_eq!((settled(20, 1_400), settled(20, 9_000)), (9, 20));
    }
}
