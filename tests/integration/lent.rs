//! Rights that file capabilities lend are for observing. What the user names is opened with the user's own: here even the right to write over
//! whatever there is would help nobody.

use crate::files::{READ, words};
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, run_command};
use crate::harness::privilege::skipped;
use crate::harness::process::eventually;
use crate::hostile::{Target, of_nobody, with_capabilities};
use crate::outputs::{golden, text};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

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
