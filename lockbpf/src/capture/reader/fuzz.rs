//! What the targets in `fuzz/` feed: files in which functions to be probed are looked for, and both sides of what is said about them.

use super::super::described::Wanted;
use super::super::elf;
use super::super::go;
use super::super::judge::{Role, judge};
use super::super::mangled;
use super::super::serve;
use super::super::site::Site;
use super::code::CodeRanges;
use super::{Answer, Ask, Asked, AskedCalls, answers};
use crate::capture::probe_table::Runtime;
use crate::custom::{self, Catalogue};
use crate::measures::library::FUNCTIONS;
use crate::sandbox::socket;
use lockbpf_common::custom::number;
use nix::sys::memfd::{MFdFlags, memfd_create};
use object::ReadCache;
use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

/// Messages of one input.
const MAX_MESSAGES: usize = 16;

/// A file of these bytes that has no name.
fn file(bytes: &[u8]) -> Option<File> {
    let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all_at(bytes, 0).ok()?;
    Some(file)
}

/// Descriptions that fit much.
const LOCKS: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "a"
files = ["fuzz"]
[[lock.function]]
symbol = "*lock*"
does = "acquire"
[[lock.function]]
symbol = "*read*"
does = "release"
"#;

/// What is asked about a file of each role.
fn asked(role: Role) -> Asked {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut catalogue = Catalogue::default();
        catalogue.add(LOCKS, "fuzz").expect("it is as it should be");
        custom::install(catalogue);
    });
    let wanted = Wanted::of(custom::catalogue(), Path::new("fuzz"));
    Asked { role, has_library: false, wanted: if role == Role::CLibrary { Vec::new() } else { wanted } }
}

/// Whether a probe, and the function that it is in, are in code.
fn is_in(code: &CodeRanges, site: &Site) -> bool {
    let first = site.file_offset.checked_sub(site.placement.offset);
    first.is_some_and(|first| code.contain(first, site.file_offset))
}

/// Looks for functions in a file, whatever it is to its process: each place found is in the file, and what is believed of it is in its code.
/// Damaged headers may say one thing to who looks for functions and another to who looks for code: then nothing is believed.
pub fn probes(data: &[u8]) {
    let cache = ReadCache::new(Cursor::new(data));
    let _ = elf::headers(&cache);
    let _ = mangled::has_symbols(&cache);
    let _ = go::is_go(&cache);
    let Some(file) = file(data) else { return };
    for role in [Role::CLibrary, Role::Executable, Role::Library] {
        let asked = asked(role);
        if let Ok(Some(judged)) = judge(data, role, &asked.wanted) {
            assert!(judged.sites.iter().all(|site| site.file_offset < data.len() as u64));
        }
        let Some(Answer::Places(Ok(Some(told)))) = answered(Ask::Places(asked.clone()), &file) else { continue };
        let code = CodeRanges::read(&file);
        let believed = answers::places(told, &asked, code.clone());
        assert!(believed.is_none_or(|places| places.sites.iter().all(|site| is_in(&code, site))));
    }
    let functions: Vec<u16> = (0..FUNCTIONS.len() as u16).collect();
    answered(Ask::Interpreter, &file);
    answered(Ask::Resolvers(functions.clone()), &file);
    let asked = AskedCalls { functions, chosen: Vec::new(), watched: Vec::new() };
    if let Some(Answer::Calls(Some(told))) = answered(Ask::Calls(asked.clone()), &file) {
        let code = CodeRanges::read(&file);
        let believed = answers::calls(told, &asked, Runtime::Glibc, code.clone());
        assert!(believed.is_none_or(|calls| calls.sites.iter().all(|site| is_in(&code, site))));
    }
    answered(Ask::Described(self::asked(Role::Library).wanted), &file);
}

/// The answer, as it comes out at the other end.
fn answered(ask: Ask, file: &File) -> Option<Answer> {
    let ask = serde_json::from_slice(&serde_json::to_vec(&ask).expect("a question is JSON")).expect("it is understood");
    let answer = serve::answer(ask, vec![file.try_clone().ok()?.into()]).expect("a file came");
    let text = serde_json::to_vec(&answer).expect("an answer is JSON");
    assert!(text.len() <= socket::MAX_BYTES, "an answer of {} bytes", text.len());
    Some(serde_json::from_slice(&text).expect("an answer is understood"))
}

fn messages(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|&byte| byte == b'\n').take(MAX_MESSAGES)
}

/// Messages as the process gets them, one a line, each with the same file. Whatever they say, it answers within bounds or refuses.
pub fn asks(lines: &[u8], file: &File) {
    for line in messages(lines) {
        let Ok(ask) = serde_json::from_slice::<Ask>(line) else { return };
        answered(ask, file);
        let ask = serde_json::from_slice::<Ask>(line).expect("it was");
        assert!(matches!(serve::answer(ask, Vec::new()), Err(_) | Ok(Answer::Ready)));
    }
}

/// Answers as lockbpf gets them from a process that may have been taken over: each line is one, about `file`. What is believed is in its code,
/// and for functions that were asked for.
pub fn answers(lines: &[u8], file: &File) {
    let code = CodeRanges::read(file);
    let functions: Vec<u16> = vec![0, 1, 2];
    for line in messages(lines) {
        match serde_json::from_slice::<Answer>(line) {
            Ok(Answer::Places(Ok(Some(told)))) => {
                for role in [Role::CLibrary, Role::Executable, Role::Library] {
                    let text = serde_json::to_vec(&told).expect("it was JSON");
                    let told = serde_json::from_slice(&text).expect("it was JSON");
                    let Some(places) = answers::places(told, &asked(role), code.clone()) else { continue };
                    let is_clean = |site: &Site| !site.placement.instruction.contains(char::is_control);
                    assert!(places.sites.iter().all(|site| is_in(&code, site) && is_clean(site)));
                    let why = places.unusable.map(|why| why.to_string()).unwrap_or_default();
                    assert!(!why.contains(char::is_control) && (why.is_empty() || places.sites.is_empty()));
                }
            }
            Ok(Answer::Calls(Some(told))) => {
                let asked = AskedCalls { functions: functions.clone(), chosen: Vec::new(), watched: Vec::new() };
                let Some(calls) = answers::calls(told, &asked, Runtime::Glibc, code.clone()) else { continue };
                let names: Vec<_> = functions.iter().map(|&n| FUNCTIONS[usize::from(n)].symbol).collect();
                assert!(calls.sites.iter().all(|site| names.contains(&site.function.symbol)));
            }
            Ok(Answer::Described(Ok(told))) => {
                let believed = answers::described(told, &asked(Role::Library).wanted, code.clone());
                assert!(believed.is_none_or(|found| found.sites.iter().all(|site| number(site.detail) < 2)));
            }
            Ok(Answer::Interpreter(Ok(Some(path)))) => {
                assert!(answers::interpreter(path).is_none_or(|path| path.starts_with(b"/")));
            }
            Ok(Answer::Resolvers(told, _)) => {
                assert!(answers::resolvers(told, &functions).is_none_or(|told| told.len() <= functions.len()));
            }
            _ => {}
        }
    }
}
