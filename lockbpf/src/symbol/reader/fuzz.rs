//! What the targets in `fuzz/` feed: each parser behind the reader's door and both sides of its protocol, in one process and without rights.
//!
//! Damage may make parsers of others panic, for which they are guarded. A panic of lockbpf's own code is a fault in any case.

use super::super::elf::Layout;
use super::super::files::{FileId, ObjectFile};
use super::super::find::Kind;
use super::super::guard::guarded;
use super::super::maps;
use super::super::perf_map::{Budget, PerfMap};
use super::super::unwind::{self, Told};
use super::serve::Files;
use super::{Answer, Ask, PIECE, Question, Reader, answers};
use crate::id::Process;
use crate::sandbox::socket;
use crate::unwind::{Registers, StackCopy};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

/// Addresses that are asked about in a file.
const MAX_ADDRESSES: usize = 12;
/// Messages of one input.
const MAX_MESSAGES: usize = 16;
/// Bytes of one message that fit into a socket nobody reads from yet.
const MAX_MESSAGE: usize = 64 << 10;

/// Ends the process at a panic of lockbpf's own code, also where panics are guarded.
fn own_panics_are_faults() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // The guard's hook comes first, so that this one sees everything.
        guarded(|| ());
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|at| at.file().contains("lockbpf/") && !at.file().contains("/registry/")) {
                eprintln!("{panic}");
                std::process::abort();
            }
            others(panic);
        }));
    });
}

/// A file of these bytes that has no name.
fn file(bytes: &[u8]) -> Option<File> {
    let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all_at(bytes, 0).ok()?;
    Some(file)
}

/// A file as the process has got it.
struct Sent {
    files: Files,
    layout: Layout,
}

impl Sent {
    /// `None` if its headers are refused.
    fn new(bytes: &[u8]) -> Option<Self> {
        own_panics_are_faults();
        let mut files = Files::new(&[]);
        let asked = files.take(Ask::Headers, vec![file(bytes)?.into()]);
        let Answer::Headers(Ok(layout)) = travelled(asked?) else { return None };
        let layout = answers::layout(layout)?;
        let name = "fuzz".to_owned();
        let ask = Ask::File {
            id: FileId::FIRST,
            name,
            layout: layout.clone(),
            has_debug: false,
            has_shared: false,
            plain: false,
        };
        assert!(files.take(ask, vec![file(bytes)?.into()]).is_none());
        Some(Self { files, layout })
    }

    fn ask(&mut self, question: Question) -> Answer {
        travelled(self.files.take(Ask::Of(FileId::FIRST, question), Vec::new()).expect("each question has an answer"))
    }

    fn symbols(&mut self, kind: Kind, part: &str) -> Vec<(String, Range<u64>)> {
        match self.ask(Question::Matching(kind, part.to_owned())) {
            Answer::Symbols(all) => all.into_iter().map(|(name, start, end)| (name, start..end)).collect(),
            other => panic!("{other:?} are no symbols"),
        }
    }

    /// Addresses worth asking about: of symbols of a kind, and of what is loaded.
    fn addresses(&mut self, kind: Kind) -> Vec<u64> {
        let symbols = self.symbols(kind, "").into_iter().map(|(_, range)| range);
        let loaded = self.layout.segments.iter().map(|s| s.addr..s.addr.saturating_add(s.mem_size));
        let each = |range: Range<u64>| [range.start, range.start.midpoint(range.end), range.end.saturating_sub(1)];
        symbols.take(MAX_ADDRESSES / 4).chain(loaded).flat_map(each).take(MAX_ADDRESSES).collect()
    }
}

/// An answer, as it comes out at the other end.
fn travelled(answer: Answer) -> Answer {
    let text = serde_json::to_vec(&answer).expect("an answer is JSON");
    assert!(text.len() <= socket::MAX_BYTES, "an answer of {} bytes", text.len());
    serde_json::from_slice(&text).expect("an answer is understood")
}

