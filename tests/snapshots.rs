//! An observation that is looked at while it goes on ends in the same bytes as one that is not, and each look tells what an end at
//! that moment would have told: shown for the recordings of real programs in `goldens/recordings`.

use lockbpf_core::analysis::{Analyst, Closing, Options};
use lockbpf_core::event::{Event, Outcome, Section, Via, flag};
use lockbpf_core::id::{Lock, Process, Site, Tid};
use lockbpf_core::lines;
use lockbpf_core::names::Names;
use lockbpf_core::observation::{Harvest, Observation};
use lockbpf_core::report;
use lockbpf_core::trace::Reader;
use lockbpf_core::units::{Nanos, Time};
use proptest::prelude::*;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Snapshots of a recording.
const SNAPSHOTS: usize = 7;

/// What gives names to addresses.
struct Named(Box<dyn Names>);

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("names")
    }
}

/// A recording, read.
#[derive(Debug)]
struct Recording {
    events: Vec<Event>,
    names: Named,
    options: Options,
    closing: Closing,
}

impl Recording {
    fn read(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let mut reader = lines::Reader::new(std::io::BufReader::new(file), 1);
            let events = (&mut reader).map(|event| event.unwrap()).collect();
            let names = Named(Box::new(reader.into_labels()));
            return Self { events, names, options: Options::default(), closing: Closing::default() };
        }
        let mut reader = Reader::new(file).unwrap();
        let events = (&mut reader).map(|event| event.unwrap()).collect();
        let read = reader.into_closing().unwrap();
        let options = Options { totals: read.harvest.sums.is_empty(), ..Options::default() };
        let period = Some((Time(read.header.start), read.end));
        let closing = Closing { period, harvest: read.harvest, ..Closing::default() };
        Self { events, names: Named(Box::new(read.names)), options, closing }
    }

    fn analyst(&self, detail: bool) -> Analyst {
        Analyst::new(Options { detail, ..self.options })
    }

    /// All that can be told of an observation.
    fn report(&mut self, observation: &Observation) -> String {
        let report = report::build(observation, &mut *self.names.0, &report::Options::default()).unwrap();
        serde_json::to_string(&report).unwrap()
    }

    /// The earliest time of a step of each event and those after it, sections that are open at the end included.
    fn watermarks(&self) -> Vec<Time> {
        let open = self.closing.harvest.open_waits.iter().map(|wait| wait.since);
        let mut earliest = open.min().unwrap_or(Time(u64::MAX));
        let mut watermarks = Vec::new();
        for event in self.events.iter().rev() {
            earliest = earliest.min(match event {
                Event::Section(section) => section.attempt(),
                Event::OffCpu(off) => off.end - off.off,
                event => event.time(),
            });
            watermarks.push(earliest);
        }
        watermarks.reverse();
        watermarks
    }
}

fn recordings() -> impl Iterator<Item = (PathBuf, Recording)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/recordings");
    let paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 12, "the recordings of the goldens");
    paths
        .into_iter()
        .map(|path| (path.clone(), Recording::read(&path)))
        .filter(|(_, recording)| !recording.events.is_empty())
}

/// Analyses a recording, and looks at it before some of its events: what is reported of its end, and of each of the looks.
fn looked_at(
    recording: &mut Recording,
    detail: bool,
    watermarks: bool,
    is_moment: impl Fn(usize) -> bool,
) -> (String, Vec<(usize, Observation)>) {
    let known = recording.watermarks();
    let mut analyst = recording.analyst(detail);
    let mut looks = Vec::new();
    for (n, event) in recording.events.iter().enumerate() {
        if is_moment(n) {
            // What is known at the end only is not in it. It is kept: what it shares with the analyst must not disturb that.
            looks.push((n, analyst.snapshot(Closing { harvest: Harvest::default(), ..recording.closing.clone() })));
        }
        analyst.take(event.clone());
        if let Some(&watermark) = known.get(n + 1).filter(|_| watermarks) {
            analyst.advance(watermark);
        }
    }
    let ended = analyst.finish(recording.closing.clone());
    (recording.report(&ended), looks)
}

