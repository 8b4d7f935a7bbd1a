//! What this kernel offers, asked of the kernel itself: supported, not supported, or not permitted to tell or to use.

use super::btf::{self, Btf};
use super::kernel;
use super::prologue::Arch;
use crate::kallsyms::{Kallsyms, KallsymsError};
use crate::rights;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{TRACEFS_MAGIC, statfs};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted, by preference.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Shows whether probes in user space are compiled in.
const UPROBE_PMU: &str = "/sys/bus/event_source/devices/uprobe/type";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
/// The kernel's own numbers for the first namespaces (`include/linux/proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// An answer to "does the kernel have this".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum Support {
    /// Yes.
    Supported,
    /// No, and why.
    NotSupported(String),
    /// It may be there, but not for this process: the capability or right that is missing.
    NotPermitted(String),
}

impl Support {
    /// Whether it can be used.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        *self == Self::Supported
    }

    /// The answer of a file that is there, is not, or may not be read.
    fn of<T>(attempt: io::Result<T>, absent: &str, right: &str) -> Self {
        match attempt {
            Ok(_) => Self::Supported,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::NotPermitted(right.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::NotSupported(absent.to_owned()),
            Err(error) => Self::NotSupported(error.to_string()),
        }
    }

    fn when(condition: bool, otherwise: &str) -> Self {
        if condition { Self::Supported } else { Self::NotSupported(otherwise.to_owned()) }
    }
}

/// Something that lockbpf uses if it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// Short name.
    pub name: &'static str,
    /// Whether nothing can be observed without it.
    pub essential: bool,
    /// Whether it is there.
    #[serde(flatten)]
    pub support: Support,
    /// What it is good for, and what its absence costs.
    pub advice: &'static str,
}

/// A kernel release, `5.15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// The oldest that lockbpf supports.
    pub const MINIMUM: Self = Self(5, 15);
    /// The first that passes uprobes on NOPs by a call.
    const CALLS: Self = Self(6, 18);

    /// The running kernel's; `None` if it names itself in no known way.
    #[must_use]
    pub fn running() -> Option<Self> {
        Self::parse(&release()?)
    }

    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The running kernel's full name, `6.1.0-30-amd64`.
#[must_use]
pub fn release() -> Option<String> {
    Some(nix::sys::utsname::uname().ok()?.release().to_string_lossy().into_owned())
}

/// A kernel without something essential.
#[derive(Debug, thiserror::Error)]
#[error("failed to start observing: {name}: {reason}")]
pub struct FeatureError {
    /// What is missing.
    pub name: &'static str,
    /// Why, and what can be done.
    pub reason: String,
}

/// Whether this kernel has all that is essential; `with_uprobes` is false for the futex tier.
///
/// # Errors
/// The first essential feature that is missing. That something is not permitted is no error here: see
/// [`super::privilege`].
pub fn require(with_uprobes: bool) -> Result<(), FeatureError> {
    for feature in essential() {
        if let Support::NotSupported(reason) = feature.support
            && (with_uprobes || feature.name != UPROBES)
        {
            return Err(FeatureError { name: feature.name, reason });
        }
    }
    Ok(())
}

const UPROBES: &str = "uprobes";

/// Every feature that matters, the essential ones first.
#[must_use]
pub fn survey() -> Vec<Feature> {
    let mut all = essential();
    all.extend(optional());
    all
}

