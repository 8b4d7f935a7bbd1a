//! `lockbpf access` against a second, independent way of knowing what instructions access: valgrind's lackey, which executes the
//! same program on a processor of its own and tells each access with its size.
//!
//! The workload's section runs each class of instructions between two marks: writes of `table[CLASS]`. It also reads every byte of
//! its buffers by itself, so that lockbpf, which tells locations that no access divides, tells all accesses byte by byte. Compared
//! are all accesses to the buffers, as sequences of bytes read and written, class by class. Not compared is
//!
//! * what is accessed elsewhere: the stack, the marks, constants, and thresholds that the C library reads;
//! * AVX-512, which valgrind does not know: the C library is told to do without it in both runs;
//! * the order of bytes of repeated string instructions: valgrind reads and writes them by turns, lockbpf tells one stretch of
//!   each operand, so there the accesses are compared as multisets;
//! * how often locked instructions read: of all but `cmpxchg` valgrind makes a load and a compare-and-swap, which reads again, so
//!   there the accesses are compared as sets.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::run;
use crate::harness::workload::{Workload, command};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// How the accesses of a class are compared.
#[derive(Clone, Copy)]
enum Compared {
    Sequence,
    Multiset,
    Set,
}
use Compared::{Multiset, Sequence, Set};

/// The classes in the order of the workload.
const CLASSES: [(&str, Compared); 13] = [
    ("single bytes", Sequence),
    ("moves", Sequence),
    ("updates", Sequence),
    ("locked", Set),
    ("strings", Multiset),
    ("SSE", Sequence),
    ("AVX", Sequence),
    ("masked and gathered", Sequence),
    ("vectorised loop", Sequence),
    ("memcpy, short and medium", Sequence),
    ("memset", Sequence),
    ("memcpy", Sequence),
    ("strlen", Sequence),
];

/// A byte read or written: `r` or `w`, and its offset in `shared`.
type Access = (char, u64);

/// The first complete section of a stream of accesses: those of each class.
fn classes(table: u64, accesses: impl Iterator<Item = Access>) -> Option<Vec<Vec<Access>>> {
    let mut found: Option<Vec<Vec<Access>>> = None;
    for (kind, offset) in accesses {
        match offset.checked_sub(table).filter(|at| *at < 32 * 8) {
            None => found.iter_mut().filter_map(|classes| classes.last_mut()).for_each(|of| of.push((kind, offset))),
            // The first byte of a mark.
            Some(at) if kind == 'w' && at % 8 == 0 => {
                let begun = if at == 0 { Some(Vec::new()) } else { found.take() };
                found = begun.filter(|classes| classes.len() as u64 == at / 8);
                if found.as_ref().is_some_and(|classes| classes.len() == CLASSES.len()) {
                    return found;
                }
                found.iter_mut().for_each(|classes| classes.push(Vec::new()));
            }
            Some(_) => {}
        }
    }
    None
}

/// Accesses in lackey's words: ` L ADDRESS,SIZE` for a load, S for a store, M for both.
fn told_by_lackey(trace: &str, shared: u64, size: u64) -> Vec<Access> {
    let mut all = Vec::new();
    for line in trace.lines() {
        let (letters, rest) = match line.as_bytes() {
            [b' ', b'L', ..] => ("r", &line[3..]),
            [b' ', b'S', ..] => ("w", &line[3..]),
            [b' ', b'M', ..] => ("rw", &line[3..]),
            _ => continue,
        };
        let (address, bytes) = rest.split_once(',').expect("lackey tells an address and a size");
        let address = u64::from_str_radix(address, 16).expect("lackey tells an address");
        let bytes: u64 = bytes.parse().expect("lackey tells a size");
        let offsets = (address..address + bytes).filter_map(|byte| byte.checked_sub(shared)).filter(|&at| at < size);
        all.extend(offsets.flat_map(|offset| letters.chars().map(move |letter| (letter, offset))));
    }
    all
}

/// Accesses in lockbpf's words, of one section.
fn told_by_lockbpf(record: &Value) -> Vec<Access> {
    let letters = record["accesses"].as_str().unwrap_or_default().chars();
    let locations = record["at"].as_array().into_iter().flatten();
    let offset = |location: &str| match location.strip_prefix("shared")? {
        "" => Some(0),
        rest => u64::from_str_radix(rest.strip_prefix("+0x")?, 16).ok(),
    };
    letters.zip(locations).filter_map(|(letter, at)| Some((letter, offset(at.as_str()?)?))).collect()
}

