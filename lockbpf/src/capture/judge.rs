//! Whether a file's functions can be probed, and where: a function of its bytes. What is described of it comes with the question.

use super::described::{self, Wanted};
use super::elf::{self, Found, GlibcVersion, Image, Libc, Linkage};
use super::go;
use super::mangled;
use super::probe_table::{FUNCTIONS, Function, Runtime};
use super::prologue::{self, Arch};
use super::site::{Lack, Missing, Site};
use super::unusable::Unusable;
use lockbpf_common::function::SPIN_TRIED;
use serde::{Deserialize, Serialize};

/// What a file is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// A shared C library, or libpthread.
    CLibrary,
    /// The program itself.
    Executable,
    /// Another library, in which locks of its own are compiled.
    Library,
}

/// What was found in a file in which there is something to probe, or something that should be.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Whose C library it contains; `None` if it is not looked for one.
    pub(super) libc: Option<Libc>,
    /// Build id, if it has one.
    pub(super) build_id: Option<Vec<u8>>,
    /// Where its probes go.
    pub(super) sites: Vec<Site>,
    /// Functions of the C library that cannot be probed in it.
    pub(super) missing: Vec<Missing>,
    /// Descriptions that nothing can be probed by, by number.
    pub(super) lacking: Vec<(usize, Lack)>,
    /// Why nothing in it is probed, if so.
    pub(super) unusable: Option<Unusable>,
}

/// Places the probes; `None` if there is nothing to probe. The symbols, which may be many, are read only where a C library may be among them.
///
/// # Errors
/// If it is no file that could be probed.
pub(super) fn judge(data: &[u8], role: Role, wanted: &[Wanted]) -> Result<Option<Judged>, Unusable> {
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
    let unseen = mangled::without_polls(&mut compiled);
    let custom = own.map(|arch| described::find(wanted, data, arch));
    let described::Found { sites: custom, missing: lacking, .. } = custom.unwrap_or_default();
    // What the user says of a function counts.
    compiled.retain(|site| custom.iter().all(|own| own.file_offset != site.file_offset));
    compiled.extend(custom);
    if !has_libc && go.is_none() && compiled.is_empty() && unseen.is_none() && lacking.is_empty() {
        return Ok(None);
    }
    let mut judged = Judged { lacking, missing: unseen.into_iter().collect(), ..Judged::default() };
    let mut found = Ok(Vec::new());
    if has_libc {
        let mut image = elf::locate(data, FUNCTIONS)?;
        let runtime = if image.libc == Libc::Musl { Runtime::Musl } else { Runtime::Glibc };
        image.functions.retain(|(function, _)| function.runtime == runtime);
        if role == Role::CLibrary && is_empty_libpthread(&image) {
            return Ok(None);
        }
        judged.missing.extend(missing(&image, role));
        judged.libc = Some(image.libc);
        found = usable(&image, role, &judged.missing).map(|()| sites(&image));
    }
    judged.build_id = elf::build_id(data);
    // A cgo program has C functions too, but Go's own locks are what it waits for.
    match go.unwrap_or(found) {
        Ok(sites) => judged.sites = sites,
        Err(why) if compiled.is_empty() => {
            judged.unusable = Some(why);
            return Ok(Some(judged));
        }
        Err(_) => {}
    }
    judged.sites.extend(compiled);
    Ok(Some(judged))
}

fn is_empty_libpthread(image: &Image) -> bool {
    matches!(image.libc, Libc::Glibc(_)) && image.functions.iter().all(|(_, found)| *found == Found::Absent)
}

/// Whether a file's lock functions can be probed and are those that its users call.
fn usable(image: &Image, role: Role, missing: &[Missing]) -> Result<(), Unusable> {
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
        Found::Code(code) if function.code == SPIN_TRIED => {
            prologue::after_locked(arch, &code.bytes, code.vaddr).is_none().then_some(Lack::OtherCode)
        }
        Found::Code(code) if prologue::is_refused(arch, &code.bytes, code.vaddr) => Some(Lack::Refused),
        Found::Code(code) if Site::of(*function, code, arch).is_none() => Some(Lack::Rewritten),
        Found::Code(_) => None,
        Found::Absent if role == Role::Executable => None,
        Found::Absent => Some(Lack::Undefined),
        Found::Ifunc(_) => Some(Lack::Chosen),
        Found::NotInFile => Some(Lack::Outside),
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
    use crate::capture::elf::{Code, Headers};
    use crate::capture::prologue::Reason;

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

    fn verdict(image: &Image, role: Role) -> Result<(), Unusable> {
        usable(image, role, &missing(image, role))
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
