//! What a look at an observation costs while it goes on, and what memory a long one takes.
//!
//! `cargo bench --bench snapshot [EVENTS]` observes 1,000 threads that take turns at 1,000 locks, one in two waiting, and threads that come
//! and go; up to 10,000,000 events if no other number is given. Rows are by number of events. A snapshot is taken each simulated second, and
//! the time for it is compared with that for the events of that second.

use lockbpf_common::sums::Sums;
use lockbpf_core::analysis::{Analyst, Closing, Options};
use lockbpf_core::event::{Event, OffCpu, Outcome, Section, ThreadTotals, Via, flag};
use lockbpf_core::id::{Lock, Process, Site, StackId, Tid};
use lockbpf_core::names::{Frame, Names};
use lockbpf_core::observation::{Harvest, OpenWait};
use lockbpf_core::op::OffReason;
use lockbpf_core::report;
use lockbpf_core::sums::KernelSums;
use lockbpf_core::units::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

const LOCKS: u64 = 1_000;
const THREADS: u32 = 1_000;
/// Places at which each lock is requested.
const PLACES: u64 = 3;
/// Events, unless another number is given.
const EVENTS: u64 = 10_000_000;
/// Mean hold: 20,000 sections a second in all.
const HOLD_NS: u64 = 30_000_000;
/// Sections of a thread, on average, before it exits and another one takes its place.
const SECTIONS_OF_THREAD: u64 = 2_000;
/// Numbers of threads come round, as the kernel's do.
const MAX_TID: u32 = 1 << 22;
const PROCESS: Process = Process(1);

/// A section that has not ended: it is in progress from its attempt on.
struct Open {
    section: Section,
    attempt: u64,
}

/// The server: whose turn it is at which lock.
struct Server {
    seed: u64,
    /// When each thread asks for a lock next.
    threads: BinaryHeap<Reverse<(u64, u32)>>,
    /// When each lock will be free, and who has it until then.
    locks: Vec<(u64, u32)>,
    /// By when they end.
    open: BinaryHeap<Reverse<(u64, u64)>>,
    sections: slab::Slab<Open>,
    next_tid: u32,
    exits: Vec<Event>,
}

impl Server {
    fn new() -> Self {
        let threads = (0..THREADS).map(|n| Reverse((u64::from(n) * 1_000, 100 + n))).collect();
        let locks = vec![(0, 0); LOCKS as usize];
        let (open, sections, exits) = (BinaryHeap::new(), slab::Slab::new(), Vec::new());
        Self { seed: 42, threads, locks, open, sections, next_tid: 100 + THREADS, exits }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    /// The events up to the next attempt, as the rings would yield them, and the time of that.
    fn next(&mut self, mut take: impl FnMut(Event)) -> u64 {
        let Some(Reverse((attempt, tid))) = self.threads.pop() else { return 0 };
        while let Some(&Reverse((_, key))) = self.open.peek().filter(|Reverse((end, _))| *end <= attempt) {
            self.open.pop();
            let section = self.sections.remove(key as usize).section;
            if section.hold.0.is_multiple_of(2) {
                // It was away while it had the lock.
                let (off, runnable) = (Nanos(section.hold.0 / 2), Nanos(1_000));
                let (tid, reason, stack) = (section.tid, OffReason::Sleeping, Some(StackId(7)));
                take(Event::OffCpu(OffCpu {
                    end: section.end - Nanos(1),
                    off,
                    runnable,
                    process: PROCESS,
                    tid,
                    reason,
                    stack,
                }));
            }
            take(Event::Section(section));
        }
        self.exits.drain(..).for_each(take);
        let (lock, hold) = (self.random(LOCKS), HOLD_NS / 2 + self.random(HOLD_NS));
        let (free, holder) = self.locks[lock as usize];
        let acquire = attempt.max(free);
        let release = acquire + hold;
        self.locks[lock as usize] = (release, tid);
        let waited = acquire > attempt;
        let section = Section {
            end: Time(release),
            wait: Nanos(acquire - attempt),
            hold: Nanos(hold),
            lock: lock_of(lock),
            site: site_of(lock, u64::from(tid) % PLACES),
            tid: Tid(tid),
            process: PROCESS,
            owner: waited.then_some(Tid(holder)),
            waker: waited.then_some(Tid(holder)),
            stack: Some(StackId((lock % 64) as u32)),
            flags: if waited { flag::CONTENDED | flag::SLEPT } else { flag::WAITED_FOR },
            via: Via::Lock,
            outcome: Outcome::Released,
            mutex_kind: 0,
        };
        let key = self.sections.insert(Open { section, attempt });
        self.open.push(Reverse((release, key as u64)));
        let next = if self.random(SECTIONS_OF_THREAD) == 0 {
            self.next_tid = if self.next_tid >= MAX_TID { 100 + THREADS } else { self.next_tid + 1 };
            self.exits.push(Event::ThreadExit(totals(release + 1, tid)));
            self.next_tid
        } else {
            tid
        };
        let pause = 2 + self.random(1_000_000);
        self.threads.push(Reverse((release + pause, next)));
        attempt
    }

    /// Since when the oldest section in progress goes on: no event will tell of anything earlier.
    fn watermark(&self) -> Time {
        Time(self.sections.iter().map(|(_, open)| open.attempt).min().unwrap_or(0))
    }

    /// What the kernel side has by then.
    fn harvest(&self, now: u64) -> Harvest {
        let rows = (0..LOCKS).flat_map(|lock| (0..PLACES).map(move |place| (lock, place)));
        let sums = rows.map(|(lock, place)| {
            let mut sums =
                Sums { first_ns: 1, acquisitions: 1_000, contended: 500, wait_ns: now, hold_ns: now, ..Sums::EMPTY };
            (sums.wait_hist[24], sums.hold_hist[24]) = (500, 1_000);
            KernelSums { lock: lock_of(lock), site: site_of(lock, place), via: Via::Lock, sums }
        });
        let waits = self.sections.iter().map(|(_, open)| open).filter(|open| open.section.acquire().0 > now);
        let open_waits = waits.map(|Open { section, attempt }| OpenWait {
            tid: section.tid,
            lock: section.lock,
            site: Some(section.site),
            since: Time(*attempt),
            owner: section.owner,
            stack: section.stack,
            via: Via::Lock,
            expected: None,
            before_start: false,
        });
        let threads = self.threads.iter().map(|&Reverse((_, tid))| totals(now, tid)).collect();
        Harvest { sums: sums.collect(), open_waits: open_waits.collect(), threads, ..Harvest::default() }
    }
}

fn lock_of(lock: u64) -> Lock {
    Lock { process: PROCESS, addr: 0x7000 + lock * 64 }
}

fn site_of(lock: u64, place: u64) -> Site {
    Site { process: PROCESS, addr: 0x10_0000 + (lock * PLACES + place) * 16 }
}

fn totals(time: u64, tid: u32) -> ThreadTotals {
    ThreadTotals {
        time: Time(time),
        tid: Tid(tid),
        process: PROCESS,
        comm: "worker".to_owned(),
        acquisitions: 1_000,
        wait: Nanos(time / 2),
        kernel_wait: Nanos(0),
        held_sum: Nanos(time / 4),
        held_union: Nanos(time / 4),
        ends_process: false,
    }
}

struct Nameless;

impl Names for Nameless {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        vec![Frame { addr, ..Frame::default() }]
    }

