//! Where a recording is written to: a file that others see only when it is complete, one that grows in place, or
//! standard output.

use super::formats::ExportFormat;
use super::place;
use crate::render;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// What a suffix says, unless the user does.
///
/// # Errors
/// When neither says anything.
pub(super) fn format(path: &Path, wanted: Option<ExportFormat>) -> Result<ExportFormat> {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).map(str::to_ascii_lowercase);
    match (wanted, suffix.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, Some("bin" | "trace")) => Ok(ExportFormat::Bin),
        (None, Some("jsonl" | "ndjson")) => Ok(ExportFormat::Jsonl),
        (None, Some("parquet")) => Ok(ExportFormat::Tables),
        (None, _) => match path.file_name().and_then(|name| render::by_suffix(&name.to_string_lossy())) {
            Some(format) => Ok(ExportFormat::View(format)),
            None => bail!("the suffix of {} tells no format: name it with --as bin, --as jsonl, …", path.display()),
        },
    }
}

/// What messages call it.
pub(super) fn told(path: &Path) -> String {
    if path == Path::new("-") { "standard output".to_owned() } else { path.display().to_string() }
}

/// Makes sure that what is read is not what is written.
///
/// # Errors
/// When the two paths lead to the same file.
pub(super) fn differ(from: &Path, to: &Path) -> Result<()> {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let same = matches!((identity(from), identity(to)), (Ok(a), Ok(b)) if a == b);
    if from == to && from != Path::new("-") || same {
        bail!("{} would be replaced while it is read: name another file with --to", to.display());
    }
    Ok(())
}

/// Whether a path leads to something that is no file: a device, a pipe, a terminal.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| !about.is_file())
}

/// A file that nobody keeps, where the user's environment says.
///
/// # Errors
/// When it cannot be created.
pub(super) fn temporary() -> Result<NamedTempFile> {
    NamedTempFile::new().context("failed to create a temporary file")
}

/// A file that appears under its name, in place of what was there, once it is complete.
pub(super) struct Whole {
    path: PathBuf,
    out: Out,
}

enum Out {
    Temporary(BufWriter<NamedTempFile>),
    /// Standard output, or something that is no file.
    Direct(BufWriter<Box<dyn Write + Send>>),
}

impl Whole {
    /// Will become `path`; `-` is standard output.
    ///
    /// # Errors
    /// When nothing can be created there.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let failed = || format!("failed to create {}", path.display());
        let out = if path == Path::new("-") {
            Out::Direct(BufWriter::new(Box::new(io::stdout())))
        } else if is_special(path) {
            let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
            Out::Direct(BufWriter::new(Box::new(file)))
        } else {
            let (path, kept) = place::resolve(path)?;
            let mut prefix = OsString::from(".");
            prefix.push(path.file_name().unwrap_or_default());
            prefix.push(".");
            let permissions = Permissions::from_mode(place::NEW_MODE);
            let mut builder = tempfile::Builder::new();
            let builder = builder.prefix(&prefix).suffix(place::PART).permissions(permissions);
            let file = builder.tempfile_in(place::dir_of(&path)).with_context(failed)?;
            if let Some(kept) = kept {
                kept.give(file.as_file()).with_context(failed)?;
            }
            let out = Out::Temporary(BufWriter::with_capacity(256 << 10, file));
            return Ok(Self { path, out });
        };
        Ok(Self { path: path.to_owned(), out })
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// When the last of it cannot be written, or it cannot be renamed.
    pub(super) fn finish(self) -> Result<()> {
        let failed = || format!("failed to write {}", told(&self.path));
        match self.out {
            Out::Temporary(out) => {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error).with_context(failed)?;
                file.persist(&self.path).map_err(|e| e.error).with_context(failed)?;
                Ok(())
            }
            Out::Direct(mut out) => out.flush().with_context(failed),
        }
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Temporary(out) => out.write(bytes),
            Out::Direct(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Temporary(out) => out.flush(),
            Out::Direct(out) => out.flush(),
        }
    }
}

/// A file that grows in place: what a recorder that is killed has written is there. What was in it before stays until
/// the first byte is written.
pub(super) struct Growing {
    file: Option<File>,
    path: PathBuf,
    /// Whether it was not there before.
    new: bool,
    begun: bool,
}

impl Growing {
    /// Opens it; `-` is standard output.
    ///
    /// # Errors
    /// When it cannot be created or opened.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { file: None, path: path.to_owned(), new: false, begun: true });
        }
        if is_special(path) {
            let file = OpenOptions::new().write(true).open(path);
            let file = file.with_context(|| format!("failed to open {}", path.display()))?;
            return Ok(Self { file: Some(file), path: path.to_owned(), new: false, begun: false });
        }
        let (path, kept) = place::resolve(path)?;
        let new = kept.is_none();
        // What was not there a moment ago is not opened through a link.
        let opened = OpenOptions::new()
            .write(true)
            .create_new(new)
            .mode(place::NEW_MODE)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
            .open(&path);
        let file = opened.with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self { file: Some(file), path, new, begun: false })
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return io::stdout().lock().write(bytes) };
        if !std::mem::replace(&mut self.begun, true) && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or_else(|| io::stdout().lock().flush(), Write::flush)
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if self.new && !self.begun {
            // An observation that could not begin leaves nothing behind; if this fails, an empty file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn new_files_are_private_and_others_stay_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str| {
            let mut whole = Whole::create(&path(name)).unwrap();
            whole.write_all(b"whole").unwrap();
            whole.finish().unwrap();
        };
        write("new");
        assert_eq!(mode(&path("new")), 0o600);
        let mut growing = Growing::open(&path("growing")).unwrap();
        growing.write_all(b"grown").unwrap();
        assert_eq!(mode(&path("growing")), 0o600);
        for name in ["a", "b"] {
            fs::write(path(name), "old").unwrap();
            fs::set_permissions(path(name), Permissions::from_mode(0o640)).unwrap();
            if nix::unistd::geteuid().is_root() {
                std::os::unix::fs::chown(path(name), Some(65_534), Some(65_534)).unwrap();
            }
        }
        let before = fs::metadata(path("a")).unwrap().uid();
        write("a");
        Growing::open(&path("b")).unwrap().write_all(b"grown").unwrap();
        for name in ["a", "b"] {
            assert_eq!((mode(&path(name)), fs::metadata(path(name)).unwrap().uid()), (0o640, before));
        }
        assert_eq!(fs::read_to_string(path("b")).unwrap(), "grown");
    }

    #[test]
    fn what_was_not_finished_lies_beside_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let whole = Whole::create(&dir.path().join("a.bin")).unwrap();
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert!(matches!(&names[..], [name] if name.starts_with(".a.bin.") && name.ends_with(".part")), "{names:?}");
        assert!(place::is_part(&dir.path().join(&names[0])) && !place::is_part(Path::new("a.part")));
        drop(whole);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
