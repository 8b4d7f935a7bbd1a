//! Files that the user names as input: regular ones. Nothing else has an end that can be relied on, and some do harm when they are opened.

use anyhow::{Context, Result, bail};
use std::fs::{File, FileType, OpenOptions};
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a file that is read as a whole: a model or a calibration.
const MAX_WHOLE: u64 = 256 << 20;

/// What an input is.
#[derive(Debug)]
pub(crate) enum Input {
    /// It can be read again.
    File(File),
    /// It can be read once.
    Pipe(File),
}

/// Opens an input; `-` is standard input. A pipe is read only if the shell has opened it (`<(…)`, `|`).
///
/// # Errors
/// When it cannot be opened, or is neither a regular file nor such a pipe.
pub(crate) fn open(path: &Path) -> Result<Input> {
    let name = told(path);
    let failed = || format!("failed to open {name}");
    if path == Path::new("-") {
        let stdin = std::io::stdin();
        let file = File::from(stdin.as_fd().try_clone_to_owned().with_context(failed)?);
        let kind = file.metadata().with_context(failed)?.file_type();
        // What a person types ends when the person says so.
        if kind.is_char_device() && !stdin.is_terminal() || kind.is_block_device() || kind.is_dir() {
            bail!("failed to read {name}: {}", what(kind));
        }
        return Ok(if kind.is_file() { Input::File(file) } else { Input::Pipe(file) });
    }
    // The name of a pipe that is open already leads to `/dev/fd`; of any other one must wait for who writes to it.
    let own = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == Path::new("/dev/stdin");
    let kind = std::fs::metadata(path).with_context(failed)?.file_type();
    if kind.is_file() || kind.is_fifo() && own {
        let flags = if own { 0 } else { libc::O_NONBLOCK | libc::O_NOCTTY };
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).with_context(failed)?;
        // It may have been replaced.
        let opened = file.metadata().with_context(failed)?.file_type();
        if opened.is_file() {
            return Ok(Input::File(file));
        }
        if opened.is_fifo() && own {
            return Ok(Input::Pipe(file));
        }
        bail!("failed to open {name}: {}", what(opened));
    }
    bail!("failed to open {name}: {}", what(kind));
}

/// The text of an input that is no larger than a model can be.
///
/// # Errors
/// As [`open`]; when it is too large or no text.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let (Input::File(file) | Input::Pipe(file)) = open(path)?;
    let mut text = String::new();
    file.take(MAX_WHOLE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_WHOLE {
        bail!("it is larger than {} MiB", MAX_WHOLE >> 20);
    }
    Ok(text)
}

/// What messages call an input.
pub(crate) fn told(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn what(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "it is a directory"
    } else if kind.is_fifo() {
        "it is a named pipe, which may never end: read it by `lockbpf … --from -`, with `< FILE`"
    } else if kind.is_socket() {
        "it is a socket"
    } else {
        "it is a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket, file) = (dir.path().join("fifo"), dir.path().join("socket"), dir.path().join("file"));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, "text").unwrap();
        for (path, why) in [
            (fifo.as_path(), "named pipe"),
            (&socket, "socket"),
            (dir.path(), "directory"),
            (Path::new("/dev/zero"), "device"),
            (Path::new("/no/such/file"), "No such file"),
        ] {
            let error = format!("{:#}", open(path).unwrap_err());
            assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
        }
        assert!(matches!(open(&file).unwrap(), Input::File(_)));
        assert_eq!(read_text(&file).unwrap(), "text");
    }

    #[test]
    fn what_is_read_as_a_whole_is_bounded() {
        let sparse = tempfile::NamedTempFile::new().unwrap();
        sparse.as_file().set_len(1 << 42).unwrap();
        assert!(read_text(sparse.path()).unwrap_err().to_string().contains("larger"));
    }
}
