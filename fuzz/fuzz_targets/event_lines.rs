//! Arbitrary bytes as event lines: they are read or refused, and what is read is written and read again the same. A report on it does not
//! contradict itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf_core::analysis::{self, Analyst, Closing};
use lockbpf_core::event::Event;
use lockbpf_core::lines::{Labels, LineError, Reader, Writer};
use lockbpf_core::report;
use std::io::BufReader;

fuzz_target!(|bytes: &[u8]| {
    for ticks_per_ns in [1, 1_000] {
        // In pieces, so that lines are put together, too.
        let Ok((events, mut labels)) = read(bytes, 64, ticks_per_ns) else { continue };
        reported(&events, &mut labels, ticks_per_ns);
        let text = written(&events, &mut labels, ticks_per_ns);
        let (again, mut labels) = read(&text, 8_192, ticks_per_ns).expect("what was written is refused");
        let times = |events: &[Event]| events.iter().map(Event::time).collect::<Vec<_>>();
        assert_eq!(times(&events), times(&again));
        assert_eq!(written(&again, &mut labels, ticks_per_ns), text);
    }
});

fn read(bytes: &[u8], piece: usize, ticks_per_ns: u64) -> Result<(Vec<Event>, Labels), LineError> {
    let mut reader = Reader::new(BufReader::with_capacity(piece, bytes), ticks_per_ns);
    let events = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((events, reader.into_labels()))
}

/// Some days: sums of what is longer are not kept whole.
const LONGEST: u64 = 1 << 50;

fn reported(events: &[Event], labels: &mut Labels, ticks_per_ns: u64) {
    if events.iter().any(|event| event.time().0 > LONGEST) {
        return;
    }
    let mut analyst = Analyst::new(analysis::Options { detail: true, ..analysis::Options::default() });
    events.iter().for_each(|event| analyst.take(event.clone()));
    let observation = analyst.finish(Closing { ticks_per_ns, ..Closing::default() });
    let report = report::build(&observation, labels, &report::Options::default()).expect("nothing is selected");
    assert_eq!(report::violations(&report), Vec::<String>::new());
}

fn written(events: &[Event], labels: &mut Labels, ticks_per_ns: u64) -> Vec<u8> {
    let stacks = labels.stacks();
    let mut writer = Writer::new(Vec::new(), ticks_per_ns);
    for event in events {
        match event {
            Event::Op(op) => writer.op(op, labels, &stacks).expect("memory takes everything"),
            Event::Process(seen) => writer.process(seen),
            other => panic!("lines hold no {other:?}"),
        }
    }
    writer.finish().expect("memory takes everything")
}
