//! Archives of the kind that the kernel unpacks as its first file system: cpio in the "newc" format, described in the
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result};

/// What an archive holds at one path.
enum Entry {
    Folder,
    /// A program or data; everything may be executed.
    File(Vec<u8>),
    /// A character device: major and minor number.
    Device(u32, u32),
}

/// An archive in the making. Folders come before what is in them.
#[derive(Default)]
pub(crate) struct Archive {
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// Adds a file, whose path is absolute, and the folders that it is in.
    pub(crate) fn file(&mut self, path: &str, content: Vec<u8>) {
        self.insert(path, Entry::File(content));
    }

    /// Adds a character device and the folders that it is in.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.insert(path, Entry::Device(major, minor));
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let relative = path.trim_start_matches('/');
        for parent in Path::new(relative).ancestors().skip(1).filter_map(Path::to_str).filter(|p| !p.is_empty()) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Folder);
        }
        self.entries.insert(relative.to_owned(), entry);
    }

    /// The archive's bytes.
    ///
    /// # Errors
    /// A file is 4 GiB or larger.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let (mode, data, device): (u32, &[u8], _) = match entry {
                Entry::Folder => (0o040_755, &[], (0, 0)),
                Entry::File(content) => (0o100_755, content, (0, 0)),
                Entry::Device(major, minor) => (0o020_600, &[], (*major, *minor)),
            };
            append(&mut out, Header { number, mode, device }, path, data)?;
        }
        append(&mut out, Header { number: 0, mode: 0, device: (0, 0) }, "TRAILER!!!", &[])?;
        Ok(out)
    }
}

struct Header {
    number: u32,
    mode: u32,
    device: (u32, u32),
}

fn append(out: &mut Vec<u8>, header: Header, name: &str, data: &[u8]) -> Result<()> {
    let size = u32::try_from(data.len()).with_context(|| format!("{name} is too large for an initramfs"))?;
    let name_size = u32::try_from(name.len() + 1).context("a path is too long for an initramfs")?;
    let Header { number, mode, device: (major, minor) } = header;
    // Number, mode, user, group, links, time, size, device of the file system, own device, size of the name, no checksum.
    let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
    out.extend(b"070701");
    out.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    out.extend(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend(data);
    pad(out);
    Ok(())
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents as a reader of the format sees them.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let digits = &bytes[at + 6 + 8 * index..at + 14 + 8 * index];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (name_size, size) = (field(11) as usize, field(6) as usize);
            let name = at + 110;
            let data = (name + name_size).next_multiple_of(4);
            assert_eq!(bytes[name + name_size - 1], 0);
            let text = String::from_utf8(bytes[name..name + name_size - 1].to_vec()).unwrap();
            found.push((text, field(1), bytes[data..data + size].to_vec()));
            at = (data + size).next_multiple_of(4);
        }
        found
    }

    #[test]
    fn folders_precede_their_files_and_everything_is_there() {
        let mut archive = Archive::default();
        archive.file("/lib/deep/er/libc.so", b"12345".to_vec());
        archive.file("/init", b"".to_vec());
        archive.device("/dev/console", 5, 1);
        let entries = read(&archive.bytes().unwrap());
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        let expected =
            ["dev", "dev/console", "init", "lib", "lib/deep", "lib/deep/er", "lib/deep/er/libc.so", "TRAILER!!!"];
        assert_eq!(names, expected);
        assert_eq!(entries[1].1, 0o020_600);
        assert_eq!(entries[3].1, 0o040_755);
        assert_eq!((entries[6].1, entries[6].2.as_slice()), (0o100_755, &b"12345"[..]));
    }
}