/// Those without which nothing can be observed.
fn essential() -> Vec<Feature> {
    let types = Btf::kernel();
    let btf = match &types {
        Ok(types) => types.task_offsets().map_or_else(|e| Support::NotSupported(e.to_string()), |_| Support::Supported),
        Err(btf::BtfError::Read(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Support::NotPermitted(format!("reading {}", btf::KERNEL))
        }
        Err(error) => Support::NotSupported(error.to_string()),
    };
    let feature = |name, support, advice| Feature { name, essential: true, support, advice };
    vec![
        feature("kernel", kernel(release().as_deref()), "5.15 is the oldest kernel supported"),
        feature("processor", processor(), "x86_64 and aarch64 are supported"),
        feature("kernel types (BTF)", btf, "needed to find fields in the kernel's structures"),
        feature(
            UPROBES,
            Support::of(fs::read(UPROBE_PMU), "the kernel was built without CONFIG_UPROBE_EVENTS", UPROBE_PMU),
            "needed for all but `--futex-only`",
        ),
        feature("lockdown", lockdown(Path::new(LOCKDOWN)), "confidentiality mode keeps eBPF from reading memory"),
    ]
}

/// Those of which each does something more. They take longer to find out.
fn optional() -> Vec<Feature> {
    let types = Btf::kernel();
    let offers = |question: fn(&Btf) -> bool| match &types {
        Ok(types) => Support::when(question(types), "this kernel is older"),
        Err(error) => Support::NotSupported(error.to_string()),
    };
    let feature = |name, support, advice| Feature { name, essential: false, support, advice };
    vec![
        feature(
            "initial pid namespace",
            namespace("pid", INITIAL_PID_NAMESPACE),
            "inside a container pids differ from the kernel's: run lockbpf on the host, or with the host's pid namespace",
        ),
        feature(
            "initial user namespace",
            namespace("user", INITIAL_USER_NAMESPACE),
            "capabilities held only inside a user namespace do not count for eBPF",
        ),
        feature(
            "uprobe_multi links",
            offers(Btf::has_uprobe_links),
            "attach and detach all probes at once (6.6; used where they see all threads, 6.10); else one by one",
        ),
        feature(
            "uprobe sessions",
            offers(Btf::has_uprobe_sessions),
            "uncontended locks do not pay for a return probe (6.13 and later)",
        ),
        feature(
            "uprobes without a trap",
            Support::NotSupported(trap_free(KernelVersion::running()).to_owned()),
            "kernels from 6.18 on turn NOPs of five bytes into calls, which kill forked children and overwrite the red zone: no probe is \
             placed on one",
        ),
        feature(
            "kernel locks",
            types
                .as_ref()
                .map_or_else(|error| Support::NotSupported(error.to_string()), |types| kernel::support(types)),
            "`--kernel-locks` tells of waits for the kernel's own locks (5.19 and later)",
        ),
        feature(
            "kernel symbols",
            match Kallsyms::kernel() {
                Ok(_) => Support::Supported,
                Err(KallsymsError::Hidden) => {
                    Support::NotPermitted("CAP_SYSLOG, as kernel.kptr_restrict has it".to_owned())
                }
                Err(error) => Support::NotSupported(error.to_string()),
            },
            "tell where kernel locks were asked for",
        ),
        feature(
            "tracefs",
            tracefs(&TRACEFS.map(Path::new)).1,
            "has the per-syscall tracepoints; lockbpf mounts it if it may, else all system calls are looked at",
        ),
    ]
}

/// Why no probe is passed without a trap.
fn trap_free(version: Option<KernelVersion>) -> &'static str {
    match version {
        _ if !cfg!(target_arch = "x86_64") => "only x86 kernels have them",
        Some(version) if version < KernelVersion::CALLS => "this kernel is older",
        _ => "not used, since they harm targets",
    }
}

/// A setting of the kernel that explains refusals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Name as sysctl has it.
    pub name: &'static str,
    /// Value; `None` if the kernel has no such setting, or keeps it to itself.
    pub value: Option<String>,
    /// What it means for lockbpf.
    pub meaning: &'static str,
}

/// The settings worth knowing.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let sysctl = |name, path, meaning| {
        let value = fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Setting { name, value, meaning }
    };
    vec![
        sysctl(
            "kernel.perf_event_paranoid",
            "/proc/sys/kernel/perf_event_paranoid",
            "CAP_PERFMON stands above it at any value",
        ),
        sysctl(
            "kernel.unprivileged_bpf_disabled",
            "/proc/sys/kernel/unprivileged_bpf_disabled",
            "CAP_BPF stands above it at any value",
        ),
    ]
}

/// tracefs, ready to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracefs {
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Whether lockbpf has just mounted it.
    pub mounted_now: bool,
}

/// Why tracefs cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("failed to use tracefs: {0}")]
pub struct TracefsError(String);

