//! Finding the separate debug file of a stripped program, as gdb does: by build id (Debian's `-dbgsym` packages), else
//! by the name and checksum in `.gnu_debuglink`.

use super::elf::Layout;
use super::files::{in_root, inode};
use super::reader::Reader;
use crate::door::open_below;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// Where distributions install debug files.
pub(super) const DEFAULT_DIRS: &[&str] = &["/usr/lib/debug"];

/// Opens the debug file of an object whose own DWARF was stripped, and what that shares with other debug files. `path` is
/// the object's path in the process, `root` leads to the process's root directory; the places are tried there first, since
/// a container may bring its own.
pub(super) fn find(
    layout: &Layout,
    object_inode: (u64, u64),
    path: &Path,
    root: &Path,
    dirs: &[PathBuf],
    reader: &Reader,
) -> (Option<File>, Option<File>) {
    if layout.has_dwarf {
        return (None, shared(layout, path, root, dirs, reader));
    }
    let found = candidates(layout, path, dirs).into_iter().find_map(|place| {
        [root, Path::new("/")]
            .into_iter()
            .filter_map(|root| open_below(root, &place).ok())
            .find_map(|file| {
                let other = file.metadata().is_ok_and(|m| inode(&m) != object_inode);
                let found = if other { belongs(&file, layout, reader) } else { None };
                found.map(|found| (file, found))
            })
            .map(|(file, found)| (file, found, place))
    });
    match found {
        Some((file, found, place)) => (Some(file), shared(&found, &place, root, dirs, reader)),
        None => (None, None),
    }
}

/// Opens what a debug file at `path` shares with others, as `dwz` makes it.
fn shared(layout: &Layout, path: &Path, root: &Path, dirs: &[PathBuf], reader: &Reader) -> Option<File> {
    let (name, id) = layout.shared_link.as_ref()?;
    let beside = path.parent().map(|parent| parent.join(name));
    by_build_id(id, dirs)
        .into_iter()
        .chain(beside)
        .flat_map(|place| [root, Path::new("/")].map(|root| open_below(root, &place)))
        .filter_map(Result::ok)
        .find(|file| reader.headers(file).is_ok_and(|found| found.build_id.as_ref() == Some(id)))
}

fn by_build_id(id: &[u8], dirs: &[PathBuf]) -> Vec<PathBuf> {
    let Some((first, rest)) = id.split_first() else { return Vec::new() };
    let rest = rest.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    dirs.iter().map(|dir| dir.join(format!(".build-id/{first:02x}/{rest}.debug"))).collect()
}

/// The places where a debug file may be, best first.
fn candidates(layout: &Layout, path: &Path, dirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = layout.build_id.as_ref().map_or_else(Vec::new, |id| by_build_id(id, dirs));
    // A name with a directory in it would lead anywhere.
    let link = layout.debug_link.as_ref().map(|(name, _)| Path::new(name)).filter(|name| name.iter().count() == 1);
    if let (Some(name), Some(parent)) = (link, path.parent()) {
        places.push(parent.join(name));
        places.push(parent.join(".debug").join(name));
        places.extend(dirs.iter().map(|dir| in_root(dir, parent).join(name)));
    }
    places
}

/// The headers of a file that was found, if it is the object's: same build id, else the checksum that the object asks for.
fn belongs(file: &File, layout: &Layout, reader: &Reader) -> Option<Layout> {
    let found = reader.headers(file).ok()?;
    let is_it = match &found.build_id {
        Some(id) if layout.build_id.is_some() => layout.build_id.as_ref() == Some(id),
        _ => layout.debug_link.as_ref().is_some_and(|&(_, wanted)| reader.checksum(file) == Some(wanted)),
    };
    is_it.then_some(found)
}

/// Larger files are not read through: none is the debug file of a program.
const MAX_CHECKED: u64 = 8 << 30;

/// The checksum of a file, as debug links have it.
pub(super) fn checksum(mut file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_CHECKED {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    file.rewind()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_order_of_gdb() {
        let layout = Layout {
            build_id: Some(vec![0xab, 0xcd, 0x01]),
            debug_link: Some(("tool.debug".into(), 7)),
            ..Layout::default()
        };
        let places = candidates(&layout, Path::new("/usr/bin/tool"), &["/usr/lib/debug".into()]);
        let expected = [
            "/usr/lib/debug/.build-id/ab/cd01.debug",
            "/usr/bin/tool.debug",
            "/usr/bin/.debug/tool.debug",
            "/usr/lib/debug/usr/bin/tool.debug",
        ];
        assert_eq!(places, expected.map(PathBuf::from));
        let escaping = Layout { debug_link: Some(("../../etc/x".into(), 7)), ..Layout::default() };
        assert!(candidates(&escaping, Path::new("/usr/bin/tool"), &[]).is_empty());
        assert!(candidates(&Layout::default(), Path::new("tool"), &["/d".into()]).is_empty());
    }
}
