//! Reading records, right and wrong ones.

use super::super::read;
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read};

const LINE: &str = r#"{"run":0,"seq":5,"tid":"1.2","lock":"L","site":"1","reads":["0x10","0x8"],"writes":["0x18"],"accesses":"rwr","at":["0x10","0x18",null],"code":["f (a.c:1)","f (a.c:2)",null],"x":[{}]}"#;

#[test]
fn a_record_is_read() {
    let text = format!(
        "{LINE}\n\n  {}\n{}",
        r#"{"run":0,"seq":6,"tid":3,"lock":7,"site":"1","reads":[],"writes":[]}"#, r#"{"edge":[5,"6"],"run":"0"}"#
    );
    let records = read(text.as_bytes()).unwrap();
    let [first, second] = &records.executions[..] else { panic!("{records:?}") };
    let name = |location: &u32| records.locations.text(*location);
    let sets = records.sets(first.sets);
    let mut reads: Vec<&str> = sets.reads.iter().map(name).collect();
    reads.sort_unstable();
    assert_eq!((reads, sets.writes.iter().map(name).collect::<Vec<_>>()), (vec!["0x10", "0x8"], vec!["0x18"]));
    assert_eq!((records.threads.text(first.thread), records.threads.text(second.thread)), ("1.2", "3"));
    assert_eq!((records.locks.text(second.lock), records.edges.as_slice()), ("7", &[(0, 1)][..]));
    let path = records.path(first.path.unwrap());
    assert_eq!((path.accesses, path.located), (3, true));
    let touches: Vec<_> = path.touches().map(|t| (name(&t.location), t.write, t.first, t.last)).collect();
    assert_eq!(touches, [("0x10", false, 0, 0), ("0x18", true, 1, 1)]);
    assert_eq!(second.path, None);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_field() {
    let good = r#"{"run":0,"seq":1,"tid":1,"lock":"L","site":"s","reads":[],"writes":[]}"#;
    for (line, names) in [
        (r#"{"run":0,"seq":2,"tid":1,"lock":"L","reads":[],"writes":[]}"#, &["`site`"][..]),
        (r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","writes":[]}"#, &["`reads`"]),
        (r#"{"seq":2,"tid":1,"lock":"L","site":"s","reads":[],"writes":[]}"#, &["`run`"]),
        (r#"{"run":0,"tid":1,"lock":"L","site":"s","reads":[],"writes":[]}"#, &["`seq`"]),
        (r#"{"run":0,"seq":1,"tid":1,"lock":"L","site":"s","reads":[],"writes":[]}"#, &["`seq`", "before"]),
        (
            r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":["a",true],"writes":[]}"#,
            &["`reads[1]`", "column"],
        ),
        (r#"{"run":0,"seq":2,"tid":-1,"lock":"L","site":"s","reads":[],"writes":[]}"#, &["`tid`"]),
        (
            r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":[],"writes":[],"accesses":"rx"}"#,
            &["`accesses`", "'x'"],
        ),
        (
            r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":[],"writes":[],"accesses":"r","at":[]}"#,
            &["`at`", "0 entries"],
        ),
        (r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":[],"writes":[],"at":[]}"#, &["`at` without"]),
        (r#"{"run":0,"seq":2,"seq":3,"tid":1,"lock":"L","site":"s","reads":[],"writes":[]}"#, &["duplicate", "seq"]),
        (r#"{"run":0,"edge":["1","9"]}"#, &["`edge`", "`seq` 9", "run 0"]),
        (r#"{"run":0,"edge":["1"]}"#, &["`edge"]),
        (r#"{"run":0,"edge":["1","1","1"]}"#, &["`edge"]),
        (r#"{"edge":["1","1"]}"#, &["`run`"]),
        ("{", &["EOF"]),
        ("[1]", &["not a JSON object"]),
        (r#"{"run":0} {}"#, &["trailing"]),
        ("\u{0}", &["not a JSON object"]),
    ] {
        let error = read(format!("{good}\n{line}\n").as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{line}: {error}");
        names.iter().for_each(|name| assert!(error.contains(name), "{line}: {error}"));
    }
    // Other programs may give lockbpf's own names another meaning.
    let foreign = r#"{"run":0,"seq":1,"tid":1,"lock":"L","site":"s","reads":[],"writes":[],"accesses":"r","code":7,"cut":"no","names":[],"opaque":{},"lock_addr":null}"#;
    assert!(!read(foreign.as_bytes()).unwrap().executions[0].cut);
}

#[test]
fn a_line_without_end_is_not_kept() {
    let endless = BufReader::new(std::io::repeat(b' ').take(1 << 30));
    let error = read(endless).unwrap_err().to_string();
    assert!(error.starts_with("line 1: longer than"), "{error}");
}

#[test]
fn own_names_are_taken() {
    let line = r#"{"run":0,"seq":1,"tid":1,"lock":"m","lock_addr":"0x40","site":"s","reads":["g+0x8"],"writes":[],"names":{"g+0x8":"stats.hits"},"opaque":["write"],"cut":true}"#;
    let records = read(line.as_bytes()).unwrap();
    assert_eq!(records.location(0), "stats.hits");
    assert!(records.executions[0].cut && records.lock_addresses.len() == 1 && records.opaque.len() == 1);
}

/// Gives out a few bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.min(self.0.len()).min(to.len());
        to[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

proptest! {
    #[test]
    fn noise_is_refused_or_read_but_never_more(
        changes in prop::collection::vec((0..2 * LINE.len(), prop::sample::select(br#"{}":,[]\ 0159-.erw\n"#.to_vec())), 0..6),
        pieces in 1_usize..50,
    ) {
        let second = LINE.replace("\"seq\":5", "\"seq\":6");
        let mut bytes = format!("{LINE}\n{second}").into_bytes();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let whole = read(&bytes[..]).map(|records| records.executions).map_err(|error| error.to_string());
        let input = BufReader::with_capacity(pieces, Pieces(&bytes, pieces));
        let apart = read(input).map(|records| records.executions).map_err(|error| error.to_string());
        prop_assert_eq!(&whole, &apart);
        if let Err(error) = whole {
            prop_assert!(error.starts_with("line 1: ") || error.starts_with("line 2: ") || error.starts_with("line 3: "), "{}", error);
        }
    }

    #[test]
    fn bytes_of_any_kind_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes[..]);
        prop_assert!((&bytes[..]).fill_buf().is_ok());
    }
}
