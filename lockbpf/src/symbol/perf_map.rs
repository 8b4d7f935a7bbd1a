//! Perf maps: the files in which just-in-time compilers (JVM agents, Node.js, .NET, …) list the functions that they
//! generate, one `START SIZE NAME` a line, both numbers hexadecimal.

use super::files::open_regular;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// Bytes read of a map; what is appended later is not seen.
const MAX_BYTES: u64 = 128 << 20;
/// Functions kept of a map, the first ones.
const MAX_FUNCTIONS: usize = 1 << 20;

/// Length and time of last change of a file.
type Version = (u64, SystemTime);

/// The functions that a process generated.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// End and name by start; never overlapping.
    functions: BTreeMap<u64, (u64, Box<str>)>,
    /// Of the file when it was read.
    version: Option<Version>,
}

impl PerfMap {
    /// Reads the map of a thread's process if it has one that changed; what was known stays known if that fails.
    pub(super) fn refresh(&mut self, tid: u32) {
        if let Ok(Some((version, text))) = self.read_if_changed(tid) {
            self.version = Some(version);
            self.functions = parse(&text);
        }
    }

    fn read_if_changed(&self, tid: u32) -> io::Result<Option<(Version, Vec<u8>)>> {
        // In the process's own file system, under the id that it has in its own pid namespace.
        let status = fs::read(format!("/proc/{tid}/status"))?;
        let status = String::from_utf8_lossy(&status);
        let id = last_number(&status, "NStgid:").unwrap_or(tid);
        let path = PathBuf::from(format!("/proc/{tid}/root/tmp/perf-{id}.map"));
        let metadata = fs::symlink_metadata(&path)?;
        let version = (metadata.len(), metadata.modified()?);
        // /tmp is everybody's: a map counts only if the process itself, or root, wrote it there.
        let owner = last_number(&status, "Uid:");
        let trusted = metadata.is_file() && [owner, Some(0)].contains(&Some(metadata.uid()));
        if !trusted || self.version == Some(version) {
            return Ok(None);
        }
        let mut text = Vec::new();
        open_regular(&path)?.take(MAX_BYTES).read_to_end(&mut text)?;
        Ok(Some((version, text)))
    }

    /// The generated function at an address.
    pub(super) fn function(&self, addr: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=addr).next_back()?;
        (addr < *end).then_some(&**name)
    }
}

/// The last number in a field of `/proc/PID/status`: of `NStgid` the process id in the innermost pid namespace, of `Uid`
/// the user under whom files are created.
fn last_number(status: &str, field: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next_back()?.parse().ok()
}

/// Lines that make no sense are passed over; a later function takes the place of those it overlaps, whose code is gone.
fn parse(text: &[u8]) -> BTreeMap<u64, (u64, Box<str>)> {
    let mut functions = BTreeMap::<u64, (u64, Box<str>)>::new();
    for (start, end, name) in text.split(|&b| b == b'\n').filter_map(parse_line) {
        while let Some((&other, _)) =
            functions.range(..end).next_back().filter(|(_, (other_end, _))| *other_end > start)
        {
            functions.remove(&other);
        }
        if functions.len() < MAX_FUNCTIONS {
            functions.insert(start, (end, name));
        }
    }
    functions
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, Box<str>)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.trim().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (start, name) = (number(start)?, name.trim());
    let end = start.checked_add(number(size)?)?;
    (end > start && !name.is_empty()).then(|| (start, end, name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(text: &[u8]) -> PerfMap {
        PerfMap { functions: parse(text), version: None }
    }

    #[test]
    fn functions_between_garbage() {
        let map = map(b"1000 10 first\n\nnonsense\nzz 10 x\n1020 0 empty\nffffffffffffffff 2 wraps\n0x2000 0x20 LazyCompile:~a b.js:7\n3000 10 \xff\xfe\n4000 10\n5000 10 cut");
        assert_eq!(map.function(0x0fff), None);
        assert_eq!(map.function(0x1000), Some("first"));
        assert_eq!(map.function(0x100f), Some("first"));
        assert_eq!(map.function(0x1010), None);
        assert_eq!(map.function(0x201f), Some("LazyCompile:~a b.js:7"));
        assert_eq!(map.function(0x3000), Some("\u{fffd}\u{fffd}"));
        assert_eq!(map.function(0x4000), None);
        assert_eq!(map.function(0x5000), Some("cut"));
    }

    #[test]
    fn moved_code_replaces_what_lay_there() {
        let map = map(b"1000 100 old\n1100 100 kept\n1080 40 new\n");
        assert_eq!(map.function(0x1080), Some("new"));
        assert_eq!(map.function(0x1000), None);
        assert_eq!(map.function(0x1100), Some("kept"));
    }

    #[test]
    fn the_innermost_namespace_counts() {
        assert_eq!(last_number("Name:\tx\nNStgid:\t4242\t17\t3\nNSpid:\t9\n", "NStgid:"), Some(3));
        assert_eq!(last_number("Name:\tx\n", "NStgid:"), None);
    }

    proptest! {
        #[test]
        fn never_a_panic_never_an_overlap(lines in prop::collection::vec((0u64..64, 0u64..16), 0..40), noise in prop::collection::vec(any::<u8>(), 0..80)) {
            parse(&noise);
            let text: String = lines.iter().map(|(start, size)| format!("{start:x} {size:x} f{start}\n")).collect();
            let functions = parse(text.as_bytes());
            let spans: Vec<_> = functions.iter().map(|(&start, (end, _))| (start, *end)).collect();
            prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0));
            if let Some(&(start, size)) = lines.iter().rfind(|(_, size)| *size > 0) {
                let map = PerfMap { functions, version: None };
                prop_assert_eq!(map.function(start + size - 1), Some(&*format!("f{start}")));
            }
        }
    }
}
