//! As whom a command runs.

use nix::unistd::{Gid, Uid, geteuid, getgrouplist, getuid, setgid, setgroups, setuid};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Variables that lead to what belongs to the user who runs this program.
const FOREIGN: [&str; 3] = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY"];

/// Why somebody cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no such user.
    #[error("there is no user {0:?}")]
    Unknown(String),
    /// The lists of users or groups cannot be read.
    #[error("failed to look up user {name}")]
    Lookup {
        /// The user.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A user, with all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    home: PathBuf,
    shell: PathBuf,
}

impl User {
    /// Finds a user by name or number.
    ///
    /// # Errors
    /// When there is none of that name or number.
    pub fn find(name: &str) -> Result<Self, UserError> {
        let failed = |errno: nix::Error| UserError::Lookup { name: name.to_owned(), source: errno.into() };
        let by_number = || name.parse().ok().map(|uid| nix::unistd::User::from_uid(Uid::from_raw(uid)));
        let found = match nix::unistd::User::from_name(name).map_err(failed)? {
            Some(user) => Some(user),
            None => by_number().transpose().map_err(failed)?.flatten(),
        };
        let user = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
        let nul = |error: std::ffi::NulError| UserError::Lookup { name: name.to_owned(), source: error.into() };
        let groups = getgrouplist(&CString::new(user.name.as_str()).map_err(nul)?, user.gid).map_err(failed)?;
        Ok(Self { name: user.name, uid: user.uid, gid: user.gid, groups, home: user.dir, shell: user.shell })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a command run as this user, with the groups and the variables that a log-in gives; the directory and `PATH` stay.
    pub(super) fn apply(&self, command: &mut Command) {
        FOREIGN.iter().for_each(|variable| _ = command.env_remove(variable));
        command.env("USER", &self.name).env("LOGNAME", &self.name);
        command.env("HOME", &self.home).env("SHELL", self.shell());
        if self.uid == getuid() && self.uid == geteuid() {
            return;
        }
        let (uid, gid, groups) = (self.uid, self.gid, self.groups.clone());
        let change = move || {
            // The user last: who is no longer root may not change groups.
            setgroups(&groups).and_then(|()| setgid(gid)).and_then(|()| setuid(uid)).map_err(io::Error::from)
        };
        // SAFETY: each is a system call and nothing else in a process of one thread, which is all that may run between fork and exec.
        unsafe { command.pre_exec(change) };
    }

    fn shell(&self) -> OsString {
        if self.shell.as_os_str().is_empty() { "/bin/sh".into() } else { self.shell.clone().into() }
    }
}

/// The name of the user who runs this program, or the number of one without a name.
#[must_use]
pub fn own_name() -> String {
    let uid = geteuid();
    nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_go_by_name_or_number() {
        let root = User::find("root").unwrap();
        assert_eq!((root.name(), root.uid), ("root", Uid::from_raw(0)));
        assert_eq!(User::find("0").unwrap(), root);
        assert!(root.groups.contains(&root.gid));
        for name in ["", "no such user", "4294967294", "-1"] {
            assert!(matches!(User::find(name), Err(UserError::Unknown(_))), "{name}");
        }
    }
}
