//! Whether what is observed is seen, too: a process that wakes who waits for a lock which is known from before has called the C library,
//! and a probe there was hit. If none was, in the whole process, again and again while its gate was open, then its probes see nothing,
//! for whatever reason (it may have replaced the code in its memory), and all that is told of it is of the time before.

use super::CaptureError;
use super::batch;
use super::gates;
use super::session::{clock, now};
use crate::id::{Lock, Process};
use crate::quality::Unobserved;
use crate::units::{Nanos, Time};
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use lockbpf_common::gate::{Account, Gate};
use lockbpf_common::kind::Via;
use lockbpf_common::sums::SumKey;
use nix::time::ClockId;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Duration;

/// A lock's words are within so many bytes of its address.
const LOCK_BYTES: u64 = 64;
/// Between two looks at least.
const INTERVAL: Nanos = Nanos(QUIET.as_nanos() as u64 / LOOKS as u64);
/// Looks at which wakes without hits must have been found: one may fall into a long call.
const LOOKS: u32 = 4;
/// No hit for so long.
const QUIET: Duration = Duration::from_millis(400);

/// Looks on.
pub(super) struct Witness {
    accounts: PerCpuArray<MapData, Account>,
    gates: Map,
    targets: Map,
    /// By word and process: when its waiters were woken last, or nobody, and more.
    wakers: Map,
    /// By pid.
    seen: BTreeMap<u32, Seen>,
    found: Vec<Unobserved>,
    looked: Time,
}

/// What was seen of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    slot: u32,
    hits: u64,
    futex_calls: u64,
    /// When its hits were last seen to have become more, and when it was looked last.
    hit: Time,
    looked: Time,
    looks: u32,
    /// Where it is told that it is not observed.
    told: Option<usize>,
}

impl Witness {
    /// Shares the maps with whoever else uses them.
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, CaptureError> {
        Ok(Self {
            accounts: again(ebpf, "ACCOUNTS")?.try_into()?,
            gates: again(ebpf, "GATES")?,
            targets: again(ebpf, "TARGETS")?,
            wakers: again(ebpf, "WAKERS")?,
            seen: BTreeMap::new(),
            found: Vec::new(),
            looked: Time(0),
        })
    }

    /// The gate of a slot.
    pub(super) fn gate(&self, slot: u32) -> Option<Gate> {
        let gates: Array<_, Gate> = (&self.gates).try_into().ok()?;
        gates.get(&slot, 0).ok()
    }

    /// When a futex call woke the waiters of a word last, or found none.
    pub(super) fn woken(&self, lock: Lock) -> Option<Time> {
        let wakers: HashMap<_, [u64; 2], [u64; 3]> = (&self.wakers).try_into().ok()?;
        let [time_ns, ..] = wakers.get(&[lock.addr, u64::from(lock.process.0)], 0).ok()?;
        Some(Time(time_ns))
    }

    /// The times in which processes were not observed, as far as they are known.
    pub(super) fn found(&self) -> &[Unobserved] {
        &self.found
    }

