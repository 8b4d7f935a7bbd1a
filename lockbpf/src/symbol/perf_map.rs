//! Perf maps: the files in which just-in-time compilers (JVM agents, Node.js, .NET, …) list the functions that they
//! generate. Their lines are read by the process that reads files of observed programs.

use super::files::inode;
use super::reader::{Listed, PIECE, Reader};
use crate::door;
use crate::proc;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Functions kept of all maps together, the first ones.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Bytes of names kept of all maps together.
const MAX_NAMES: usize = 64 << 20;
/// Bytes that may be read at once, of all maps together; so many at the start, too.
const BURST: u64 = 32 << 20;
/// Bytes that may be read in a second on average: parsing them takes some 4 % of a CPU.
const BYTES_PER_SECOND: f64 = (2 << 20) as f64;
/// What is told when functions were left out.
pub(super) const FULL: &str =
    "perf maps list more functions than are kept of all processes together; the rest stay without names";
/// Bytes by which the part that was read is known again.
const TAIL: u64 = 64;

/// What the perf maps of all processes may take together.
#[derive(Debug)]
pub(super) struct Budget {
    functions: usize,
    names: usize,
    bytes: f64,
    since: Instant,
    /// Whether something was left out, since it would have been too much to keep.
    full: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { functions: MAX_FUNCTIONS, names: MAX_NAMES, bytes: BURST as f64, since: Instant::now(), full: false }
    }
}

impl Budget {
    /// Whether functions were left out for want of room.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    fn earn(&mut self, elapsed: Duration) {
        self.bytes = (self.bytes + elapsed.as_secs_f64() * BYTES_PER_SECOND).min(BURST as f64);
        self.since += elapsed;
    }

    fn take(&mut self, name: &str) -> bool {
        let fits = self.functions > 0 && self.names >= name.len();
        if fits {
            self.functions -= 1;
            self.names -= name.len();
        }
        self.full |= !fits;
        fits
    }

    fn give_back(&mut self, name: &str) {
        self.functions += 1;
        self.names += name.len();
    }
}

/// The functions that a process generated.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// End and name by start; never overlapping.
    functions: BTreeMap<u64, (u64, Box<str>)>,
    seen: Seen,
    /// It could not be read, and is not tried again.
    given_up: bool,
}

/// How far a file was read.
#[derive(Debug, Default)]
struct Seen {
    /// Device and inode.
    file: (u64, u64),
    /// Up to the end of the last whole line.
    offset: u64,
    /// The last bytes before that.
    tail: Vec<u8>,
}

impl PerfMap {
    /// Reads what the map of a thread's process tells since the last time, as far as the budget allows; the rest is read
    /// next time. What was known of the same file stays known if that fails.
    pub(super) fn refresh(&mut self, tid: u32, reader: &Reader, budget: &mut Budget) {
        budget.earn(budget.since.elapsed());
        if let Ok(Some(file)) = open(tid) {
            let name = format!("the perf map of process {tid}");
            let _ = self.read(&file, budget, |part| reader.listed(&name, &file, part));
        }
    }

    /// Reads on. A file that was replaced, cut or written anew is read from its beginning. What a part lists is `told`; if it is not, no more
    /// is asked.
    pub(super) fn read(
        &mut self,
        file: &File,
        budget: &mut Budget,
        told: impl Fn(Range<u64>) -> Option<Listed>,
    ) -> io::Result<()> {
        if self.given_up {
            return Ok(());
        }
        let about = file.metadata()?;
        let mut last = vec![0; self.seen.tail.len()];
        let behind = self.seen.offset.checked_sub(last.len() as u64);
        let same = inode(&about) == self.seen.file
            && behind.is_some_and(|behind| file.read_exact_at(&mut last, behind).is_ok() && last == self.seen.tail);
        if !same {
            self.functions.values().for_each(|(_, name)| budget.give_back(name));
            self.functions.clear();
            self.seen = Seen { file: inode(&about), ..Seen::default() };
        }
        while self.seen.offset < about.len() && budget.bytes >= 1.0 {
            let part = self.seen.offset..about.len().min(self.seen.offset + PIECE);
            budget.bytes -= (part.end - part.start) as f64;
            let Some(Listed { whole, functions }) = told(part) else {
                self.given_up = true;
                return Ok(());
            };
            if whole == 0 {
                return Ok(());
            }
            let offset = self.seen.offset + whole;
            let behind = offset.saturating_sub(TAIL);
            let mut tail = vec![0; (offset - behind) as usize];
            file.read_exact_at(&mut tail, behind)?;
            for (start, end, name) in functions {
                self.insert(start, end, name.into(), budget);
            }
            (self.seen.offset, self.seen.tail) = (offset, tail);
        }
        Ok(())
    }

