//! Rights that the user does not have: file capabilities (`setcap`) lend them to whoever runs the program. They are laid down at its start,
//! but for the one that eBPF maps need; what looks into others' processes, or loads programs, takes them up for the call.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{getgid, getgroups};
use std::fs::{self, File};
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// What kernels before 5.19 ask for at each look into a map. No file or process of others can be opened with the first; the second includes it, and
/// takes its place where only that is lent.
const FOR_MAPS: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_SYS_ADMIN];

/// Set once lent rights were laid down.
static LAID_DOWN: OnceLock<()> = OnceLock::new();

/// Why rights are not as they should be.
#[derive(Debug, thiserror::Error)]
#[error("failed to change this process's capabilities: {0}")]
pub struct RightsError(#[from] CapsError);

/// Whether this process has rights that its user has not.
#[must_use]
pub fn are_lent() -> bool {
    static LENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: it reads a number that the kernel gave this process at its start.
    *LENT.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } != 0)
}

/// Whether the user may observe whoever there is: with rights of their own, or as a member of the group that the program belongs to.
#[must_use]
pub fn covers_others() -> bool {
    !are_lent() || group().is_some_and(|group| group == getgid().as_raw() || is_in(group))
}

/// The group whose members may observe whoever there is; root's is none.
#[must_use]
pub fn group() -> Option<u32> {
    fs::metadata("/proc/self/exe").ok().map(|about| about.gid()).filter(|&group| group != 0)
}

fn is_in(group: u32) -> bool {
    getgroups().is_ok_and(|groups| groups.iter().any(|known| known.as_raw() == group))
}

/// Whether the user may observe a process: as the kernel decides who may read a process's memory, without the rights that are lent.
#[must_use]
pub fn covers(pid: u32) -> bool {
    let as_user = || {
        let _none = Changed::to(&CapsHashSet::new())?;
        File::open(format!("/proc/{pid}/maps")).ok()
    };
    covers_others() || as_user().is_some()
}

/// Lays down lent rights but for the one that maps need. This thread, and those that it will start, keep that one until they
/// [give it up](give_up).
///
/// # Errors
/// When the kernel does not let this process.
pub fn lay_down() -> Result<(), RightsError> {
    if are_lent() {
        let has = caps::read(None, CapSet::Permitted)?;
        caps::set(
            None,
            CapSet::Effective,
            &FOR_MAPS.into_iter().find(|wanted| has.contains(wanted)).into_iter().collect(),
        )?;
        LAID_DOWN.get_or_init(|| ());
    }
    Ok(())
}

/// Does something with all rights that this thread may take up: opens what belongs to others, looks into their processes, loads or attaches
/// a program.
pub fn reach<T>(act: impl FnOnce() -> T) -> T {
    // Without them, what needs them says so itself.
    let _all = LAID_DOWN.get().and_then(|()| Changed::to(&caps::read(None, CapSet::Permitted).ok()?));
    act()
}

/// Other effective rights of this thread, until it goes.
struct Changed {
    before: CapsHashSet,
    /// They are this thread's.
    _stays: PhantomData<*const ()>,
}

impl Changed {
    /// `None` where the kernel does not let this process.
    fn to(wanted: &CapsHashSet) -> Option<Self> {
        let before = caps::read(None, CapSet::Effective).ok()?;
        caps::set(None, CapSet::Effective, wanted).ok()?;
        Some(Self { before, _stays: PhantomData })
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = caps::set(None, CapSet::Effective, &self.before) {
            log::warn!("failed to change capabilities back: {error}");
        }
    }
}

/// The capabilities that this thread can have now.
///
/// # Errors
/// If the kernel does not tell.
pub fn available() -> Result<CapsHashSet, CapsError> {
    caps::read(None, if LAID_DOWN.get().is_some() { CapSet::Permitted } else { CapSet::Effective })
}

/// Has the calling thread give up lent rights for good: what it does from then on observes nobody.
///
/// # Errors
/// When the kernel does not let this process.
pub fn give_up() -> Result<(), RightsError> {
    if are_lent() {
        for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
            caps::clear(None, set)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lent_to_a_test() {
        let effective = || caps::read(None, CapSet::Effective).unwrap();
        assert!(!are_lent() && covers_others() && covers(1));
        let before = (effective(), caps::read(None, CapSet::Permitted).unwrap());
        lay_down().unwrap();
        assert_eq!(reach(effective), before.0);
        assert_eq!(available().unwrap(), before.0);
        give_up().unwrap();
        assert_eq!((effective(), caps::read(None, CapSet::Permitted).unwrap()), before);
    }

    #[test]
    fn rights_are_changed_for_a_while() {
        let effective = || caps::read(None, CapSet::Effective).unwrap();
        let before = effective();
        {
            let _none = Changed::to(&CapsHashSet::new()).unwrap();
            assert!(effective().is_empty());
            {
                let _all = Changed::to(&before).unwrap();
                assert_eq!(effective(), before);
            }
            assert!(effective().is_empty());
        }
        assert_eq!(effective(), before);
    }
}
