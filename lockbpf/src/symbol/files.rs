//! Open handles of the files that observed processes run, taken while the processes live. A handle keeps a file readable
//! when its process, its mount namespace or its last name is gone; processes that run the same file share one.

use super::debug_file;
use super::debuginfod::{Debuginfod, FetchError};
use super::elf::{ElfError, Layout};
use super::maps::Mapping;
use super::reader::Reader;
use crate::custom::{Inside, catalogue};
use crate::door;
use crate::proc;
use procfs::process::{LimitValue, Process};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Files kept at most, however many descriptors are allowed.
const MAX_FILES: u64 = 4_096;
/// Files that are not kept, as far as they are remembered.
const MAX_REFUSED: usize = 65_536;
/// Descriptors that one file comes to need: itself, its debug file or the symbolizer's own, what that shares with others.
const DESCRIPTORS_PER_FILE: u64 = 3;

/// Number of a kept file; valid as long as its [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FileId(usize);

#[cfg(any(test, fuzzing))]
impl FileId {
    /// For tests of files that no process maps.
    pub(super) const FIRST: Self = Self(0);
}

/// A file that is mapped executable somewhere.
#[derive(Debug)]
pub(super) struct ObjectFile {
    /// Last component of the path under which it was first seen.
    pub(super) name: String,
    /// The file.
    pub(super) file: File,
    /// Its separate debug file, if there is one.
    pub(super) debug: Option<File>,
    /// What its debug information shares with that of other files.
    pub(super) shared_debug: Option<File>,
    /// Its headers.
    pub(super) layout: Layout,
}

/// Bytes of one function's code.
const MAX_CODE: u64 = 1 << 20;

impl ObjectFile {
    /// The code from one address up to another, as the file numbers addresses.
    pub(super) fn code(&self, range: &Range<u64>) -> Option<Vec<u8>> {
        let size = range.end.checked_sub(range.start).filter(|&size| size <= MAX_CODE)?;
        let mut code = vec![0; size as usize];
        self.file.read_exact_at(&mut code, self.layout.code_at(range)?).ok()?;
        Some(code)
    }
}

/// Why a mapped file is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// Not readable any more, or not by this user.
    #[error("failed to open {path}: {source}; its functions and locks stay without names")]
    Open {
        /// As the process has it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Opened, but not usable.
    #[error("failed to read {path}: {source}; its functions and locks stay without names")]
    Elf {
        /// As the process has it.
        path: PathBuf,
        /// Why.
        source: ElfError,
    },
    /// The bound is reached.
    #[error("failed to keep {path} open: {max} files are open already; raise the limit with `ulimit -n`")]
    Full {
        /// As the process has it.
        path: PathBuf,
        /// The bound in force.
        max: usize,
    },
}

/// Every file kept open.
#[derive(Debug)]
pub(super) struct Files {
    /// By number. Nothing is ever removed, so that numbers and descriptors stay valid.
    kept: Vec<ObjectFile>,
    /// Which functions belong to locks that users have described.
    inside: HashMap<FileId, Inside>,
    /// By device and inode: an inode is not reused while its file is open.
    by_inode: HashMap<(u64, u64), FileId>,
    debug_dirs: Vec<PathBuf>,
    debuginfod: Debuginfod,
    /// Files for which servers were asked.
    asked: HashSet<FileId>,
    /// Files that are not kept, by device, inode and time of change: they are not read again.
    refused: HashSet<Refused>,
    reader: Reader,
    max: usize,
}

/// A file that is not kept, as long as it is the same.
type Refused = ((u64, u64), (i64, i64));

impl Files {
    /// No files yet; separate debug files are looked for in `debug_dirs`.
    pub(super) fn new(debug_dirs: Vec<PathBuf>, reader: Reader) -> Self {
        let limit = Process::myself().and_then(|p| p.limits()).map(|l| l.max_open_files.soft_limit);
        let descriptors = match limit {
            Ok(LimitValue::Value(n)) => n,
            _ => u64::MAX,
        };
        // The other half of the descriptors is for probes, maps and ring buffers.
        let max = (descriptors / 2 / DESCRIPTORS_PER_FILE).min(MAX_FILES) as usize;
        Self {
            kept: Vec::new(),
            inside: HashMap::new(),
            by_inode: HashMap::new(),
            debug_dirs,
            debuginfod: Debuginfod::default(),
            asked: HashSet::new(),
            refused: HashSet::new(),
            reader,
            max,
        }
    }

