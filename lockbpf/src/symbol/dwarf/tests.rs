//! Paths in real programs: each program prints the addresses of its locks under the names that they should get.

use super::super::elf::Layout;
use super::super::files::{FileId, ObjectFile};
use super::super::fixture::{PROCESS, Program, Workshop, lock};
use super::super::{Kind, Symbols};
use super::{DwarfError, Storage, Types};
use crate::id::Site;
use crate::names::Names;
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const C: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
struct shard { long hits; pthread_mutex_t lock; struct { int depth; pthread_rwlock_t nested; }; };
typedef struct shard shard_t;
struct cache { char name[24]; const shard_t shards[4]; union { long raw; mtx_t tables; }; sem_t permits[2][3]; struct cache *next; int flag; };
static struct cache cache;
struct cache caches[2];
pthread_mutex_t plain;
static volatile pthread_cond_t conditions[3];
union { pthread_mutex_t one; struct { long before; pthread_mutex_t two; } other; } both;
union { int word; float other; } ambiguous;
struct tail { int n; pthread_mutex_t locks[]; };
struct tail tail = { 1, { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER } };
__attribute__((noinline)) static void *function(int nth) {
    static pthread_mutex_t inner;
    static struct { int x; pthread_mutex_t lock; } pair;
    return nth ? (void *)&pair.lock : &inner;
}
__attribute__((noinline)) static void *another(void) { { static pthread_mutex_t inner; return &inner; } }
int main(void) {
    tell("cache.shards[3].lock", &cache.shards[3].lock); tell("cache.shards[0].hits", &cache.shards[0].hits);
    tell("cache.shards[1].nested", &cache.shards[1].nested); tell("cache.tables", &cache.tables);
    tell("cache.permits[1][2]", &cache.permits[1][2]); tell("cache.next", &cache.next); tell("cache.flag", &cache.flag);
    tell("cache.name[5]", &cache.name[5]); tell("caches[1].shards[2].lock", &caches[1].shards[2].lock);
    tell("plain", &plain); tell("plain+0x8", (char *)&plain + 8); tell("conditions[2]", (void *)&conditions[2]);
    tell("conditions[1]+0x8", (char *)&conditions[1] + 8);
    tell("both.one", &both.one); tell("ambiguous", &ambiguous); tell("tail.locks[1]", &tail.locks[1]);
    tell("function::inner", function(0)); tell("function::pair.lock", function(1)); tell("another::inner", another());
    stay();
}
"#;

const CPP: &str = r#"
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
struct Guarded { virtual ~Guarded() {} long before; std::mutex lock; };
namespace store {
struct Shard : Guarded { long hits; std::shared_mutex tables; static std::mutex shared; };
std::mutex Shard::shared;
template <typename T> struct Pool { T items[4]; std::recursive_mutex lock; };
Pool<Shard> pool;
namespace { std::mutex hidden; }
Shard single;
std::condition_variable ready;
__attribute__((noinline)) void *work() { static std::mutex once; return &once; }
}
int main() {
    tell("store::pool.items[2].lock", &store::pool.items[2].lock); tell("store::pool.lock", &store::pool.lock);
    tell("store::pool.items[3].tables", &store::pool.items[3].tables); tell("store::single.lock", &store::single.lock);
    tell("store::Shard::shared", &store::Shard::shared); tell("store::ready", &store::ready);
    tell("store::(anonymous namespace)::hidden", &store::hidden); tell("store::work()::once", store::work());
    stay();
}
"#;