    /// A later function takes the place of those it overlaps, whose code is gone.
    fn insert(&mut self, start: u64, end: u64, name: Box<str>, budget: &mut Budget) {
        while let Some((&other, _)) =
            self.functions.range(..end).next_back().filter(|(_, (other_end, _))| *other_end > start)
        {
            if let Some((_, gone)) = self.functions.remove(&other) {
                budget.give_back(&gone);
            }
        }
        if budget.take(&name) {
            self.functions.insert(start, (end, name));
        }
    }

    /// Where functions begin and end, in order.
    #[cfg(any(test, fuzzing))]
    pub(super) fn spans(&self) -> Vec<(u64, u64)> {
        self.functions.iter().map(|(&start, (end, _))| (start, *end)).collect()
    }

    /// The generated function at an address.
    pub(super) fn function(&self, addr: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=addr).next_back()?;
        (addr < *end).then_some(&**name)
    }
}

/// The map of a thread's process, in the process's own file system, under the id that it has in its own pid namespace; `None` if
/// it is none to rely on.
fn open(tid: u32) -> io::Result<Option<File>> {
    let status = proc::read(format!("/proc/{tid}/status"))?;
    let status = String::from_utf8_lossy(&status);
    let id = last_number(&status, "NStgid:").unwrap_or(tid);
    let root = PathBuf::from(format!("/proc/{tid}/root"));
    let file = door::open_below_unlinked(&root, Path::new(&format!("tmp/perf-{id}.map")))?;
    // /tmp is everybody's: a map counts only if the process itself, or root, wrote it there.
    let owner = last_number(&status, "Uid:");
    Ok([owner, Some(0)].contains(&Some(file.metadata()?.uid())).then_some(file))
}

