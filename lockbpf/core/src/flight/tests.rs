//! What is made of the last segments is what happened in them, whatever happened before, and wherever the writer was killed.

use super::*;
use crate::event::{Event, Outcome, ProcessSeen, Section, ThreadTotals, Via};
use crate::id::{Lock, Process, Site, Tid};
use crate::names::{Frame, Names};
use crate::observation::Harvest;
use crate::sums::KernelSums;
use crate::trace::{Closing, Compression, Header, Kept, Reader, Writer};
use crate::units::{Nanos, Time};
use lockbpf_common::counter::Counter;
use lockbpf_common::sums::{Sums, bucket};
use proptest::prelude::*;

const PROCESS: Process = Process(1);
/// When the observation begins, and how long a segment lasts.
const BEGIN: u64 = 1_000;
const SEGMENT: u64 = 1_000_000;

struct Told;

impl Names for Told {
    fn frames(&mut self, _process: Process, addr: u64) -> Vec<Frame> {
        vec![Frame { function: Some(format!("f{addr}")), addr, ..Frame::default() }]
    }
    fn global(&mut self, lock: Lock) -> Option<String> {
        Some(format!("lock{}", lock.addr))
    }
    fn call_stack(&mut self, _process: Process, raw: &[u64], _site: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }
}

/// A section of a lock: when it ended in its segment, its lock, thread, wait and hold.
#[derive(Clone, Copy, Debug)]
struct Did {
    at: u64,
    lock: u64,
    tid: u32,
    wait: u64,
    hold: u64,
}

fn did() -> impl Strategy<Value = Did> {
    (0..SEGMENT, 1u64..4, 1u32..4, 0u64..5_000, 0u64..5_000).prop_map(|(at, lock, tid, wait, hold)| Did {
        at,
        lock,
        tid,
        wait,
        hold,
    })
}

fn section(segment: usize, did: Did) -> Section {
    Section {
        end: Time(BEGIN + segment as u64 * SEGMENT + did.at),
        wait: Nanos(did.wait),
        hold: Nanos(did.hold),
        lock: Lock { process: PROCESS, addr: did.lock },
        site: Site { process: PROCESS, addr: did.lock + 100 },
        tid: Tid(did.tid),
        process: PROCESS,
        owner: None,
        waker: None,
        stack: None,
        flags: 0,
        via: Via::Lock,
        outcome: Outcome::Released,
        mutex_kind: 0,
    }
}

/// A target, and what its kernel side has summed.
#[derive(Default)]
struct Target {
    harvest: Harvest,
}

impl Target {
    fn acts(&mut self, section: &Section) {
        self.acts_in_part(section, section.wait > Nanos(0));
    }

    /// The same of the part of a section in a stretch.
    fn acts_in_part(&mut self, section: &Section, is_contended: bool) {
        let rows = &mut self.harvest.sums;
        if !rows.iter().any(|row| row.lock == section.lock) {
            let sums = Sums { first_ns: section.end.0, ..Sums::EMPTY };
            rows.push(KernelSums { lock: section.lock, site: section.site, via: section.via, sums });
        }
        for row in rows.iter_mut().filter(|row| row.lock == section.lock) {
            let sums = &mut row.sums;
            sums.acquisitions += 1;
            sums.wait_ns += section.wait.0;
            sums.hold_ns += section.hold.0;
            sums.wait_max_ns = sums.wait_max_ns.max(section.wait.0);
            sums.hold_max_ns = sums.hold_max_ns.max(section.hold.0);
            sums.hold_hist[bucket(section.hold.0)] += 1;
            if is_contended {
                sums.contended += 1;
                sums.wait_hist[bucket(section.wait.0)] += 1;
            }
        }
        let threads = &mut self.harvest.threads;
        if !threads.iter().any(|thread| thread.tid == section.tid) {
            threads.push(thread(section.tid));
        }
        for thread in threads.iter_mut().filter(|thread| thread.tid == section.tid) {
            thread.acquisitions += 1;
            thread.wait += section.wait;
            thread.held_sum += section.hold;
        }
        *self.harvest.quality.counters.entry(Counter::SumsFull.name()).or_default() += 1;
    }
}

