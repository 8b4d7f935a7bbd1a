//! The machine around the tests: file systems, the port for results, the power switch.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write as _},
    path::Path,
    process,
};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sys::{
        reboot::{RebootMode, reboot},
        termios::tcdrain,
        utsname::uname,
    },
};
use vm_tests::event::Event;

/// What programs expect to be mounted. Not tracefs: to mount it is lockbpf's task.
const MOUNTS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];
/// Where results go: the first serial port is the console, and full of other things.
const RESULTS: &str = if cfg!(target_arch = "aarch64") { "/dev/ttyAMA1" } else { "/dev/ttyS1" };

/// Whether this process is the machine's first one.
pub(crate) fn is_init() -> bool {
    process::id() == 1
}

/// Mounts the usual file systems.
pub(crate) fn mount_all() -> Result<()> {
    for (kind, place) in MOUNTS {
        fs::create_dir_all(place).with_context(|| format!("failed to create {place}"))?;
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("failed to mount {kind} at {place}"))?;
    }
    Ok(())
}

/// Whether a file system of this kind is mounted at `place`.
pub(crate) fn is_mounted(kind: &str, place: &Path) -> Result<bool> {
    let mounts = fs::read_to_string("/proc/mounts").context("failed to read /proc/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    Ok(mounts.any(|fields| fields.get(1).is_some_and(|p| Path::new(p) == place) && fields.get(2) == Some(&kind)))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>> {
    let place = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&place).with_context(|| format!("failed to list {place}"))?;
    tasks.map(|task| task?.file_name().to_string_lossy().parse().context("a thread has no number")).collect()
}

/// Whether threads may be preempted in the kernel: as it says if that can be chosen, else as it was built.
pub(crate) fn preempts_the_kernel() -> Result<bool> {
    const DEBUG: &str = "/sys/kernel/debug";
    if !is_mounted("debugfs", Path::new(DEBUG))? {
        mount(Some("debugfs"), DEBUG, Some("debugfs"), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("failed to mount debugfs at {DEBUG}"))?;
    }
    match fs::read_to_string(Path::new(DEBUG).join("sched/preempt")) {
        Ok(models) => Ok(models.contains("(full)") || models.contains("(lazy)")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let version =
                uname().context("failed to ask for the kernel's version")?.version().to_string_lossy().into_owned();
            Ok(version.split(' ').any(|word| matches!(word, "PREEMPT" | "PREEMPT_RT" | "PREEMPT_LAZY")))
        }
        Err(error) => Err(error).context("failed to read how the kernel is preempted"),
    }
}

/// The kernel's full name.
pub(crate) fn kernel() -> Result<String> {
    Ok(uname().context("failed to ask for the kernel's name")?.release().to_string_lossy().into_owned())
}

/// Ends the machine.
pub(crate) fn switch_off() -> ! {
    // A first process that ends makes the kernel panic, which ends the machine as well.
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("failed to switch off: {error}");
    process::exit(1)
}

/// The serial port for results.
pub(crate) struct Results {
    port: File,
}

impl Results {
    /// Opens the port.
    pub(crate) fn open() -> Result<Self> {
        let port = OpenOptions::new().write(true).open(RESULTS).with_context(|| format!("failed to open {RESULTS}"))?;
        Ok(Self { port })
    }

    /// Writes an event, and returns when it has left the machine.
    pub(crate) fn tell(&mut self, event: &Event) -> Result<()> {
        let line = event.to_line()? + "\n";
        self.port.write_all(line.as_bytes()).with_context(|| format!("failed to write to {RESULTS}"))?;
        tcdrain(&self.port).with_context(|| format!("failed to drain {RESULTS}"))
    }
}