    /// For tests that need no directories of debug files.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::new(Vec::new(), Reader::new(Vec::new()))
    }

    /// A kept file.
    pub(super) fn get(&self, id: FileId) -> Option<&ObjectFile> {
        self.kept.get(id.0)
    }

    /// Whether users have described locks of a kept file, and what belongs to them.
    pub(super) fn has_inside(&self, id: FileId) -> bool {
        self.inside.contains_key(&id)
    }

    /// Whether a function of a kept file, or code without a name, belongs to locks that users have described.
    pub(super) fn is_inside(&self, id: FileId, function: Option<&str>) -> bool {
        self.inside.get(&id).is_some_and(|inside| inside.has(function))
    }

    /// Fetches the debug file of a file that has none, if the user named servers; to be called before any name is wanted of
    /// the file.
    ///
    /// # Errors
    /// Once, when nothing can be fetched.
    pub(super) fn fetch(&mut self, id: FileId) -> Result<(), FetchError> {
        let Some(file) = self.kept.get_mut(id.0) else { return Ok(()) };
        let Some(build_id) = &file.layout.build_id else { return Ok(()) };
        if !file.layout.has_dwarf && file.debug.is_none() && self.asked.insert(id) {
            let fetched = self.debuginfod.fetch(build_id)?;
            let belongs =
                |fetched: &File| self.reader.headers(fetched).is_ok_and(|l| l.build_id.as_ref() == Some(build_id));
            file.debug = fetched.filter(belongs);
            self.reader.forget(id);
        }
        Ok(())
    }

    /// The kept file that a path leads to.
    pub(super) fn at(&self, path: &Path) -> Option<FileId> {
        self.by_inode.get(&inode(&proc::about(path).ok()?)).copied()
    }

    /// Keeps the file behind a mapping of a thread's process, if it is an ELF file; `Ok(None)` for anything else that
    /// can be mapped executable (devices, memory shared under a name).
    pub(super) fn keep(&mut self, tid: u32, mapping: &Mapping) -> Result<Option<FileId>, FileError> {
        let opening = |source| FileError::Open { path: mapping.path.clone(), source };
        let (way, metadata) = locate(tid, mapping).map_err(opening)?;
        if let Some(&id) = self.by_inode.get(&inode(&metadata)) {
            return Ok(Some(id));
        }
        let refused = (inode(&metadata), (metadata.ctime(), metadata.ctime_nsec()));
        if !metadata.is_file() || self.refused.contains(&refused) {
            return Ok(None);
        }
        if self.kept.len() >= self.max {
            return Err(FileError::Full { path: mapping.path.clone(), max: self.max });
        }
        let file = way.open().map_err(opening)?;
        let inode = inode(&file.metadata().map_err(opening)?);
        if inode != self::inode(&metadata) {
            return Err(opening(io::Error::other("another file has taken its place")));
        }
        let layout = match self.reader.headers(&file) {
            Ok(layout) => layout,
            Err(error) => {
                if self.refused.len() < MAX_REFUSED {
                    self.refused.insert(refused);
                }
                return match error {
                    ElfError::NotElf => Ok(None),
                    source => Err(FileError::Elf { path: mapping.path.clone(), source }),
                };
            }
        };
        let root = PathBuf::from(format!("/proc/{tid}/root"));
        let (debug, shared_debug) =
            debug_file::find(&layout, inode, &mapping.path, &root, &self.debug_dirs, &self.reader);
        let id = FileId(self.kept.len());
        if let Some(inside) = catalogue().inside(&mapping.path) {
            self.inside.insert(id, inside);
        }
        self.kept.push(ObjectFile { name: mapping.base_name(), file, debug, shared_debug, layout });
        self.by_inode.insert(inode, id);
        Ok(Some(id))
    }
}