    /// Looks at all processes whose gates are open: where one is closed, no hit is expected. `number` is that of a process, `sums` what is known of locks. Returns the pids of those
    /// that are found not to be observed.
    pub(super) fn look(
        &mut self,
        start: Time,
        number: impl Fn(u32) -> Option<Process>,
        sums: impl Fn() -> Vec<SumKey>,
    ) -> Vec<u32> {
        let mut blind = Vec::new();
        if now().since(self.looked) < INTERVAL {
            return blind;
        }
        self.looked = now();
        let since_boot = clock(ClockId::CLOCK_BOOTTIME).saturating_sub(clock(ClockId::CLOCK_MONOTONIC));
        // A map that cannot be read tells nothing.
        let targets = batch::entries::<u32, u32>(&self.targets).unwrap_or_default();
        let targets: BTreeMap<u32, u32> = targets.into_iter().filter(|&(_, slot)| slot != 0).collect();
        let slots = targets.values().max().map_or(0, |last| last + 1);
        let gates = batch::first::<Gate>(&self.gates, slots).unwrap_or_default();
        self.seen.retain(|pid, _| targets.contains_key(pid));
        // Read once for all, if anybody asks.
        let (mut words, mut locks) = (None, None);
        for (pid, slot) in targets {
            let Some(gate) = gates.get(slot as usize).filter(|gate| gate.epoch != 0) else { continue };
            let Ok(taken) = gates::taken(&self.accounts, slot) else { continue };
            let time = now();
            let fresh = Seen { slot, hits: 0, futex_calls: 0, hit: time, looked: time, looks: 0, told: None };
            let seen = self.seen.entry(pid).or_insert(fresh);
            if taken.hits != seen.hits || seen.slot != slot {
                if let Some(gap) = seen.told.and_then(|told| self.found.get_mut(told)) {
                    gap.to_ns = Some(time.since(start).0);
                }
                *seen = Seen { hits: taken.hits, futex_calls: taken.futex_calls, ..fresh };
                continue;
            }
            let calls = std::mem::replace(&mut seen.futex_calls, taken.futex_calls);
            let opened = Time(gate.opened_boottime_ns.saturating_sub(since_boot));
            let since = seen.hit.max(opened).max(seen.looked);
            let looked = std::mem::replace(&mut seen.looked, time);
            if seen.told.is_some() || taken.hits == 0 || calls == taken.futex_calls {
                continue;
            }
            let Some(process) = number(pid) else { continue };
            let words = words.get_or_insert_with(|| woken(&self.wakers)).get(&process);
            let words = words.into_iter().flatten().filter(|(_, when)| *when > since);
            let words: Vec<u64> = words.map(|&(word, _)| word).collect();
            if words.is_empty() {
                continue;
            }
            let locks = locks.get_or_insert_with(|| by_process(sums())).get(&process);
            if !locks.into_iter().flatten().any(|key| words.iter().any(|&word| has(key, word))) {
                continue;
            }
            seen.looks += 1;
            log::debug!("pid {pid}: wakes without hits since {looked:?}, look {}", seen.looks);
            if seen.looks >= LOOKS && time.since(seen.hit).0 >= QUIET.as_nanos() as u64 {
                seen.told = Some(self.found.len());
                self.found.push(Unobserved { pid, from_ns: seen.hit.since(start).0, to_ns: None });
                blind.push(pid);
            }
        }
        blind
    }
}

/// The words at which somebody was woken, or nobody, and when last, by process.
fn woken(wakers: &Map) -> BTreeMap<Process, Vec<(u64, Time)>> {
    let mut words: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for ([word, process], [when, ..]) in batch::entries::<[u64; 2], [u64; 3]>(wakers).unwrap_or_default() {
        words.entry(Process(process as u32)).or_default().push((word, Time(when)));
    }
    words
}

fn by_process(sums: Vec<SumKey>) -> BTreeMap<Process, Vec<SumKey>> {
    let mut locks: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for key in sums {
        locks.entry(Process(key.process)).or_default().push(key);
    }
    locks
}

/// Whether a word is one of a lock that the C library takes and gives back where there are probes.
fn has(key: &SumKey, word: u64) -> bool {
    let is_lock = u8::try_from(key.via).ok().and_then(Via::from_u8).is_some_and(|via| {
        matches!(
            via,
            Via::Lock
                | Via::TimedLock
                | Via::ClockLock
                | Via::CondReacquire
                | Via::ReadLock
                | Via::WriteLock
                | Via::TryLock
        )
    });
    is_lock && (key.lock..key.lock.saturating_add(LOCK_BYTES)).contains(&word)
}

/// A second handle on a map.
pub(super) fn again(ebpf: &Ebpf, name: &'static str) -> Result<Map, CaptureError> {
    let copy = |data: &MapData| -> Result<MapData, CaptureError> {
        let fd = data.fd().as_fd().try_clone_to_owned().map_err(MapError::from)?;
        Ok(MapData::from_fd(fd)?)
    };
    Ok(match ebpf.map(name) {
        Some(Map::Array(data)) => Map::Array(copy(data)?),
        Some(Map::HashMap(data)) => Map::HashMap(copy(data)?),
        Some(Map::LruHashMap(data)) => Map::LruHashMap(copy(data)?),
        Some(Map::PerCpuArray(data)) => Map::PerCpuArray(copy(data)?),
        _ => return Err(CaptureError::NoMap(name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_known_locks() {
        let key = |via: Via| SumKey { lock: 0x1000, site: 1, process: 1, via: via as u32 };
        assert!(has(&key(Via::Lock), 0x1000) && has(&key(Via::WriteLock), 0x100c));
        assert!(!has(&key(Via::Lock), 0xff8) && !has(&key(Via::Lock), 0x1040));
        assert!(!has(&key(Via::CondWait), 0x1000) && !has(&key(Via::Futex), 0x1000));
    }
}
