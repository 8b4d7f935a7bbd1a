//! Names of real programs, each checked against the addresses and lines that the program itself prints.

use super::fixture::{PROCESS, Program, Workshop, lock};
use super::*;
use std::fs;

const PIE: &[&str] = &["-fPIE", "-pie"];
const NO_PIE: &[&str] = &["-fno-pie", "-no-pie"];

/// Locks in every place that a linker has for them; each tells the name that it should get.
const LOCKS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
struct entry { pthread_mutex_t lock; long hits; };
pthread_mutex_t data_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct entry table[16];
char huge[64 << 20];
pthread_mutex_t bss_lock;
static pthread_mutex_t hidden_lock;
extern pthread_mutex_t plain_name __attribute__((alias("bss_lock")));
static __thread pthread_mutex_t thread_lock;
__attribute__((noinline)) void *local(void) { static pthread_mutex_t inner_lock; return &inner_lock; }
int main(void) {
    void *heap = malloc(40), *anchor = &hidden_lock;
    tell("data_lock", &data_lock); tell("bss_lock", &bss_lock);
    tell("table", &table[0]); tell("table+0xc0", &table[4].lock);
    tell("huge+0x3ffffff", &huge[sizeof huge - 1]);
    tell("hidden_lock", anchor); tell("static inner_lock", local());
    tell("heap", heap); tell("stack", &heap); tell("thread", &thread_lock); tell("main", main);
    stay();
}
"#;

#[track_caller]
pub(super) fn observed(program: &Program, dirs: Vec<PathBuf>) -> Symbols {
    let mut symbols = Symbols::with_debug_dirs(dirs);
    symbols.observe(PROCESS, program.pid());
    assert_eq!(symbols.problems().collect::<Vec<_>>(), Vec::<&str>::new());
    symbols
}

/// Checks that every named lock of [`LOCKS`] has its name and that nothing else has one.
#[track_caller]
fn check_locks(symbols: &mut Symbols, program: &Program) {
    for name in ["data_lock", "bss_lock", "table", "table+0xc0", "huge+0x3ffffff", "hidden_lock"] {
        assert_eq!(symbols.global(lock(program.told(name))).as_deref(), Some(name));
    }
    let inner = symbols.global(lock(program.told("static inner_lock"))).unwrap();
    assert!(inner.starts_with("inner_lock"), "{inner}");
    let thread = symbols.global(lock(program.told("thread")));
    assert_eq!(thread.as_deref(), Some("thread_lock (thread-local)"));
    for unnamed in ["heap", "stack"] {
        assert_eq!(symbols.global(lock(program.told(unnamed))), None, "{unnamed}");
    }
}

#[track_caller]
pub(super) fn functions(symbols: &mut Symbols, addr: u64) -> Vec<String> {
    symbols.frames(PROCESS, addr).into_iter().map(|f| f.function.unwrap_or_default()).collect()
}

#[test]
fn global_locks_by_name() {
    let shop = Workshop::new();
    for options in [PIE, NO_PIE] {
        let Some(path) = shop.build("gcc", LOCKS, options) else { return };
        let program = Program::start(&path, &[]);
        let mut symbols = observed(&program, Vec::new());
        check_locks(&mut symbols, &program);
        assert_eq!(functions(&mut symbols, program.told("main") + 1), ["main"]);
    }
}

#[test]
fn names_outlive_the_process_and_its_files() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", LOCKS, PIE) else { return };
    let mut program = Program::start(&path, &[]);
    // Gone from its directory before the snapshot, and another file put in its place.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "not the program").unwrap();
    let mut symbols = observed(&program, Vec::new());
    program.end();
    symbols.refresh(PROCESS);
    check_locks(&mut symbols, &program);
    assert_eq!(functions(&mut symbols, program.told("main") + 1), ["main"]);
    assert_eq!(symbols.problems().count(), 0);
}

#[test]
fn a_process_that_was_never_seen_alive() {
    let mut symbols = Symbols::new();
    symbols.observe(PROCESS, u32::MAX);
    let problems: Vec<_> = symbols.problems().map(str::to_owned).collect();
    assert!(problems.len() == 1 && problems[0].starts_with("failed to read the mappings of process 4294967295: "));
    let frames = symbols.frames(PROCESS, 0x1234);
    assert_eq!(frames, [Frame { addr: 0x1234, ..Frame::default() }]);
    assert_eq!(symbols.frames(Process(7), 0), [Frame::default()]);
    assert_eq!(symbols.global(lock(0x1234)), None);
    assert_eq!(symbols.call_stack(PROCESS, &[1, 2, 3], Some(4)), [4, 2, 3]);
}

