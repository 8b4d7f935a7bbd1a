//! A file that ends or holds up whoever reads it costs its own names, and no others.

use super::super::files::FileId;
use super::super::fixture::Workshop;
use super::*;
use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

thread_local! {
    /// What is run as the process that reads, instead of a thread.
    static PROGRAM: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// See [`PROGRAM`].
pub(super) fn program() -> Option<PathBuf> {
    PROGRAM.with_borrow(Clone::clone)
}

fn script(shop: &Workshop, text: &str) -> PathBuf {
    let path = shop.path("reader");
    // It says that it is ready, as the process does first of all.
    let ready = r#"printf '\007\000\000\000"Ready"' >&0"#;
    // It does nothing before it is asked.
    let asked = "head -c 1 <&0 >/dev/null";
    std::fs::write(&path, format!("#!/bin/sh\n{ready}\n{asked}\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn own() -> std::fs::File {
    std::fs::File::open("/proc/self/exe").unwrap()
}

#[test]
fn a_process_that_dies_is_started_anew() {
    let shop = Workshop::new();
    PROGRAM.set(Some(script(&shop, "kill -BUS $$")));
    let reader = Reader::new(Vec::new());
    let error = reader.headers(&own()).unwrap_err().to_string();
    assert!(error.contains("signal 7"), "{error}");
    PROGRAM.set(None);
    assert!(reader.headers(&own()).unwrap().segments.len() > 1);
}

#[test]
fn nonsense_and_silence_are_no_answers() {
    let shop = Workshop::new();
    PROGRAM.set(Some(script(&shop, "printf '\\005\\000\\000\\000hello' >&0; sleep 60")));
    let reader = Reader::new(Vec::new());
    let error = reader.headers(&own()).unwrap_err().to_string();
    assert!(error.contains("nonsense"), "{error}");
    // What cannot be confined ends at once.
    PROGRAM.set(Some(PathBuf::from("/bin/false")));
    let reader = Reader::new(Vec::new());
    let error = reader.headers(&own()).unwrap_err().to_string();
    assert!(error.contains("cannot be confined"), "{error}");
    PROGRAM.set(Some(PathBuf::from("/no/such/program")));
    let reader = Reader::new(Vec::new());
    let error = reader.headers(&own()).unwrap_err().to_string();
    assert!(error.contains("started"), "{error}");
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for() {
    let shop = Workshop::new();
    PROGRAM.set(Some(script(&shop, "exec sleep 60")));
    let reader = Reader::new(Vec::new());
    let began = Instant::now();
    let error = reader.headers(&own()).unwrap_err().to_string();
    assert!(error.contains("more than 3 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "not the minute that it sleeps");
}

#[test]
fn what_is_answered_is_within_bounds() {
    let named = |name: &str, times| Named {
        function: Some(name.repeat(times)),
        location: Some(("b\n".into(), 7)),
        inlined: false,
    };
    let frames = answers::frames((0..10_000).map(|n| named("a\x1b", if n == 0 { 1 << 20 } else { 1 })).collect());
    assert_eq!(frames.len(), 256);
    let function = frames[0].function.as_deref().unwrap();
    assert!(function.len() < 1 << 18 && function.starts_with(r"a\u{1b}a"));
    assert_eq!(frames[0].location.as_ref().unwrap().0, r"b\u{a}");
    let segment =
        crate::symbol::elf::Segment { offset: u64::MAX, file_size: 1, addr: 0, mem_size: 0, executable: true };
    assert!(answers::layout(Layout { segments: vec![segment], ..Layout::default() }).is_none());
    assert!(answers::layout(Layout { build_id: Some(vec![0; 1 << 20]), ..Layout::default() }).is_none());
}

#[test]
fn a_file_that_was_given_up_is_not_asked_for_again() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", "int main(void) { return 0; }", &[]) else { return };
    let reader = Reader::new(Vec::new());
    let open = |path: &Path| std::fs::File::open(path).unwrap();
    let layout = reader.headers(&open(&path)).unwrap();
    let object = |name: &str| super::super::files::ObjectFile {
        name: name.to_owned(),
        file: open(&path),
        debug: None,
        shared_debug: None,
        layout: layout.clone(),
    };
    let bad = object("bad");
    PROGRAM.set(Some(script(&shop, "exit 3")));
    let reader = Reader::new(Vec::new());
    assert!(reader.frames(FileId::FIRST, &bad, layout.segments[1].addr).is_empty());
    assert!(reader.problems().iter().any(|problem| problem.contains("failed to read bad: it ended the process")));
    PROGRAM.set(None);
    assert!(reader.frames(FileId::FIRST, &bad, 0x1000).is_empty());
    assert!(reader.problems().is_empty());
}

#[test]
fn a_perf_map_behind_a_dead_process_keeps_what_it_has_listed() {
    use super::super::perf_map::{Budget, PerfMap};
    let shop = Workshop::new();
    let path = shop.path("perf.map");
    let (mut map, mut budget) = (PerfMap::default(), Budget::default());
    let mut read = |lines: &str| {
        let reader = Reader::new(Vec::new());
        std::fs::write(&path, lines).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        map.read(&file, &mut budget, |part| reader.listed("the map", &file, part)).unwrap();
        ([0x1000, 0x2000].map(|addr| map.function(addr).is_some()), reader.problems().pop().unwrap_or_default())
    };
    assert_eq!(read("1000 10 first\n"), ([true, false], String::new()));
    PROGRAM.set(Some(script(&shop, "exit 3")));
    let (known, problem) = read("1000 10 first\n2000 10 second\n");
    assert!(problem.starts_with("failed to read the map: it ended the process"), "{problem}");
    assert_eq!(known, [true, false]);
    // Another process would tell, but is not asked.
    PROGRAM.set(None);
    assert_eq!(read("1000 10 first\n2000 10 second\n"), ([true, false], String::new()));
}

#[test]
fn a_part_of_a_perf_map_lists_no_more_than_it_can() {
    let of = |whole, functions: &[(u64, u64, &str)]| {
        let functions = functions.iter().map(|&(start, end, name)| (start, end, name.to_owned())).collect();
        answers::listed(Listed { whole, functions }, 12)
    };
    assert_eq!(of(12, &[(1, 2, "a"), (2, 3, "b\x1b")]).unwrap().functions[1].2, r"b\u{1b}");
    assert_eq!(of(6, &[(1, 2, &"a".repeat(1 << 16))]).unwrap().functions[0].2.len(), 4_096);
    for (whole, functions) in [
        (13, &[][..]),
        (5, &[(1, 2, "a")]),
        (0, &[(1, 2, "a")]),
        (12, &[(1, 1, "a")]),
        (12, &[(2, 1, "a")]),
        (12, &[(1, 2, "")]),
        (12, &[(1, 2, "a"), (2, 3, "b"), (3, 4, "c")]),
    ] {
        assert!(of(whole, functions).is_none(), "{whole} {functions:?}");
    }
}

#[test]
fn a_process_that_lies_about_a_perf_map_is_ended() {
    let shop = Workshop::new();
    let told = |functions: &str| {
        let answer = format!(r#"{{"Listed":{{"whole":7,"functions":[[{functions},"f"]]}}}}"#);
        let text = format!(r"printf '\{:03o}\000\000\000{answer}' >&0; exec sleep 60", answer.len());
        PROGRAM.set(Some(script(&shop, &text)));
        let reader = Reader::new(Vec::new());
        let told = reader.listed("the map", &own(), 0..64).map(|told| told.functions.len());
        (told, reader)
    };
    assert_eq!(told("1,2").0, Some(1));
    let (told, reader) = told("2,1");
    assert_eq!(told, None);
    assert!(reader.problems()[0].contains("nonsense"));
    PROGRAM.set(None);
    assert!(reader.listed("the map", &own(), 0..64).is_some());
}

#[test]
fn a_file_that_was_not_looked_through_keeps_its_names() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", "int main(void) { return 0; }", &["-g"]) else { return };
    let open = || std::fs::File::open(&path).unwrap();
    let layout = Reader::new(Vec::new()).headers(&open()).unwrap();
    let file = super::super::files::ObjectFile {
        name: "it".to_owned(),
        file: open(),
        debug: None,
        shared_debug: None,
        layout,
    };
    PROGRAM.set(Some(script(&shop, "exit 3")));
    let reader = Reader::new(Vec::new());
    assert!(!reader.has(FileId::FIRST, &file, "main"));
    assert!(reader.problems()[0].contains("it passes for a file without main"));
    PROGRAM.set(None);
    assert!(reader.has(FileId::FIRST, &file, "main") && !reader.has(FileId::FIRST, &file, "no such text"));
    let main = reader.exactly(FileId::FIRST, &file, super::Kind::Function, "main").unwrap();
    assert!(reader.frames(FileId::FIRST, &file, main.start)[0].location.is_some());
}

/// A library with as many functions as this, which all have one name of as many bytes.
fn with_one_long_name(shop: &Workshop, functions: usize, length: usize) -> Option<std::path::PathBuf> {
    use object::{Object, ObjectSection};
    let source: String = (0..functions).map(|n| format!("int f{n};\n")).collect();
    let long = format!("int {};\n", "x".repeat(length));
    let library = shop.build("gcc", &(long + &source), &["-shared", "-fPIC", "-nostdlib"])?;
    let mut bytes = std::fs::read(&library).unwrap();
    let (symbols, strings) = {
        let elf = object::File::parse(&*bytes).unwrap();
        let range = |name: &str| elf.section_by_name(name).unwrap().file_range().unwrap();
        (range(".symtab"), range(".strtab"))
    };
    let needle = "x".repeat(length);
    let text = &bytes[strings.0 as usize..(strings.0 + strings.1) as usize];
    let at = text.windows(64).position(|window| *window == needle.as_bytes()[..64]).unwrap() as u32;
    for symbol in (symbols.0..symbols.0 + symbols.1).step_by(24) {
        let symbol = symbol as usize;
        // Objects only; st_name comes first.
        if bytes[symbol + 4] & 0xf == 1 {
            bytes[symbol..symbol + 4].copy_from_slice(&at.to_le_bytes());
        }
    }
    std::fs::write(&library, bytes).unwrap();
    Some(library)
}

#[test]
fn symbols_that_share_a_long_name_take_no_room() {
    let shop = Workshop::new();
    let Some(library) = with_one_long_name(&shop, 3_000, 1 << 20) else { return };
    let file = std::fs::File::open(library).unwrap();
    let (globals, error) = super::super::globals::Globals::read([&file]);
    assert!(error.is_none());
    let names: Vec<String> = globals.names().collect();
    assert!(names.len() > 2_000 && names.iter().all(|name| name.len() <= 4_096), "{}", names.len());
}

#[test]
fn notes_that_are_larger_than_any_are_not_read() {
    use object::{Object, ObjectSection};
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", "int main(void) { return 0; }", &["-Wl,--build-id"]) else { return };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(Layout::read(&file).unwrap().build_id.is_some());
    // Its notes end with the file, which has a terabyte of nothing at its end.
    let bytes = std::fs::read(&path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let note = elf.section_by_name(".note.gnu.build-id").unwrap();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let header = headers + 64 * note.index().0 as u64;
    std::os::unix::fs::FileExt::write_all_at(&file, &(1_u64 << 40).to_le_bytes(), header + 32).unwrap();
    file.set_len(2 << 40).unwrap();
    let began = Instant::now();
    assert_eq!(Layout::read(&file).unwrap().build_id, None);
    assert!(began.elapsed() < Duration::from_secs(1));
}

proptest::proptest! {
    /// Whatever the process says is an answer, or none.
    #[test]
    fn any_answer_is_bounded(text in "[\\[\\]{}\",:a-zA-Z0-9]{0,200}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        for bytes in [text.as_bytes(), &bytes] {
            if let Ok(Answer::Frames(frames)) = serde_json::from_slice(bytes) {
                proptest::prop_assert!(answers::frames(frames).len() <= 256);
            }
        }
        for kind in ["Headers", "NotElf", "Checksum", "Frames", "Variable", "Text", "Symbols", "Names", "Row", "Function", "Listed", "Has"] {
            let _ = serde_json::from_str::<Answer>(&format!("{{\"{kind}\":{text}}}"));
        }
    }
}
