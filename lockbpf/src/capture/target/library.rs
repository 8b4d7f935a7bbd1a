//! One file: whether its lock functions can be probed, and where.

use super::file::File;
use crate::capture::attach::ProbeSite;
use crate::capture::described::{self, Wanted};
use crate::capture::elf::Libc;
use crate::capture::judge::Role;
use crate::capture::prologue::{Cost, Reason};
use crate::capture::reader::{self, Asked};
use crate::capture::site::{Missing, Site};
use crate::capture::unusable::Unusable;
use crate::custom::catalogue;
use crate::door;
use crate::untrusted::shown_bytes;
use lockbpf_common::function::{CUSTOM, SPIN_TRIED};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file by device and inode number.
pub type FileKey = (u64, u64);

/// A file with lock functions: a C library, or a static executable.
#[derive(Clone, Debug)]
pub struct Library {
    /// By which this process reached the file when it was found. May lead through a process's directory in `/proc`.
    pub path: PathBuf,
    /// The file itself, whatever becomes of its path; `None` if it cannot be read.
    pub open: Option<Arc<std::fs::File>>,
    /// Path as its users see it.
    pub display: String,
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Processes known to use it.
    pub pids: Vec<u32>,
    /// Whose C library it contains; `None` if it is not looked for one, or cannot be read.
    pub libc: Option<Libc>,
    /// Build id, if it has one.
    pub build_id: Option<Vec<u8>>,
    /// Where its probes go; empty if it is unusable.
    pub sites: Vec<Site>,
    /// What cannot be probed in it.
    pub missing: Vec<Missing>,
    /// Why nothing in it is probed, if so.
    pub unusable: Option<Unusable>,
}

impl Library {
    /// A file of which nothing is known but where it is.
    pub(super) fn unread(file: &File, display: &Path) -> Self {
        Self {
            path: file.path.clone(),
            open: None,
            display: shown_bytes(display.as_os_str().as_bytes()),
            dev: file.dev,
            ino: file.ino,
            pids: Vec::new(),
            libc: None,
            build_id: None,
            sites: Vec::new(),
            missing: Vec::new(),
            unusable: None,
        }
    }

    /// Its probes, at the cheapest correct instructions or at the functions' first ones.
    pub fn probe_sites(&self, at_entry: bool) -> impl Iterator<Item = ProbeSite> {
        self.sites.iter().filter_map(move |site| self.probe_site(site, at_entry))
    }

    /// The probe of a site in this file; `None` if it cannot be read.
    pub(in crate::capture) fn probe_site(&self, site: &Site, at_entry: bool) -> Option<ProbeSite> {
        let fixed = site.function.code == SPIN_TRIED
            || matches!(site.placement.reason, Reason::Return | Reason::LoopExit | Reason::PastNop | Reason::FlagSet);
        let back = if at_entry && !fixed { site.placement.offset } else { 0 };
        Some(ProbeSite {
            open: Arc::clone(self.open.as_ref()?),
            file: (self.dev, self.ino),
            display: self.display.clone(),
            function: site.function,
            file_offset: site.file_offset.checked_sub(back)?,
            // Where the choice went elsewhere, the first instruction is none that the kernel emulates.
            stepped: back > 0 || site.placement.cost == Cost::SingleStepped,
            detail: match site.function.code {
                CUSTOM if back > 0 => described::ahead(site.detail, back)?,
                _ if back > 0 => 0,
                _ => site.detail,
            },
            counter: site.counter,
        })
    }
}

/// Whether something in a file or a process can be probed.
pub(super) type Verdict = Result<(), Unusable>;

/// Has a file looked into, and its probes placed; `None` for one that has nothing to probe, such as the empty libpthread that glibc has kept
/// since 2.34. Of an executable whose process has a C library (`has_library`) locks of that kind are not looked for.
///
/// # Errors
/// If it is an executable, but none that lockbpf could observe.
pub(super) fn examine(file: &File, display: &Path, role: Role, has_library: bool) -> Result<Option<Library>, Unusable> {
    let mut library = Library::unread(file, display);
    let open = match open(file) {
        Ok(open) => open,
        Err(error) => {
            library.unusable = Some(Unusable::Unreadable(error.to_string()));
            return Ok(Some(library));
        }
    };
    let asked = Asked { role, has_library, wanted: Wanted::of(catalogue(), display) };
    match reader::places(&open, &asked) {
        Ok(Some(told)) => {
            library.libc = told.libc;
            library.build_id = told.build_id;
            library.sites = told.sites;
            library.missing = told.missing;
            library.unusable = told.unusable;
        }
        Ok(None) => return Ok(None),
        Err(why @ Unusable::Elf(_)) if role == Role::Executable => return Err(why),
        Err(why) => library.unusable = Some(why),
    }
    library.open = Some(Arc::new(open));
    Ok(Some(library))
}

/// Opens the file that was looked at, and no other.
fn open(file: &File) -> std::io::Result<std::fs::File> {
    let open = if file.named { door::open_named(&file.path) } else { door::open_own(&file.path) }?;
    let about = open.metadata()?;
    if (about.dev(), about.ino()) != (file.dev, file.ino) {
        return Err(std::io::Error::other("another file has taken its place"));
    }
    Ok(open)
}