/// `lock_here` prints the place it returns to, `never_returns` is called by the last instruction of `last_call`.
const CALLS: &str = r#"
#include <setjmp.h>
static jmp_buf back;
static const char *what;
__attribute__((noinline)) void lock_here(void) { tell(what, __builtin_return_address(0)); __asm__ volatile(""); }
__attribute__((noinline, noreturn)) void never_returns(void) {
    tell("last", __builtin_return_address(0)); longjmp(back, 1);
}
#line 100 "calls.c"
static inline __attribute__((always_inline)) void cache_get(void) {
    lock_here();
}
static inline __attribute__((always_inline)) void request(void) {
    cache_get();
}
__attribute__((noinline)) void serve(void) {
    what = "inlined";
    request();
    __asm__ volatile("");
}
#line 200 "calls.c"
__attribute__((noinline)) void last_call(void) {
    never_returns();
}
__attribute__((noinline)) void after(void) { __asm__ volatile(""); }
int main(void) {
    serve();
    if (!setjmp(back)) last_call();
    after();
    stay();
}
"#;

#[track_caller]
fn lines(symbols: &mut Symbols, addr: u64) -> Vec<(String, bool, String)> {
    let frames = symbols.frames(PROCESS, addr);
    assert!(frames.iter().all(|f| f.addr == addr));
    let text = |f: Frame| f.location.map_or_else(String::new, |(file, line)| format!("{}:{line}", base(&file)));
    frames.into_iter().map(|f| (f.function.clone().unwrap_or_default(), f.inlined, text(f))).collect()
}

fn base(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[track_caller]
fn check_calls(symbols: &mut Symbols, program: &Program) {
    let frame = |function: &str, inlined, line: &str| (function.to_owned(), inlined, line.to_owned());
    let inlined = lines(symbols, program.told("inlined"));
    let expected = [
        frame("cache_get", true, "calls.c:101"),
        frame("request", true, "calls.c:104"),
        frame("serve", false, "calls.c:108"),
    ];
    assert_eq!(inlined, expected);
    assert_eq!(lines(symbols, program.told("last")), [frame("last_call", false, "calls.c:201")]);
}

#[test]
fn call_sites_with_inlined_functions_and_lines() {
    let shop = Workshop::new();
    for options in [PIE, NO_PIE] {
        let options = [options, &["-O2", "-g"]].concat();
        let Some(path) = shop.build("gcc", CALLS, &options) else { return };
        let program = Program::start(&path, &[]);
        check_calls(&mut observed(&program, Vec::new()), &program);
    }
}

#[test]
fn debug_files_by_build_id_and_by_link() {
    let shop = Workshop::new();
    let source = format!(
        "{}\n{}",
        LOCKS.replace("int main(void)", "void locks(void)"),
        CALLS.replace("serve();", "serve(); locks();")
    )
    .replace("tell(\"main\", main);\n    stay();", "");
    let options = |build_id| [PIE, &["-O2", "-g", build_id]].concat();
    for (build_id, by_link) in [("-Wl,--build-id=sha1", false), ("-Wl,--build-id=none", true)] {
        let Some(path) = shop.build("gcc", &source, &options(build_id)) else { return };
        let (debug, dirs) = (shop.path("away.debug"), shop.path(if by_link { "by-link" } else { "by-id" }));
        shop.tool("objcopy", &[Path::new("--only-keep-debug"), &path, &debug]);
        shop.tool("strip", &[&path]);
        let place = if by_link {
            shop.tool("objcopy", &[Path::new("--add-gnu-debuglink=away.debug"), &path]);
            dirs.join(path.parent().unwrap().strip_prefix("/").unwrap()).join("away.debug")
        } else {
            let id = elf::Layout::read(&fs::File::open(&path).unwrap()).unwrap().build_id.unwrap();
            let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            dirs.join(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..]))
        };
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::rename(&debug, &place).unwrap();

        let mut program = Program::start(&path, &[]);
        let mut bare = observed(&program, Vec::new());
        assert_eq!(bare.global(lock(program.told("hidden_lock"))), None);
        let site = program.told("inlined");
        let [frame] = &bare.frames(PROCESS, site)[..] else { panic!("one frame") };
        assert_eq!((&frame.function, &frame.location), (&None, &None));
        assert_eq!(frame.module.as_ref().unwrap().0, base(path.to_str().unwrap()));

        let mut symbols = observed(&program, vec![dirs.clone()]);
        program.end();
        assert_eq!(symbols.global(lock(program.told("table+0xc0"))).as_deref(), Some("table[4].lock"));
        assert_eq!(symbols.global(lock(program.told("static inner_lock"))).as_deref(), Some("local::inner_lock"));
        assert_eq!(symbols.global(lock(program.told("heap"))), None);
        check_calls(&mut symbols, &program);

        // The debug file of another build has the same locks, perhaps elsewhere: it is not used.
        let Some(other) = shop.build("gcc", &source, &[options(build_id), vec!["-DOTHER"]].concat()) else { return };
        shop.tool("objcopy", &[Path::new("--only-keep-debug"), &other, &place]);
        let program = Program::start(&path, &[]);
        assert_eq!(observed(&program, vec![dirs]).global(lock(program.told("hidden_lock"))), None);
    }
}

