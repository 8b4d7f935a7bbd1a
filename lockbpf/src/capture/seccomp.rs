//! Processes that filter their system calls (seccomp). From 6.11 on, x86 kernels leave a function that is watched to its return by a system call of
//! their own, which filters do not know; until it was exempted (6.14, and where that was taken over) they kill the process at it. What this
//! kernel does is tried on a private child. Where it kills, nothing is placed at returns of any process: each may install a filter at any time.

use super::calibrate::SELF;
use super::feature::{Feature, KernelVersion, Support};
use super::perf_uprobe::{PerfUprobes, Place};
use super::{aside, edits, maps, seccomp_target};
use crate::helper;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;

/// The hidden subcommand that makes lockbpf the child.
pub const COMMAND: &str = "seccomp-target";
/// Releases that may do so, if it cannot be tried.
const SUSPECTS: RangeInclusive<KernelVersion> = KernelVersion(6, 11)..=KernelVersion(6, 13);

/// What came of the trial.
#[derive(Debug)]
enum Trial {
    /// The child was watched, and lived.
    Lived,
    /// The child died of it.
    Died,
    /// It was not to be had.
    Failed(io::Error),
}

/// Begins the trial aside, so that nobody has to wait for it when its outcome is wanted.
pub fn try_aside() {
    // Without a thread it is tried when it is wanted.
    let _ = thread::Builder::new().name("seccomp".to_owned()).spawn(trial);
}

/// Whether this kernel kills processes with a filter at watched returns.
#[must_use]
pub fn kills() -> bool {
    verdict(trial(), KernelVersion::running())
}

/// Why nothing is placed there.
pub const REASON: &str = "this kernel kills processes that filter their system calls (seccomp) at watched returns";

/// What a user must know of an observation on such a kernel.
pub const REMAINS: &str = "This kernel kills processes that filter their system calls (seccomp) at returns that are watched, so none are: \
     trylock and timed calls are not seen.";

/// The doctor's finding.
#[must_use]
pub fn feature() -> Feature {
    let support = match trial() {
        Trial::Failed(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Support::NotPermitted("CAP_PERFMON, to try it on a child".to_owned())
        }
        Trial::Failed(error) if !kills() => Support::NotSupported(format!("not tried: {error}")),
        _ if kills() => Support::NotSupported("this kernel kills filtered processes at them (6.11 to 6.13)".to_owned()),
        _ => Support::Supported,
    };
    Feature {
        name: "return probes under seccomp",
        essential: false,
        support,
        advice: "else nothing is placed at returns: trylock and timed calls are not seen",
    }
}

fn verdict(trial: &Trial, version: Option<KernelVersion>) -> bool {
    match trial {
        Trial::Lived => false,
        Trial::Died => true,
        // Only x86 kernels have that system call.
        Trial::Failed(_) => cfg!(target_arch = "x86_64") && version.is_none_or(|version| SUSPECTS.contains(&version)),
    }
}

/// The outcome of the trial, which is made once.
fn trial() -> &'static Trial {
    static TRIAL: OnceLock<Trial> = OnceLock::new();
    TRIAL.get_or_init(|| {
        if !cfg!(target_arch = "x86_64") {
            return Trial::Lived;
        }
        let outcome = watch_child().map_or_else(Trial::Failed, |(status, hits)| judge(status, hits));
        log::debug!("a filtered child at a watched return: {outcome:?}");
        outcome
    })
}

/// What a child's end means that was seen to return so often.
fn judge(status: ExitStatus, hits: u64) -> Trial {
    match (status.signal(), status.success(), hits) {
        (Some(_), ..) => Trial::Died,
        (None, true, 1..) => Trial::Lived,
        _ => Trial::Failed(io::Error::other(format!("the child ended with {status}, seen {hits} times"))),
    }
}

/// Has a child filter its system calls and return from a function that is watched: how it ended, and how often it was seen.
fn watch_child() -> io::Result<(ExitStatus, u64)> {
    let uprobes = PerfUprobes::find()?;
    let mut child = helper::command_as(Path::new(SELF), COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut watched = || {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line != seccomp_target::READY {
            return Err(io::Error::other("the child is not what it should be"));
        }
        let place = Place { path: Path::new(SELF), spot: (offset()?, 0), pid: child.id() };
        let event = {
            let _edit = edits::begin();
            uprobes.open(&place, true)?
        };
        stdin.write_all(b"\n")?;
        Ok((child.wait()?, event))
    };
    let (status, event): (ExitStatus, OwnedFd) = match watched() {
        Ok(watched) => watched,
        Err(error) => {
            // Both fail only if it has exited, which is as well.
            let _ = child.kill().and_then(|()| child.wait().map(drop));
            return Err(error);
        }
    };
    let mut hits = [0; 8];
    let read = nix::unistd::read(&event, &mut hits);
    aside::drop_aside(event);
    read?;
    Ok((status, u64::from_ne_bytes(hits)))
}

/// Where in this program's file the function is that the child returns from.
fn offset() -> io::Result<u64> {
    let address = seccomp_target::watched as *const () as u64;
    let mappings = maps::read(std::process::id())?;
    let mapping = mappings.iter().find(|mapping| mapping.range.contains(&address));
    let mapping = mapping.ok_or_else(|| io::Error::other("this program's own code is not mapped"))?;
    Ok(address - mapping.range.start + mapping.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_decides_and_without_it_the_release() {
        let failed = || Trial::Failed(io::ErrorKind::PermissionDenied.into());
        for version in [None, Some(KernelVersion(6, 12)), Some(KernelVersion(6, 18))] {
            assert!(!verdict(&Trial::Lived, version) && verdict(&Trial::Died, version));
        }
        let suspects = [(5, 15), (6, 10), (6, 11), (6, 13), (6, 14), (7, 0)];
        let suspected = suspects.map(|(major, minor)| verdict(&failed(), Some(KernelVersion(major, minor))));
        let x86 = cfg!(target_arch = "x86_64");
        assert_eq!(suspected, [false, false, x86, x86, false, false]);
        assert_eq!(verdict(&failed(), None), x86);
    }

    #[test]
    fn ends_of_the_child() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let killed = ExitStatus::from_raw(libc::SIGSYS);
        assert!(matches!(judge(exited(0), 1), Trial::Lived));
        assert!(matches!(judge(killed, 0), Trial::Died));
        // It was not watched, or could not be filtered: nothing is known.
        assert!(matches!(judge(exited(0), 0), Trial::Failed(_)));
        assert!(matches!(judge(exited(1), 0), Trial::Failed(_)));
    }

    #[test]
    fn the_function_is_in_this_file() {
        assert!(offset().unwrap() > 0);
    }
}
