//! Rights that file capabilities lend are for observing. What the user names is opened with the user's own: here even the right to write over
//! whatever there is would help nobody.

use crate::files::{READ, words};
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, run_command};
use crate::harness::privilege::skipped;
use crate::harness::process::{children, eventually};
use crate::hostile::{Target, Trap, of_nobody, with_capabilities, with_capabilities_of};
use crate::outputs::{golden, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// `CAP_BPF`, for looks into maps.
const FOR_MAPS: u64 = 1 << 39;
/// More than README names.
const ALL: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_dac_override,cap_fowner,cap_chown+ep";

/// lockbpf with rights that are lent, a program of nobody's, and files of root's.
struct Scene {
    dir: TempDir,
    program: PathBuf,
    own: Target,
}

impl Scene {
    /// `None`, with the proof printed, where it cannot be.
    fn set() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = with_capabilities(dir.path())?;
        let status = Command::new("setcap").arg(ALL).arg(&program).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            skipped("setcap cannot give a file more capabilities here");
            return None;
        }
        for (name, mode) in [("open", 0o755), ("closed", 0o700)] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).expect("a mode");
        }
        let recording = fs::read(golden("nested.bin")).expect("a recording");
        for (name, mode) in
            [("open/a.bin", 0o644), ("open/a.jsonl", 0o644), ("open/secret", 0o600), ("closed/a.bin", 0o644)]
        {
            fs::write(dir.path().join(name), &recording).expect("a file");
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).expect("a mode");
        }
        let own = Target(of_nobody(Path::new("sleep"), 65_534).arg("600").spawn().expect("it starts"));
        let scene = Self { dir, program, own };
        let comm = || fs::read_to_string(format!("/proc/{}/comm", scene.own.pid())).unwrap_or_default();
        eventually("it runs", || comm() == "sleep\n");
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// lockbpf as nobody, with the words of a line.
    fn command(&self, line: &str, file: &str) -> Command {
        let line = line.replace("PID", &self.own.pid()).replace("RECORDING", text(&self.path("open/a.bin")));
        let mut command = of_nobody(&self.program, 65_534);
        command.env("LOCKBPF_BUDGET", "off").env("LOCKBPF_CALIBRATE", "never").env("XDG_STATE_HOME", "/nonexistent");
        command.args(words(&line, file));
        command
    }

    fn run(&self, line: &str, file: &str) -> Outcome {
        run_command(&mut self.command(line, file))
    }

    /// What root has: names, contents, modes and owners.
    fn roots(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u32)> {
        let entries = ["open", "closed"].map(|name| fs::read_dir(self.path(name)).expect("a directory").flatten());
        let told = |path: &Path| {
            let about = fs::metadata(path).expect("it is there");
            (fs::read(path).expect("a file"), about.mode(), about.uid())
        };
        entries.into_iter().flatten().map(|entry| (entry.path(), told(&entry.path()))).collect()
    }
}

#[test]
fn what_the_user_may_not_read_is_not_read() {
    let Some(_turn) = may_observe() else { return };
    let Some(scene) = Scene::set() else { return };
    assert_eq!(scene.run("report --from {}", text(&scene.path("open/a.bin"))).code, Some(0));
    for file in ["open/secret", "closed/a.bin"].map(|name| scene.path(name)) {
        for line in READ.iter().chain(&["agent --check --token-file {}", "--pid PID --duration 100ms --locks {}"]) {
            scene.run(line, text(&file)).assert_error(&[text(&file), "permission denied"]);
        }
    }
    // Nor where the environment leads.
    let closed = scene.path("closed");
    let mut command = scene.command("predict --pid PID --duration 100ms", "");
    run_command(command.env("XDG_STATE_HOME", &closed)).assert_error(&[text(&closed), "permission denied"]);
}

#[test]
fn what_the_user_may_not_write_is_not_written() {
    let Some(_turn) = may_observe() else { return };
    let Some(scene) = Scene::set() else { return };
    let before = scene.roots();
    for dir in ["open", "closed"].map(|name| scene.path(name)) {
        for (line, name) in [
            ("export --from RECORDING --to {}", "a.jsonl"),
            ("export --from RECORDING --to {}", "new.html"),
            ("predict --from RECORDING --emit-model {}", "new.json"),
            ("export --pid PID --duration 100ms --to {}", "a.bin"),
            ("export --pid PID --duration 100ms --to {}", "a.jsonl"),
            ("export --pid PID --duration 100ms --to {}", "new.bin"),
            ("export --pid PID --duration 100ms --to {}", "new.folded"),
            ("export --pid PID --duration 100ms --to {}", "new.parquet"),
            ("access --pid PID --to {}", "a.jsonl"),
            ("advise --pid PID --keep {}", "a.bin"),
            ("--pid PID --duration 100ms --wait-over 1s --alerts {}", "a.jsonl"),
            ("--pid PID --duration 100ms --keep 1m --keep-dir {}", "new"),
        ] {
            let to = dir.join(name);
            scene.run(line, text(&to)).assert_error(&[text(&to), "permission denied"]);
        }
    }
    assert!(scene.roots() == before, "what is root's has changed");
}