const RUST: &str = r#"
use std::sync::{Condvar, Mutex, OnceLock, RwLock};
pub struct Shard { pub hits: u64, pub lock: Mutex<Vec<u8>>, pub inner: Mutex<Option<Deep>> }
pub struct Deep { pub word: u64, pub lock: RwLock<u8> }
pub struct Cache { pub name: [u8; 24], pub shards: [Shard; 3], pub idle: (u8, Condvar) }
const SHARD: Shard = Shard { hits: 0, lock: Mutex::new(Vec::new()), inner: Mutex::new(None) };
pub static CACHE: Cache = Cache { name: [0; 24], shards: [SHARD, SHARD, SHARD], idle: (0, Condvar::new()) };
pub static PLAIN: Mutex<u64> = Mutex::new(7);
pub static LATE: OnceLock<Cache> = OnceLock::new();
fn at<T>(name: &str, lock: &T) { println!("{name} {:x}", lock as *const T as usize); }
fn local() -> &'static Mutex<u32> { static LOCAL: Mutex<u32> = Mutex::new(1); &LOCAL }
fn main() {
    at("store::CACHE.shards[2].lock", &CACHE.shards[2].lock); at("store::CACHE.idle.1", &CACHE.idle.1);
    at("store::PLAIN", &PLAIN); at("store::local::LOCAL", local());
    let late = LATE.get_or_init(|| Cache { name: [0; 24], shards: [SHARD, SHARD, SHARD], idle: (0, Condvar::new()) });
    at("store::LATE.shards[1].lock", &late.shards[1].lock);
    *CACHE.shards[1].inner.lock().unwrap() = Some(Deep { word: 1, lock: RwLock::new(1) });
    println!("ready 0");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
"#;

#[track_caller]
fn check(symbols: &mut Symbols, program: &Program) {
    let mut count = 0;
    for (name, addr) in program.all() {
        assert_eq!(symbols.global(lock(addr)).as_deref(), Some(name));
        count += 1;
    }
    assert!(count > 4, "{count} names");
    assert_eq!(symbols.problems().collect::<Vec<_>>(), Vec::<&str>::new());
}

#[track_caller]
fn check_program(path: &Path, dirs: &[PathBuf]) {
    let program = Program::start(path, &[]);
    let mut symbols = Symbols::with_debug_dirs(dirs.to_vec());
    symbols.observe(PROCESS, program.pid());
    check(&mut symbols, &program);
}

#[test]
fn members_of_c_structures() {
    let shop = Workshop::new();
    for options in [
        &["-g", "-pthread"][..],
        &["-g", "-pthread", "-O2", "-no-pie", "-fno-pie"],
        &["-gdwarf-4", "-pthread", "-fdebug-types-section"],
        &["-gdwarf-2", "-pthread"],
        &["-gdwarf-5", "-pthread", "-fdebug-types-section"],
        &["-g", "-gz", "-pthread"],
        &["-g", "-flto", "-pthread"],
    ] {
        let Some(path) = shop.build("gcc", C, options) else { return };
        eprintln!("{options:?}");
        check_program(&path, &[]);
    }
}

#[test]
fn members_of_cpp_classes() {
    let shop = Workshop::new();
    for options in [&["-g"][..], &["-g", "-O2"], &["-g", "-fdebug-types-section"]] {
        let Some(path) = shop.build("g++", CPP, options) else { return };
        eprintln!("{options:?}");
        check_program(&path, &[]);
    }
}

#[test]
fn members_of_rust_structures() {
    let shop = Workshop::new();
    for options in [&[][..], &["-C", "opt-level=2"], &["-C", "dwarf-version=5"]] {
        let base = ["--crate-name", "store", "-g", "-C", "symbol-mangling-version=v0"];
        let Some(path) = shop.build("rustc", RUST, &[&base[..], options].concat()) else { return };
        eprintln!("{options:?}");
        check_program(&path, &[]);
    }
}

#[test]
fn locks_by_the_names_that_reports_give_them() {
    let shop = Workshop::new();
    let Some(path) = shop.build("gcc", C, &["-g", "-pthread"]) else { return };
    let program = Program::start(&path, &[]);
    let mut symbols = Symbols::with_debug_dirs(Vec::new());
    symbols.observe(PROCESS, program.pid());
    for name in ["cache.shards[3].lock", "caches[1].shards[2].lock", "function::inner", "function::pair.lock", "plain"]
    {
        assert_eq!(symbols.find_member(PROCESS, name), [lock(program.told(name))], "{name}");
    }
    assert!(symbols.find_member(PROCESS, "cache.shards[4].lock").is_empty());
    assert!(symbols.find_member(PROCESS, "").is_empty() && symbols.find(PROCESS, Kind::Variable, "cache.").is_empty());
}

/// The parser is kept from panicking by a guard; it must not need one.
#[test]
fn damaged_debug_information_is_no_panic() {
    let shop = Workshop::new();
    for options in [&["-g", "-pthread"][..], &["-gdwarf-4", "-pthread", "-fdebug-types-section"]] {
        let Some(path) = shop.build("gcc", C, options) else { return };
        let program = Program::start(&path, &[]);
        let intact = fs::read(&path).unwrap();
        let elf = object::File::parse(&*intact).unwrap();
        let of_debug = elf.sections().filter(|section| section.name().unwrap_or_default().starts_with(".debug_"));
        let ranges: Vec<_> = of_debug.filter_map(|section| section.file_range()).collect();
        let layout = Layout::read(&File::open(&path).unwrap()).unwrap();
        let extent = layout.extent();
        let addresses: Vec<_> = program.all().map(|(_, addr)| addr).collect();
        let base = addresses.iter().min().unwrap();
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below.max(1)
        };
        let mut named = 0;
        for round in 0..150 {
            let mut bytes = intact.clone();
            for _ in 0..1 + round % 12 {
                let (start, size) = ranges[random(ranges.len() as u64) as usize];
                bytes[(start + random(size)) as usize] = random(256) as u8;
            }
            let damaged = shop.path("damaged");
            fs::write(&damaged, &bytes).unwrap();
            let file = File::open(&damaged).unwrap();
            let object = ObjectFile { name: "d".into(), file, debug: None, shared_debug: None, layout: layout.clone() };
            let mut types = Types::default();
            for symbol in elf.symbols().filter(|symbol| extent.contains(&symbol.address())) {
                for offset in addresses.iter().map(|addr| addr - base).chain([0, 24, 200]) {
                    match types.variable(FileId::FIRST, &object, (Storage::Static, symbol.address()), offset) {
                        Ok(variable) => named += usize::from(variable.is_some()),
                        Err(error) => assert!(!matches!(error, DwarfError::Damaged), "round {round}: {error}"),
                    }
                }
            }
        }
        assert!(named > 1_000, "{named} names in damaged files");
    }
}