/// The last number in a field of `/proc/PID/status`: of `NStgid` the process id in the innermost pid namespace, of `Uid`
/// the user under whom files are created.
fn last_number(status: &str, field: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(text, 0).unwrap();
        file
    }

    fn read(map: &mut PerfMap, file: &File, budget: &mut Budget) {
        let reader = Reader::new(Vec::new());
        map.read(file, budget, |part| reader.listed("it", file, part)).unwrap();
        assert_eq!(reader.problems(), [""; 0]);
    }

    fn map(text: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        // The last line is whole once it has ended.
        read(&mut map, &file(&[text, b"\n"].concat()), &mut Budget::default());
        map
    }

    #[test]
    fn only_what_was_appended_is_read() {
        let mut budget = Budget::default();
        let (mut map, file) = (PerfMap::default(), file(b"1000 10 first\n2000 10 cut"));
        read(&mut map, &file, &mut budget);
        assert_eq!((map.function(0x1000), map.function(0x2000)), (Some("first"), None));
        let before = budget.bytes;
        file.write_all_at(b" off\n3000 10 third\n", 25).unwrap();
        read(&mut map, &file, &mut budget);
        assert_eq!((map.function(0x2000), map.function(0x3000)), (Some("cut off"), Some("third")));
        assert!(before - budget.bytes < 40.0);
        let before = budget.bytes;
        read(&mut map, &file, &mut budget);
        assert_eq!(budget.bytes, before);
        // Written anew: what was there is gone, and is read from the beginning.
        file.write_all_at(b"9000", 0).unwrap();
        file.write_all_at(b"9000 10 others and others and others and others and others and others and others\n", 0)
            .unwrap();
        read(&mut map, &file, &mut budget);
        assert_eq!((map.function(0x1000), map.function(0x9000).is_some()), (None, true));
        file.set_len(0).unwrap();
        read(&mut map, &file, &mut budget);
        assert!(map.functions.is_empty());
        assert_eq!((budget.functions, budget.names), (MAX_FUNCTIONS, MAX_NAMES));
    }

    #[test]
    fn all_maps_together_are_bounded() {
        let mut budget = Budget { functions: 3, bytes: 40.0, ..Budget::default() };
        let lines = file(b"1000 10 a\n2000 10 b\n3000 10 c\n4000 10 d\n5000 10 e\n");
        let (mut one, mut other) = (PerfMap::default(), PerfMap::default());
        read(&mut one, &lines, &mut budget);
        assert_eq!((one.functions.len(), budget.is_full(), budget.bytes < 1.0), (3, true, true));
        read(&mut other, &lines, &mut budget);
        assert_eq!(other.seen.offset, 0);
        budget.earn(Duration::from_secs(1));
        read(&mut other, &lines, &mut budget);
        assert!(other.functions.is_empty() && other.seen.offset > 0);
        budget.earn(Duration::from_secs(1000));
        assert_eq!(budget.bytes, BURST as f64);
    }

    #[test]
    fn a_file_without_lines_is_passed_over() {
        let endless = tempfile::tempfile().unwrap();
        endless.set_len(1 << 40).unwrap();
        let (mut map, mut budget) = (PerfMap::default(), Budget { bytes: (4 << 20) as f64, ..Budget::default() });
        read(&mut map, &endless, &mut budget);
        assert!(map.functions.is_empty() && budget.bytes < 1.0);
    }

    #[test]
    fn a_long_line_is_passed_over_in_pieces() {
        let long = [b"1000 10 ", &*b"x".repeat(3 * PIECE as usize), b"\n2000 10 after"].concat();
        assert_eq!(map(&long).function(0x2000), Some("after"));
    }

    #[test]
    fn a_map_of_which_nothing_is_told_keeps_what_was_known() {
        let (mut map, file) = (map(b"1000 10 known"), file(b"1000 10 known\n2000 10 new\n"));
        map.seen.file = inode(&file.metadata().unwrap());
        let asked = std::cell::Cell::new(0);
        for _ in 0..2 {
            let told = |part: Range<u64>| {
                asked.set(asked.get() + part.start);
                None
            };
            map.read(&file, &mut Budget::default(), told).unwrap();
        }
        assert_eq!((map.function(0x1000), map.function(0x2000), asked.get()), (Some("known"), None, 14));
    }

    #[test]
    fn functions_between_garbage() {
        let map = map(b"1000 10 first\n\nnonsense\nzz 10 x\n1020 0 empty\nffffffffffffffff 2 wraps\n0x2000 0x20 LazyCompile:~a b.js:7\n3000 10 \xff\xfe\n3010 10 \x1b[m\n4000 10\n5000 10 cut");
        assert_eq!(map.function(0x0fff), None);
        assert_eq!(map.function(0x1000), Some("first"));
        assert_eq!(map.function(0x100f), Some("first"));
        assert_eq!(map.function(0x1010), None);
        assert_eq!(map.function(0x201f), Some("LazyCompile:~a b.js:7"));
        assert_eq!(map.function(0x3000), Some("\u{fffd}\u{fffd}"));
        assert_eq!(map.function(0x3010), Some(r"\u{1b}[m"));
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
            map(&noise);
            let text: String = lines.iter().map(|(start, size)| format!("{start:x} {size:x} f{start}\n")).collect();
            let map = map(text.as_bytes());
            prop_assert!(map.spans().windows(2).all(|w| w[0].1 <= w[1].0));
            if let Some(&(start, size)) = lines.iter().rfind(|(_, size)| *size > 0) {
                prop_assert_eq!(map.function(start + size - 1), Some(&*format!("f{start}")));
            }
        }
    }
}
