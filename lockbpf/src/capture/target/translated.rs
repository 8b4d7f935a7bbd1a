//! Whether a program's code is translated by another one, as valgrind and qemu do: these would translate breakpoints, too, and the program
//! would die of them. A name raises the suspicion, and what the process maps decides.

use crate::capture::maps::{self, Mapping};
use crate::door;
use crate::leader;
use crate::proc;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What translates the code of a process, if something does. Where it cannot be told, the name counts.
pub(super) fn translator(pid: u32) -> Option<&'static str> {
    let dir = Path::new("/proc").join(leader::face(pid).to_string());
    let exe = proc::link(dir.join("exe")).ok()?;
    by_name(&exe).filter(|_| !is_ordinary(&dir, pid))
}

fn by_name(exe: &Path) -> Option<&'static str> {
    let file = exe.file_name()?.to_str()?;
    // Valgrind's tools are executables of their own: `drd-amd64-linux`.
    if exe.components().any(|part| part.as_os_str() == "valgrind") || file.starts_with("valgrind") {
        return Some("valgrind");
    }
    (file.starts_with("qemu-") && !file.starts_with("qemu-system-")).then_some("qemu")
}

/// Whether a process runs its own code: it was linked dynamically, and maps no other program's code as data. Valgrind's tools are static, and
/// qemu reads the code of its guest.
fn is_ordinary(dir: &Path, pid: u32) -> bool {
    let dynamic = proc::read(dir.join("auxv")).is_ok_and(|auxv| has_loader(&auxv));
    let Ok(mappings) = maps::read(pid) else { return false };
    let is_code = |mapping: &Mapping| is_elf(dir, mapping);
    dynamic && !reads_code(&mappings, is_code)
}

/// Whether the kernel has loaded a dynamic loader beside the program, as it tells the program.
fn has_loader(auxv: &[u8]) -> bool {
    let (words, _) = auxv.as_chunks::<8>();
    let mut entries = words.chunks_exact(2).map(|entry| [entry[0], entry[1]].map(u64::from_ne_bytes));
    entries.any(|[kind, value]| kind == libc::AT_BASE && value != 0)
}

/// Whether code in a file is mapped, but not to be executed.
fn reads_code(mappings: &[Mapping], is_elf: impl Fn(&Mapping) -> bool) -> bool {
    let mut files = HashMap::<u64, Vec<&Mapping>>::new();
    for mapping in mappings.iter().filter(|mapping| mapping.inode != 0) {
        files.entry(mapping.inode).or_default().push(mapping);
    }
    files.values().any(|parts| {
        let end = |part: &Mapping| part.offset.saturating_add(part.range.end - part.range.start);
        let (code, data): (Vec<&Mapping>, Vec<&Mapping>) = parts.iter().partition(|part| part.executable);
        let overlap = |data: &Mapping| code.iter().any(|code| data.offset < end(code) && code.offset < end(data));
        if code.is_empty() {
            data.first().is_some_and(|first| is_elf(first))
        } else {
            data.iter().any(|data| overlap(data))
        }
    })
}

/// Whether a mapped file is a program or a library; what cannot be read may be.
fn is_elf(dir: &Path, mapping: &Mapping) -> bool {
    let link = format!("{:x}-{:x}", mapping.range.start, mapping.range.end);
    let open = door::open_own(&dir.join("map_files").join(link))
        .or_else(|_| door::open_below(&dir.join("root"), &PathBuf::from(&mapping.path)));
    let mut magic = [0; 4];
    match open.and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) => magic == *b"\x7fELF",
        // A file that is too short, or no file at all, is no program; one that may not be read may be.
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Whether a process maps one of these files, by inode, in whatever way.
pub(super) fn maps_any(pid: u32, files: impl Fn(u64) -> bool) -> bool {
    maps::read(pid).is_ok_and(|mappings| mappings.iter().any(|mapping| mapping.inode != 0 && files(mapping.inode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn suspicion_is_by_name() {
        for (exe, expected) in [
            ("/usr/libexec/valgrind/drd-amd64-linux", Some("valgrind")),
            ("/usr/bin/valgrind.bin", Some("valgrind")),
            ("/usr/bin/qemu-aarch64-static", Some("qemu")),
            ("/tmp/qemu-x", Some("qemu")),
            ("/usr/bin/qemu-system-x86_64", None),
            ("/usr/bin/memcached", None),
            ("/usr/sbin/mariadbd", None),
        ] {
            assert_eq!(by_name(Path::new(exe)), expected, "{exe}");
        }
    }

    #[test]
    fn the_kernel_tells_of_the_loader() {
        let entry = |kind: u64, value: u64| [kind, value].map(u64::to_ne_bytes).concat();
        let auxv = |base| [entry(libc::AT_PAGESZ, 4_096), entry(libc::AT_BASE, base), entry(libc::AT_NULL, 0)].concat();
        assert!(has_loader(&auxv(0x7f00)) && !has_loader(&auxv(0)));
        assert!(!has_loader(&[]) && !has_loader(&auxv(0x7f00)[..20]));
        assert!(has_loader(&fs::read("/proc/self/auxv").unwrap()), "tests are linked dynamically");
    }

    #[test]
    fn own_code_is_executed() {
        // Not this process: what its other tests read is mapped as data. A child that answers has loaded its libraries: the loader maps code as
        // data for a moment.
        let piped = std::process::Stdio::piped;
        let mut child = std::process::Command::new("cat").stdin(piped()).stdout(piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        assert!(is_ordinary(&Path::new("/proc").join(child.id().to_string()), child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let part = |inode, executable, offset: u64, start: u64| Mapping {
            range: start..start + 0x2000,
            executable,
            offset,
            inode,
            path: String::new(),
        };
        let own = [part(1, false, 0, 0x1000), part(1, true, 0x2000, 0x3000), part(1, false, 0x4000, 0x5000)];
        assert!(!reads_code(&own, |_| true));
        // The same library once more, as qemu reads it for its guest.
        let guest = [&own[..], &[part(1, false, 0x2000, 0x9000)]].concat();
        assert!(reads_code(&guest, |_| true));
        let another = [&own[..], &[part(2, false, 0, 0x9000)]].concat();
        assert!(reads_code(&another, |_| true) && !reads_code(&another, |_| false));
    }
}
