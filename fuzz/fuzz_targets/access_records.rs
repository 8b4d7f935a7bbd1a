//! Arbitrary bytes as access records: they are read or refused, in whatever pieces they come; what is read is the same from a
//! trace, and can be advised on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf_core::advice::{Options, Records, advise, read, read_gapped, render};
use lockbpf_core::observation::Harvest;
use lockbpf_core::trace::{AccessLines, Compression, Header, TraceNames, Writer};
use lockbpf_core::units::Time;
use std::io::BufReader;

fuzz_target!(|bytes: &[u8]| {
    // In pieces, so that lines are put together, too.
    let (whole, pieces) = (read(bytes), read(BufReader::with_capacity(7, bytes)));
    let records = match (whole, pieces) {
        (Ok(records), Ok(pieces)) => {
            assert_eq!(told(&records), told(&pieces));
            records
        }
        (Err(whole), Err(pieces)) => return assert_eq!(whole.to_string(), pieces.to_string()),
        (whole, pieces) => panic!("{whole:?}, but in pieces {pieces:?}"),
    };
    let trace = in_a_trace(bytes);
    let lines = AccessLines::new(&trace[..]).expect("what was written is refused");
    let (again, left_out) = read_gapped(lines, AccessLines::has_gaps).expect("what was read is refused");
    assert_eq!((told(&records), 0), (told(&again), left_out));

    let advice = advise(&records, &Options::default());
    assert_eq!(advice.sampled.executions, records.executions.len() as u64);
    let shares = advice.sections.iter().flat_map(|section| [section.p_c, section.p_c_lock, section.p_c_line]);
    shares.for_each(|share| assert!((0.0..=1.0).contains(&share), "{share} is no share"));
    serde_json::to_string(&advice).expect("advice is JSON");
    assert!(!render(&advice, 100).is_empty());
});

/// What records are, without the numbers that only this process gave them.
fn told(records: &Records) -> String {
    let Records { runs, threads, locks, sites, locations, code, executions, edges, .. } = records;
    let names = [runs, threads, locks, sites, locations, code].map(|names| names.iter().collect::<Vec<_>>());
    let sets = executions.iter().map(|e| (records.sets(e.sets), e.path.map(|path| records.path(path)), e.cut));
    format!("{names:?} {executions:?} {edges:?} {:?}", sets.collect::<Vec<_>>())
}

fn in_a_trace(bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::default(), Compression::None).expect("memory takes everything");
    for line in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
        writer.access_line(line).expect("memory takes everything");
    }
    let finished = writer.finish(&Harvest::default(), &mut TraceNames::default(), Time(0));
    finished.expect("memory takes everything").0
}
