//! What is answered is checked, and a file that ends or holds up whoever reads it costs itself only.

use super::answers::{self, Places};
use super::ask::{Owner, Readers};
use super::code::CodeRanges;
use super::*;
use crate::capture::probe_table::{FUNCTIONS, Runtime};
use crate::capture::serve;
use crate::fixture::compiled;
use crate::sandbox::NotRead;
use lockbpf_common::via::Via;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

thread_local! {
    /// What is run as the process that reads, instead of a thread.
    static PROGRAM: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// See [`PROGRAM`].
pub(super) fn program() -> Option<PathBuf> {
    PROGRAM.with_borrow(Clone::clone)
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn owner(file: &File) -> Owner {
    Owner::of(&file.metadata().unwrap())
}

fn executable() -> Asked {
    Asked { role: Role::Executable, has_library: false, wanted: Vec::new() }
}

/// A static program, and what is honestly said of it.
fn honest() -> (File, Told, CodeRanges) {
    let source = "#include <pthread.h>\n#include <semaphore.h>\nstatic pthread_mutex_t m; static sem_t s;\n\
        int main(void) { pthread_mutex_lock(&m); sem_trywait(&s); return pthread_mutex_unlock(&m); }";
    let file = file(&compiled(&["-static", "-pthread"], source));
    let asked = serve::answer(Ask::Places(executable()), vec![file.try_clone().unwrap().into()]).unwrap();
    let Answer::Places(Ok(Some(told))) = asked else { panic!("{asked:?}") };
    let code = CodeRanges::read(&file);
    (file, told, code)
}

fn believed(told: &Told, code: &CodeRanges, change: impl FnOnce(&mut Told)) -> Option<Places> {
    let mut told: Told = serde_json::from_slice(&serde_json::to_vec(told).unwrap()).unwrap();
    change(&mut told);
    answers::places(told, &executable(), code.clone())
}

#[test]
fn what_is_honest_is_believed() {
    let (_, told, code) = honest();
    let places = believed(&told, &code, |_| {}).unwrap();
    assert!(places.unusable.is_none() && places.sites.len() == told.sites.len(), "{places:?}");
    let names: Vec<_> = places.sites.iter().map(|site| site.function.symbol).collect();
    assert!(["pthread_mutex_lock", "pthread_mutex_unlock", "sem_trywait"].iter().all(|name| names.contains(name)));
    // On x86 its two ends are probed.
    let tries = names.iter().filter(|name| **name == "sem_trywait").count();
    assert_eq!(tries, if cfg!(target_arch = "x86_64") { 2 } else { 1 });
}

#[test]
fn probes_outside_of_the_code_are_not_believed() {
    let (file, told, code) = honest();
    let length = file.metadata().unwrap().len();
    for offset in [0, 16, length, u64::MAX] {
        assert_eq!(believed(&told, &code, |told| told.sites[0].file_offset = offset), None, "{offset}");
    }
    // Nor is a function one that tells where somebody counts.
    assert_eq!(believed(&told, &code, |told| told.sites[0].counter = 2), None);
    // Neither is one whose function begins elsewhere.
    assert_eq!(believed(&told, &code, |told| told.sites[0].offset = told.sites[0].file_offset), None);
    assert_eq!(believed(&told, &CodeRanges::default(), |_| {}), None);
}

#[test]
fn functions_that_were_not_asked_for_are_not_believed() {
    let (_, told, code) = honest();
    let row = |change: fn(&mut At)| believed(&told, &code, |told| change(&mut told.sites[0]));
    assert_eq!(row(|at| at.row = Row::Libc(60_000)), None, "no such row");
    assert_eq!(row(|at| at.row = Row::Described(3)), None, "nothing is described");
    assert_eq!(row(|at| at.row = Row::Call(0)), None, "calls are another question");
    assert_eq!(row(|at| at.tells = Tells::End), None);
    assert_eq!(row(|at| at.tells = Tells::BeginWatched), None);
    assert_eq!(row(|at| at.tells = Tells::Success), None, "only an attempt has one");
    let musl = FUNCTIONS.iter().position(|f| f.runtime == Runtime::Musl).unwrap() as u16;
    assert_eq!(believed(&told, &code, |told| told.sites[0].row = Row::Libc(musl)), None, "of another library");
    assert_eq!(believed(&told, &code, |told| told.libc = None), None, "of none");
    assert_eq!(believed(&told, &code, |told| told.missing.push((Row::Call(1), Lack::Undefined))), None);
    let library = Asked { role: Role::CLibrary, ..executable() };
    let compiled = |told: &mut Told| told.sites[0].row = Row::Compiled(0);
    assert!(believed(&told, &code, compiled).is_some());
    let (_, mut told, code) = honest();
    compiled(&mut told);
    assert_eq!(answers::places(told, &library, code), None);
}

#[test]
fn there_are_no_more_than_there_can_be() {
    let (_, told, code) = honest();
    let twice = believed(&told, &code, |told| told.sites.push(told.sites[0].clone()));
    assert_eq!(twice, None, "a function is in a file once");
    let many = |told: &mut Told| {
        let at = At { row: Row::Compiled(0), tells: Tells::Begin, ..told.sites[0].clone() };
        told.sites = vec![at; MAX_SITES + 1];
    };
    assert_eq!(believed(&told, &code, many), None);
    let without = believed(&told, &code, |told| told.build_id = Some(vec![0; 65])).unwrap();
    assert_eq!(without.build_id, None, "nobody makes such long ones");
    let lacks = (0..200).map(|_| (Row::Libc(0), Lack::Refused)).collect();
    assert_eq!(believed(&told, &code, |told| told.missing = lacks), None);
    assert_eq!(believed(&told, &code, |told| told.unusable = Some(Unusable::UnknownLibc)), None, "and yet probed");
    let resolver = Resolver { function: 3, resolver: 0, word: None };
    assert_eq!(answers::resolvers(vec![resolver], &[4]), None);
    assert_eq!(answers::resolvers(vec![resolver; 2], &[3]), None);
    for path in [&b"lib/ld.so"[..], b"/lib\0ld.so", &[b'/'; 5_000]] {
        assert_eq!(answers::interpreter(path.to_vec()), None);
    }
}

#[test]
fn what_is_quoted_cannot_write_on_a_terminal() {
    let (_, told, code) = honest();
    let places = believed(&told, &code, |told| told.sites[0].instruction = "\x1b[2J".repeat(1_000)).unwrap();
    let text = &places.sites[0].placement.instruction;
    assert!(text.len() < 1_000 && !text.contains(char::is_control), "{text}");
    let refused = |why| {
        let told = Told { unusable: Some(why), ..Told::default() };
        answers::places(told, &executable(), code.clone()).unwrap().unusable.unwrap().to_string()
    };
    let hostile = || "\x1b".repeat(1 << 20);
    for why in [
        Unusable::OldGo(hostile()),
        Unusable::GoTable(hostile()),
        Unusable::GoCode { release: hostile(), function: hostile() },
        Unusable::Lacks(hostile()),
        Unusable::Unreadable(hostile()),
        Unusable::Elf(ElfError::Damaged(hostile())),
    ] {
        let text = refused(why);
        assert!(text.len() < 64 << 10 && !text.contains(char::is_control));
    }
}

#[test]
fn what_an_attempt_came_to_is_told_of_attempts() {
    let at = FUNCTIONS.iter().position(|f| f.code == Via::TrySemWait as u64).unwrap() as u16;
    let (_, told, _) = honest();
    let mut one = told.sites[0].clone();
    (one.row, one.tells) = (Row::Libc(at), Tells::Success);
    let site = one.clone().site(Runtime::Glibc).unwrap();
    assert_eq!(At::of(&site), Some(one), "there and back");
}

fn script(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("reader");
    let ready = r#"printf '\007\000\000\000"Ready"' >&0; head -c 1 <&0 >/dev/null"#;
    std::fs::write(&path, format!("#!/bin/sh\n{ready}\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_file_that_ends_the_process_costs_itself_only() {
    let (file, ..) = honest();
    let dir = tempfile::tempdir().unwrap();
    PROGRAM.set(Some(script(&dir, "kill -BUS $$")));
    let mut readers = Readers::new();
    let ask = || Ask::Places(executable());
    let died = readers.ask(owner(&file), &file, &ask()).unwrap_err();
    assert!(matches!(&died, NotRead::Died(how) if how.contains("signal 7")), "{died}");
    PROGRAM.set(Some(script(&dir, r"printf '\005\000\000\000hello' >&0; sleep 60")));
    assert_eq!(readers.ask(owner(&file), &file, &ask()).unwrap_err(), NotRead::Nonsense);
    PROGRAM.set(None);
    assert!(matches!(readers.ask(owner(&file), &file, &ask()), Ok(Answer::Places(Ok(Some(_))))));
    assert!(matches!(readers.ask(owner(&file), &file, &Ask::Interpreter), Ok(Answer::Interpreter(Ok(None)))));
}

#[test]
fn what_one_died_of_may_be_of_another_file() {
    let (file, ..) = honest();
    let dir = tempfile::tempdir().unwrap();
    // It answers once, and dies at the second question.
    let once = r#"printf '\033\000\000\000{"Interpreter":{"Ok":null}}' >&0; head -c 60 <&0 >/dev/null; exit 3"#;
    PROGRAM.set(Some(script(&dir, once)));
    let mut readers = Readers::new();
    assert!(matches!(readers.ask(owner(&file), &file, &Ask::Interpreter), Ok(Answer::Interpreter(Ok(None)))));
    PROGRAM.set(None);
    assert!(matches!(readers.ask(owner(&file), &file, &Ask::Places(executable())), Ok(Answer::Places(Ok(Some(_))))));
}

#[test]
fn what_cannot_be_confined_is_not_asked() {
    let (file, ..) = honest();
    PROGRAM.set(Some(PathBuf::from("/bin/false")));
    let mut readers = Readers::new();
    for _ in 0..4 {
        let error = readers.ask(owner(&file), &file, &Ask::Interpreter).unwrap_err();
        assert!(matches!(error, NotRead::None(_)), "{error}");
    }
    PROGRAM.set(None);
    let error = readers.ask(owner(&file), &file, &Ask::Interpreter).unwrap_err().to_string();
    assert!(error.contains("it failed too often"), "{error}");
}

#[test]
fn whoever_may_change_a_file_answers_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let of_mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        owner(&File::open(&path).unwrap())
    };
    assert_eq!(of_mode(0o755), of_mode(0o644));
    assert_ne!(of_mode(0o775), of_mode(0o755));
    if nix::unistd::geteuid().is_root() {
        let before = of_mode(0o755);
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert_ne!(of_mode(0o755), before);
    }
    assert_ne!(owner(&File::open("/proc/self/maps").unwrap()), of_mode(0o755));
}

/// What fuzzing begins with is not refused unread.
#[test]
fn seeds_are_messages() {
    let lines = |target: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let files =
            std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        files.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let (asks, answers) = (lines("probe_asks"), lines("probe_answers"));
    assert!(asks.len() >= 9 && asks.iter().all(|line| serde_json::from_str::<Ask>(line).is_ok()), "{asks:?}");
    assert!(
        answers.len() >= 8 && answers.iter().all(|line| serde_json::from_str::<Answer>(line).is_ok()),
        "{answers:?}"
    );
}