/// What is reported if it ends after some events.
fn cut(recording: &mut Recording, detail: bool, events: usize) -> String {
    let mut analyst = recording.analyst(detail);
    recording.events.iter().take(events).for_each(|event| analyst.take(event.clone()));
    let whole = events == recording.events.len();
    let harvest = if whole { recording.closing.harvest.clone() } else { Harvest::default() };
    let ended = analyst.finish(Closing { harvest, ..recording.closing.clone() });
    recording.report(&ended)
}

/// Where two reports differ first.
fn difference(a: &str, b: &str) -> Option<String> {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| text.chars().skip(same.saturating_sub(200)).take(400).collect::<String>();
    (a != b).then(|| format!("{}\n{}", around(a), around(b)))
}

#[test]
fn a_recording_that_is_looked_at_ends_in_the_same_bytes() {
    for (path, mut recording) in recordings() {
        let events = recording.events.len();
        let every = (events / SNAPSHOTS).max(1);
        for (detail, watermarks) in [(false, false), (true, false), (false, true), (true, true)] {
            let (ended, looks) = looked_at(&mut recording, detail, watermarks, |n| n % every == every - 1);
            let expected = cut(&mut recording, detail, events);
            assert_eq!(difference(&ended, &expected), None, "{}", path.display());
            for (n, snapshot) in looks {
                let snapshot = recording.report(&snapshot);
                let expected = cut(&mut recording, detail, n);
                assert_eq!(difference(&snapshot, &expected), None, "{}, after {n} events", path.display());
            }
        }
    }
}

/// Five threads that take turns at three locks, or give up, in the order of the sections' ends.
fn streams() -> impl Strategy<Value = Recording> {
    let section = (0usize..5, 0usize..3, 0u64..40, 0u64..30, 0u8..8);
    prop::collection::vec(section, 1..120).prop_map(|sections| {
        let (mut threads, mut locks, process) = ([0; 5], [0; 3], Process(1));
        let section = |(tid, lock, pause, hold, kind): (usize, usize, u64, u64, u8)| {
            let attempt: u64 = threads[tid] + pause;
            let gives_up = kind == 0;
            let wait = if gives_up { hold } else { attempt.max(locks[lock]) - attempt };
            let end = attempt + if gives_up { wait } else { wait + hold };
            threads[tid] = end;
            locks[lock] = if gives_up { locks[lock] } else { end };
            Section {
                end: Time(end),
                wait: Nanos(wait),
                hold: Nanos(if gives_up { 0 } else { hold }),
                lock: Lock { process, addr: 0x100 + lock as u64 },
                site: Site { process, addr: 0x200 + u64::from(kind % 3) },
                tid: Tid(tid as u32 + 1),
                process,
                owner: None,
                waker: None,
                stack: None,
                flags: if wait > 0 { flag::CONTENDED } else { flag::WAITED_FOR },
                via: Via::Lock,
                outcome: if gives_up { Outcome::TimedOut } else { Outcome::Released },
                mutex_kind: 0,
            }
        };
        let mut events: Vec<Event> = sections.into_iter().map(section).map(Event::Section).collect();
        events.sort_by_key(Event::time);
        let names = Named(Box::new(lines::Reader::new(&b""[..], 1).into_labels()));
        let closing = Closing { period: Some((Time(0), Time(10_000))), ..Closing::default() };
        Recording { events, names, options: Options::default(), closing }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_does_any_stream_looked_at_at_any_moment(
        mut stream in streams(),
        moments in prop::collection::btree_set(0usize..120, 0..6),
        watermarks: bool,
        detail: bool,
    ) {
        let events = stream.events.len();
        let (ended, looks) = looked_at(&mut stream, detail, watermarks, |n| moments.contains(&n));
        prop_assert_eq!(difference(&ended, &cut(&mut stream, detail, events)), None);
        for (n, snapshot) in looks {
            let snapshot = stream.report(&snapshot);
            prop_assert_eq!(difference(&snapshot, &cut(&mut stream, detail, n)), None);
        }
    }
}