fn comparable(accesses: &[Access], how: Compared) -> Vec<Access> {
    let mut accesses = accesses.to_vec();
    match how {
        Sequence => {}
        Multiset => accesses.sort_unstable(),
        Set => {
            accesses.sort_unstable();
            accesses.dedup();
        }
    }
    accesses
}

fn workload(tunables: &str, mut command: Command) -> Workload {
    Workload::launch(command.env("GLIBC_TUNABLES", tunables).env("PAUSE_US", "1000"))
}

/// Ends it, which must be a clean end; returns the address of `shared`, and the offsets in it of `table` and of its end.
fn end(workload: &mut Workload) -> (u64, u64, u64) {
    workload.end();
    let said = workload.running.out.rest();
    assert!(said.contains("\nsum ok"), "the section was not computed right: {said}");
    let places: Value = serde_json::from_str(said.lines().next().unwrap_or_default()).expect("places are JSON");
    let shared = places["shared"].as_str().and_then(|hex| u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok());
    let [table, numbers] = ["table", "numbers"].map(|field| places[field].as_u64().expect("an offset"));
    (shared.expect("an address"), table, numbers + 64 * 4)
}

/// Under lackey: the accesses of the first section.
fn under_lackey(tunables: &str, dir: &Path) -> Vec<Vec<Access>> {
    let program = command("accesses classes 1", Variant::Fixed);
    let log = dir.join("lackey");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=lackey", "--trace-mem=yes"]).arg(format!("--log-file={}", log.display()));
    valgrind.arg(program.get_program()).args(program.get_args());
    let mut workload = workload(tunables, valgrind);
    // By then it has made some sections.
    let sections = |line: &str| line.parse::<u64>().is_ok_and(|sections| sections > 0);
    workload.running.out.find(sections).expect("it goes on");
    let (shared, table, size) = end(&mut workload);
    let trace = std::fs::read_to_string(log).expect("lackey writes its log");
    classes(table, told_by_lackey(&trace, shared, size).into_iter()).expect("lackey sees a whole section")
}

/// Under `lockbpf access`: the accesses of each section that was followed to its end.
fn under_lockbpf(tunables: &str, dir: &Path) -> Vec<Vec<Vec<Access>>> {
    let mut workload = workload(tunables, command("accesses classes 2", Variant::Fixed));
    let (pid, to) = (workload.pid().to_string(), dir.join("accesses.jsonl"));
    let to = to.to_str().expect("a path in UTF-8");
    let outcome = run(&["access", "--pid", &pid, "--timing", "300ms", "--samples", "8", "--budget", "20%", "--to", to]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (_, table, _) = end(&mut workload);
    let text = std::fs::read_to_string(to).expect("records are written");
    let records = text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON"));
    let whole = records.filter(|record: &Value| record["cut"] != true);
    whole.map(|record| classes(table, told_by_lockbpf(&record).into_iter()).expect("a whole section")).collect()
}

/// With the vector instructions that the C library's functions may use: all but AVX-512, and SSE only.
#[test]
fn accesses_are_those_that_valgrind_lackey_sees() {
    let Some(_turn) = may_observe() else { return };
    for without in ["-AVX512F,-AVX512VL,-AVX512BW", "-AVX512F,-AVX512VL,-AVX512BW,-AVX2"] {
        let tunables = format!("glibc.cpu.hwcaps={without}");
        let dir = tempfile::tempdir().expect("failed to make a directory");
        let expected = under_lackey(&tunables, dir.path());
        let sections = under_lockbpf(&tunables, dir.path());
        assert!(sections.len() >= 4, "{} sections were followed to their ends", sections.len());
        for seen in &sections {
            for ((class, how), (seen, expected)) in CLASSES.iter().zip(seen.iter().zip(&expected)) {
                let (seen, expected) = (comparable(seen, *how), comparable(expected, *how));
                assert_eq!(seen, expected, "{class} ({without})");
                // AVX2 is the one that a processor may lack.
                let lacks = matches!(*class, "AVX" | "masked and gathered" | "vectorised loop")
                    && !is_x86_feature_detected!("avx2");
                assert!(lacks || !seen.is_empty(), "{class} accesses nothing");
            }
        }
    }
}
