//! One file: whether its lock functions can be probed, and where.

use super::error::Unusable;
use super::file::File;
use crate::capture::attach::ProbeSite;
use crate::capture::described;
use crate::capture::elf::{self, Code, Found, GlibcVersion, Image, Libc, Linkage};
use crate::capture::go;
use crate::capture::mangled;
use crate::capture::probe_table::{By, FUNCTIONS, Function, Runtime};
use crate::capture::prologue::{self, Arch, Cost, Placement, Reason};
use crate::custom::catalogue;
use crate::door;
use crate::untrusted::shown_bytes;
use lockbpf_common::function::{CUSTOM, SEM_BUSY, SEM_POST, SEM_TAKEN, SPIN_TRIED, WRAPPER};
use lockbpf_common::gate;
use lockbpf_common::via::Via;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file by device and inode number.
pub type FileKey = (u64, u64);

/// Where a probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The probed function.
    pub function: Function,
    /// Where the probe goes in the file, bytes.
    pub file_offset: u64,
    /// Where that is in the function, at which price and why.
    pub placement: Placement,
    /// What else the program is told by the cookie ([`lockbpf_common::gate::with_detail`]); 0 for nothing.
    pub detail: u16,
}

impl Site {
    /// The cheapest correct place; `None` if the kernel would refuse it, or if it would harm the process.
    pub(in crate::capture) fn of(function: Function, code: &Code, arch: Arch) -> Option<Self> {
        let Code { vaddr, file_offset, ref bytes, complete } = *code;
        let usual = || {
            if complete {
                prologue::place(arch, bytes, vaddr, function.args)
            } else {
                prologue::at_entry(arch, bytes, vaddr, Reason::ExtentUnknown)
            }
        };
        let stepped = || complete && usual().cost == Cost::SingleStepped;
        let mut detail = 0;
        let placement = match function.code {
            SPIN_TRIED => prologue::after_locked(arch, bytes, vaddr)?,
            _ if prologue::is_refused(arch, bytes, vaddr) => return None,
            SEM_POST if stepped() => prologue::after_loop(arch, bytes, vaddr).unwrap_or_else(usual),
            WRAPPER if stepped() => match prologue::at_call(arch, bytes, vaddr) {
                Some((placement, frame)) if let Some(told) = gate::frame(frame) => {
                    detail = told;
                    placement
                }
                _ => usual(),
            },
            _ => usual(),
        };
        if prologue::is_rewritten(arch, bytes, placement.offset) {
            return None;
        }
        Some(Self { function, file_offset: file_offset.checked_add(placement.offset)?, placement, detail })
    }

    /// The cheapest correct places: one, or where that would be single-stepped, perhaps two that tell how the call went.
    fn all(function: Function, code: &Code, arch: Arch) -> Vec<Self> {
        let one = Self::of(function, code, arch);
        let dear = one.as_ref().is_some_and(|site| site.placement.cost == Cost::SingleStepped);
        let may_fail = function.code == Via::TrySemWait as u64 && dear && code.complete;
        let exits = may_fail.then(|| prologue::loop_exits(arch, &code.bytes, code.vaddr)).flatten();
        let Some([fails, succeeds]) = exits else { return one.into_iter().collect() };
        let site = |(placement, condition): (Placement, u8), told: u64| {
            let function = Function { code: told, by: By::OtherEntry, ..function };
            let file_offset = code.file_offset.checked_add(placement.offset)?;
            Some(Self { function, file_offset, placement, detail: gate::condition(condition) })
        };
        [site(fails, SEM_BUSY), site(succeeds, SEM_TAKEN)].into_iter().flatten().collect()
    }
}