/// Headers, checksums and symbols of a file.
pub fn elf(bytes: &[u8]) {
    let Some(mut sent) = Sent::new(bytes) else { return };
    for kind in [Kind::Variable, Kind::Constant, Kind::Function] {
        let Answer::Names(names) = sent.ask(Question::Names(kind)) else { panic!("no names") };
        let found = sent.symbols(kind, "");
        assert_eq!(names.len(), found.len());
        if let Some(name) = names.first() {
            sent.ask(Question::Exactly(kind, name.clone()));
            assert!(sent.symbols(kind, name).iter().all(|(found, _)| found.contains(name)));
        }
    }
    let has = sent.ask(Question::Has("ELF".to_owned()));
    assert!(matches!(has, Answer::Has(true)), "it begins so");
    for distance in [0, 8, 0x40] {
        sent.ask(Question::ThreadLocal(distance));
    }
    let checksum = file(bytes).and_then(|file| sent.files.take(Ask::Checksum, vec![file.into()]));
    assert!(matches!(checksum, Some(Answer::Checksum(Ok(_)))));
}

/// What the debug information of a file says of variables and of arguments of calls.
pub fn dwarf(bytes: &[u8]) {
    let Some(mut sent) = Sent::new(bytes) else { return };
    for addr in sent.addresses(Kind::Variable) {
        sent.ask(Question::Variable(addr));
    }
    for addr in sent.addresses(Kind::Function) {
        sent.ask(Question::Member(addr));
    }
    sent.ask(Question::ThreadLocal(8));
}

/// Functions and source lines of a file.
pub fn lines(bytes: &[u8]) {
    let Some(mut sent) = Sent::new(bytes) else { return };
    for addr in sent.addresses(Kind::Function) {
        let Answer::Frames(frames) = sent.ask(Question::Frames(addr)) else { panic!("no frames") };
        answers::frames(frames);
    }
}

/// Unwind tables of a file; what they say is applied to a stack.
pub fn unwind(bytes: &[u8]) {
    let Some(mut sent) = Sent::new(bytes) else { return };
    for addr in sent.addresses(Kind::Function) {
        if let Answer::Function(Some((start, end))) = sent.ask(Question::Function(addr)) {
            assert!((start..end).contains(&addr));
        }
        if let Answer::Row(told) = sent.ask(Question::Row(addr)) {
            applied(told);
        }
    }
}

/// As the unwinder applies rules.
fn applied(told: Told) {
    let Told::Row(row) = told else { return };
    let Some(row) = row.bounded() else { return };
    let base = 0x7fff_0000;
    let bytes: Vec<u8> = (0..512_u64).flat_map(|word| (base + 8 * (word * 7 % 512)).to_le_bytes()).collect();
    let copy = StackCopy::top(Process(1), Registers::of(0x1000, base + 64, base + 128), base, bytes);
    guarded(|| unwind::apply(row, &copy));
}

/// A perf map, read at once or as it grows: functions never overlap.
pub fn perf_map(bytes: &[u8]) {
    own_panics_are_faults();
    let (mut whole, mut grown) = (PerfMap::default(), PerfMap::default());
    let Some(file) = file(bytes) else { return };
    read_map(&mut whole, &file, &mut Budget::default());
    let (mut budget, half) = (Budget::default(), bytes.len() / 2);
    file.set_len(half as u64).expect("it is ours");
    read_map(&mut grown, &file, &mut budget);
    file.write_all_at(bytes.get(half..).unwrap_or_default(), half as u64).expect("it is ours");
    read_map(&mut grown, &file, &mut budget);
    let spans = whole.spans();
    assert!(spans.windows(2).all(|two| matches!(two, [(_, end), (start, _)] if end <= start)));
    assert_eq!(spans, grown.spans());
    assert!(spans.iter().all(|&(start, end)| start < end && whole.function(start).is_some()));
}

/// As lockbpf does, of an answer that has travelled: it is believed.
fn read_map(map: &mut PerfMap, file: &File, budget: &mut Budget) {
    let told = |part: Range<u64>| {
        let length = part.end - part.start;
        let descriptor = file.try_clone().expect("a descriptor").into();
        let answer = Files::new(&[]).take(Ask::Listed(part), vec![descriptor]).expect("it has an answer");
        let Answer::Listed(told) = travelled(answer) else { panic!("no functions") };
        Some(answers::listed(told, length).expect("an honest answer"))
    };
    map.read(file, budget, told).expect("it can be read");
}

/// Lines of `/proc/PID/maps`.
pub fn maps(text: &[u8]) {
    own_panics_are_faults();
    assert!(maps::parse(text).iter().all(|mapping| mapping.len() > 0 && mapping.base_name().len() <= 6 * text.len()));
}