/// What is made of an observation is made without the rights that it took.
#[test]
fn rights_that_are_lent_are_gone_when_the_observation_is_over() {
    let Some(_turn) = may_observe() else { return };
    let Some(scene) = Scene::set() else { return };
    let mut command = scene.command("export --pid PID --duration 100ms --to - --as html", "");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A page is more than a pipe holds that nobody reads.
    let running = Target(command.spawn().expect("it starts"));
    let status = || fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap_or_default();
    let has = |set: &str, what: &str| status().lines().any(|line| line.starts_with(set) && line.ends_with(what));
    let none = |set: &str| has(set, "\t0000000000000000");
    eventually("it has given them up", || has("Name:", "\tlockbpf") && none("CapEff:") && none("CapPrm:"));
}

/// One of the sets of rights of a process or thread, as bits.
fn rights(status: &Path, set: &str) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix(set))?, 16).ok()
}

/// While it observes, rights that reach others' files and processes are there for the calls that need them, not between these; what they
/// reach is in the report all the same.
#[test]
fn rights_that_are_lent_are_taken_up_only_for_calls() {
    const GROUP: u32 = 60_606;
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::build(&["-g"]);
    // Neither the program nor where it lies may be read by others.
    fs::set_permissions(trap.path(""), Permissions::from_mode(0o700)).expect("failed to set a mode");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = with_capabilities(dir.path()) else { return };
    std::os::unix::fs::chown(&program, None, Some(GROUP)).expect("failed to set a group");
    assert!(with_capabilities_of(&program));
    let roots = trap.start(&[]);
    for of_target in [&["--pid", &roots.pid()][..], &["--system-wide"], &["--pid", &roots.pid(), "--budget", "off"]] {
        let mut command = of_nobody(&program, GROUP);
        command.args(of_target).args(["--duration", "2s", "--format", "json"]);
        let mut running = Target(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts"));
        let mut out = running.0.stdout.take().expect("a pipe");
        let report = thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        });
        let own = format!("/proc/{}/task", running.pid());
        eventually("it runs", || {
            fs::read_to_string(format!("{own}/{}/comm", running.pid())).is_ok_and(|name| name == "lockbpf\n")
        });
        let (mut looks, mut taken_up, mut of_guardian) = (0, 0, None);
        while !report.is_finished() {
            // The main thread decodes and analyses.
            if let Some(set) = rights(Path::new(&format!("{own}/{}/status", running.pid())), "CapEff:\t") {
                looks += 1;
                taken_up += usize::from(set & !FOR_MAPS != 0);
            }
            let guardian = children(running.0.id(), "guard").into_iter().next();
            of_guardian =
                guardian.and_then(|pid| rights(Path::new(&format!("/proc/{pid}/status")), "CapPrm:\t")).or(of_guardian);
            thread::sleep(Duration::from_millis(5));
        }
        let report = report.join().expect("it was read").expect("text");
        assert!(looks > 50 && 4 * taken_up < looks, "{of_target:?}: {taken_up} of {looks}");
        // Who only ends it has none.
        assert_eq!(of_guardian, Some(0), "{of_target:?}");
        let report: Value = serde_json::from_str(&report).expect("a report");
        let locks = report["locks"].as_array().expect("locks");
        let lock = locks.iter().find(|lock| lock["name"] == "trap_lock");
        let lock = lock.unwrap_or_else(|| panic!("{of_target:?}: its lock has no name"));
        assert!(lock.to_string().contains("trapped"), "{of_target:?}: no function of it has one: {lock}");
    }
}

/// What a member of the group does with others' programs, beside reports: sections are followed, and a command may change its user.
#[test]
fn rights_that_are_lent_reach_those_who_are_traced() {
    const GROUP: u32 = 60_606;
    let Some(_turn) = may_observe() else { return };
    let trap = Trap::build(&["-g"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = with_capabilities(dir.path()) else { return };
    std::os::unix::fs::chown(&program, None, Some(GROUP)).expect("failed to set a group");
    assert!(with_capabilities_of(&program));
    let roots = trap.start(&[]);
    let outcome = run_command(of_nobody(&program, GROUP).args(["access", "--pid", &roots.pid(), "--samples", "3"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("trap_lock"), "{}", outcome.stdout);
    let changes = dir.path().join("id");
    fs::copy("/usr/bin/id", &changes).expect("failed to copy a program");
    fs::set_permissions(&changes, Permissions::from_mode(0o4755)).expect("failed to set a mode");
    let outcome = run_command(of_nobody(&program, GROUP).args(["--", text(&changes), "-u"]));
    assert!(outcome.stdout.starts_with("0\n"), "{} {}", outcome.stdout, outcome.stderr);
}
