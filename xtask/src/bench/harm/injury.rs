//! An observation that ends badly, at a random moment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{sys::signal::Signal, unistd::Pid};
use serde::Serialize;

use super::{
    target::Target,
    traces::{Before, MARK},
};
use crate::bench::{child::Child, interrupt};

/// How long an observer is stopped, and from when on the target is to be as fast as before meanwhile.
const STOPPED: Duration = Duration::from_secs(3);
const FREED: Duration = Duration::from_millis(2_100);
/// How long it takes at most until an observer observes, and until it has ended: random moments lie in these.
const START: Duration = Duration::from_millis(900);
const END: Duration = Duration::from_millis(400);
/// How long one may take to begin or to end at all.
const PATIENCE: Duration = Duration::from_secs(40);

/// How an observer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Injury {
    /// SIGKILL.
    Kill,
    /// SIGSTOP for some seconds, then Ctrl-C.
    Stop,
    /// All of its cgroup killed, as `systemctl kill` and `docker kill` do.
    CgroupKill,
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After its start.
    Start(Duration),
    /// After it has begun to observe.
    Window(Duration),
    /// After Ctrl-C.
    End(Duration),
}

impl Moment {
    fn random(windows: Duration) -> Self {
        let within = |time: Duration| time.mul_f64(fastrand::f64());
        match fastrand::u32(..4) {
            0 => Self::Start(within(START)),
            1 => Self::End(within(END)),
            _ => Self::Window(within(windows)),
        }
    }
}

/// What was seen of the target while its observer was stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Meanwhile {
    /// Its speed after two seconds.
    pub(super) speed: f64,
    /// Whether each worker got on.
    pub(super) got_on: bool,
}

/// How observers are started.
pub(super) struct Observer<'a> {
    /// lockbpf.
    pub(super) program: &'a Path,
    /// Its arguments, without whom to observe.
    pub(super) args: &'a [&'a str],
    /// Whether it can follow what the target forks.
    pub(super) follows: bool,
    /// How long it observes before it ends: at random moments in this it may be hurt.
    pub(super) windows: Duration,
    /// Where its temporary files are to be.
    pub(super) files: &'a Path,
    /// The value of [`MARK`].
    pub(super) mark: &'a str,
    /// A cgroup of version 2 for it, if there are any.
    pub(super) cgroup: Option<&'a Cgroup>,
}

impl Observer<'_> {
    fn command(&self, pid: Pid) -> Command {
        // It has to be in its cgroup before it starts anything.
        let join = r#"[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 9; shift; exec "$@""#;
        let mut command = Command::new("sh");
        let cgroup = self.cgroup.map(|cgroup| cgroup.dir.as_path()).unwrap_or(Path::new(""));
        command.args(["-c", join, "sh"]).arg(cgroup).arg(self.program).args(self.args);
        command.args(["--pid", &pid.to_string()]);
        if self.follows && fastrand::bool() {
            command.arg("--follow-forks");
        }
        command.env(MARK, self.mark).env("TMPDIR", self.files);
        command
    }

    /// Observes a target once to the end, as it is meant.
    ///
    /// # Errors
    /// The observer fails.
    pub(super) fn observe(&self, target: &Target) -> Result<()> {
        let mut child = Child::start(&mut self.command(target.pid()))?;
        child.expect_err(begins)?;
        interrupt::sleep(Duration::from_millis(500))?;
        child.signal(Signal::SIGINT)?;
        wait_for_end(&mut child)?;
        Ok(())
    }

    /// Observes a target until this happens. Returns what was seen while the observer was stopped, if it was.
    ///
    /// # Errors
    /// The observer did not get so far by itself.
    pub(super) fn hurt(&self, injury: Injury, target: &Target, before: &Before<'_>) -> Result<Option<Meanwhile>> {
        let mut child = Child::start(&mut self.command(target.pid()))?;
        match Moment::random(self.windows) {
            Moment::Start(after) => interrupt::sleep(after)?,
            Moment::Window(after) => {
                child.expect_err(begins)?;
                interrupt::sleep(after)?;
            }
            Moment::End(after) => {
                child.expect_err(begins)?;
                interrupt::sleep(Duration::from_millis(300))?;
                child.signal(Signal::SIGINT)?;
                interrupt::sleep(after)?;
            }
        }
        match injury {
            // It may have ended by itself by now.
            Injury::Kill => drop(child.signal(Signal::SIGKILL)),
            Injury::CgroupKill => self.cgroup.context("there is no cgroup of version 2")?.kill()?,
            Injury::Stop => return stop(&mut child, target, before).map(Some),
        }
        wait_for_end(&mut child)?;
        Ok(None)
    }
}

fn stop(child: &mut Child, target: &Target, before: &Before<'_>) -> Result<Meanwhile> {
    let begin = Instant::now();
    let _ = child.signal(Signal::SIGSTOP);
    let from = target.done()?;
    interrupt::sleep(FREED)?;
    let speed = target.speed()?;
    interrupt::sleep(STOPPED.saturating_sub(begin.elapsed()))?;
    let got_on = target.done()?.all_beyond(from);
    // A guardian may have ended it.
    let _ = child.signal(Signal::SIGCONT);
    interrupt::sleep(Duration::from_millis(100))?;
    let _ = child.signal(Signal::SIGINT);
    if wait_for_end(child).is_err() {
        interrupt::check()?;
        before.kill_processes();
        anyhow::bail!("it did not end after it was stopped, continued and interrupted");
    }
    Ok(Meanwhile { speed, got_on })
}

/// Whether lockbpf says in this line that it observes.
fn begins(line: &str) -> Option<()> {
    (line.starts_with("observing ") || line.starts_with("following sections")).then_some(())
}

fn wait_for_end(child: &mut Child) -> Result<()> {
    let begin = Instant::now();
    while child.check_alive().is_ok() {
        anyhow::ensure!(begin.elapsed() < PATIENCE, "it did not end");
        interrupt::sleep(Duration::from_millis(10))?;
    }
    Ok(())
}

/// A cgroup of version 2. Removed when dropped.
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Makes one; `None` where that cannot be done.
    pub(super) fn make(number: u32) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let root = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
        let dir = Path::new(root).join(format!("lockbpf-harm-{}-{number}", Pid::this()));
        fs::create_dir(&dir).ok()?;
        let made = Self { dir };
        // Since Linux 5.14.
        made.dir.join("cgroup.kill").exists().then_some(made)
    }

    fn kill(&self) -> Result<()> {
        let file = self.dir.join("cgroup.kill");
        fs::write(&file, "1").with_context(|| format!("failed to write {}", file.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("failed to remove {}: something is still in it", self.dir.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_of_every_kind_and_within_their_time() {
        let windows = Duration::from_secs(2);
        let moments: Vec<Moment> = (0..200).map(|_| Moment::random(windows)).collect();
        let count = |of: fn(&Moment) -> bool| moments.iter().filter(|moment| of(moment)).count();
        assert!(count(|m| matches!(m, Moment::Start(_))) > 20 && count(|m| matches!(m, Moment::End(_))) > 20);
        assert!(moments.iter().all(|m| !matches!(m, Moment::Window(after) if *after > windows)));
    }

    #[test]
    fn the_beginning_is_known_by_what_is_said() {
        assert_eq!(begins("observing 4 threads of 1 process"), Some(()));
        assert_eq!(begins("lockbpf: mounted tracefs"), None);
    }
}
