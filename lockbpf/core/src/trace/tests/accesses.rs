//! Access records in traces.

use super::*;
use crate::advice;
use crate::trace::AccessLines;
use std::io::Read;

/// A recording of these events and lines, the lines in as many snapshots.
fn record(events: &[Event], lines: &[Vec<String>], compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(), compression).unwrap();
    events.iter().for_each(|event| writer.event(event).unwrap());
    for lines in lines {
        lines.iter().for_each(|line| writer.access_line(line.as_bytes()).unwrap());
        writer.checkpoint(&Harvest::default(), &mut Told, Time(1)).unwrap();
    }
    writer.finish(&Harvest::default(), &mut Told, Time(2)).unwrap().0
}

/// The lines that can be read, and their reader at its end.
fn lines_of(trace: &[u8]) -> Option<(Vec<String>, AccessLines<&[u8]>)> {
    let mut reader = AccessLines::new(trace).ok()?;
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    Some((text.split_terminator('\n').map(str::to_owned).collect(), reader))
}

/// Two sections, the second of which waited for the first, and so on.
fn sections() -> Vec<Vec<String>> {
    let section = |n: usize| {
        let edge = n.checked_sub(1).map(|before| format!(r#"{{"run":0,"edge":[{before},{n}]}}"#));
        let section =
            format!(r#"{{"run":0,"seq":{n},"tid":{},"lock":"L","site":"s","reads":["0x{n}0"],"writes":[]}}"#, n % 2);
        [Some(section), edge].into_iter().flatten().collect()
    };
    (0..5).map(section).collect()
}

proptest! {
    #[test]
    fn access_lines_survive(
        events in vec(event(), 0..20),
        lines in vec(vec("[^\n]{0,40}", 0..9), 0..5),
        long in prop_oneof![9 => 0usize..9, 1 => 200_000usize..600_000],
        compression in compression(),
    ) {
        let mut lines = lines;
        // More than a frame is meant to hold.
        lines.push(vec!["x".repeat(long), "y".repeat(long)]);
        let trace = record(&events, &lines, compression);
        let (back, reader) = lines_of(&trace).unwrap();
        prop_assert_eq!(&back, &lines.concat());
        prop_assert_eq!((reader.damage(), reader.ended(), reader.has_gaps()), (Damage::default(), Some(Ended::Clean), false));
        prop_assert_eq!(reader.has_events(), !events.is_empty());
        let (seen, closing) = read(&trace).unwrap();
        prop_assert_eq!((seen, closing.damage), (events, Damage::default()));
        prop_assert_eq!(closing.access_lines, lines.concat().len() as u64);
    }

    #[test]
    fn any_bytes_are_access_lines_or_damage(bytes in vec(any::<u8>(), 0..200)) {
        let mut frames = FrameWriter::new(Vec::new(), v1::VERSION, false).unwrap();
        frames.write(Kind::Accesses, true, &bytes).unwrap();
        frames.write(Kind::End, true, &[]).unwrap();
        let trace = frames.finish().unwrap();
        let mut reader = AccessLines::new(&trace[..]).unwrap();
        let mut lines = Vec::new();
        reader.read_to_end(&mut lines).unwrap();
        prop_assert!(bytes.ends_with(&lines));
        prop_assert_eq!(lines.is_empty(), reader.damage().frames == 1);
        prop_assert_eq!(read(&trace).unwrap().1.damage, Damage { header: true, ..reader.damage() });
    }
}

#[test]
fn a_damaged_byte_costs_whole_lines_and_is_noticed() {
    let lines = sections();
    for compression in [Compression::None, Compression::Zstd] {
        let trace = record(&sample(), &lines, compression);
        for at in 0..trace.len() {
            let mut damaged = trace.clone();
            damaged[at] ^= 1 << (at % 8);
            let Some((back, reader)) = lines_of(&damaged) else {
                assert!(at < 16, "byte {at} makes the rest unreadable");
                continue;
            };
            let whole = lines.concat();
            let mut rest = whole.iter();
            assert!(back.iter().all(|line| rest.any(|other| other == line)), "byte {at} yields another line");
            assert!(reader.has_gaps() && !reader.damage().sentences(reader.ended().unwrap()).is_empty(), "byte {at}");
            // The last snapshot tells the number, unless it is what was hit.
            assert_eq!(reader.damage().accesses, (whole.len() - back.len()) as u64, "byte {at}");
            // What is left can be advised on: waits for lost sections are left out.
            let gapped = advice::read_gapped(AccessLines::new(&damaged[..]).unwrap(), AccessLines::has_gaps);
            let (records, left_out) = gapped.unwrap();
            assert_eq!(records.executions.len() + records.edges.len() + left_out as usize, back.len());
        }
    }
}

#[test]
fn a_torn_trace_yields_the_lines_before() {
    let lines = sections();
    let trace = record(&[], &lines, Compression::None);
    let mut longest = 0;
    for length in 16..trace.len() {
        let (back, reader) = lines_of(&trace[..length]).unwrap();
        assert!(lines.concat().starts_with(&back) && back.len() >= longest, "{length} bytes");
        assert!(reader.has_gaps() && matches!(reader.ended(), Some(Ended::Torn { .. })), "{length} bytes");
        longest = back.len();
    }
    assert_eq!(longest, lines.concat().len());
}

#[test]
fn a_wait_for_nobody_is_refused_where_nothing_is_missing() {
    let lines = vec![vec![sections().concat().swap_remove(2)]];
    let trace = record(&[], &lines, Compression::None);
    let refused = advice::read_gapped(AccessLines::new(&trace[..]).unwrap(), AccessLines::has_gaps);
    assert!(refused.unwrap_err().to_string().contains("no section"), "{lines:?}");
    let mut writer = Writer::new(Vec::new(), &header(), Compression::None).unwrap();
    assert!(writer.access_line(b"{}\n{}").is_err());
}