/// Sections that lock what only their callers know; `lock_here` prints where the call of the lock function returns to.
const OBJECTS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
struct queue { long n; pthread_mutex_t guard; };
struct session { long id; struct { int x; pthread_mutex_t lock; } state; struct queue queue; pthread_rwlock_t table; };
#define NAMED __attribute__((noipa))
NAMED int by_parameter(struct session *s) { int e = pthread_mutex_lock(&s->state.lock); s->id++; pthread_mutex_unlock(&s->state.lock); return e; }
NAMED static int by_member(struct session *s, long k) { int e = 0; for (long i = 0; i < k; i++) { e |= pthread_mutex_lock(&s->queue.guard); s->queue.n += e; pthread_mutex_unlock(&s->queue.guard); } return e; }
static inline int enqueue(struct queue *q) { int e = pthread_mutex_lock(&q->guard); q->n++; pthread_mutex_unlock(&q->guard); return e; }
NAMED static int inlined(struct session *s) { return enqueue(&s->queue); }
NAMED struct session *made(long id) { struct session *s = calloc(1, sizeof *s); s->id = id; pthread_rwlock_init(&s->table, 0); pthread_rwlock_wrlock(&s->table); pthread_rwlock_unlock(&s->table); return s; }
NAMED int bare(pthread_mutex_t *m) { int e = pthread_mutex_lock(m); pthread_mutex_unlock(m); return e; }
NAMED int either(struct session *s, struct queue *q) { pthread_mutex_t *m = q ? &q->guard : &s->state.lock; int e = pthread_mutex_lock(m); pthread_mutex_unlock(m); return e; }
NAMED int indirect(struct session **s) { int e = pthread_mutex_lock(&(*s)->state.lock); pthread_mutex_unlock(&(*s)->state.lock); return e; }
int main(void) {
    struct session *s = made(1);
    tell("by_parameter", by_parameter); tell("by_member", by_member); tell("inlined", inlined); tell("made", made);
    tell("bare", bare); tell("either", either); tell("indirect", indirect);
    by_parameter(s); by_member(s, 3); inlined(s); bare(&s->state.lock); either(s, 0); indirect(&s);
    stay();
}
"#;

/// The member of every lock call that a function makes.
fn members(symbols: &mut Symbols, program: &Program, function: &str) -> Vec<String> {
    let start = program.told(function);
    let sites = (start..start + 400).map(|addr| Site { process: PROCESS, addr });
    let inside = |symbols: &mut Symbols, site: Site| {
        let frames = symbols.frames(PROCESS, site.addr);
        frames.last().is_some_and(|frame| frame.function.as_deref() == Some(function))
    };
    sites.filter_map(|site| symbols.member(site).filter(|_| inside(symbols, site))).collect()
}

