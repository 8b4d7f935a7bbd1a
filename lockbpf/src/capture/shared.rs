//! Locks in memory that processes share: one lock, known by file and offset, at whatever addresses they have mapped it.

use crate::id::{Lock, Process};
use crate::leader;
use crate::proc;
use lockbpf_common::custom;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A process's mappings are read again for a lock that is in none of those known, but not sooner than this.
const REREAD: Duration = Duration::from_secs(1);
/// Locks remembered; others are looked up each time.
const MAX_LOCKS: usize = 65_536;

/// A shared file or piece of anonymous shared memory: device and inode.
type Object = (String, u64);

/// A piece of one, and where the process has it that met it first. What is next to each other there stays so: a lock has several words.
#[derive(Clone, Copy, Debug)]
struct Home {
    from: u64,
    to: u64,
    process: Process,
    start: u64,
}

/// A mapping of shared memory that can be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    start: u64,
    end: u64,
    offset: u64,
    dev: String,
    inode: u64,
}

/// A process, and what it shares.
#[derive(Debug)]
struct Known {
    pid: u32,
    areas: Vec<Area>,
    read: Option<Instant>,
}

/// Gives locks that processes share one identity: that under which the first of them was met.
#[derive(Debug, Default)]
pub struct SharedLocks {
    processes: HashMap<Process, Known>,
    homes: HashMap<Object, Vec<Home>>,
    /// What was found out, for locks in private memory as well.
    found: HashMap<Lock, Lock>,
}

impl SharedLocks {
    /// A process is observed from now on.
    pub fn meet(&mut self, process: Process, pid: u32) {
        self.processes.entry(process).or_insert(Known { pid, areas: Vec::new(), read: None });
    }

    /// Looks at what the living processes share, so that it is known when they have exited.
    pub fn refresh(&mut self) {
        for known in self.processes.values_mut().filter(|known| !leader::is_gone(known.pid)) {
            known.look();
        }
        // What was in no mapping may be in one by now.
        self.found.retain(|lock, found| lock != found);
    }

    /// The identity of a lock. One that is known by numbers is the same for all processes with the same largest shared mapping.
    pub fn of(&mut self, lock: Lock) -> Lock {
        if let Some(&found) = self.found.get(&lock) {
            return found;
        }
        let Some(known) = self.processes.get_mut(&lock.process) else { return lock };
        let is_numbered = custom::numbers(lock.addr).is_some();
        let of = |known: &Known| if is_numbered { known.largest() } else { known.place(lock.addr) };
        let mut place = of(known);
        if place.is_none() {
            if known.read.is_some_and(|read| read.elapsed() < REREAD) {
                // Its mapping may be newer than that.
                return lock;
            }
            known.look();
            place = of(known);
        }
        let found = place.map_or(lock, |(area, offset)| {
            let home = home(&mut self.homes, &area, offset, lock.process);
            if is_numbered { Lock { process: home.process, ..lock } } else { home.lock_at(offset) }
        });
        if self.found.len() < MAX_LOCKS {
            self.found.insert(lock, found);
        }
        found
    }
}

impl Home {
    fn lock_at(&self, offset: u64) -> Lock {
        Lock { process: self.process, addr: self.start.saturating_add(offset.saturating_sub(self.from)) }
    }
}

/// The piece of shared memory with an offset that a mapping shows: as whoever met it first has it.
fn home(homes: &mut HashMap<Object, Vec<Home>>, area: &Area, offset: u64, process: Process) -> Home {
    let own =
        Home { from: area.offset, to: area.offset.saturating_add(area.end - area.start), process, start: area.start };
    let known = homes.entry((area.dev.clone(), area.inode)).or_default();
    if let Some(&home) = known.iter().find(|home| home.from <= offset && offset < home.to) {
        return home;
    }
    known.push(own);
    own
}

impl Known {
    /// Reads its mappings; those of a process that has exited stay as they were.
    fn look(&mut self) {
        self.read = Some(Instant::now());
        if let Ok(maps) = proc::read(format!("/proc/{}/maps", leader::face(self.pid)))
            && !maps.is_empty()
        {
            self.areas = areas(&maps);
        }
    }

    /// The largest mapping, and its offset: what is in no place has its home where most is shared.
    fn largest(&self) -> Option<(Area, u64)> {
        let area = self.areas.iter().rev().max_by_key(|area| area.end - area.start)?;
        Some((area.clone(), area.offset))
    }

    /// In which mapping an address is, and at which offset of what is mapped.
    fn place(&self, addr: u64) -> Option<(Area, u64)> {
        let at = self.areas.partition_point(|area| area.start <= addr).checked_sub(1)?;
        let area = self.areas.get(at).filter(|area| addr < area.end)?;
        Some((area.clone(), area.offset.checked_add(addr - area.start)?))
    }
}

