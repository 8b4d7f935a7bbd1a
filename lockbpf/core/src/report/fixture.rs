//! A synthetic observation, fed section by section as the kernel side would sum and record it, and names for it.

use crate::analysis::{self, Analyst, Closing};
use crate::event::{
    Event, FutexResult, FutexWait, Outcome, ProcessSeen, Section, ThreadTotals, Via, Wake, Weight, flag,
};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{Frame, Names};
use crate::observation::{Harvest, Observation, OpenWait};
use crate::sums::SiteSums;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::mutex_kind;
use std::ops::{Deref, DerefMut};

pub(super) const MS: u64 = 1_000_000;
pub(super) const P: Process = Process(1);

pub(super) fn lock(addr: u64) -> Lock {
    Lock { process: P, addr }
}

pub(super) fn site(addr: u64) -> Site {
    Site { process: P, addr }
}

/// Innermost addresses of stacks on which a thread left the CPU.
pub(super) const FDATASYNC: u64 = 0xfd00;
pub(super) const NANOSLEEP: u64 = 0xfe00;
/// Call site of a runtime that parks its threads.
pub(super) const PARK: u64 = 0xff00;
/// Place in glibc's function that locks a mutex.
pub(super) const MUTEX_LOCK: u64 = 0xfa00;
/// Place in a slow path of parking_lot's.
pub(super) const LOCK_SLOW: u64 = 0xfc00;
/// Place in a method that queues threads for a lock of Java's.
pub(super) const JAVA_ACQUIRE: u64 = 0xfb00;

/// Place in glibc's function that waits for a semaphore.
pub(super) const SEM_WAIT: u64 = 0xf900;
/// Place in a Python function.
pub(super) const PYTHON_ASKS: u64 = 0xf600;
/// Place in the function of Python's library that waits for a condition.
pub(super) const PYTHON_WAITS: u64 = 0xf700;

/// Names: sites 0xNN00 are `fnNN (work.c:NN)`, addresses below 0x2000 are globals, site 0xdead has no symbol.
#[derive(Debug, Default)]
pub(super) struct FakeNames;

impl Names for FakeNames {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        if addr == 0xdead {
            return vec![Frame { module: Some(("lib.so".into(), 0xad)), addr, ..Frame::default() }];
        }
        let in_python = match addr {
            PYTHON_WAITS => Some(("Condition.wait", "/usr/lib/python3.14/threading.py")),
            PYTHON_ASKS => Some(("Shop.sell", "/srv/shop.py")),
            _ => None,
        };
        if let Some((function, file)) = in_python {
            let (function, location) = (Some(function.to_owned()), Some((file.to_owned(), 369)));
            return vec![Frame { function, location, addr, ..Frame::default() }];
        }
        let in_libc = match addr {
            FDATASYNC => Some("__GI_fdatasync"),
            NANOSLEEP => Some("clock_nanosleep@@GLIBC_2.17"),
            MUTEX_LOCK => Some("___pthread_mutex_lock"),
            SEM_WAIT => Some("__new_sem_wait_slow64"),
            LOCK_SLOW => Some("parking_lot::raw_mutex::RawMutex::lock_slow"),
            JAVA_ACQUIRE => Some("java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire"),
            PARK => Some("Parker::park(bool, long)"),
            _ => None,
        };
        if let Some(function) = in_libc {
            return vec![Frame { function: Some(function.to_owned()), addr, ..Frame::default() }];
        }
        let n = addr >> 8;
        let location = Some(("/src/work.c".to_owned(), n as u32));
        let frame = Frame { function: Some(format!("fn{n}")), location, addr, ..Frame::default() };
        let guard = Frame { function: Some("std::lock_guard::lock_guard".into()), inlined: true, ..frame.clone() };
        if n.is_multiple_of(2) { vec![guard, frame] } else { vec![frame] }
    }

    fn call_stack(&mut self, _: Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        (lock.addr < 0x2000).then(|| format!("global_{:x}", lock.addr))
    }
}

pub(super) fn observation() -> Run {
    let seen = ProcessSeen { time: Time(0), process: P, pid: 1234, start: Time(1), comm: "server".into() };
    let observation = Observation {
        target: "pid 1234 (server)".into(),
        start: Time(0),
        end: Time(10_000 * MS),
        processes: [(P, seen)].into(),
        ..Observation::default()
    };
    Run { observation, events: Vec::new() }
}

/// An observation and the events that are still to be analysed.
#[derive(Clone)]
pub(super) struct Run {
    observation: Observation,
    pub(super) events: Vec<Event>,
}

