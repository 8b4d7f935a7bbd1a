//! What `/proc` tells of others' processes. Each call takes up the rights to look into them: some files ask for that always, and where `/proc` hides
//! others' processes (`hidepid`) all do.

use crate::rights;
use procfs::process::{Process, Stat};
use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Reads a file.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    rights::reach(|| fs::read(path))
}

/// Reads a file of text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    rights::reach(|| fs::read_to_string(path))
}

/// Opens a file that asks for rights when it is opened: `maps`, `mem`. `syscall` and `stack` ask when they are read.
pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    rights::reach(|| File::open(path))
}

/// What `stat` tells of a process or thread.
pub(crate) fn stat(id: u32) -> Option<Stat> {
    let id = i32::try_from(id).ok()?;
    rights::reach(|| Process::new(id).and_then(|process| process.stat())).ok()
}

/// Where a link leads.
pub(crate) fn link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    rights::reach(|| fs::read_link(path))
}

/// What is known of the file that a link leads to.
pub(crate) fn about(path: impl AsRef<Path>) -> io::Result<Metadata> {
    rights::reach(|| fs::metadata(path))
}

/// All processes.
pub(crate) fn processes() -> io::Result<Vec<u32>> {
    numbers(Path::new("/proc"))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

/// The numbers in a directory of processes or threads.
fn numbers(path: &Path) -> io::Result<Vec<u32>> {
    let number = |entry: io::Result<DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    rights::reach(|| fs::read_dir(path)?.filter_map(number).collect())
}

/// Whether a process or thread is there.
pub(crate) fn is_there(path: impl AsRef<Path>) -> bool {
    rights::reach(|| path.as_ref().is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files of source text below a folder.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    /// Whether a line opens or reads something in the directory of another process.
    fn is_another_way(line: &str) -> bool {
        let opens = ["fs::", "File::open", ".exists()", ".is_dir()"].iter().any(|way| line.contains(way));
        opens && line.contains("\"/proc/{") || line.contains("::from_file(") && !line.contains("reach")
    }

    #[test]
    fn there_is_no_other_way() {
        assert!(is_another_way("let text = fs::read(format!(\"/proc/{pid}/maps\"))?;"));
        let own = ["proc.rs", "rights.rs"];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut looked_at = 0;
        for path in sources(&folder) {
            let name = path.strip_prefix(&folder).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            if own.contains(&name.to_str().unwrap()) || name.ends_with("tests.rs") {
                continue;
            }
            looked_at += 1;
            let other: Vec<&str> = code.lines().filter(|line| is_another_way(line)).collect();
            assert!(other.is_empty(), "{}: {other:?}", name.display());
        }
        assert!(looked_at > 100, "{looked_at} files");
    }

    #[test]
    fn ones_own_process_is_there() {
        let pid = std::process::id();
        assert!(processes().unwrap().contains(&pid) && threads(pid).unwrap().contains(&pid));
        assert!(is_there(format!("/proc/{pid}")) && !is_there(format!("/proc/{}", u32::MAX)));
        assert_eq!(link(format!("/proc/{pid}/exe")).unwrap(), std::env::current_exe().unwrap());
        assert_eq!(read(format!("/proc/{pid}/comm")).unwrap(), text(format!("/proc/{pid}/comm")).unwrap().as_bytes());
        assert!(about(format!("/proc/{pid}/exe")).unwrap().is_file());
        assert!(threads(u32::MAX).is_err());
    }
}