    fn call_stack(&mut self, _: Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }

    fn global(&mut self, _: Lock) -> Option<String> {
        None
    }
}

/// The most memory that this process has had, MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1_024
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn main() {
    let most = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(EVENTS);
    println!("1,000 threads, 1,000 locks, a snapshot each simulated second; times in ms");
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>10} {:>12} {:>10} {:>10}",
        "events", "snapshots", "median", "longest", "report", "ns an event", "late", "peak MiB"
    );
    let (mut server, mut analyst) = (Server::new(), Analyst::new(Options { totals: false, ..Options::default() }));
    let (mut snapshots, mut taking, mut second, mut row) = (Vec::new(), Duration::ZERO, 1, 100_000);
    let mut events = Vec::new();
    let mut before = 0;
    while row <= most {
        while analyst.events() < row {
            events.clear();
            let mut now = 0;
            // As long as the rings are left alone.
            while events.len() < 1_000 {
                now = server.next(|event| events.push(event));
            }
            let watermark = server.watermark();
            let began = Instant::now();
            events.drain(..).for_each(|event| analyst.take(event));
            analyst.advance(watermark);
            taking += began.elapsed();
            if now / 1_000_000_000 >= second {
                second = now / 1_000_000_000 + 1;
                let closing =
                    Closing { period: Some((Time(0), Time(now))), harvest: server.harvest(now), ..Closing::default() };
                let began = Instant::now();
                let snapshot = analyst.snapshot(closing);
                snapshots.push(began.elapsed());
                drop(std::hint::black_box(snapshot));
            }
        }
        let now = second * 1_000_000_000;
        let closing =
            Closing { period: Some((Time(0), Time(now))), harvest: server.harvest(now), ..Closing::default() };
        let observation = analyst.snapshot(closing);
        let began = Instant::now();
        let built = report::build(&observation, &mut Nameless, &report::Options::default());
        let report = began.elapsed();
        assert_eq!(built.map_or(0, |report| report.locks.len()), LOCKS as usize);
        snapshots.sort_unstable();
        println!(
            "{:>12} {:>10} {:>10.2} {:>10.2} {:>10.2} {:>12.0} {:>10} {:>10}",
            row,
            snapshots.len(),
            ms(snapshots[snapshots.len() / 2]),
            ms(snapshots[snapshots.len() - 1]),
            ms(report),
            taking.as_nanos() as f64 / (row - before) as f64,
            observation.quality.late,
            peak_mib(),
        );
        (before, taking) = (row, Duration::ZERO);
        snapshots.clear();
        row *= 10;
    }
}
