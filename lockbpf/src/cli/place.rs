//! Where an output may be written: what is there already, and whether others could have put it there.

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid, fchown, geteuid};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a new output: recordings tell what a program does.
pub(super) const NEW_MODE: u32 = 0o600;

/// The end of the name under which an output lies beside its place while it is written: `.NAME.XXXXXX.part`.
pub(super) const PART: &str = ".part";

/// Whether a name is that of an output that was not finished.
pub(super) fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with('.') && name.ends_with(PART)
}

/// Mode and owner of a file that an output takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Kept {
    fn of(about: &Metadata) -> Self {
        Self { mode: about.mode() & 0o777, uid: about.uid(), gid: about.gid() }
    }

    /// Gives them to another file.
    ///
    /// # Errors
    /// When the owner cannot stay the same: only root may give files away.
    pub(super) fn give(self, file: &File) -> io::Result<()> {
        let about = file.metadata()?;
        let mut mode = self.mode;
        if about.uid() != self.uid {
            fchown(file, Some(Uid::from_raw(self.uid)), None)?;
        }
        // A group that one is not in cannot be given; then no other group may do what it could.
        if about.gid() != self.gid && fchown(file, None, Some(Gid::from_raw(self.gid))).is_err() {
            mode &= !0o070;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }
}

/// The place that an output is written to, through links that may be followed; what is there has to keep its mode and owner.
///
/// # Errors
/// When others could have put there what is there: a link in a directory that they may write to.
pub(super) fn resolve(path: &Path) -> Result<(PathBuf, Option<Kept>)> {
    let failed = || format!("failed to create {}", path.display());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path.to_owned(), None)),
        Err(error) => Err(error).with_context(failed),
        Ok(about) if about.is_symlink() => {
            let dir = dir_of(path);
            let own = about.uid() == geteuid().as_raw();
            if !own && others_write(&fs::metadata(dir).with_context(failed)?) {
                bail!(
                    "{}: it is a link of another user in a directory that others may write to: name another file",
                    failed()
                );
            }
            // What a link leads to is replaced, not the link.
            let to = match fs::canonicalize(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    bail!("{}: it is a link that leads to no file", failed());
                }
                to => to.with_context(failed)?,
            };
            let kept = fs::metadata(&to).with_context(failed)?;
            Ok((to, Some(Kept::of(&kept))))
        }
        Ok(about) => Ok((path.to_owned(), Some(Kept::of(&about)))),
    }
}

/// The directory that a path is in.
pub(super) fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether somebody else than this user and root may put names into a directory.
pub(super) fn others_write(dir: &Metadata) -> bool {
    dir.mode() & 0o022 != 0 || ![0, geteuid().as_raw()].contains(&dir.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::AtFlags;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_others_are_not_followed() {
        if !geteuid().is_root() {
            return eprintln!("skipped: only root can make links of another user");
        }
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        assert_eq!(resolve(&link).unwrap().0, target.canonicalize().unwrap());
        let nobody = Some(Uid::from_raw(65_534));
        nix::unistd::fchownat(nix::fcntl::AT_FDCWD, &link, nobody, None, AtFlags::AT_SYMLINK_NOFOLLOW).unwrap();
        assert!(resolve(&link).is_ok(), "nobody else writes to the directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(resolve(&link).unwrap_err().to_string().contains("link of another user"));
    }
}