/// A function that should be probed and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The function.
    pub function: Function,
    /// Why.
    pub reason: &'static str,
}

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

    /// Places the probes; returns whether there is anything to probe. The symbols, which may be many, are read only where a C
    /// library may be among them.
    pub(super) fn judge(&mut self, data: &[u8], role: Role) -> Result<bool, Unusable> {
        let headers = elf::headers(data)?;
        let has_libc = match role {
            Role::CLibrary => true,
            Role::Executable => !matches!(headers.linkage, Linkage::Dynamic { .. }),
            Role::Library => false,
        };
        let host = Arch::host().filter(|host| *host == headers.arch);
        let go = host.filter(|_| role == Role::Executable).and_then(|arch| go::examine(data, arch));
        let own = host.filter(|_| role != Role::CLibrary);
        let mut compiled = own.map_or_else(Vec::new, |arch| mangled::sites(data, arch));
        let custom = own.map(|arch| described::find(catalogue(), Path::new(&self.display), data, arch));
        let described::Found { sites: custom, missing: lacking, .. } = custom.unwrap_or_default();
        // What the user says of a function counts.
        compiled.retain(|site| custom.iter().all(|own| own.file_offset != site.file_offset));
        compiled.extend(custom);
        if !has_libc && go.is_none() && compiled.is_empty() && lacking.is_empty() {
            return Ok(false);
        }
        let mut found = Ok(Vec::new());
        if has_libc {
            let mut image = elf::locate(data, FUNCTIONS)?;
            let runtime = if image.libc == Libc::Musl { Runtime::Musl } else { Runtime::Glibc };
            image.functions.retain(|(function, _)| function.runtime == runtime);
            if role == Role::CLibrary && is_empty_libpthread(&image) {
                return Ok(false);
            }
            self.missing = missing(&image, role);
            self.libc = Some(image.libc);
            found = judge(&image, role, &self.missing).map(|()| sites(&image));
        }
        self.build_id = elf::build_id(data);
        // A cgo program has C functions too, but Go's own locks are what it waits for.
        match go.unwrap_or(found) {
            Ok(sites) => self.sites = sites,
            Err(why) if compiled.is_empty() => return Err(why),
            Err(_) => {}
        }
        self.sites.extend(compiled);
        self.missing.extend(lacking);
        Ok(true)
    }

    /// Its probes, at the cheapest correct instructions or at the functions' first ones.
    pub fn probe_sites(&self, at_entry: bool) -> impl Iterator<Item = ProbeSite> {
        self.sites.iter().filter_map(move |site| self.probe_site(site, at_entry))
    }

    /// The probe of a site in this file; `None` if it cannot be read.
    pub(in crate::capture) fn probe_site(&self, site: &Site, at_entry: bool) -> Option<ProbeSite> {
        let fixed = site.function.code == SPIN_TRIED
            || matches!(site.placement.reason, Reason::Return | Reason::LoopExit | Reason::PastNop);
        let back = if at_entry && !fixed { site.placement.offset } else { 0 };
        Some(ProbeSite {
            open: Arc::clone(self.open.as_ref()?),
            file: (self.dev, self.ino),
            display: self.display.clone(),
            function: site.function,
            file_offset: site.file_offset.checked_sub(back)?,
            // Where the choice went elsewhere, the first instruction is none that the kernel emulates.
            stepped: back > 0 || site.placement.cost == Cost::SingleStepped,
            detail: if back > 0 && site.function.code != CUSTOM { 0 } else { site.detail },
        })
    }
}

/// What a file is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A shared C library, or libpthread.
    CLibrary,
    /// The program itself.
    Executable,
    /// Another library, in which locks of its own are compiled.
    Library,
}

/// Whether something in a file or a process can be probed.
pub(super) type Verdict = Result<(), Unusable>;

/// Reads a file and places its probes; `None` for one that has nothing to probe, such as the empty libpthread that glibc has kept
/// since 2.34.
pub(super) fn examine(file: &File, display: &Path, role: Role) -> Option<Library> {
    let mut library = Library::unread(file, display);
    let judged = match read(file) {
        Ok((open, data)) => {
            library.open = Some(Arc::new(open));
            library.judge(&data, role)
        }
        Err(error) => Err(Unusable::Unreadable(error.to_string())),
    };
    match judged {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => library.unusable = Some(why),
    }
    Some(library)
}

/// Bytes of a file in which functions to be probed are looked for. It is read whole; programs that are larger are linked dynamically.
const MAX_BYTES: u64 = 512 << 20;

/// The bytes of an open file, unless there are more than any program to be probed has.
pub fn read_whole(open: &std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    // Its length first, so that a very large one is not read for nothing; it may grow meanwhile.
    let mut length = open.metadata()?.len();
    if length <= MAX_BYTES {
        length = open.take(MAX_BYTES + 1).read_to_end(&mut data)? as u64;
    }
    if length > MAX_BYTES { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(data) }
}

/// Opens the file that was looked at, and no other, and reads it.
fn read(file: &File) -> std::io::Result<(std::fs::File, Vec<u8>)> {
    let open = door::open_own(&file.path)?;
    let about = open.metadata()?;
    if (about.dev(), about.ino()) != (file.dev, file.ino) {
        return Err(std::io::Error::other("another file has taken its place"));
    }
    let data = read_whole(&open)?;
    Ok((open, data))
}

fn is_empty_libpthread(image: &Image) -> bool {
    matches!(image.libc, Libc::Glibc(_)) && image.functions.iter().all(|(_, found)| *found == Found::Absent)
}

/// Whether a file's lock functions can be probed and are those that its users call.
fn judge(image: &Image, role: Role, missing: &[Missing]) -> Verdict {
    let has = |symbol| image.functions.iter().any(|(f, found)| f.symbol == symbol && *found != Found::Absent);
    if Some(image.headers.arch) != Arch::host() {
        return Err(Unusable::ForeignProcessor);
    }
    if role == Role::Executable {
        if !image.has_symbols {
            return Err(Unusable::StaticWithoutSymbols);
        }
        if image.functions.iter().all(|(_, found)| *found == Found::Absent) {
            return Err(Unusable::StaticWithoutLocks);
        }
    }
    match image.libc {
        Libc::Musl => {}
        Libc::Unknown => return Err(Unusable::UnknownLibc),
        // libc's stubs never included this one.
        Libc::Glibc(Some(version)) if version < GlibcVersion::LIBPTHREAD_MERGED && !has("pthread_mutex_timedlock") => {
            return Err(Unusable::Stubs(version));
        }
        Libc::Glibc(_) => {}
    }
    let lacking: Vec<_> = missing.iter().filter(|m| m.function.essential).map(|m| m.function.symbol).collect();
    if lacking.is_empty() { Ok(()) } else { Err(Unusable::Lacks(lacking.join(", "))) }
}

