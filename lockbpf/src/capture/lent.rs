//! Rights that the user does not have: file capabilities (`setcap`) lend them to whoever runs the program. They are for observing, and
//! for what the user may look into; files that the user names are opened without them.

use caps::CapSet;
use nix::unistd::{getgid, getgroups};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

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
    covers_others() || as_user(|| File::open(format!("/proc/{pid}/maps"))).is_ok()
}

/// Does something with the user's own rights only.
pub fn as_user<T>(act: impl FnOnce() -> T) -> T {
    if !are_lent() {
        return act();
    }
    let kept = caps::read(None, CapSet::Effective).unwrap_or_default();
    if caps::clear(None, CapSet::Effective).is_err() {
        log::warn!("failed to lay down capabilities for a moment; what is done now is done with them");
    }
    let done = act();
    if let Err(error) = caps::set(None, CapSet::Effective, &kept) {
        log::warn!("failed to take up capabilities again: {error}");
    }
    done
}

/// Has the calling thread give them up for good: what it does from then on observes nobody.
///
/// # Errors
/// When the kernel does not let this process.
pub fn give_up() -> Result<(), NotGivenUp> {
    if are_lent() {
        for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
            caps::clear(None, set)?;
        }
    }
    Ok(())
}

/// Why lent rights are still there.
#[derive(Debug, thiserror::Error)]
#[error("failed to give up capabilities that are needed no more: {0}")]
pub struct NotGivenUp(#[from] caps::errors::CapsError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lent_to_a_test() {
        assert!(!are_lent() && covers_others() && covers(1));
        assert_eq!(
            as_user(|| caps::read(None, CapSet::Effective).unwrap()),
            caps::read(None, CapSet::Effective).unwrap()
        );
        let before = caps::read(None, CapSet::Permitted).unwrap();
        give_up().unwrap();
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
    }
}