fn thread(tid: Tid) -> ThreadTotals {
    ThreadTotals {
        time: Time(0),
        tid,
        process: PROCESS,
        comm: "worker".to_owned(),
        acquisitions: 0,
        wait: Nanos(0),
        kernel_wait: Nanos(0),
        held_sum: Nanos(0),
        held_union: Nanos(0),
        ends_process: false,
    }
}

/// The segments of an observation in which threads did this, segment by segment.
fn segments(all: &[Vec<Did>]) -> Vec<Vec<u8>> {
    let mut target = Target::default();
    let mut done: Vec<Vec<u8>> = Vec::new();
    let mut events = 0;
    let mut writer: Option<Writer<Vec<u8>>> = None;
    for number in 0..=all.len() {
        let now = Time(BEGIN + number as u64 * SEGMENT);
        let kept = Kept { number: number as u64, observed_since: BEGIN, events_before: events, ..Kept::default() };
        let header =
            Header { lockbpf: "1".to_owned(), start: now.0, kept: Some(kept), ticks_per_ns: 1, ..Header::default() };
        let mut next = match writer.take() {
            None => Writer::new(Vec::new(), &header, Compression::None).unwrap(),
            Some(open) => {
                let (bytes, length, next) = open.turn(Vec::new(), &header, &target.harvest, &mut Told, now).unwrap();
                assert_eq!(bytes.len() as u64, length);
                done.push(bytes);
                next
            }
        };
        next.opening(&target.harvest, now).unwrap();
        let seen = ProcessSeen { time: now, process: PROCESS, pid: 7, start: Time(1), comm: "target".to_owned() };
        next.event(&Event::Process(seen)).unwrap();
        for did in all.get(number).into_iter().flatten() {
            let section = section(number, *did);
            target.acts(&section);
            next.event(&Event::Section(section)).unwrap();
            events += 1;
        }
        writer = Some(next);
    }
    done
}

fn read(bytes: &[u8]) -> (Vec<Section>, Closing) {
    let mut sections = Vec::new();
    let mut reader = Reader::new(bytes).unwrap();
    for event in &mut reader {
        if let Event::Section(section) = event.unwrap() {
            sections.push(section);
        }
    }
    (sections, reader.into_closing().unwrap())
}

/// What was summed, by lock: acquisitions, contended, Σ wait, Σ hold, longest wait, longest hold.
fn told(harvest: &Harvest) -> Vec<(u64, [u64; 6])> {
    let of = |k: &KernelSums| {
        let s = &k.sums;
        (k.lock.addr, [s.acquisitions, s.contended, s.wait_ns, s.hold_ns, s.wait_max_ns, s.hold_max_ns])
    };
    let mut all: Vec<_> = harvest.sums.iter().map(of).collect();
    all.sort_unstable();
    all
}

