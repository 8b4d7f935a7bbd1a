//! Where a flight recorder's segments are: in memory, or in a directory that outlives it.

use super::place;
use crate::flight::{Joined, Part, join};
use crate::trace::Compression;
use anyhow::{Context, Result, bail};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Segments are called that, with their numbers behind it.
const PREFIX: &str = "segment-";
/// What segments' names end with.
const SUFFIX: &str = ".bin";
/// Whose lock tells that a recorder uses the directory.
const LOCK: &str = "lock";
/// Where the segments of the recorder before are put.
const BEFORE: &str = "before";

/// A segment that is being written.
pub(super) enum Open {
    /// In memory.
    Memory(Vec<u8>),
    /// In a file of this name.
    File(File, PathBuf),
}

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => memory.write(bytes),
            Self::File(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file, _) => file.flush(),
        }
    }
}

impl Open {
    /// It is complete.
    pub(super) fn close(self) -> Closed {
        match self {
            Self::Memory(mut memory) => {
                memory.shrink_to_fit();
                Closed::Memory(Arc::new(memory))
            }
            Self::File(_, path) => Closed::File(path),
        }
    }
}

/// A segment that is complete.
pub(super) enum Closed {
    /// In memory.
    Memory(Arc<Vec<u8>>),
    /// In a file.
    File(PathBuf),
}

impl Closed {
    /// Holds it for a reader, whatever becomes of it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn hold(&self) -> io::Result<Held> {
        Ok(match self {
            Self::Memory(memory) => Held::Memory(memory.clone()),
            Self::File(path) => Held::File(open(path)?),
        })
    }
}

/// A segment that is read.
pub(super) enum Held {
    /// In memory.
    Memory(Arc<Vec<u8>>),
    /// An opened file.
    File(File),
}

impl Part for Held {
    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Memory(memory) => Box::new(memory.as_slice()),
            Self::File(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(0))?;
                Box::new(file)
            }
        })
    }
}

/// Where segments are put.
pub(super) enum Store {
    /// Into memory.
    Memory,
    /// Into a directory, which is nobody else's meanwhile.
    Dir {
        /// Its path.
        path: PathBuf,
        /// Locked as long as it is used.
        _lock: File,
    },
}

impl Store {
    /// Prepares a directory, which is made if there is none. Segments of a recorder that was there before are put aside in it.
    ///
    /// # Errors
    /// When it cannot be used, others could write there, or another recorder uses it.
    pub(super) fn dir(path: &Path) -> Result<Self> {
        let failed = || format!("failed to keep a flight recorder's segments in {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
        let path = fs::canonicalize(path).with_context(failed)?;
        if place::others_write(&fs::metadata(&path).with_context(failed)?) {
            bail!("{}: others may write to that directory: name one of your own", failed());
        }
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(place::NEW_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path.join(LOCK))
            .with_context(failed)?;
        if lock.try_lock().is_err() {
            bail!("{}: another lockbpf keeps its segments there", failed());
        }
        put_aside(&path).with_context(failed)?;
        Ok(Self::Dir { path, _lock: lock })
    }

    /// A new segment.
    ///
    /// # Errors
    /// When no file can be created.
    pub(super) fn create(&self, number: u64) -> io::Result<Open> {
        let Self::Dir { path, .. } = self else { return Ok(Open::Memory(Vec::new())) };
        let path = path.join(format!("{PREFIX}{number:010}{SUFFIX}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(place::NEW_MODE).custom_flags(libc::O_NOFOLLOW);
        Ok(Open::File(options.open(&path)?, path))
    }

    /// A segment is not kept any more.
    pub(super) fn drop(closed: Closed) {
        if let Closed::File(path) = closed {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }

    /// Whether segments outlive this program.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Self::Dir { .. })
    }
}

/// Puts the segments of an earlier recorder aside, in place of those of the one before that.
fn put_aside(dir: &Path) -> io::Result<()> {
    let segments = segments(dir)?;
    if segments.is_empty() {
        return Ok(());
    }
    let before = dir.join(BEFORE);
    match DirBuilder::new().mode(0o700).create(&before) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !fs::symlink_metadata(&before)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no directory", before.display())));
    }
    for old in self::segments(&before)? {
        fs::remove_file(old)?;
    }
    for segment in segments {
        let Some(name) = segment.file_name() else { continue };
        fs::rename(&segment, before.join(name))?;
    }
    Ok(())
}

/// The segments in a directory, oldest first.
fn segments(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u64>().ok());
        all.extend(number.map(|number| (number, dir.join(name))));
    }
    all.sort_unstable();
    Ok(all.into_iter().map(|(_, path)| path).collect())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Whether a path leads to a directory.
pub(super) fn is_dir(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_dir())
}

/// One recording of the segments in a directory, whether their recorder still runs, has ended or was killed.
///
/// # Errors
/// When there are none, or they cannot be read.
pub(super) fn joined<W: Write>(dir: &Path, out: W) -> Result<(W, Joined)> {
    let failed = || format!("failed to read {}", dir.display());
    let paths = segments(dir).with_context(failed)?;
    if paths.is_empty() {
        bail!("{}: it is a directory without a flight recorder's segments (--keep-dir)", failed());
    }
    let mut held = Vec::with_capacity(paths.len());
    for path in paths {
        match open(&path) {
            Ok(file) => held.push(Held::File(file)),
            // A recorder that runs has dropped it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(failed),
        }
    }
    let (out, joined) = join(&held, &[], BufWriter::new(out), Compression::None).with_context(failed)?;
    Ok((out.into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?, joined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn names(dir: &Path) -> Vec<String> {
        let all = segments(dir).unwrap();
        all.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_directory_is_one_recorders_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let store = Store::dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let Open::File(_, segment) = store.create(3).unwrap() else { panic!("it is in memory") };
        assert_eq!(fs::metadata(&segment).unwrap().mode() & 0o777, 0o600);
        assert_eq!(names(&path), ["segment-0000000003.bin"]);
        let error = Store::dir(&path).err().unwrap().to_string();
        assert!(error.contains("another lockbpf"), "{error}");
        drop(store);
        // The next one keeps what the last one has left, but not what was left before that.
        for number in [4, 5] {
            let store = Store::dir(&path).unwrap();
            assert!(names(&path).is_empty());
            store.create(number).unwrap();
        }
        assert_eq!((names(&path).len(), names(&path.join(BEFORE))), (1, vec!["segment-0000000004.bin".to_owned()]));
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        let error = Store::dir(&path).err().unwrap().to_string();
        assert!(error.contains("others may write"), "{error}");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::dir(dir.path()).unwrap();
        let victim = dir.path().join("victim");
        symlink(&victim, dir.path().join("segment-0000000000.bin")).unwrap();
        assert!(store.create(0).is_err());
        assert!(!victim.exists());
        fs::write(&victim, "text").unwrap();
        assert!(joined(dir.path(), Vec::new()).is_err());
    }
}
