//! The processes that read files of observed programs die, hang or are stopped: the observation goes on, its probes leave in time, the report comes.

#[cfg(target_arch = "x86_64")]
use super::hostile::reader;
use super::hostile::{IN_TIME, Target, Trap};
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::process::{children, eventually};
use crate::harness::text::modified_bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

/// A program that is observed, and the processes that have read its files for that, which got a signal since.
fn signalled(signal: Signal) -> (Trap, Target, Observer) {
    let trap = Trap::build(&["-g"]);
    let target = trap.start(&[]);
    let observer = Observer::start(&["--pid", &target.pid()]);
    let own = observer.running.pid();
    eventually("files were read", || !children(own, "reader").is_empty());
    eventually("probes are in place", || modified_bytes(target.0.id()) > 0);
    for reader in children(own, "reader") {
        kill(Pid::from_raw(reader), signal).expect("it is ours");
    }
    (trap, target, observer)
}

#[test]
fn whoever_reads_files_may_die_at_any_time() {
    let Some(_turn) = may_observe() else { return };
    let (_trap, _target, observer) = signalled(Signal::SIGKILL);
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    observer.interrupt();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(began.elapsed() < IN_TIME);
    assert!(outcome.stdout.contains("the process that reads such files"), "{}", outcome.stdout);
}

/// Like [`SOURCE`]; maps the file that is named as argument as code when it gets a signal.
const LATE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
pthread_mutex_t trap_lock = PTHREAD_MUTEX_INITIALIZER;
const char *library;
void map(int signal) { mmap(0, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(library, O_RDONLY), 0); }
void *trapped(void *arg) {
    for (;;) { pthread_mutex_lock(&trap_lock); usleep(2000); pthread_mutex_unlock(&trap_lock); }
}
int main(int argc, char **argv) {
    library = argv[1];
    signal(SIGUSR1, map);
    pthread_t t; pthread_create(&t, 0, trapped, 0); trapped(0);
}
"#;

/// Observes a program that loads a C library of its own, while `hinder` does something to the processes that are to find functions in it. What
/// the report says.
fn hindered(size: u64, hinder: impl Fn(&[i32]) -> bool) -> String {
    let trap = Trap::of(LATE, &["-g"]);
    let (library, own) = (trap.path("libc.so.6"), fs::read_to_string("/proc/self/maps").expect("own mappings"));
    let c_library = own.split_whitespace().find(|word| word.contains("/libc.so")).expect("tests run on a C library");
    fs::copy(c_library, &library).expect("failed to copy a library");
    // Nothing, at its end: it takes its time to be read.
    OpenOptions::new().write(true).open(&library).and_then(|file| file.set_len(size)).expect("failed to grow a file");
    let target = trap.start(&[&library]);
    let observer = Observer::start(&["--pid", &target.pid()]);
    let own = observer.running.pid();
    eventually("files were looked into", || !children(own, "--probes").is_empty());
    std::thread::sleep(Duration::from_secs(1));
    let loads = || kill(Pid::from_raw(target.0.id().cast_signed()), Signal::SIGUSR1).expect("it is ours");
    let until = Instant::now() + IN_TIME;
    let mut has_loaded = false;
    while Instant::now() < until && !hinder(&children(own, "--probes")) {
        if !std::mem::replace(&mut has_loaded, true) {
            loads();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    observer.interrupt();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("trap_lock"), "{}", outcome.stdout);
    let mut target = target;
    assert!(target.0.try_wait().expect("a status").is_none(), "it runs on");
    outcome.stdout
}

/// Whoever looks for functions in a library may never come to an end: the observation goes on without.
#[test]
fn a_library_that_holds_up_whoever_places_probes() {
    let Some(_turn) = may_observe() else { return };
    let stopped = std::cell::RefCell::new(Vec::new());
    let report = hindered(0x20_0000, |readers| {
        let mut stopped = stopped.borrow_mut();
        if stopped.is_empty() {
            for &reader in readers {
                kill(Pid::from_raw(reader), Signal::SIGSTOP).expect("it is ours");
                stopped.push(reader);
            }
        }
        // Until lockbpf has given them up.
        !stopped.is_empty() && !readers.iter().any(|reader| stopped.contains(reader))
    });
    assert!(report.contains("its file could not be read: it took more than 10 s"), "{report}");
}

/// Whoever looks for functions in a library may die of it, each time.
#[test]
fn a_library_that_ends_whoever_places_probes() {
    let Some(_turn) = may_observe() else { return };
    let first = std::cell::OnceCell::new();
    let report = hindered(480 << 20, |readers| {
        for &reader in readers {
            first.get_or_init(Instant::now);
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(reader), Signal::SIGKILL);
        }
        first.get().is_some_and(|first| first.elapsed() > Duration::from_secs(6))
    });
    assert!(report.contains("process that reads such files"), "{report}");
}