/// The shared mappings in a maps file, in the order of their addresses, as the kernel lists them.
fn areas(maps: &[u8]) -> Vec<Area> {
    maps.split(|&b| b == b'\n').filter_map(area).collect()
}

/// `7f00-7f08 rw-s 00001000 00:01 4099    /dev/zero (deleted)`
fn area(line: &[u8]) -> Option<Area> {
    let mut fields = line.splitn(6, |&b| b == b' ').map(|field| str::from_utf8(field).ok());
    let (start, end) = fields.next()??.split_once('-')?;
    let shared = matches!(fields.next()??.as_bytes(), [_, b'w', _, b's']);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()??)?;
    let dev = fields.next()??.to_owned();
    let inode = fields.next()??.parse().ok()?;
    shared.then_some(Area { start: hex(start)?, end: hex(end)?, offset, dev, inode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &[u8] = b"55e0-55e8 rw-p 00000000 fe:00 77                         /bin/x\n\
        7f00-7f10 rw-s 00002000 00:01 4099                       /dev/zero (deleted)\n\
        7f10-7f20 r--s 00000000 fe:00 5                          /usr/lib/cache\n\
        7f20-7f30 rw-s 00000000 00:15 9                          /dev/shm/\xff pool\n";

    #[test]
    fn only_shared_memory_that_can_be_written_to_counts() {
        let areas = areas(MAPS);
        let told: Vec<_> = areas.iter().map(|a| (a.start, a.offset, a.inode)).collect();
        assert_eq!(told, [(0x7f00, 0x2000, 4099), (0x7f20, 0, 9)]);
    }

    #[test]
    fn one_place_is_one_lock() {
        let mut shared = SharedLocks::default();
        for (process, maps) in [(1, MAPS), (2, &b"6000-6010 rw-s 00002000 00:01 4099 /dev/zero (deleted)\n"[..])] {
            shared
                .processes
                .insert(Process(process), Known { pid: u32::MAX, areas: areas(maps), read: Some(Instant::now()) });
        }
        let lock = |process, addr| Lock { process: Process(process), addr };
        assert_eq!(shared.of(lock(1, 0x7f08)), lock(1, 0x7f08));
        assert_eq!(shared.of(lock(2, 0x6008)), lock(1, 0x7f08));
        assert_eq!(shared.of(lock(2, 0x6009)), lock(1, 0x7f09), "words of one lock stay together");
        assert_eq!(shared.of(lock(1, 0x7f09)), lock(1, 0x7f09));
        assert_eq!(shared.of(lock(1, 0x55e4)), lock(1, 0x55e4), "private memory");
        assert_eq!(shared.of(lock(3, 0x6008)), lock(3, 0x6008), "a process that is not known");
    }

    #[test]
    fn what_is_known_by_numbers_is_where_most_is_shared() {
        let mut shared = SharedLocks::default();
        let maps = "6000-6010 rw-s 00002000 00:01 4099 /dev/zero (deleted)\n7000-7008 rw-s 0 00:15 10 /dev/shm/own\n";
        for (process, maps) in [(1, MAPS), (2, maps.as_bytes()), (3, b"")] {
            let known = Known { pid: u32::MAX, areas: areas(maps), read: Some(Instant::now()) };
            shared.processes.insert(Process(process), known);
        }
        let lock = |process| Lock { process: Process(process), addr: custom::numbered(4, 16_390) };
        assert_eq!([1, 2, 3].map(|process| shared.of(lock(process))), [1, 1, 3].map(lock));
    }

    #[test]
    fn a_mapping_newer_than_the_last_look_is_found_later() {
        let mut shared = SharedLocks::default();
        let known = |maps| Known { pid: u32::MAX, areas: areas(maps), read: Some(Instant::now()) };
        shared.processes.insert(Process(1), known(MAPS));
        shared.processes.insert(Process(2), known(b""));
        let lock = |process, addr| Lock { process: Process(process), addr };
        assert_eq!(shared.of(lock(1, 0x7f20)), lock(1, 0x7f20));
        assert_eq!(shared.of(lock(2, 0x6000)), lock(2, 0x6000), "too soon to look again");
        shared.processes.insert(Process(2), known(b"6000-6010 rw-s 00000000 00:15 9 /dev/shm/pool\n"));
        assert_eq!(shared.of(lock(2, 0x6000)), lock(1, 0x7f20));
    }

    #[test]
    fn processes_that_are_gone_keep_what_was_known() {
        let mut shared = SharedLocks::default();
        shared.meet(Process(1), u32::MAX);
        shared.refresh();
        let lock = Lock { process: Process(1), addr: 1 };
        assert_eq!(shared.of(lock), lock);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text: Vec<u8>) {
            areas(&text);
        }
    }
}
