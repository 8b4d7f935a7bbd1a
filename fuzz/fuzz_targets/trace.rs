//! Arbitrary bytes as a trace: as a file, and as the contents of frames whose checksums are right, which chance would
//! never find. They are read or refused, and what is read is written and read again the same. A report on the events does not contradict
//! itself; one on sums that somebody made up says what they say.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf_core::analysis::{self, Analyst};
use lockbpf_core::event::Event;
use lockbpf_core::names::Names;
use lockbpf_core::report;
use lockbpf_core::trace::{AccessLines, Closing, Compression, Ended, Reader, Writer};
use lockbpf_core::units::Time;
use std::io::BufRead as _;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&framed(bytes));
});

fn check(bytes: &[u8]) {
    let Some((events, mut closing)) = read(bytes) else { return };
    assert_eq!(closing.events, events.len() as u64);
    for event in &events {
        if let Event::Section(s) = event {
            assert!(!closing.names.frames(s.site.process, s.site.addr).is_empty());
        }
    }
    reported(&events, &mut closing);
    let mut writer = Writer::new(Vec::new(), &closing.header, Compression::None).expect("memory takes everything");
    for event in &events {
        writer.event(event).expect("memory takes everything");
    }
    let lines = access_lines(bytes);
    assert_eq!(closing.access_lines, lines.len() as u64);
    for line in &lines {
        writer.access_line(line).expect("memory takes everything");
    }
    let written = writer.finish(&closing.harvest, &mut closing.names, Time(0)).expect("memory takes everything").0;
    let (again, closed) = read(&written).expect("what was written is refused");
    assert!(again == events, "events change");
    assert!(access_lines(&written) == lines, "access records change");
    assert_eq!(closed.ended, Ended::Clean);
    assert!(!closed.damage.any(), "{:?}", closed.damage);
    assert_eq!(closed.harvest.sums.len(), closing.harvest.sums.len());
    assert_eq!(closed.harvest.threads, closing.harvest.threads);
    assert_eq!(closed.harvest.open_waits, closing.harvest.open_waits);
    assert_eq!(closed.harvest.orders, closing.harvest.orders);
}

fn read(bytes: &[u8]) -> Option<(Vec<Event>, Closing)> {
    let mut reader = Reader::new(bytes).ok()?;
    let events = reader.by_ref().collect::<Result<_, _>>().expect("memory does not fail to be read");
    Some((events, reader.into_closing().expect("memory does not fail to be read")))
}

/// Some days: sums of what is longer are not kept whole.
const LONGEST: u64 = 1 << 50;

fn reported(events: &[Event], closing: &mut Closing) {
    if events.iter().any(|event| event.time().0 > LONGEST) {
        return;
    }
    let mut analyst = Analyst::new(analysis::Options { detail: true, ..analysis::Options::default() });
    events.iter().for_each(|event| analyst.take(event.clone()));
    let observation = analyst.finish(analysis::Closing { ticks_per_ns: 1, ..analysis::Closing::default() });
    let report = report::build(&observation, &mut closing.names, &report::Options::default()).expect("nothing is selected");
    assert!(observation.findings.overlapping || report::violations(&report).is_empty(), "{:?}", report::violations(&report));
}

fn access_lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let reader = AccessLines::new(bytes).expect("events of it were read");
    reader.split(b'\n').collect::<Result<_, _>>().expect("memory does not fail to be read")
}

/// A file of frames: each takes a byte for its kind, one for its flags and one for its length.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = b"\x89LBT\r\n\x1a\n\x01\0\0\0".to_vec();
    file.extend(crc32fast::hash(&file).to_le_bytes());
    let mut sequence = 0u32;
    while let [kind, flags, length, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        let mut header = b"\xf5LbF".to_vec();
        header.extend([kind % 10, flags % 4, 0, 0]);
        let stored = payload.len() as u32;
        // Compressed frames may grow.
        let length = if flags & 1 == 0 { stored } else { stored * 4 };
        for number in [sequence, stored, length, crc32fast::hash(payload)] {
            header.extend(number.to_le_bytes());
        }
        header.extend(crc32fast::hash(&header).to_le_bytes());
        file.extend(header);
        file.extend(payload);
        sequence += 1;
    }
    file
}