#[test]
fn a_library_loaded_later_and_unloaded_again() {
    let shop = Workshop::new();
    let library = "long plugin_lock[5]; void *plugin_probe(void) { return plugin_lock; }\
        static void *unused[2] __attribute__((used)) = { (void *)tell, (void *)stay };";
    let Some(library) = shop.build("gcc", library, &["-shared", "-fPIC", "-g"]) else { return };
    let host = r#"
#include <dlfcn.h>
int main(int argc, char **argv) {
    stay();
    void *handle = dlopen(argv[1], RTLD_NOW), *(*probe)(void) = (void *(*)(void))dlsym(handle, "plugin_probe");
    tell("lock", probe()); tell("function", probe);
    stay();
    dlclose(handle);
    stay();
}
"#;
    let Some(host) = shop.build("gcc", host, &["-ldl"]) else { return };
    let mut program = Program::start(&host, &[&library]);
    let mut symbols = observed(&program, Vec::new());
    program.resume();
    let (plugin, function) = (lock(program.told("lock")), program.told("function") + 1);
    assert_eq!(symbols.global(plugin), None);
    symbols.refresh(PROCESS);
    assert_eq!(symbols.global(plugin).as_deref(), Some("plugin_lock[0]"));
    assert_eq!(functions(&mut symbols, function), ["plugin_probe"]);
    program.resume();
    symbols.refresh(PROCESS);
    assert_eq!(symbols.global(plugin).as_deref(), Some("plugin_lock[0]"));
}

#[test]
fn another_program_under_the_same_pid() {
    let shop = Workshop::new();
    let first =
        "int first_lock; int main(int c, char **v) { tell(\"first_lock\", &first_lock); stay(); execv(v[1], v + 1); }";
    let second = "int second_lock; int main(void) { tell(\"second_lock\", &second_lock); stay(); }";
    let (Some(first), Some(second)) = (shop.build("gcc", first, NO_PIE), shop.build("gcc", second, NO_PIE)) else {
        return;
    };
    let mut program = Program::start(&first, &[&second]);
    let mut symbols = observed(&program, Vec::new());
    program.resume();
    symbols.refresh(PROCESS);
    let heir = Process(2);
    symbols.observe(heir, program.pid());
    assert_eq!(symbols.global(lock(program.told("first_lock"))).as_deref(), Some("first_lock"));
    assert_ne!(symbols.global(lock(program.told("second_lock"))).as_deref(), Some("second_lock"));
    let renamed = symbols.global(Lock { process: heir, addr: program.told("second_lock") });
    assert_eq!(renamed.as_deref(), Some("second_lock"));
}

#[test]
fn a_process_whose_main_thread_is_gone() {
    let shop = Workshop::new();
    let source = r#"
#include <pthread.h>
int shared_lock;
static pthread_t leader;
static void *other(void *arg) {
    pthread_join(leader, 0); usleep(200000);
    tell("shared_lock", &shared_lock); stay(); return arg;
}
int main(void) { pthread_t t; leader = pthread_self(); pthread_create(&t, 0, other, 0); pthread_exit(0); }
"#;
    let Some(path) = shop.build("gcc", source, &["-pthread"]) else { return };
    let program = Program::start(&path, &[]);
    assert!(fs::read(format!("/proc/{}/maps", program.pid())).unwrap_or_default().is_empty(), "the leader is gone");
    let mut symbols = observed(&program, Vec::new());
    assert_eq!(symbols.global(lock(program.told("shared_lock"))).as_deref(), Some("shared_lock"));
}