/// What cannot be probed. What a static executable does not define, it does not call.
fn missing(image: &Image, role: Role) -> Vec<Missing> {
    let arch = image.headers.arch;
    let reason = |function: &Function, found: &Found| match found {
        Found::Code(code) if function.code == SPIN_TRIED => prologue::after_locked(arch, &code.bytes, code.vaddr)
            .is_none()
            .then_some("its code is not the one that lockbpf knows"),
        Found::Code(code) if prologue::is_refused(arch, &code.bytes, code.vaddr) => Some(prologue::REFUSED),
        Found::Code(code) if Site::of(*function, code, arch).is_none() => Some(prologue::REWRITTEN),
        Found::Code(_) => None,
        Found::Absent if role == Role::Executable => None,
        Found::Absent => Some("not defined"),
        Found::Ifunc(_) => Some("chosen at run time (IFUNC)"),
        Found::NotInFile => Some("its symbol points outside the code"),
    };
    let functions = image.functions.iter();
    functions
        .filter_map(|&(function, ref found)| Some(Missing { function, reason: reason(&function, found)? }))
        .collect()
}

fn sites(image: &Image) -> Vec<Site> {
    let place = |&(function, ref found): &(Function, Found)| match found {
        Found::Code(code) => Site::all(function, code, image.headers.arch),
        _ => Vec::new(),
    };
    image.functions.iter().flat_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::elf::Headers;

    fn image(libc: Libc, found: impl Fn(&Function) -> Found) -> Image {
        Image {
            headers: Headers { arch: Arch::host().unwrap(), linkage: Linkage::Library },
            libc,
            has_symbols: true,
            functions: of(Runtime::Glibc).map(|f| (f, found(&f))).collect(),
        }
    }

    fn of(runtime: Runtime) -> impl Iterator<Item = Function> {
        FUNCTIONS.iter().copied().filter(move |f| f.runtime == runtime)
    }

    fn some_code() -> Found {
        Found::Code(Code { vaddr: 0x1000, file_offset: 0x1000, bytes: vec![0; 8], complete: false })
    }

    fn verdict(image: &Image, role: Role) -> Verdict {
        judge(image, role, &missing(image, role))
    }

    #[test]
    fn old_glibc_is_probed_in_libpthread_only() {
        let old = Libc::Glibc(Some(GlibcVersion(2, 31)));
        let stubs = image(old, |f| if f.symbol.contains("timed") { Found::Absent } else { some_code() });
        assert_eq!(verdict(&stubs, Role::CLibrary), Err(Unusable::Stubs(GlibcVersion(2, 31))));
        assert_eq!(verdict(&image(old, |_| some_code()), Role::CLibrary), Ok(()));
        assert!(is_empty_libpthread(&image(Libc::Glibc(Some(GlibcVersion(2, 36))), |_| Found::Absent)));
    }

    #[test]
    fn verdicts() {
        let glibc = Libc::Glibc(Some(GlibcVersion(2, 36)));
        let code = |_: &Function| some_code();
        assert_eq!(verdict(&image(Libc::Musl, code), Role::CLibrary), Ok(()));
        assert_eq!(verdict(&image(Libc::Unknown, code), Role::CLibrary), Err(Unusable::UnknownLibc));
        let stripped = Image { has_symbols: false, ..image(Libc::Unknown, |_| Found::Absent) };
        assert_eq!(verdict(&stripped, Role::Executable), Err(Unusable::StaticWithoutSymbols));
        let lockless = image(Libc::Glibc(None), |_| Found::Absent);
        assert_eq!(verdict(&lockless, Role::Executable), Err(Unusable::StaticWithoutLocks));

        let ifunc = image(glibc, |f| if f.symbol == "pthread_mutex_unlock" { Found::Ifunc(0) } else { some_code() });
        let lacks = Err(Unusable::Lacks("pthread_mutex_unlock".to_owned()));
        assert_eq!(verdict(&ifunc, Role::CLibrary), lacks);
        let minor = image(glibc, |f| if f.essential { some_code() } else { Found::Absent });
        assert_eq!(verdict(&minor, Role::CLibrary), Ok(()));
        assert_eq!(missing(&minor, Role::CLibrary).len(), of(Runtime::Glibc).filter(|f| !f.essential).count());
        // A static program has what it uses: no condition variables, for one.
        let small = image(Libc::Glibc(None), |f| if f.symbol.contains("mutex") { some_code() } else { Found::Absent });
        assert_eq!(verdict(&small, Role::Executable), Ok(()));
        assert!(missing(&small, Role::Executable).is_empty());
        assert!(sites(&small).iter().all(|s| s.placement.reason == Reason::ExtentUnknown));
    }
}