impl Deref for Run {
    type Target = Observation;
    fn deref(&self) -> &Observation {
        &self.observation
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut Observation {
        &mut self.observation
    }
}

/// The observation with what the wait graph makes of its events.
pub(super) fn found(run: &Run) -> Observation {
    let Run { observation, events } = run;
    if events.is_empty() {
        return observation.clone();
    }
    let mut events = events.clone();
    events.sort_by_key(Event::time);
    let mut analyst = Analyst::new(analysis::Options { totals: false, ..analysis::Options::default() });
    events.into_iter().for_each(|event| analyst.take(event));
    let harvest = Harvest { open_waits: observation.open_waits.clone(), ..Harvest::default() };
    let period = Some((observation.start, observation.end));
    let closing = Closing { period, futex_only: observation.futex_only, harvest, ..Closing::default() };
    let Observation { findings, wakeups, .. } = analyst.finish(closing);
    Observation { findings, wakeups, ..observation.clone() }
}

/// Times in ms: attempt, acquire, release.
pub(super) fn section(lock_addr: u64, tid: u32, at: u64, [attempt, acquire, release]: [u64; 3]) -> Section {
    Section {
        end: Time(release * MS),
        wait: Nanos((acquire - attempt) * MS),
        hold: Nanos((release - acquire) * MS),
        lock: lock(lock_addr),
        site: site(at),
        tid: Tid(tid),
        process: P,
        owner: None,
        waker: None,
        stack: Some(StackId(at as u32)),
        flags: if acquire > attempt { flag::CONTENDED } else { flag::WAITED_FOR },
        via: Via::Lock,
        outcome: Outcome::Released,
        mutex_kind: 0,
    }
}

/// The row of sums for a key, new if need be.
pub(super) fn sums(o: &mut Observation, lock: Lock, site: Site, via: Via) -> &mut SiteSums {
    let at = o.sums.iter().position(|s| (s.lock, s.site, s.via) == (lock, site, via)).unwrap_or_else(|| {
        o.sums.push(SiteSums::new(lock, site, via, Time(u64::MAX)));
        o.sums.len() - 1
    });
    &mut o.sums[at]
}

/// Sums a section, and records it if `recorded`.
pub(super) fn feed(o: &mut Run, s: &Section, recorded: bool) {
    let row = sums(o, s.lock, s.site, s.via);
    row.first = row.first.min(s.attempt());
    row.mutex_kind = s.mutex_kind.into();
    if s.outcome == Outcome::TimedOut {
        row.timeouts += 1;
        row.timed_out += s.wait;
    } else {
        row.acquisitions += 1;
        row.hold.add(s.hold);
        if s.has(flag::CONTENDED) {
            row.contended += 1;
            row.wait.add(s.wait);
        }
    }
    let site = s.site.addr;
    o.stacks.insert(StackId(site as u32), vec![site, site + 0x1000, site + 0x3000]);
    o.quality.events += u64::from(recorded);
    if recorded {
        o.events.push(Event::Section(*s));
    }
}

pub(super) fn futex_wait(word: u64, tid: u32, expected: u32, owner: u32, wait: u64) -> FutexWait {
    FutexWait {
        end: Time(5_000 * MS),
        wait: Nanos(wait * MS),
        word: lock(word),
        site: Some(site(0x700)),
        tid: Tid(tid),
        expected,
        owner: Some(Tid(owner)),
        waker: Some(Tid(owner)),
        stack: None,
        result: FutexResult::Slept,
        weight: Weight::default(),
    }
}

/// The wake that ends a wait. Thread 2 calls it in `fn9`, where it has had the lock since `since_ms`.
pub(super) fn wake(wait: &FutexWait, since_ms: u64) -> Event {
    Event::Wake(Wake {
        time: wait.end,
        since: Some(Nanos(since_ms * MS)),
        watched: Nanos(since_ms * MS),
        word: wait.word,
        site: Some(site(0x900)),
        process: P,
        tid: Tid(2),
        woken: 1,
        stack: None,
    })
}

pub(super) fn open_wait(lock_addr: u64, tid: u32, since_ms: u64, owner: u32) -> OpenWait {
    OpenWait {
        tid: Tid(tid),
        lock: lock(lock_addr),
        site: Some(site(0x500)),
        since: Time(since_ms * MS),
        owner: Some(Tid(owner)),
        stack: None,
        via: Via::Lock,
        expected: None,
        before_start: false,
    }
}

/// A hot global lock with two sites, a cool one on the heap, a cold one, a condition variable, a futex word.
pub(super) fn server() -> Run {
    let mut o = observation();
    for i in 0..100 {
        let t = i * 90;
        feed(&mut o, &section(0x1000, 11, 0x300, [t, t, t + 40]), true);
        feed(&mut o, &section(0x1000, 12, 0x400, [t + 10, t + 40, t + 60]), true);
        feed(&mut o, &section(0x1000, 13, 0x400, [t + 20, t + 62, t + 70]), true);
    }
    feed(&mut o, &section(0x9000, 14, 0x600, [100, 100, 103]), true);
    feed(&mut o, &section(0x9000, 15, 0x600, [101, 104, 105]), true);
    feed(&mut o, &Section { mutex_kind: 1, ..section(0x9040, 15, 0x600, [200, 200, 201]) }, false);
    let timed_out = Section { outcome: Outcome::TimedOut, ..section(0x9000, 16, 0x600, [101, 102, 102]) };
    feed(&mut o, &timed_out, true);
    let idle = sums(&mut o, lock(0x9100), site(0x500), Via::CondWait);
    (idle.acquisitions, idle.mutex_kind) = (3, mutex_kind::IS_CONDVAR);
    [2_500, 2_500, 4_000].into_iter().for_each(|ms| idle.wait.add(Nanos(ms * MS)));
    let inside = sums(&mut o, lock(0x9128), site(0), Via::Futex);
    (inside.wakes, inside.mutex_kind) = (3, mutex_kind::IS_FUTEX);
    let word = sums(&mut o, lock(0xa000), site(0), Via::Futex);
    (word.acquisitions, word.mutex_kind) = (1, mutex_kind::IS_FUTEX);
    word.wait.add(Nanos(700 * MS));
    o.events.push(Event::FutexWait(futex_wait(0xa000, 14, 0, 13, 700)));
    let end = o.end;
    for (tid, wait) in [(11, 0), (12, 3_003), (13, 4_201)] {
        o.threads.push(ThreadTotals {
            time: end,
            tid: Tid(tid),
            process: P,
            comm: format!("worker{tid}"),
            acquisitions: 100,
            wait: Nanos(wait * MS),
            kernel_wait: Nanos(0),
            held_sum: Nanos(4_000 * MS),
            held_union: Nanos(4_000 * MS),
            ends_process: false,
        });
    }
    o
}
