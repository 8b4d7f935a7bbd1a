//! Round trips, and everything that can happen to a file.

mod accesses;
mod strategies;

use self::strategies::{estimates, event, harvest};
use super::frame::{FrameWriter, Kind};
use super::*;
use crate::estimate::{Estimates, Figures, Interval, Subject};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{Frame, Names};
use crate::observation::Harvest;
use crate::op::Action;
use crate::stack::Role;
use crate::units::Time;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use std::io::Cursor;

/// A harvest as text that does not depend on the order of rows. Rows with the same key are one: the last. Stacks that
/// nothing mentions are not written.
fn text(harvest: &Harvest, mentioned: &[u32]) -> Vec<String> {
    let mut rows = std::collections::BTreeMap::new();
    for (key, row) in v1::rows::of(harvest, |stack| mentioned.contains(&stack.0)) {
        rows.insert(format!("{key:?}"), format!("{row:?}"));
    }
    rows.into_iter().map(|(key, row)| key + &row).collect()
}

/// Stacks that a harvest's rows mention.
fn mentioned(harvests: &[Harvest]) -> Vec<u32> {
    let sums = harvests.iter().flat_map(|h| &h.sums).filter_map(|k| StackId::from_raw(k.sums.stack));
    let waits = harvests.iter().flat_map(|h| &h.open_waits).filter_map(|w| w.stack);
    let members = harvests.iter().flat_map(|h| &h.deadlocks).flat_map(|d| &d.members).filter_map(|m| m.stack);
    sums.chain(waits).chain(members).map(|stack| stack.0).collect()
}

/// Threads that an event mentions.
fn tids(event: &Event) -> Vec<Tid> {
    let (tid, owner, waker) = match event {
        Event::Section(s) => (Some(s.tid), s.owner, s.waker),
        Event::FutexWait(w) => (Some(w.tid), w.owner, w.waker),
        Event::OffCpu(o) => (Some(o.tid), None, None),
        Event::Wake(w) => (Some(w.tid), None, None),
        Event::ThreadExit(totals) => (Some(totals.tid), None, None),
        Event::Process(_) => (None, None, None),
        Event::Op(op) | Event::Step(op) => match op.action {
            Action::Attempt(a) => (Some(op.tid), a.owner, None),
            Action::Acquire { waker, .. } => (Some(op.tid), None, waker),
            _ => (Some(op.tid), None, None),
        },
    };
    [tid, owner, waker].into_iter().flatten().collect()
}

/// Names made of the numbers they name.
struct Told;

impl Names for Told {
    fn frames(&mut self, process: Process, addr: u64) -> Vec<Frame> {
        let function = Some(format!("f{addr}"));
        let location = addr.is_multiple_of(2).then(|| ("a.c".to_owned(), process.0));
        let frame = |inlined| Frame {
            function: function.clone(),
            location: location.clone(),
            module: Some(("m".to_owned(), addr / 2)),
            addr,
            inlined,
        };
        vec![frame(true), frame(false)]
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        (!lock.addr.is_multiple_of(3)).then(|| format!("global{}", lock.addr))
    }

    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        crate::stack::call_stack(raw, site, |addr| self.role(process, addr))
    }

    fn role(&mut self, _process: Process, addr: u64) -> Role {
        [Role::Program, Role::Locking, Role::Libc, Role::Nothing][(addr % 4) as usize]
    }

    fn lock_id(&mut self, lock: Lock) -> Option<String> {
        Some(format!("L{}", lock.addr))
    }

    fn site_id(&mut self, site: Site) -> Option<String> {
        Some(format!("S{}", site.addr))
    }

    fn thread_id(&mut self, tid: Tid) -> Option<String> {
        tid.0.is_multiple_of(2).then(|| format!("T{}", tid.0))
    }

    fn thread_number(&mut self, tid: Tid) -> Option<u64> {
        tid.0.is_multiple_of(4).then_some(u64::from(tid.0) << 32)
    }

    fn comm(&mut self, tid: Tid) -> Option<String> {
        tid.0.is_multiple_of(5).then(|| format!("comm{}", tid.0))
    }

    fn kind(&mut self, lock: Lock) -> Option<String> {
        lock.addr.is_multiple_of(2).then(|| "delegation".to_owned())
    }
}

fn header() -> Header {
    Header { host: "here".to_owned(), start: 5, wall_ns: Some(7), ticks_per_ns: 1, ..Header::default() }
}

fn compression() -> impl Strategy<Value = Compression> {
    select(vec![Compression::None, Compression::Zstd])
}

/// A recording of these events, with a snapshot after every so many.
fn record(events: &[Event], every: usize, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(), compression).unwrap();
    for chunk in events.chunks(every) {
        for event in chunk {
            writer.event(event).unwrap();
        }
        writer.checkpoint(&Harvest::default(), &mut Told, Time(1)).unwrap();
    }
    writer.finish(&Harvest::default(), &mut Told, Time(2)).unwrap().0
}