proptest! {
    #[test]
    fn the_last_segments_tell_what_happened_in_them(
        all in prop::collection::vec(prop::collection::vec(did(), 0..20), 1..6),
        from in 0usize..5,
    ) {
        let from = from.min(all.len() - 1);
        let parts = segments(&all);
        let (bytes, joined) = join(&parts[from..], &["Asked for.".to_owned()], Vec::new(), Compression::None).unwrap();
        let (sections, closing) = read(&bytes);
        let at = BEGIN + from as u64 * SEGMENT;
        let mut expected = Target::default();
        let mut happened = Vec::new();
        for (number, segment) in all.iter().enumerate().skip(from) {
            for did in segment {
                let whole = section(number, *did);
                let hold = whole.hold.min(whole.end.since(Time(at)));
                let wait = whole.wait.min((whole.end - hold).since(Time(at)));
                let section = Section { wait, hold, ..whole };
                expected.acts_in_part(&section, whole.wait > Nanos(0));
                happened.push(section);
            }
        }
        prop_assert_eq!(&sections, &happened);
        prop_assert_eq!(told(&closing.harvest), told(&expected.harvest));
        prop_assert_eq!((joined.start, joined.end), (Time(at), Time(BEGIN + all.len() as u64 * SEGMENT)));
        prop_assert_eq!((closing.header.start, closing.end), (at, joined.end));
        for row in &closing.harvest.sums {
            let hist: u64 = row.sums.hold_hist.iter().sum();
            prop_assert_eq!(hist, row.sums.acquisitions);
            prop_assert!(row.sums.first_ns >= at);
        }
        for thread in &closing.harvest.threads {
            let known = expected.harvest.threads.iter().find(|known| known.tid == thread.tid);
            prop_assert_eq!(thread.acquisitions, known.map_or(0, |known| known.acquisitions));
            prop_assert_eq!(thread.wait, known.map_or(Nanos(0), |known| known.wait));
        }
        let quality = &closing.harvest.quality;
        let lost = quality.counters.get(Counter::SumsFull.name()).copied().unwrap_or(0);
        prop_assert_eq!(lost, happened.len() as u64);
        prop_assert!(quality.undecodable.is_empty(), "{:?}", quality.undecodable);
        prop_assert!(quality.notes.iter().any(|note| note == "Asked for."));
        let dropped: usize = all[..from].iter().map(Vec::len).sum();
        let is_told = |note: &String| note.contains(&format!("with {dropped} events, were dropped"));
        prop_assert_eq!(quality.notes.iter().any(is_told), from > 0);
        // What somebody did in them has a name.
        let mut names = closing.names;
        for section in &sections {
            prop_assert_eq!(names.global(section.lock), Some(format!("lock{}", section.lock.addr)));
            let frames = names.frames(PROCESS, section.site.addr);
            prop_assert_eq!(frames[0].function.clone(), Some(format!("f{}", section.site.addr)));
        }
    }

    #[test]
    fn a_writer_may_be_killed_at_any_byte(
        all in prop::collection::vec(prop::collection::vec(did(), 1..6), 2..4),
        left in 0.0f64..1.0,
    ) {
        let mut parts = segments(&all);
        let last = parts.last_mut().unwrap();
        last.truncate((last.len() as f64 * left) as usize);
        let (bytes, _) = join(&parts, &[], Vec::new(), Compression::None).unwrap();
        let (sections, closing) = read(&bytes);
        let whole: usize = all[..all.len() - 1].iter().map(Vec::len).sum();
        let acquisitions: u64 = closing.harvest.sums.iter().map(|row| row.sums.acquisitions).sum();
        prop_assert!(sections.len() >= whole && acquisitions >= whole as u64);
        prop_assert!(closing.harvest.quality.incomplete());
    }

    #[test]
    fn damage_is_told(
        all in prop::collection::vec(prop::collection::vec(did(), 1..6), 2..5),
        (part, at, bits) in (0.0f64..1.0, 0.0f64..1.0, 1u8..),
    ) {
        let mut parts = segments(&all);
        let happened: usize = all.iter().map(Vec::len).sum();
        let part = (part * parts.len() as f64) as usize;
        let at = (at * parts[part].len() as f64) as usize;
        parts[part][at] ^= bits;
        let (bytes, _) = join(&parts, &[], Vec::new(), Compression::None).unwrap();
        let (sections, closing) = read(&bytes);
        // What was read is what was written, and if that is not all of it, it is said.
        let of: Vec<Section> = all.iter().enumerate().flat_map(|(n, dids)| dids.iter().map(move |&d| section(n, d))).collect();
        for section in &sections {
            prop_assert!(of.iter().any(|known| known.end == section.end && known.tid == section.tid));
        }
        prop_assert!(closing.harvest.quality.incomplete() || sections.len() == happened);
    }

    #[test]
    fn a_ring_keeps_within_its_bounds(
        steps in prop::collection::vec((1u64..2_000_000_000, 0u64..40_000), 1..300),
    ) {
        let limits = Limits { keep: Nanos(60_000_000_000), size: 1 << 20 };
        let mut ring = Ring::new(limits);
        let (mut now, mut begin, mut open) = (0, 0, 0);
        let mut all = 0;
        for (passed, bytes) in steps {
            (now, open, all) = (now + passed, open + bytes, all + bytes);
            if ring.is_due(Time(begin), 0, open, Time(now)) {
                ring.push(Segment { begin: Time(begin), end: Time(now), events: open, bytes: open, body: () });
                (begin, open) = (now, 0);
            }
            ring.trim(open, Time(now));
            let holding = ring.holds(Time(begin), open, Time(now));
            prop_assert!(holding.bytes <= limits.size);
            // Nothing goes unless it is too old or too much, and what has gone is counted.
            let enough = now < limits.keep.0 || holding.time >= limits.keep;
            prop_assert!(enough || holding.is_short, "{holding:?} at {now}");
            prop_assert!(!holding.is_short || ring.dropped().for_size > 0);
            prop_assert_eq!(ring.events() + open, all);
            // A sixteenth more than was asked for, and what the open one is behind.
            prop_assert!(holding.time.0 <= limits.keep.0 + limits.keep.0 / 16 + 2 * 2_000_000_000);
        }
    }
}