/// Device and inode of an opened or examined file.
pub(super) fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// How a mapped file is opened.
#[derive(Debug)]
enum Way {
    /// By a link that the kernel made for it.
    Link(PathBuf),
    /// By its path below a root directory.
    Below(PathBuf, PathBuf),
}

impl Way {
    fn open(&self) -> io::Result<File> {
        match self {
            Self::Link(link) => door::open_own(link),
            Self::Below(root, path) => door::open_below(root, path),
        }
    }
}

/// A way by which the mapped file, and no other, can be opened.
fn locate(tid: u32, mapping: &Mapping) -> io::Result<(Way, Metadata)> {
    // The mapping's own link leads to the very file, whatever became of its path; it needs CAP_CHECKPOINT_RESTORE.
    let link = PathBuf::from(format!("/proc/{tid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    let error = match proc::about(&link) {
        Ok(metadata) => return Ok((Way::Link(link), metadata)),
        Err(error) => error,
    };
    // The program itself has a link that needs no capability.
    let exe = PathBuf::from(format!("/proc/{tid}/exe"));
    if let Ok(metadata) = proc::about(&exe)
        && (device(&metadata), metadata.ino()) == (mapping.dev, mapping.inode)
    {
        return Ok((Way::Link(exe), metadata));
    }
    if mapping.deleted {
        return Err(error);
    }
    // As the process sees it (another mount namespace), or as we do (chroot).
    [PathBuf::from(format!("/proc/{tid}/root")), PathBuf::from("/")]
        .into_iter()
        .map(|root| Way::Below(root, mapping.path.clone()))
        .filter_map(|way| way.open().and_then(|file| file.metadata()).ok().map(|metadata| (way, metadata)))
        .find(|(_, metadata)| may_be(mapping, metadata))
        .ok_or(error)
}

fn device(metadata: &Metadata) -> (u32, u32) {
    (libc::major(metadata.dev()), libc::minor(metadata.dev()))
}

/// Whether a path leads to the mapped file, as far as numbers tell: overlayfs and btrfs show in maps another device, and
/// so perhaps another inode number, than stat does.
fn may_be(mapping: &Mapping, metadata: &Metadata) -> bool {
    metadata.ino() == mapping.inode || device(metadata) != mapping.dev
}

/// An absolute path below another root.
pub(super) fn in_root(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::super::maps;
    use super::*;
    use std::fs;

    fn own_code(name: &str) -> Mapping {
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let maps = maps::read(std::process::id()).unwrap().1;
        maps.into_iter()
            .find(|m| if name.is_empty() { m.path == exe } else { m.base_name().starts_with(name) })
            .unwrap()
    }

    #[test]
    fn a_file_is_kept_once_and_only_up_to_the_bound() {
        let mut files = Files::none();
        assert!(files.max > 0);
        let code = own_code("");
        let id = files.keep(std::process::id(), &code).unwrap().unwrap();
        assert_eq!(files.keep(std::process::id(), &code).unwrap(), Some(id));
        assert_eq!(files.kept.len(), 1);
        files.max = 1;
        let error = files.keep(std::process::id(), &own_code("libc")).unwrap_err();
        assert!(error.to_string().contains("ulimit"), "{error}");
    }

    #[test]
    fn without_map_files_the_path_must_lead_to_the_same_inode() {
        // No mapping has this range, so that map_files has no such link.
        let hidden = |name| Mapping { start: 0x1000, end: 0x2000, deleted: true, ..own_code(name) };
        let (program, libc) = (hidden(""), hidden("libc"));
        let found = locate(std::process::id(), &program).unwrap().1;
        assert_eq!(found.ino(), program.inode);
        assert!(locate(std::process::id(), &libc).is_err());
        let libc = Mapping { deleted: false, ..libc };
        let (way, metadata) = locate(std::process::id(), &libc).unwrap();
        assert!(matches!(way, Way::Below(root, path) if root.starts_with("/proc") && path == libc.path));
        assert_eq!(metadata.ino(), libc.inode);
        assert!(locate(std::process::id(), &Mapping { inode: libc.inode + 1, ..libc }).is_err());
    }
}