/// Everything that can be read.
fn read(bytes: &[u8]) -> Option<(Vec<Event>, Closing)> {
    let mut reader = Reader::new(bytes).ok()?;
    let events = reader.by_ref().map(|e| e.expect("memory does not fail to be read")).collect();
    Some((events, reader.into_closing().unwrap()))
}

/// Whether one list is the other with some left out.
fn is_part_of(part: &[Event], whole: &[Event]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|event| rest.any(|other| other == event))
}

/// A sample with every kind of event, and enough repetition for every kind of reference.
fn sample() -> Vec<Event> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut events = vec(event(), 14).new_tree(&mut runner).unwrap().current();
    events.extend(events.clone());
    events
}

proptest! {
    #[test]
    fn events_survive(events in vec(event(), 0..200), every in 1usize..60, compression in compression()) {
        let (back, closing) = read(&record(&events, every, compression)).unwrap();
        prop_assert_eq!(&back, &events);
        prop_assert_eq!((closing.ended, closing.damage), (Ended::Clean, Damage::default()));
        prop_assert_eq!(closing.header, header());
        prop_assert_eq!(closing.events, events.len() as u64);
        prop_assert!(!closing.harvest.quality.incomplete());
    }

    #[test]
    fn the_last_harvest_survives(harvests in vec(harvest(), 1..5), compression in compression()) {
        let mut writer = Writer::new(Vec::new(), &header(), compression).unwrap();
        let (last, earlier) = harvests.split_last().unwrap();
        for harvest in earlier {
            writer.checkpoint(harvest, &mut Told, Time(3)).unwrap();
        }
        let (bytes, written) = writer.finish(last, &mut Told, Time(4)).unwrap();
        prop_assert_eq!(written.bytes, bytes.len() as u64);
        let (_, closing) = read(&bytes).unwrap();
        let mentioned = mentioned(&harvests);
        prop_assert_eq!(text(&closing.harvest, &mentioned), text(last, &mentioned));
        prop_assert_eq!(closing.end, Time(4));
    }

    #[test]
    fn estimates_survive(made in estimates(), more in prop_oneof![15 => 0usize..9, 1 => 2_500usize..6_000], compression in compression()) {
        let mut harvest = Harvest { estimates: Some(made.clone()), ..Harvest::default() };
        let figures = &mut harvest.estimates.as_mut().unwrap().figures;
        // More than a frame holds.
        figures.extend((0..more).map(|addr| {
            let lock = Lock { process: Process(u32::MAX), addr: addr as u64 };
            (Subject::Lock(lock), Figures { hold_mean_ns: Interval::exact(addr as f64 / 3.0), ..Figures::default() })
        }));
        figures.sort_unstable_by_key(|&(subject, _)| subject);
        figures.dedup_by_key(|&mut (subject, _)| subject);
        let mut writer = Writer::new(Vec::new(), &header(), compression).unwrap();
        let so_far = Estimates { figures: Vec::new(), complete: false, ..made };
        let earlier = Harvest { estimates: Some(so_far.clone()), ..Harvest::default() };
        writer.checkpoint(&earlier, &mut Told, Time(3)).unwrap();
        let torn = writer.written().bytes as usize;
        let (bytes, _) = writer.finish(&harvest, &mut Told, Time(4)).unwrap();
        prop_assert_eq!(&read(&bytes).unwrap().1.harvest.estimates, &harvest.estimates);
        prop_assert_eq!(&read(&bytes[..torn]).unwrap().1.harvest.estimates, &Some(so_far));
    }

    #[test]
    fn names_survive(events in vec(event(), 0..100), harvest in harvest()) {
        let mut writer = Writer::new(Vec::new(), &header(), Compression::None).unwrap();
        events.iter().for_each(|event| writer.event(event).unwrap());
        let (bytes, _) = writer.finish(&harvest, &mut Told, Time(4)).unwrap();
        let mut names = read(&bytes).unwrap().1.names;
        for tid in events.iter().flat_map(tids) {
            prop_assert_eq!(names.thread_id(tid), Told.thread_id(tid));
            prop_assert_eq!(names.thread_number(tid), Told.thread_number(tid));
            prop_assert_eq!(names.comm(tid), Told.comm(tid));
        }
        for event in &events {
            if let Event::Section(s) = event {
                let (process, site) = (s.site.process, s.site.addr);
                prop_assert_eq!(names.frames(process, site), Told.frames(process, site));
                prop_assert_eq!(names.global(s.lock), Told.global(s.lock));
                prop_assert_eq!(names.lock_id(s.lock), Told.lock_id(s.lock));
                prop_assert_eq!(names.kind(s.lock), Told.kind(s.lock));
                prop_assert_eq!(names.site_id(s.site), Told.site_id(s.site));
                if let Some(raw) = s.stack.and_then(|stack| harvest.stacks.get(&stack)) {
                    let process = s.lock.process;
                    prop_assert_eq!(names.call_stack(process, raw, None), Told.call_stack(process, raw, None));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400), kind in 1u8..10, fresh in any::<bool>()) {
        prop_assert!(read(&bytes).is_none());
        // As the contents of a frame that is whole.
        let mut frames = FrameWriter::new(Vec::new(), v1::VERSION, false).unwrap();
        let kind = [Kind::Header, Kind::Events, Kind::Names, Kind::Modules, Kind::Rows, Kind::Checkpoint, Kind::End,
            Kind::Estimates, Kind::Accesses][usize::from(kind) - 1];
        frames.write(kind, fresh, &bytes).unwrap();
        frames.write(Kind::Checkpoint, true, b"{}").unwrap();
        let trace = frames.finish().unwrap();
        let (events, closing) = read(&trace).unwrap();
        prop_assert_eq!(events.len() as u64, closing.events);
        // Behind the beginning of a trace.
        read(&[&trace[..16], &bytes[..]].concat()).unwrap();
    }

    #[test]
    fn several_bytes_may_be_damaged(hits in vec((any::<prop::sample::Index>(), 1u8..), 1..6)) {
        let events = sample();
        let mut bytes = record(&events, 7, Compression::None);
        for (at, change) in hits {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
        }
        if let Some((back, _)) = read(&bytes) {
            prop_assert!(is_part_of(&back, &events));
        }
    }
}

#[test]
fn every_truncation_leaves_a_prefix() {
    for compression in [Compression::None, Compression::Zstd] {
        let events = sample();
        let bytes = record(&events, 9, compression);
        let mut longest = 0;
        for length in 0..bytes.len() {
            let Some((back, closing)) = read(&bytes[..length]) else {
                assert!(length < 16, "{length} bytes are not read");
                continue;
            };
            assert!(events.starts_with(&back), "{length} bytes yield something else");
            assert!(back.len() >= longest, "{length} bytes yield less than fewer bytes");
            assert!(matches!(closing.ended, Ended::Torn { .. }));
            assert!(closing.harvest.quality.incomplete() && !closing.harvest.quality.notes.is_empty());
            longest = back.len();
        }
        assert_eq!(longest, events.len());
    }
}

#[test]
fn every_single_damaged_byte_is_noticed() {
    for compression in [Compression::None, Compression::Zstd] {
        let events = sample();
        let bytes = record(&events, 9, compression);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            let Some((back, closing)) = read(&bytes) else {
                assert!(at < 16, "byte {at} makes the rest unreadable");
                continue;
            };
            assert!(is_part_of(&back, &events), "byte {at} yields an event that was not written");
            assert!(closing.harvest.quality.incomplete(), "byte {at}: {closing:?}");
            if back.len() < events.len() {
                assert_eq!(closing.damage.events, (events.len() - back.len()) as u64, "byte {at}");
            }
        }
    }
}

#[test]
fn a_damaged_frame_costs_its_events_and_those_up_to_the_next_fresh_frame() {
    let section = |i: u64| {
        Event::Process(ProcessSeen {
            time: Time(i),
            process: Process(i as u32),
            pid: 1,
            start: Time(0),
            comm: String::new(),
        })
    };
    let events: Vec<_> = (0..40).map(section).collect();
    let mut bytes = record(&events, 1, Compression::None);
    let third = b"\xf5LbF\x02";
    let at = bytes.windows(5).enumerate().filter(|(_, w)| w == third).nth(2).unwrap().0;
    bytes[at + 30] ^= 1;
    let (back, closing) = read(&bytes).unwrap();
    assert_eq!((back.len(), closing.damage.frames, closing.damage.orphaned), (40 - 14, 1, 13));
    assert_eq!(closing.damage.events, 14);
    assert_eq!(closing.ended, Ended::Clean);
}

#[test]
fn counts_and_lengths_are_not_believed() {
    // A frame that promises 4 GiB, or 16 MiB that do not come, with checksums that are right.
    for (stored, length) in [(u32::MAX, u32::MAX), (16 << 20, 16 << 20), (9, u32::MAX)] {
        let mut header = b"\xf5LbF\x02\x03\0\0\0\0\0\0".to_vec();
        for number in [stored, length, 0] {
            header.extend(number.to_le_bytes());
        }
        header.extend(crc32fast::hash(&header).to_le_bytes());
        let begin = record(&[], 1, Compression::None)[..16].to_vec();
        let (events, closing) = read(&[begin, header].concat()).unwrap();
        assert!(events.is_empty() && matches!(closing.ended, Ended::Torn { .. }), "{closing:?}");
    }
    // Texts, stacks, members and dictionary numbers that do not fit their frame.
    for (kind, payload) in [
        (Kind::Events, &b"\0\x01\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..]),
        (Kind::Events, b"\0\xff\xff\xff\xff\x0f"),
        (Kind::Names, b"\x01\0\0\0\xff\xff\xff\xff\x0f"),
        (Kind::Rows, b"\x06\0\xff\xff\xff\xff\x0f"),
        (Kind::Rows, b"\x05\0\0\0\xff\xff\xff\xff\x0f"),
    ] {
        let mut frames = FrameWriter::new(Vec::new(), v1::VERSION, false).unwrap();
        frames.write(kind, true, payload).unwrap();
        frames.write(Kind::Checkpoint, true, b"{}").unwrap();
        frames.write(Kind::End, true, b"").unwrap();
        let (events, closing) = read(&frames.finish().unwrap()).unwrap();
        assert!(events.is_empty() && closing.damage.frames == 1, "{kind:?} {payload:?}: {:?}", closing.damage);
    }
}

#[test]
fn compressed_frames_do_not_grow_beyond_what_they_state() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    let mut trace = record(&[], 1, Compression::None)[..16].to_vec();
    for length in [100u32, 16 << 20] {
        let mut header = b"\xf5LbF\x05\x03\0\0".to_vec();
        for number in [u32::from(length > 100), bomb.len() as u32, length, crc32fast::hash(&bomb)] {
            header.extend(number.to_le_bytes());
        }
        header.extend(crc32fast::hash(&header).to_le_bytes());
        trace.extend([&header[..], &bomb[..]].concat());
    }
    let (_, closing) = read(&trace).unwrap();
    assert_eq!(closing.damage.frames, 2);
}

#[test]
fn other_files_and_later_versions_are_refused() {
    let refused = |bytes: &[u8]| Reader::new(bytes).err().unwrap();
    assert!(matches!(refused(b""), TraceError::NotATrace));
    assert!(matches!(refused(b"{\"t\":1,\"tid\":1,\"op\":\"exit\"}"), TraceError::NotATrace));
    let begin = &record(&[], 1, Compression::None)[..16];
    assert!(matches!(refused(&begin[..12]), TraceError::DamagedStart));
    let later = FrameWriter::new(Vec::new(), 2, false).unwrap().finish().unwrap();
    assert!(matches!(refused(&later), TraceError::Version(2)));
    assert!(is_trace(begin) && !is_trace(b"\x89PNG\r\n\x1a\n"));
}

#[test]
fn frames_of_unknown_kinds_are_passed_over_and_counted() {
    let events = sample();
    let mut bytes = record(&events, 100, Compression::None);
    let mut header = b"\xf5LbF\x63\0\0\0".to_vec();
    let end = bytes.len() - 28;
    let sequence = u32::from_le_bytes(bytes[end + 8..end + 12].try_into().unwrap());
    for number in [sequence, 0, 0, 0] {
        header.extend(number.to_le_bytes());
    }
    header.extend(crc32fast::hash(&header).to_le_bytes());
    bytes.truncate(end);
    bytes.extend(header);
    let (back, closing) = read(&bytes).unwrap();
    assert_eq!((back, closing.damage.foreign), (events, 1));
}

#[test]
fn a_source_that_fails_ends_the_events_with_an_error() {
    struct Failing(Cursor<Vec<u8>>);
    impl std::io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("gone")),
                n => Ok(n),
            }
        }
    }
    let bytes = record(&sample(), 9, Compression::None);
    let reader = Reader::new(Failing(Cursor::new(bytes[..bytes.len() - 28].to_vec()))).unwrap();
    let results: Vec<_> = reader.collect();
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1);
    assert!(matches!(results.last(), Some(Err(TraceError::Read { .. }))));
}

#[test]
fn processes_beyond_the_bound_are_left_out_and_counted() {
    let mut writer = Writer::new(Vec::new(), &header(), Compression::Zstd).unwrap();
    let bound = lockbpf_common::config::MAX_PROCESSES;
    for process in 0..bound + 2 {
        let cgroup = Some(format!("/system.slice/{process}.service"));
        writer.modules(&Modules { process, modules: Vec::new(), cgroup }).unwrap();
    }
    let bytes = writer.finish(&Harvest::default(), &mut Told, Time(1)).unwrap().0;
    let (_, closing) = read(&bytes).unwrap();
    assert_eq!((closing.modules.len(), closing.damage.any()), (bound as usize, false));
    let notes = &closing.harvest.quality.notes;
    assert!(notes.iter().any(|note| note.starts_with("2 entries of processes beyond")), "{notes:?}");
}