/// A child that loads a library at addresses of its own before its parent goes on.
const FORKED: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
int shared_lock;
int main(int argc, char **argv) {
    tell("shared_lock", &shared_lock); fflush(stdout);
    int pid = fork();
    if (pid) { sleep(1); tell("child", (void *)(long)pid); stay(); return 0; }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tell("later_lock", dlsym(dlopen(argv[1], RTLD_NOW), "later_lock"));
    fflush(stdout);
    pause();
}
"#;

#[test]
fn a_forked_process_has_its_parents_names_even_if_it_is_gone() {
    let shop = Workshop::new();
    let Some(library) = shop.build("gcc", "int later_lock;", &["-shared", "-fPIC"]) else { return };
    let Some(path) = shop.build("gcc", FORKED, PIE) else { return };
    let program = Program::start(&path, &[&library]);
    let mut symbols = observed(&program, Vec::new());
    let (gone, child, stranger) = (Process(7), Process(8), Process(9));
    let name = |symbols: &mut Symbols, process, at| symbols.global(Lock { process, addr: program.told(at) });
    symbols.observe_forked(gone, u32::MAX, PROCESS);
    assert_eq!(name(&mut symbols, gone, "shared_lock").as_deref(), Some("shared_lock"));
    symbols.refresh(gone);
    symbols.observe_forked(child, program.told("child") as u32, PROCESS);
    assert_eq!(name(&mut symbols, child, "shared_lock").as_deref(), Some("shared_lock"));
    // What it has loaded itself is known once it is looked at, and not of its parent.
    assert_eq!(name(&mut symbols, child, "later_lock"), None);
    symbols.refresh(child);
    assert_eq!(name(&mut symbols, child, "later_lock").as_deref(), Some("later_lock"));
    assert_eq!(name(&mut symbols, PROCESS, "later_lock"), None);
    assert_eq!(symbols.problems().count(), 0);
    // A parent that is not known gives nothing; the process itself is asked.
    symbols.observe_forked(stranger, std::process::id(), Process(99));
    assert!(symbols.loaded(stranger).count() > 0);
    // Another program has taken the pid: what that has is not the forked one's.
    let other = Process(10);
    symbols.observe_forked(other, std::process::id(), PROCESS);
    symbols.refresh(other);
    assert_eq!(symbols.loaded(other).count(), symbols.loaded(PROCESS).count());
}

#[test]
fn processes_of_one_image_are_read_once() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", FORKED, PIE) else { return };
    let program = Program::start(&path, &[Path::new("none.so")]);
    let mut symbols = observed(&program, Vec::new());
    symbols.observe(Process(2), program.told("child") as u32);
    assert_eq!(symbols.images.len(), 1);
    assert!(symbols.processes[&Process(2)].identity.is_some());
    let addr = program.told("shared_lock");
    assert_eq!(symbols.global(Lock { process: Process(2), addr }).as_deref(), Some("shared_lock"));
    let mut second = Program::start(&path, &[Path::new("none.so")]);
    symbols.observe(Process(3), second.pid());
    assert_eq!(symbols.images.len(), 2);
    second.end();
}

#[test]
fn a_program_in_another_mount_namespace() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", LOCKS, PIE) else { return };
    let (hidden, script) = (shop.path("hidden"), shop.path("enter.sh"));
    fs::create_dir(&hidden).unwrap();
    let text = "set -e; mount -t tmpfs none \"$1\"; cp \"$2\" \"$1/server\"; exec \"$1/server\"";
    fs::write(&script, text).unwrap();
    let may = std::process::Command::new("unshare").args(["-m", "true"]).output();
    if !may.as_ref().is_ok_and(|out| out.status.success()) {
        return crate::fixture::skipped(&format!("no mount namespaces for this user: {may:?}"));
    }
    let mut program = Program::start(Path::new("unshare"), &["-m".as_ref(), "sh".as_ref(), &script, &hidden, &path]);
    assert!(!hidden.join("server").exists());
    let mut symbols = observed(&program, Vec::new());
    program.end();
    check_locks(&mut symbols, &program);
}

