//! Where a recording is written to: a file that others see only when it is complete, one that grows in place, or
//! standard output.

use super::formats::ExportFormat;
use crate::render;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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

/// A file that appears under its name, in place of what was there, once it is complete.
pub(super) struct Whole {
    path: PathBuf,
    out: Out,
}

enum Out {
    Temporary(BufWriter<NamedTempFile>),
    /// Standard output, or something that is no file.
    Direct(BufWriter<Box<dyn Write>>),
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
        } else if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
            Out::Direct(BufWriter::new(Box::new(file)))
        } else {
            // What a link leads to is replaced, not the link.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // The mask of the user is applied to it.
            let permissions = Permissions::from_mode(0o666);
            let file = tempfile::Builder::new().prefix(".lockbpf-").permissions(permissions).tempfile_in(dir);
            let out = Out::Temporary(BufWriter::with_capacity(256 << 10, file.with_context(failed)?));
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
        let new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self { file: Some(file), path: path.to_owned(), new, begun: false })
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