/// Whoever reads names hangs while the user wants an end: the probes leave all the same, and the report comes without these names.
#[test]
fn an_end_while_files_are_read() {
    let Some(_turn) = may_observe() else { return };
    let (_trap, target, observer) = signalled(Signal::SIGSTOP);
    // There has to be something that wants a name.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    observer.interrupt();
    eventually("the probes are gone", || modified_bytes(target.0.id()) == 0);
    let outcome = observer.outcome();
    assert!(began.elapsed() < IN_TIME);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("it took more than"), "{}", outcome.stdout);
}

/// Has a process make a system call wherever it waits for one, and returns the result. Its own one is given up for that.
#[cfg(target_arch = "x86_64")]
fn made(pid: Pid, call: libc::c_long, arguments: [u64; 3]) -> i64 {
    use nix::sys::ptrace;
    use nix::sys::wait::waitpid;
    let mut registers = ptrace::getregs(pid).expect("it is stopped");
    // The instruction that it waits in is made once more: it has two bytes.
    registers.rip -= 2;
    // Nothing is to be begun again.
    (registers.orig_rax, registers.rax) = (u64::MAX, call.cast_unsigned());
    [registers.rdi, registers.rsi, registers.rdx] = arguments;
    ptrace::setregs(pid, registers).expect("it is stopped");
    ptrace::step(pid, None).expect("it is stopped");
    waitpid(pid, None).expect("it is ours");
    ptrace::getregs(pid).expect("it lives").rax.cast_signed()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn who_reads_files_may_make_no_other_call() {
    use nix::sys::ptrace;
    use nix::sys::wait::waitpid;
    let Some(_turn) = may_observe() else { return };
    let (socket, mut reader) = reader();
    let path = |what: &str| format!("/proc/{}/{what}", reader.id());
    let status = || fs::read_to_string(path("status")).unwrap_or_default();
    let waits = || fs::read_to_string(path("syscall")).is_ok_and(|call| !call.starts_with("running"));
    eventually("it is confined, and waits", || status().contains("Seccomp:\t2") && waits());
    let pid = Pid::from_raw(reader.id().cast_signed());
    ptrace::attach(pid).expect("root may");
    waitpid(pid, None).expect("it is ours");
    // One that it may make.
    assert_eq!(made(pid, libc::SYS_read, [u64::MAX, 0, 0]), -i64::from(libc::EBADF));
    // What opens a file by its path is answered by a handler, and leads to the file that is lent.
    for (name, call) in [
        ("socket", libc::SYS_socket),
        ("openat2", libc::SYS_openat2),
        ("execve", libc::SYS_execve),
        ("fork", libc::SYS_fork),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("kill", libc::SYS_kill),
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("setuid", libc::SYS_setuid),
        ("mount", libc::SYS_mount),
        ("unlink", libc::SYS_unlink),
        ("prctl", libc::SYS_prctl),
    ] {
        assert_eq!(made(pid, call, [0, 0, 0]), -i64::from(libc::EPERM), "{name}");
    }
    reader.kill().expect("it is ours");
    reader.wait().expect("it ends");
    drop(socket);
}
