//! A terminal to draw on and to type in: tmux, without anybody's configuration.

use super::privilege::installed;
use super::process::PATIENCE;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One terminal with a shell in it; gone when dropped.
pub(crate) struct Pane {
    tmux: PathBuf,
    /// A server of its own.
    socket: String,
}

impl Pane {
    /// Opens one of this size; `None`, with the proof printed, where tmux is not installed.
    pub(crate) fn open(width: u16, height: u16) -> Option<Self> {
        // The server of the pane before may not have ended yet.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let pane = Self { tmux: installed("tmux")?, socket: format!("lockbpf-test-{}-{number}", std::process::id()) };
        let (width, height) = (width.to_string(), height.to_string());
        let mut command = pane.command();
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "exec env PS1='$ ' sh"]);
        for (name, value) in
            [("LANG", "C.UTF-8"), ("LC_ALL", "C.UTF-8"), ("SHELL", "/bin/sh"), ("LOCKBPF_BUDGET", "off")]
        {
            command.env(name, value);
        }
        let output = command.output().expect("tmux runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        pane.wait_for("a shell", |text| text.contains('$'));
        Some(pane)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.tmux);
        command.args(["-L", &self.socket]);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().expect("tmux runs")
    }

    /// Types a line.
    pub(crate) fn line(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by tmux's names.
    pub(crate) fn keys(&self, keys: &[&str]) {
        let output = self.run(&[&["send-keys"][..], keys].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// What is to be seen.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The screen, once it is as it should be.
    pub(crate) fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.screen();
            if is_there(&text) {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "no {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The shell's child of this name.
    pub(crate) fn child(&self, name: &str) -> u32 {
        let shell =
            String::from_utf8_lossy(&self.run(&["display-message", "-p", "#{pane_pid}"]).stdout).trim().to_owned();
        let children =
            |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let is_it =
            |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        let found = children(&shell).split_whitespace().find(is_it).map(str::to_owned);
        found.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("the shell {shell} has no child {name}"))
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}
