//! Programs that set traps for whoever reads their files: the observation goes on, its probes leave in time, the report comes.

use crate::harness::may_observe;
use crate::harness::observer::{lockbpf, run, run_command};
use crate::harness::privilege::{is_root, skipped};
use crate::harness::process::eventually;
use lockbpf::sandbox::socket;
use object::{Object, ObjectSection};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Two threads that wait for each other's lock; a file that is named as argument is mapped as code.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifndef NAME
#define NAME "trap"
#endif
pthread_mutex_t trap_lock = PTHREAD_MUTEX_INITIALIZER;
void *trapped(void *arg) {
    prctl(PR_SET_NAME, NAME);
    for (;;) { pthread_mutex_lock(&trap_lock); usleep(2000); pthread_mutex_unlock(&trap_lock); }
}
int main(int argc, char **argv) {
    if (argc > 1) mmap(0, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
    pthread_t t; pthread_create(&t, 0, trapped, 0); trapped(0);
}
"#;

/// How long an observation of half a second may take, with all that a file can hold it up.
pub(super) const IN_TIME: Duration = Duration::from_secs(30);

pub(super) struct Trap {
    dir: TempDir,
    pub(super) program: PathBuf,
}

impl Trap {
    pub(super) fn build(options: &[&str]) -> Self {
        Self::of(SOURCE, options)
    }

    pub(super) fn of(text: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (source, program) = (dir.path().join("trap.c"), dir.path().join("trap"));
        fs::write(&source, text).expect("failed to write a source text");
        let status = Command::new("gcc").args(options).arg("-pthread").arg("-o").args([&program, &source]).status();
        assert!(status.expect("failed to run gcc").success());
        Self { dir, program }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tool(&self, name: &str, arguments: &[&str]) {
        let status = Command::new(name).args(arguments).current_dir(self.dir.path()).status();
        assert!(status.expect("failed to run a tool").success(), "{name} {arguments:?}");
    }

    pub(super) fn start(&self, arguments: &[&Path]) -> Target {
        Target(Command::new(&self.program).args(arguments).spawn().expect("failed to start a program"))
    }
}

pub(super) struct Target(pub(super) Child);

impl Target {
    pub(super) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Observes for half a second; what the report says.
fn observed(target: &Target) -> String {
    let began = Instant::now();
    let outcome = run(&["--pid", &target.pid(), "--duration", "500ms"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    outcome.stdout
}

fn status(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// The process that reads files, and the socket over which it is asked.
pub(super) fn reader() -> (UnixStream, Child) {
    let (socket, its) = UnixStream::pair().expect("a pair of sockets");
    let mut command = lockbpf();
    let reader = command
        .arg("reader")
        .env(lockbpf::helper::VARIABLE, "1")
        .stdin(OwnedFd::from(its))
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    (socket, reader)
}

#[test]
fn who_reads_files_of_others_may_do_nothing_else() {
    let (socket, mut reader) = reader();
    eventually("it is confined", || status(reader.id()).contains("Seccomp:\t2"));
    let told = status(reader.id());
    for none in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        assert!(told.lines().any(|line| line.starts_with(none) && line.ends_with("\t0000000000000000")), "{told}");
    }
    assert!(told.contains("NoNewPrivs:\t1"), "{told}");
    let limits = fs::read_to_string(format!("/proc/{}/limits", reader.id())).expect("its limits");
    for line in ["Max data size             1073741824", "Max file size             0", "Max processes             0"] {
        assert!(limits.contains(line), "{limits}");
    }
    drop(socket);
    assert!(reader.wait().expect("it ends with its socket").success());
}

/// Sends the reader a message, with a file.
fn ask(socket: &UnixStream, message: &str, file: Option<&File>) {
    let files: Vec<_> = file.into_iter().map(AsFd::as_fd).collect();
    socket::send(socket, message.as_bytes(), &files).expect("it is read");
}

/// Its answer; `None` if it has ended.
fn answer(socket: &UnixStream) -> Option<Value> {
    let asked = Instant::now();
    let text = socket::receive_until(socket, || asked + IN_TIME).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Files are mapped to be read: one that is cut meanwhile costs the process that reads it, and no other.
#[test]
fn a_file_that_is_cut_while_it_is_read() {
    let trap = Trap::build(&["-g", "-no-pie"]);
    let (socket, mut reader) = reader();
    let file = OpenOptions::new().read(true).write(true).open(&trap.program).expect("it is there");
    ask(&socket, "\"Headers\"", Some(&file));
    let layout = answer(&socket).expect("its headers")["Headers"]["Ok"].clone();
    let entry =
        layout["segments"].as_array().expect("segments").iter().find(|s| s["executable"] == true).expect("code");
    let address = entry["addr"].as_u64().expect("a number") + 0x200;
    let whole = json!({"File": {"id": 0, "name": "trap", "layout": layout, "has_debug": false, "has_shared": false, "plain": false}});
    ask(&socket, &whole.to_string(), Some(&file));
    ask(&socket, &json!({"Of": [0, {"Matching": ["Function", "trapped"]}]}).to_string(), None);
    assert_eq!(answer(&socket).expect("a function")["Symbols"][0][0], "trapped");
    ask(&socket, &json!({"Of": [0, {"Frames": address}]}).to_string(), None);
    assert!(answer(&socket).expect("functions")["Frames"].is_array());
    file.set_len(100).expect("it is ours");
    ask(&socket, &json!({"Of": [0, {"Frames": address + 1}]}).to_string(), None);
    assert_eq!(answer(&socket), None);
    assert_eq!(reader.wait().expect("it has ended").signal(), Some(libc::SIGBUS));
}

#[test]
fn a_debug_link_to_a_pipe_or_an_endless_file() {
    let Some(_turn) = may_observe() else { return };
    // By its checksum is the file known, without a build id.
    let trap = Trap::build(&["-Wl,--build-id=none"]);
    fs::write(trap.path("trap.debug"), "not yet").expect("failed to write a file");
    trap.tool("objcopy", &["--add-gnu-debuglink=trap.debug", "trap"]);
    fs::remove_file(trap.path("trap.debug")).expect("it is there");
    nix::unistd::mkfifo(&trap.path("trap.debug"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let target = trap.start(&[]);
    assert!(observed(&target).contains("trap_lock"));
    fs::remove_file(trap.path("trap.debug")).expect("it is there");
    fs::copy(&trap.program, trap.path("trap.debug")).expect("failed to copy a file");
    let endless = OpenOptions::new().write(true).open(trap.path("trap.debug")).expect("it is there");
    endless.set_len(4 << 40).expect("a sparse file");
    assert!(observed(&target).contains("trap_lock"));
}

#[test]
fn debug_information_that_claims_to_be_endless() {
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::build(&["-g", "-gz=zlib"]);
    let bytes = fs::read(&trap.program).expect("it is there");
    let offset = {
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let sections = elf.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
        let compressed: Vec<u64> = sections
            .filter(
                |section| matches!(section.flags(), object::SectionFlags::Elf { sh_flags } if sh_flags & 0x800 != 0),
            )
            .filter_map(|section| section.file_range().map(|(offset, _)| offset))
            .collect();
        assert!(!compressed.is_empty());
        compressed
    };
    let file = OpenOptions::new().write(true).open(&trap.program).expect("it is there");
    for header in offset {
        // ch_size, behind ch_type and what is reserved.
        file.write_all_at(&(1_u64 << 46).to_le_bytes(), header + 8).expect("failed to write a file");
    }
    drop(file);
    let target = trap.start(&[]);
    let report = observed(&target);
    assert!(report.contains("failed to find types in trap: its debug information takes"), "{report}");
    assert!(report.contains("trap_lock") && report.contains("trapped"), "{report}");
}

#[test]
fn a_huge_file_that_is_called_like_the_c_library() {
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::build(&[]);
    let library = trap.path("libc.so.6");
    File::create(&library).and_then(|file| file.set_len(3 << 30)).expect("a sparse file");
    let target = trap.start(&[&library]);
    eventually("it is mapped", || {
        fs::read_to_string(format!("/proc/{}/maps", target.pid()))
            .is_ok_and(|maps| maps.contains("trap") && maps.contains("/libc.so.6\n"))
    });
    let began = Instant::now();
    let report = observed(&target);
    assert!(report.contains("trap_lock"), "{report}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Names of threads, functions, variables and files that are commands to a terminal: nothing that is printed holds one.
#[test]
fn names_that_are_commands_to_a_terminal() {
    let Some(_turn) = may_observe() else { return };
    let mut trap = Trap::build(&[r#"-DNAME="\033[2J\r\nx""#]);
    trap.tool(
        "objcopy",
        &["--redefine-sym", "trap_lock=lo\u{1b}[2J\rck", "--redefine-sym", "trapped=f\u{1b}]0;t\u{7}\u{202e}", "trap"],
    );
    let hostile = trap.path("p\u{1b}[31m\u{9b}2J");
    fs::rename(&trap.program, &hostile).expect("failed to rename a file");
    trap.program = hostile;
    let target = trap.start(&[]);
    for format in ["table", "json"] {
        let outcome = run(&["--pid", &target.pid(), "--duration", "500ms", "--format", format]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        for text in [&outcome.stdout, &outcome.stderr] {
            let command = text.chars().find(|&c| c != '\n' && (c.is_control() || c == '\u{202e}'));
            assert_eq!(command, None, "{text:?}");
        }
        assert!(outcome.stdout.contains("u{1b}[2J"), "{}", outcome.stdout);
    }
    // A name in a message, too.
    let outcome = run(&["report", "--from", "/no/such\u{1b}[2J"]);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("u{1b}[2J") && !outcome.stderr.contains('\u{1b}'));
}

/// In a mount namespace of its own; loads and unloads a library, and renames itself, a hundred times a second.
const RESTLESS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
pthread_mutex_t trap_lock = PTHREAD_MUTEX_INITIALIZER;
void *trapped(void *arg) {
    for (;;) { pthread_mutex_lock(&trap_lock); usleep(2000); pthread_mutex_unlock(&trap_lock); }
}
int main(int argc, char **argv) {
    unshare(CLONE_NEWNS);
    pthread_t t; pthread_create(&t, 0, trapped, 0); pthread_create(&t, 0, trapped, 0);
    char name[16];
    for (int i = 0;; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        snprintf(name, sizeof name, "name%d", i);
        prctl(PR_SET_NAME, name);
        usleep(10000);
        if (library) dlclose(library);
    }
}
"#;

#[test]
fn a_program_that_never_stays_the_same() {
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::of(RESTLESS, &["-ldl"]);
    fs::write(trap.path("library.c"), "int of_library;").expect("failed to write a source text");
    trap.tool("gcc", &["-shared", "-fPIC", "-o", "library.so", "library.c"]);
    let target = trap.start(&[&trap.path("library.so")]);
    let began = Instant::now();
    let outcome = run(&["--pid", &target.pid(), "--duration", "3s"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("trap_lock"), "{}", outcome.stdout);
    assert!(began.elapsed() < IN_TIME);
}

/// Processes of two threads that wait for each other's lock once, and are gone: fifty at a time.
const SWARM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
pthread_mutex_t swarm_lock = PTHREAD_MUTEX_INITIALIZER;
void *swarm(void *arg) { pthread_mutex_lock(&swarm_lock); usleep(3000); pthread_mutex_unlock(&swarm_lock); return arg; }
int main(int argc, char **argv) {
    for (int n = 0; n < atoi(argv[1]); n++) {
        if (n >= 50) wait(0);
        if (fork() == 0) {
            pthread_t t; pthread_create(&t, 0, swarm, 0); swarm(0); pthread_join(t, 0);
            _exit(0);
        }
    }
    while (wait(0) > 0) { }
}
"#;

#[test]
fn children_that_end_before_anybody_looks_have_names() {
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::of(SWARM, &[]);
    let program = trap.program.to_str().expect("a path in UTF-8");
    let outcome = run(&["--follow-forks", "--format", "json", "--", program, "1000"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
    assert_eq!(report["quality"]["processes"], 1001, "{}", report["quality"]);
    let locks: Vec<&Value> = report["locks"].as_array().into_iter().flatten().collect();
    // In each, one of the two waits, but where the first had ended before the second began.
    assert!(locks.len() > 500, "{}", locks.len());
    // The loader has a lock, too, which children take at their ends.
    let is_known = |name: &str| name.starts_with("swarm_lock") || name.starts_with("_rtld_global");
    let nameless: Vec<&&Value> = locks.iter().filter(|lock| !lock["name"].as_str().is_some_and(is_known)).collect();
    assert!(nameless.is_empty(), "{} of {}: {}", nameless.len(), locks.len(), nameless[0]);
    assert!(outcome.stdout.contains("swarm (trap.c") || outcome.stdout.contains("\"swarm\""), "{}", report["culprits"]);
}

#[test]
fn an_observation_ends_when_its_memory_is_used_up() {
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::of(SWARM, &[]);
    let program = trap.program.to_str().expect("a path in UTF-8");
    // What is known of processes grows with their number, to more than is allowed in any case.
    let options = ["--follow-forks", "--max-memory", "1M", "--format", "json", "--kill-after", "1s"];
    let outcome = run(&[&options[..], &["--", program, "100000"]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
    let quality = &report["quality"];
    let notes: Vec<&str> = quality["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| note.contains("--max-memory allows more")), "{notes:?}");
    let processes = quality["processes"].as_u64().expect("a number");
    assert!((100..100_000).contains(&processes), "{processes}");
    assert!(report["locks"].as_array().is_some_and(|locks| locks.len() > 50), "{quality}");
}

/// A command chooses its loader, which is asked what it would load: as whom the command is to run, not as root.
#[test]
fn a_loader_has_the_rights_of_its_command() {
    let Some(_turn) = may_observe() else { return };
    if !is_root() {
        return skipped("only root runs commands as somebody else");
    }
    let trap = Trap::build(&["-Wl,--dynamic-linker=/proc/self/cwd/loader"]);
    fs::write(trap.path("loader"), "#!/bin/sh\nid -u > told\nexit 1\n").expect("failed to write a script");
    fs::set_permissions(trap.path("loader"), fs::Permissions::from_mode(0o755)).expect("failed to set a mode");
    fs::set_permissions(trap.dir.path(), fs::Permissions::from_mode(0o777)).expect("failed to set a mode");
    let mut command = lockbpf();
    command.args(["--duration", "100ms", "--user", "nobody", "--"]).arg(&trap.program).current_dir(trap.dir.path());
    let outcome = run_command(&mut command);
    outcome.assert_error(&["failed to prepare", "its loader /proc/self/cwd/loader failed"]);
    assert_eq!(fs::read_to_string(trap.path("told")).expect("it was run"), "65534\n");
}

/// A copy of lockbpf with file capabilities, that everybody may run; `None` where the file system keeps none.
pub(super) fn with_capabilities(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("lockbpf");
    fs::copy(env!("CARGO_BIN_EXE_lockbpf"), &program).expect("failed to copy a program");
    for path in [dir, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("failed to set a mode");
    }
    if !with_capabilities_of(&program) {
        skipped("setcap cannot give a file capabilities here");
        return None;
    }
    Some(program)
}

/// Gives a file the capabilities that README names.
pub(super) fn with_capabilities_of(program: &Path) -> bool {
    let all = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep";
    let status = Command::new("setcap").arg(all).arg(program).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn rights_that_are_lent_are_for_own_processes() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = with_capabilities(dir.path()) else { return };
    let secret = dir.path().join("secret.jsonl");
    fs::write(&secret, "{\"t\":1,\"tid\":1,\"op\":\"exit\"}\n").expect("failed to write a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("failed to set a mode");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(arguments);
        run_command(command.current_dir("/"))
    };
    let secret = secret.to_str().expect("a path in UTF-8");
    as_nobody(&["report", "--from", secret]).assert_error(&[secret, "permission denied"]);
    as_nobody(&["export", "--from", secret, "--to", "-", "--as", "jsonl"]).assert_error(&[secret, "permission denied"]);
    let own = std::process::id().to_string();
    as_nobody(&["--pid", &own, "--duration", "100ms"]).assert_error(&[&own, "not yours"]);
    as_nobody(&["access", "--pid", &own]).assert_error(&["not yours"]);
    as_nobody(&["--system-wide", "--duration", "100ms"]).assert_error(&["others"]);
    let outcome = as_nobody(&["doctor"]);
    assert!(outcome.stdout.contains("You may observe your own processes"), "{}", outcome.stdout);
}

/// A command that runs as nobody, in a group. A shell starts it: setpriv itself keeps root's rights until it executes something.
pub(super) fn of_nobody(program: &Path, group: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", &format!("--groups={group}")]);
    command.args(["sh", "-c", r#"exec "$0" "$@""#]).arg(program).current_dir("/");
    command
}

/// Lent rights are for observing: who only reads recordings has none, not even to take up again.
#[test]
fn rights_that_are_lent_are_gone_where_nobody_is_observed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = with_capabilities(dir.path()) else { return };
    for arguments in [
        &["report", "--from", "-"][..],
        &["export", "--from", "-", "--to", "-", "--as", "jsonl"],
        &["advise", "--from", "-"],
    ] {
        let mut command = of_nobody(&program, 65_534);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It waits for its input, which does not come.
        let mut running = Target(command.spawn().expect("it starts"));
        let none = |set: &str| {
            let told = status(running.0.id());
            told.lines().any(|line| line.starts_with(set) && line.ends_with("\t0000000000000000"))
        };
        let is_it =
            || fs::read_to_string(format!("/proc/{}/comm", running.0.id())).is_ok_and(|name| name == "lockbpf\n");
        eventually("it has given up its rights", || is_it() && none("CapEff:") && none("CapPrm:") && none("CapInh:"));
        drop(running.0.stdin.take());
    }
}

/// An ordinary user sees names and waits of own processes; others' as one of the group that lockbpf's file belongs to.
#[test]
fn an_ordinary_user_observes_own_processes_and_a_member_others() {
    const GROUP: u32 = 60_606;
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::build(&["-g"]);
    fs::set_permissions(trap.dir.path(), fs::Permissions::from_mode(0o755)).expect("failed to set a mode");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = with_capabilities(dir.path()) else { return };
    let own = Target(of_nobody(&trap.program, 65_534).spawn().expect("it starts"));
    eventually("it runs", || status(own.0.id()).starts_with("Name:\ttrap"));
    let outcome = run_command(of_nobody(&program, 65_534).args(["--pid", &own.pid(), "--duration", "500ms"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("trap_lock") && outcome.stdout.contains("trapped"), "{}", outcome.stdout);
    // As README says. A change of the group takes the capabilities away, so these come last.
    std::os::unix::fs::chown(&program, None, Some(GROUP)).expect("failed to set a group");
    assert!(with_capabilities_of(&program));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o750)).expect("failed to set a mode");
    let roots = trap.start(&[]);
    let outcome = run_command(of_nobody(&program, GROUP).args(["--pid", &roots.pid(), "--duration", "500ms"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("trap_lock"), "{}", outcome.stdout);
    let outcome = run_command(of_nobody(&program, GROUP).arg("doctor"));
    assert!(outcome.stdout.contains("You may observe everybody's processes"), "{}", outcome.stdout);
    let outcome = run_command(of_nobody(&program, 65_534).arg("doctor"));
    assert_ne!(outcome.code, Some(0), "who is no member may not even run it");
}