#[test]
fn members_of_objects_by_the_code_that_locks_them() {
    let shop = Workshop::new();
    for options in [&["-g", "-O2"][..], &["-g", "-O1", "-no-pie", "-fno-pie"], &["-gdwarf-4", "-O3"], &["-g", "-Os"]] {
        let Some(path) = shop.build("gcc", OBJECTS, &[options, &["-pthread"]].concat()) else { return };
        eprintln!("{options:?}");
        let program = Program::start(&path, &[]);
        let mut symbols = Symbols::with_debug_dirs(Vec::new());
        symbols.observe(PROCESS, program.pid());
        for (function, member) in [
            ("by_parameter", Some("session.state.lock")),
            ("by_member", Some("session.queue.guard")),
            ("inlined", Some("session.queue.guard")),
            ("made", Some("session.table")),
            ("bare", None),
            ("either", None),
        ] {
            let found = members(&mut symbols, &program, function);
            assert!(!found.is_empty() || member.is_none(), "{function}");
            assert!(found.iter().all(|found| Some(found.as_str()) == member), "{function}: {found:?}");
        }
        // Through a pointer in memory: perhaps not found, but never as something else.
        let indirect = members(&mut symbols, &program, "indirect");
        assert!(indirect.iter().all(|found| found == "session.state.lock"), "{indirect:?}");
        assert_eq!(symbols.problems().count(), 0);
    }
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
struct arena { long n; pthread_mutex_t locks[2]; };
static __thread char before[100];
static __thread struct arena arena;
__thread pthread_mutex_t plain;
static void *worker(void *name) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    char text[64];
    before[3] = 1;
    snprintf(text, sizeof text, "arena.locks[1] (thread-local) %s", (char *)name); tell(text, &arena.locks[1]);
    snprintf(text, sizeof text, "plain (thread-local) %s", (char *)name); tell(text, &plain);
    snprintf(text, sizeof text, "stack %s", (char *)name); tell(text, &own);
    pause();
    return 0;
}
int main(void) {
    pthread_t t; void *heap = malloc(100), *large = malloc(1 << 20);
    tell("heap small", heap); tell("heap large", large); tell("heap end", (char *)large + (1 << 20) - 64);
    for (int i = 0; i < 3; i++) { pthread_create(&t, 0, worker, (void *)(i ? i > 1 ? "c" : "b" : "a")); usleep(20000); }
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER; tell("stack main", &own);
    tell("arena.locks[1] (thread-local) main", &arena.locks[1]); tell("plain (thread-local) main", &plain);
    stay();
}
"#;

#[test]
fn thread_local_variables_and_stacks() {
    let shop = Workshop::new();
    for options in [&["-g"][..], &["-g", "-O2", "-no-pie", "-fno-pie"], &["-g", "-static"]] {
        let Some(path) = shop.build("gcc", THREADS, &[options, &["-pthread"]].concat()) else { return };
        eprintln!("{options:?}");
        let program = Program::start(&path, &[]);
        let mut symbols = Symbols::with_debug_dirs(Vec::new());
        symbols.observe(PROCESS, program.pid());
        for (told, addr) in program.all() {
            let name = symbols.global(lock(addr));
            match told.rsplit_once(' ').unwrap() {
                ("stack", _) => assert!(name.is_none() && symbols.is_on_stack(lock(addr)), "{told}: {name:?}"),
                ("heap", _) => assert!(name.is_none() && !symbols.is_on_stack(lock(addr)), "{told}: {name:?}"),
                (variable, _) => {
                    assert_eq!((name.as_deref(), symbols.is_on_stack(lock(addr))), (Some(variable), false))
                }
            }
        }
        assert_eq!(symbols.problems().count(), 0);
    }
}

/// A member of a large program: this test's own, of which the debug information takes some 200 MB.
#[test]
fn a_member_in_a_large_program() {
    static LOCKS: [(u64, std::sync::Mutex<u8>); 3] = [const { (0, std::sync::Mutex::new(0)) }; 3];
    let addr = std::ptr::from_ref(&LOCKS[2].1).addr() as u64;
    let mut symbols = Symbols::with_debug_dirs(Vec::new());
    symbols.observe(PROCESS, std::process::id());
    let began = std::time::Instant::now();
    let name = symbols.global(lock(addr)).unwrap();
    eprintln!("{name}: {:?}, the next ones {:?}", began.elapsed(), {
        let began = std::time::Instant::now();
        for (_, other) in &LOCKS {
            symbols.global(lock(std::ptr::from_ref(other).addr() as u64)).unwrap();
        }
        began.elapsed() / 3
    });
    let status = fs::read_to_string("/proc/self/status").unwrap();
    eprintln!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    assert!(name.ends_with("LOCKS[2].1"), "{name}");
    assert_eq!(symbols.problems().count(), 0);
}