#[test]
fn an_exited_thread_is_told_without_what_it_did_before() {
    let did = |at| Did { at, lock: 1, tid: 2, wait: 10, hold: 20 };
    let all = [vec![did(100), did(200)], vec![did(300)]];
    let mut target = Target::default();
    let mut bytes = segments(&all);
    for (number, segment) in all.iter().enumerate() {
        segment.iter().for_each(|did| target.acts(&section(number, *did)));
    }
    // A third segment in which it ends after one more section.
    let now = Time(BEGIN + 2 * SEGMENT);
    let kept = Some(Kept { number: 2, observed_since: BEGIN, events_before: 3, ..Kept::default() });
    let header = Header { start: now.0, kept, ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header, Compression::None).unwrap();
    writer.opening(&target.harvest, now).unwrap();
    target.acts(&section(2, did(500)));
    let totals = target.harvest.threads.remove(0);
    writer.event(&Event::ThreadExit(ThreadTotals { time: now, ..totals })).unwrap();
    bytes.push(writer.finish(&target.harvest, &mut Told, Time(now.0 + SEGMENT)).unwrap().0);
    let (joined, _) = join(&bytes[1..], &[], Vec::new(), Compression::None).unwrap();
    let exits = Reader::new(joined.as_slice()).unwrap().filter_map(|event| match event.unwrap() {
        Event::ThreadExit(totals) => Some((totals.acquisitions, totals.wait)),
        _ => None,
    });
    assert_eq!(exits.collect::<Vec<_>>(), [(2, Nanos(20))]);
}

#[test]
fn a_segment_that_is_missing_is_counted() {
    let did = |lock| Did { at: 1, lock, tid: 1, wait: 0, hold: 1 };
    let mut parts = segments(&[vec![did(1)], vec![did(2)], vec![did(3)]]);
    parts.remove(1);
    let (bytes, joined) = join(&parts, &[], Vec::new(), Compression::None).unwrap();
    let (sections, closing) = read(&bytes);
    assert_eq!((sections.len(), joined.missing), (2, 1));
    assert!(closing.harvest.quality.incomplete());
    assert!(matches!(
        join::<Vec<u8>>(&[Vec::<u8>::new()], &[], Vec::new(), Compression::None),
        Err(JoinError::Nothing)
    ));
}