/// Messages as the process gets them, one a line; each comes with `file`. Whatever they say, it answers within bounds or refuses.
pub fn asks(lines: &[u8], file: &File) {
    own_panics_are_faults();
    let (sender, receiver) = UnixStream::pair().expect("a pair of sockets");
    let mut files = Files::new(&[]);
    for line in messages(lines) {
        let debug = file.as_fd();
        socket::send(&sender, line, &[debug, debug, debug]).expect("it fits");
        let (bytes, descriptors): (_, Vec<OwnedFd>) =
            socket::receive(&receiver).expect("it is whole").expect("it was sent");
        assert!(bytes == line && descriptors.len() == 3);
        let Ok(ask) = serde_json::from_slice(&bytes) else { return };
        if let Some(answer) = files.take(ask, descriptors) {
            travelled(answer);
        }
    }
    // Whatever else comes over a socket.
    let _ = (&sender).write_all(lines.get(..MAX_MESSAGE).unwrap_or(lines));
    drop(sender);
    while let Ok(Some(_)) = socket::receive(&receiver) {}
}

fn messages(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|&byte| byte == b'\n').filter(|line| line.len() <= MAX_MESSAGE).take(MAX_MESSAGES)
}

/// Answers as lockbpf gets them from a process that may have been taken over: each line is one. What can be decoded is the answer to each
/// question.
pub fn answers(lines: &[u8], any: &File) {
    own_panics_are_faults();
    let object = || ObjectFile {
        name: "fuzz".to_owned(),
        file: any.try_clone().expect("a descriptor"),
        debug: None,
        shared_debug: None,
        layout: Layout::default(),
    };
    let file = object();
    for line in messages(lines) {
        let questions = if serde_json::from_slice::<Answer>(line).is_ok() { 12 } else { 1 };
        for question in 0..questions {
            let (socket, its) = UnixStream::pair().expect("a pair of sockets");
            let reader = Reader::told(socket);
            socket::send(&its, line, &[]).expect("it fits");
            let texts = asked(&reader, &file, question);
            for text in texts.into_iter().chain(reader.problems()) {
                assert!(text.len() < 1 << 20 && !text.contains(char::is_control), "{text:?}");
            }
        }
    }
    // What is no message at all.
    let (socket, its) = UnixStream::pair().expect("a pair of sockets");
    let _ = (&its).write_all(lines.get(..MAX_MESSAGE).unwrap_or(lines));
    drop(its);
    asked(&Reader::told(socket), &file, 0);
}

/// Asks one of the questions; what texts come of it.
fn asked(reader: &Reader, file: &ObjectFile, question: u8) -> Vec<String> {
    let id = FileId::FIRST;
    match question {
        0 => {
            let frames = reader.frames(id, file, 1).into_iter();
            frames.flat_map(|frame| frame.function.into_iter().chain(frame.location.map(|(path, _)| path))).collect()
        }
        1 => reader.variable(id, file, 1).into_iter().flat_map(|told| [told.symbol, told.told]).collect(),
        2 => reader.thread_local(id, file, 1).into_iter().collect(),
        3 => reader.member(id, file, 1).into_iter().collect(),
        4 => reader.matching(id, file, Kind::Function, "").into_iter().map(|(name, _)| name).collect(),
        5 => reader.names(id, file, Kind::Function),
        6 => {
            applied(reader.row(id, file, 1));
            Vec::new()
        }
        7 => {
            reader.function(id, file, 1);
            Vec::new()
        }
        8 => {
            reader.checksum(&file.file);
            Vec::new()
        }
        9 => {
            let told = reader.listed("fuzz", &file.file, 0..PIECE).unwrap_or_default();
            assert!(told.whole <= PIECE && told.functions.iter().all(|(start, end, _)| start < end));
            told.functions.into_iter().map(|(.., name)| name).collect()
        }
        10 => {
            reader.has(id, file, "text");
            Vec::new()
        }
        _ => {
            let layout = reader.headers(&file.file);
            let believed = layout.inspect(|layout| {
                let extent = layout.extent();
                assert!(layout.segments.len() <= 4_096 && !layout.covers(extent.end));
                layout.code_at(&extent);
            });
            believed.err().map(|error| error.to_string()).into_iter().collect()
        }
    }
}