#[test]
fn mangled_names() {
    let shop = Workshop::new();
    let cpp = r#"
#include <mutex>
#include <string>
namespace cache { std::mutex guard; struct Shard { static std::mutex lock; void get(const std::string &key); }; std::mutex Shard::lock; }
__attribute__((noinline)) void cache::Shard::get(const std::string &) { __asm__ volatile(""); }
int main() {
    cache::Shard().get("k");
    tell("cache::guard", &cache::guard); tell("cache::Shard::lock", &cache::Shard::lock);
    void (cache::Shard::*get)(const std::string &) = &cache::Shard::get; tell("get", *(void **)&get);
    stay();
}
"#;
    if let Some(path) = shop.build("g++", cpp, &["-O1"]) {
        let program = Program::start(&path, &[]);
        let mut symbols = observed(&program, Vec::new());
        for name in ["cache::guard", "cache::Shard::lock"] {
            assert_eq!(symbols.global(lock(program.told(name))).as_deref(), Some(name));
        }
        assert_eq!(functions(&mut symbols, program.told("get") + 1), ["cache::Shard::get"]);
    }
    let rust = r#"
use std::sync::Mutex;
mod cache { pub static TABLE: super::Mutex<u64> = super::Mutex::new(0); #[inline(never)] pub fn get() -> u64 { *TABLE.lock().unwrap() } }
fn main() {
    println!("TABLE {:x}\nget {:x}\nready {}", &cache::TABLE as *const _ as usize, cache::get as fn() -> u64 as usize, cache::get());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
"#;
    for mangling in [&[][..], &["-C", "symbol-mangling-version=v0"]] {
        let options = [&["--crate-name", "store"], mangling].concat();
        let Some(path) = shop.build("rustc", rust, &options) else { return };
        let program = Program::start(&path, &[]);
        let mut symbols = observed(&program, Vec::new());
        assert_eq!(symbols.global(lock(program.told("TABLE"))).as_deref(), Some("store::cache::TABLE"));
        assert_eq!(functions(&mut symbols, program.told("get") + 1).last().unwrap(), "store::cache::get");
    }
}

#[test]
fn generated_code() {
    let shop = Workshop::new();
    let source = r#"
#include <stdlib.h>
#include <sys/mman.h>
int main(void) {
    char name[64], *code = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "garbage\n%lx 40 JIT:handle request\n\xff\xfe\nzz", (unsigned long)code);
    fflush(map); tell("code", code); stay();
    fprintf(map, "\n%lx 40 JIT:later\n", (unsigned long)code + 0x100);
    fclose(map); stay();
    unlink(name); stay();
}
"#;
    let Some(path) = shop.build("gcc", source, &[]) else { return };
    let mut program = Program::start(&path, &[]);
    let mut symbols = observed(&program, Vec::new());
    let code = program.told("code");
    program.resume();
    assert_eq!(functions(&mut symbols, code + 0x40), ["JIT:handle request"]);
    assert_eq!(functions(&mut symbols, code + 0x110), [""]);
    symbols.refresh(PROCESS);
    assert_eq!(functions(&mut symbols, code + 0x110), ["JIT:later"]);
    program.resume();
    program.end();
    symbols.refresh(PROCESS);
    assert_eq!(functions(&mut symbols, code + 0x40), ["JIT:handle request"]);
    assert_eq!(symbols.call_stack(PROCESS, &[code + 0x1000, 0x10], None), [code + 0x1000]);
}

#[test]
fn ten_thousand_addresses_of_a_large_program() {
    // This test's own program: were it parsed for each address, the test would not end.
    let mut symbols = Symbols::new();
    symbols.observe(PROCESS, std::process::id());
    let start = ten_thousand_addresses_of_a_large_program as fn() as usize as u64;
    // Between the places where functions begin: as return addresses those belong to what is before, which may be padding.
    let addresses = (0..10_000).map(|i| start + i * 16 + 8);
    let named = addresses.filter(|&at| symbols.frames(PROCESS, at).iter().any(|f| f.function.is_some())).count();
    assert!(named > 9_000, "{named} of 10,000 addresses have a name");
}

#[test]
fn futex_stacks_lead_with_the_program() {
    let shop = Workshop::new();
    let source = r#"
#include <dlfcn.h>
#include <sys/syscall.h>
__attribute__((noinline)) void worker(void) { __asm__ volatile(""); }
int main(void) {
    tell("worker", worker); tell("main", main);
    tell("syscall", dlsym(RTLD_DEFAULT, "syscall")); tell("qsort", dlsym(RTLD_DEFAULT, "qsort"));
    tell("pthread_mutex_lock", dlsym(RTLD_DEFAULT, "pthread_mutex_lock"));
    stay();
}
"#;
    let Some(path) = shop.build("gcc", source, &["-ldl"]) else { return };
    let program = Program::start(&path, &[]);
    let mut symbols = observed(&program, Vec::new());
    let [worker, main, syscall, qsort, mutex] =
        ["worker", "main", "syscall", "qsort", "pthread_mutex_lock"].map(|name| program.told(name) + 1);
    assert_eq!(symbols.call_stack(PROCESS, &[syscall, qsort, worker, main], None), [worker, main]);
    assert_eq!(symbols.call_stack(PROCESS, &[mutex, main, 0x10], Some(worker)), [worker, main]);
    assert_eq!(symbols.call_stack(PROCESS, &[syscall, mutex, main], Some(worker)), [worker, main]);
    assert_eq!(symbols.call_stack(PROCESS, &[mutex, qsort, main], Some(worker)), [worker, qsort, main]);
}

#[test]
fn damaged_files_are_no_panic() {
    let shop = Workshop::new();
    let source = format!("{CALLS}\nint global_lock;");
    let Some(path) = shop.build("gcc", &source, &["-O2", "-g"]) else { return };
    let intact = fs::read(&path).unwrap();
    // A fixed sequence of pseudo-random positions, denser in the headers at both ends.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for round in 0..60 {
        let mut bytes = intact.clone();
        for _ in 0..1 + round % 8 {
            let at = match random(4) {
                0 => random(1024),
                1 => bytes.len() - 1 - random(3000),
                _ => random(bytes.len()),
            };
            bytes[at] = random(256) as u8;
        }
        if round % 16 == 0 {
            bytes.truncate(random(intact.len()));
        }
        let damaged = shop.path("damaged");
        fs::write(&damaged, &bytes).unwrap();
        let file = fs::File::open(&damaged).unwrap();
        let (globals, _) = globals::Globals::read([&file]);
        let Ok(layout) = elf::Layout::read(&file) else { continue };
        let object = files::ObjectFile { name: "damaged".into(), file, debug: None, shared_debug: None, layout };
        let mut resolver = resolver::Resolver::new(&[]);
        for addr in (0..0x5000).step_by(41) {
            resolver.frames(files::FileId::FIRST, &object, addr, false);
            globals.at(addr);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_c_library_in_a_stripped_program_is_known_by_its_code() {
    const SOURCE: &str = r#"
#include <pthread.h>
#include <time.h>
pthread_mutex_t lock;
int main(void) {
    pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock);
    tell("lock", pthread_mutex_lock); tell("sleep", clock_nanosleep); tell("main", main); stay();
}
"#;
    let workshop = Workshop::new();
    for (options, bare) in [(&["-static", "-s"][..], true), (&["-static"], false), (&["-s"], false)] {
        let Some(path) = workshop.build("cc", SOURCE, options) else { return };
        assert_eq!(elf::Layout::read(&fs::File::open(&path).unwrap()).unwrap().is_bare, bare, "{options:?}");
        if !bare {
            continue;
        }
        let program = Program::start(&path, &[]);
        let mut symbols = observed(&program, Vec::new());
        let [locks, sleeps, main] = ["lock", "sleep", "main"].map(|name| program.told(name));
        assert_eq!(symbols.role(PROCESS, locks + 1), Role::Locking);
        assert!(!symbols.is_caller(PROCESS, locks + 1) && symbols.is_own_code(PROCESS, locks + 1));
        assert_eq!(symbols.role(PROCESS, main + 1), Role::Program);
        assert!(symbols.is_caller(PROCESS, main + 1));
        assert_eq!(functions(&mut symbols, sleeps + 1), [""]);
        let calls: BTreeSet<String> = (sleeps..sleeps + 0x100).flat_map(|at| functions(&mut symbols, at)).collect();
        assert!(calls.contains("clock_nanosleep (system call)"), "{calls:?}");
    }
}