/// Finds tracefs, or mounts it at its usual place.
///
/// # Errors
/// Why it is not there and cannot be mounted.
pub fn ensure_tracefs() -> Result<Tracefs, TracefsError> {
    let places = TRACEFS.map(Path::new);
    let (place, support) = tracefs(&places);
    if let Some(dir) = place
        && support.is_supported()
    {
        return Ok(Tracefs { dir, mounted_now: false });
    }
    if let Support::NotPermitted(right) = support {
        return Err(TracefsError(format!("not permitted without {right}")));
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let (usual, none) = (places[0], None::<&str>);
    match rights::reach(|| mount(Some("tracefs"), usual, Some("tracefs"), flags, none)) {
        Ok(()) => Ok(Tracefs { dir: usual.to_owned(), mounted_now: true }),
        Err(Errno::EPERM | Errno::EACCES) => {
            Err(TracefsError("it is not mounted, and mounting it needs CAP_SYS_ADMIN".to_owned()))
        }
        Err(Errno::ENODEV | Errno::ENOENT) => Err(TracefsError("the kernel was built without it".to_owned())),
        Err(error) => Err(TracefsError(format!("cannot mount it at {}: {error}", usual.display()))),
    }
}

/// Where tracefs is mounted, and whether it can be read there.
fn tracefs(places: &[&Path]) -> (Option<PathBuf>, Support) {
    rights::reach(|| look_for_tracefs(places))
}

fn look_for_tracefs(places: &[&Path]) -> (Option<PathBuf>, Support) {
    let mut answer = Support::NotSupported("not mounted".to_owned());
    for place in places {
        match statfs(*place) {
            Ok(fs) if fs.filesystem_type() == TRACEFS_MAGIC => {
                let right = format!("CAP_DAC_READ_SEARCH, to read {}", place.display());
                let readable = fs::read_dir(place.join("events"));
                let support = Support::of(readable, "the kernel has no trace events", &right);
                return (Some((*place).to_owned()), support);
            }
            Err(Errno::EACCES) => {
                answer = Support::NotPermitted(format!("CAP_DAC_READ_SEARCH, to look at {}", place.display()));
            }
            _ => {}
        }
    }
    // That the usual place is no mount is certain; the other may merely be out of sight.
    if places.first().is_some_and(|usual| statfs(*usual).is_ok()) {
        answer = Support::NotSupported("not mounted".to_owned());
    }
    (None, answer)
}

fn kernel(release: Option<&str>) -> Support {
    match release.map(|release| (release, KernelVersion::parse(release))) {
        Some((_, Some(version))) if version >= KernelVersion::MINIMUM => Support::Supported,
        Some((_, Some(version))) => Support::NotSupported(format!(
            "kernel {version} is older than {}, the oldest that lockbpf supports",
            KernelVersion::MINIMUM
        )),
        Some((release, None)) => Support::NotSupported(format!("its release {release:?} is not a version")),
        None => Support::NotSupported("it does not tell its release".to_owned()),
    }
}

fn processor() -> Support {
    Support::when(Arch::host().is_some(), "there are no eBPF programs for this processor")
}

fn lockdown(file: &Path) -> Support {
    // `none [integrity] confidentiality`; no file, no lockdown.
    let text = fs::read_to_string(file).unwrap_or_default();
    Support::when(!text.contains("[confidentiality]"), "the kernel is locked down in confidentiality mode")
}

fn namespace(kind: &str, initial: &str) -> Support {
    match fs::read_link(Path::new("/proc/self/ns").join(kind)) {
        Ok(link) => Support::when(link == Path::new(initial), "this process is in another one"),
        Err(error) => Support::NotSupported(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(KernelVersion::parse("6.18.44-fc-v595"), Some(KernelVersion(6, 18)));
        assert_eq!(KernelVersion::parse("5.15-rc1"), Some(KernelVersion(5, 15)));
        assert_eq!(KernelVersion::parse("linux"), None);
        assert_eq!(KernelVersion::parse("6"), None);
        assert!(kernel(Some("5.15.0-91-generic")).is_supported());
        let old = "kernel 5.10 is older than 5.15, the oldest that lockbpf supports".to_owned();
        assert_eq!(kernel(Some("5.10.0-30-amd64")), Support::NotSupported(old));
        assert!(!kernel(Some("next")).is_supported() && !kernel(None).is_supported());
    }

    #[test]
    fn traps_are_not_spared_anywhere() {
        let x86 = |text| if cfg!(target_arch = "x86_64") { text } else { "only x86 kernels have them" };
        assert_eq!(trap_free(Some(KernelVersion(6, 17))), x86("this kernel is older"));
        assert_eq!(trap_free(Some(KernelVersion(6, 18))), x86("not used, since they harm targets"));
        assert_eq!(trap_free(None), x86("not used, since they harm targets"));
    }

    #[test]
    fn three_answers() {
        let error = |kind| Support::of(Err::<(), _>(io::Error::from(kind)), "absent", "a right");
        assert_eq!(error(io::ErrorKind::NotFound), Support::NotSupported("absent".to_owned()));
        assert_eq!(error(io::ErrorKind::PermissionDenied), Support::NotPermitted("a right".to_owned()));
        assert!(matches!(error(io::ErrorKind::TimedOut), Support::NotSupported(_)));
        assert_eq!(Support::of(Ok(()), "absent", "a right"), Support::Supported);
    }

    #[test]
    fn lockdown_modes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lockdown");
        assert!(lockdown(&file).is_supported());
        for (text, fine) in
            [("[none] integrity confidentiality\n", true), ("none integrity [confidentiality]\n", false)]
        {
            fs::write(&file, text).unwrap();
            assert_eq!(lockdown(&file).is_supported(), fine, "{text}");
        }
    }

    #[test]
    fn a_directory_that_is_no_tracefs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(tracefs(&[dir.path()]), (None, Support::NotSupported("not mounted".to_owned())));
    }

    #[test]
    fn this_machine_answers() {
        let features = survey();
        let state = |name| features.iter().find(|f| f.name == name).unwrap().support.is_supported();
        assert!(state("processor"));
        assert_eq!(state("kernel"), KernelVersion::running().unwrap() >= KernelVersion::MINIMUM);
        assert_eq!(state("uprobes"), Path::new(UPROBE_PMU).exists());
        // A kernel with sessions has the links that they are a form of.
        assert!(state("uprobe_multi links") || !state("uprobe sessions"));
    }
}
