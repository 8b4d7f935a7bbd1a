//! What observing costs on this machine, kept from the last time it was measured, so that an observation need not measure it again at its
//! start. One file for all ways of observing, each with a key.
//!
//! Used is only what was measured since the machine was started: another kernel, processor, microcode or host would need a reboot, and one
//! measurement a boot is cheap. What was measured on a busy machine is soon measured anew. A file that somebody else could have written is
//! not read at all, for who writes it decides what a target pays.

use super::calibration_file;
use crate::capture::calibrate::Setup;
use crate::capture::object;
use crate::costs::Costs;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SCHEMA: &str = "lockbpf.costs/1";
/// Where root keeps it.
const SYSTEM: &str = "/var/cache";
/// The most that is read, bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Ways of observing that are kept, the newest ones.
const MAX_ENTRIES: usize = 16;
/// How long a measurement is used: machines also change while they run.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The same if it was disturbed.
const MAX_AGE_DISTURBED: Duration = Duration::from_secs(10 * 60);
/// Above it other programs disturb: threads that run or want to, in the last minute, a CPU.
const MAX_LOAD: f64 = 0.5;
/// Above it the samples disagree ([`Costs::spread`]).
const MAX_SPREAD: f64 = 0.15;

/// Why what is kept is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Somebody else could have written it.
    #[error("{0}")]
    Foreign(&'static str),
    /// It is none, or damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// What must be the same for costs to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    boot: String,
    kernel: String,
    cpu: String,
    lockbpf: String,
    object: String,
    way: String,
}

impl Key {
    /// The key of this machine, as it runs now, and of this way of observing.
    pub(crate) fn here(setup: &Setup<'_>) -> Self {
        let system = nix::sys::utsname::uname().ok();
        let kernel = system.map(|s| format!("{} {}", s.release().to_string_lossy(), s.version().to_string_lossy()));
        let events: Vec<&str> = setup.events.iter().map(|event| event.name.as_str()).collect();
        let links = if setup.plain_uprobes { "perf events" } else { "links" };
        let tracefs = if setup.tracefs { "tracefs" } else { "no tracefs" };
        let records = if setup.all_events { ", every section" } else { "" };
        let ways = if setup.transitions { ", transitions" } else { "" };
        Self {
            boot: line("/proc/sys/kernel/random/boot_id"),
            kernel: kernel.unwrap_or_default(),
            cpu: format!("{}, mitigations {:08x}", calibration_file::cpu(), mitigations()),
            lockbpf: env!("CARGO_PKG_VERSION").to_owned(),
            object: format!("{:08x}", object::fingerprint()),
            way: format!("{links}, {tracefs}{records}{ways}, events: {}", events.join(",")),
        }
    }
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    key: Key,
    /// When, since 1970.
    measured_s: u64,
    /// Threads a CPU that ran or wanted to then.
    load: f64,
    /// What came of it.
    pub costs: Costs,
}

impl Entry {
    /// An entry for costs that were measured just now.
    pub(crate) fn new(key: Key, costs: Costs) -> Self {
        Self { key, measured_s: since_1970(), load: load(), costs }
    }

    /// How long ago it was measured; `None` if that is yet to come.
    pub(crate) fn age(&self) -> Option<Duration> {
        since_1970().checked_sub(self.measured_s).map(Duration::from_secs)
    }

    /// Whether other programs disturbed it.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.load > MAX_LOAD || self.costs.spread > MAX_SPREAD
    }

    /// Whether it is still to be used.
    fn is_good(&self) -> bool {
        let most = if self.is_disturbed() { MAX_AGE_DISTURBED } else { MAX_AGE };
        self.costs.are_plausible() && self.age().is_some_and(|age| age <= most)
    }
}

#[derive(Serialize, Deserialize)]
struct Contents {
    schema: String,
    entries: Vec<Entry>,
}

/// The file; `None` where the user has no directory.
pub(crate) fn path() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let root = || geteuid().is_root().then(|| PathBuf::from(SYSTEM));
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Some(own.or_else(root).or_else(home)?.join("lockbpf").join("costs.json"))
}

/// What was measured for this key and is still good, if anything.
///
/// # Errors
/// When there is a file that is not to be used.
pub(crate) fn load_for(path: &Path, key: &Key) -> Result<Option<Entry>, CacheError> {
    Ok(read(path)?.into_iter().find(|entry| entry.key == *key && entry.is_good()))
}

/// Keeps a measurement, unless it was disturbed and a better one is there that is still good. Returns whether it is kept.
///
/// # Errors
/// When it cannot be written; what was there is then still there.
pub(crate) fn keep(path: &Path, new: Entry) -> Result<bool, CacheError> {
    // What cannot be read is replaced.
    let mut entries = read(path).unwrap_or_default();
    let better = |old: &Entry| old.key == new.key && old.is_good() && !old.is_disturbed();
    if new.is_disturbed() && entries.iter().any(better) {
        return Ok(false);
    }
    entries.retain(|old| old.key != new.key && old.key.boot == new.key.boot && old.is_good());
    entries.truncate(MAX_ENTRIES - 1);
    entries.insert(0, new);
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    check(&fs::symlink_metadata(dir)?)?;
    let permissions = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().prefix(".costs-").permissions(permissions).tempfile_in(dir)?;
    let contents = Contents { schema: SCHEMA.to_owned(), entries };
    serde_json::to_writer_pretty(&mut file, &contents).map_err(io::Error::from)?;
    file.write_all(b"\n")?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// All entries; none if there is no file.
fn read(path: &Path) -> Result<Vec<Entry>, CacheError> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(CacheError::Foreign("it is a link")),
        opened => opened?,
    };
    check(&fs::symlink_metadata(path.parent().unwrap_or(Path::new("/")))?)?;
    let about = file.metadata()?;
    check(&about)?;
    if !about.is_file() {
        return Err(CacheError::Foreign("it is no regular file"));
    }
    let mut text = String::new();
    let damaged = |error: &dyn std::error::Error| CacheError::Damaged(error.to_string());
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| damaged(&error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(CacheError::Damaged(format!("it has more than {MAX_BYTES} bytes")));
    }
    let contents: Contents = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    if contents.schema != SCHEMA {
        return Err(CacheError::Damaged(format!("it is a `{}`, not a `{SCHEMA}`", contents.schema)));
    }
    Ok(contents.entries)
}

/// Whether only this user can have written it.
fn check(about: &fs::Metadata) -> Result<(), CacheError> {
    if about.uid() != geteuid().as_raw() {
        return Err(CacheError::Foreign("it, or its directory, belongs to another user"));
    }
    if about.mode() & 0o022 != 0 {
        return Err(CacheError::Foreign("other users may write it, or its directory"));
    }
    Ok(())
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Threads a CPU that ran or wanted to in the last minute; without an answer, too many.
fn load() -> f64 {
    let all = line("/proc/loadavg").split(' ').next().and_then(|number| number.parse::<f64>().ok());
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    all.map_or(f64::MAX, |all| all / cpus as f64)
}

/// A number for what the kernel does against faults of the processor: entering it costs accordingly.
fn mitigations() -> u32 {
    let mut files: Vec<PathBuf> = fs::read_dir("/sys/devices/system/cpu/vulnerabilities")
        .map(|dir| dir.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    files.sort();
    let mut hasher = crc32fast::Hasher::new();
    for file in files {
        hasher.update(fs::read(file).unwrap_or_default().as_slice());
    }
    hasher.finalize()
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn key(way: &str) -> Key {
        let [boot, kernel, cpu, lockbpf, object] = ["boot", "kernel", "cpu", "lockbpf", "object"].map(str::to_owned);
        Key { boot, kernel, cpu, lockbpf, object, way: way.to_owned() }
    }

    fn entry(way: &str, age_s: u64, load: f64) -> Entry {
        let costs = Costs { spread: 0.01, ..Costs::default() };
        Entry { key: key(way), measured_s: since_1970() - age_s, load, costs }
    }

    fn place() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lockbpf").join("costs.json");
        (dir, path)
    }

    #[test]
    fn what_was_kept_is_found_by_its_key() {
        let (_dir, path) = place();
        assert_eq!(load_for(&path, &key("a")).unwrap(), None, "nothing is there yet");
        keep(&path, entry("a", 5, 0.0)).unwrap();
        keep(&path, entry("b", 3, 0.0)).unwrap();
        assert_eq!(load_for(&path, &key("a")).unwrap().unwrap().age().unwrap().as_secs() / 10, 0);
        assert_eq!(load_for(&path, &key("c")).unwrap(), None);
        for other in [Key { boot: "other".to_owned(), ..key("a") }, Key { object: "other".to_owned(), ..key("a") }] {
            assert_eq!(load_for(&path, &other).unwrap(), None);
        }
        // An entry of another boot makes all older ones go.
        keep(&path, Entry { key: Key { boot: "other".to_owned(), ..key("c") }, ..entry("c", 0, 0.0) }).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }

    #[test]
    fn what_is_old_disturbed_or_absurd_is_measured_anew() {
        let (_dir, path) = place();
        let hour = 3_600;
        let mut absurd = entry("a", 0, 0.0);
        absurd.costs.hit_ns = -1.0;
        let mut vague = entry("a", hour, 0.0);
        vague.costs.spread = 0.4;
        let mut tomorrow = entry("a", 0, 0.0);
        tomorrow.measured_s += 24 * 3_600;
        for (bad, why) in [
            (entry("a", 8 * 24 * hour, 0.0), "old"),
            (entry("a", hour, 3.0), "measured under load"),
            (vague, "samples that disagree"),
            (absurd, "absurd"),
            (tomorrow, "of the future"),
        ] {
            keep(&path, bad).unwrap();
            assert_eq!(load_for(&path, &key("a")).unwrap(), None, "{why}");
        }
        keep(&path, entry("a", 60, 3.0)).unwrap();
        assert!(load_for(&path, &key("a")).unwrap().is_some(), "better than nothing for a while");
        keep(&path, entry("a", hour, 0.0)).unwrap();
        assert!(!keep(&path, entry("a", 0, 3.0)).unwrap());
        assert!(!load_for(&path, &key("a")).unwrap().unwrap().is_disturbed(), "the better one stays");
    }

    #[test]
    fn foreign_and_damaged_files_are_not_used_but_replaced() {
        let (dir, path) = place();
        keep(&path, entry("a", 0, 0.0)).unwrap();
        let refused = |part: &str| {
            let error = load_for(&path, &key("a")).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        refused("other users may write");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        refused("other users may write");
        assert!(keep(&path, entry("a", 0, 0.0)).is_err(), "nor written where others may replace it");
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        for (text, part) in [
            (Vec::new(), "damaged"),
            (b"{\"schema\": ".to_vec(), "damaged"),
            (b"{\"schema\": \"lockbpf.costs/9\", \"entries\": []}".to_vec(), "lockbpf.costs/9"),
            (vec![0xff; 100], "damaged"),
            (vec![b' '; MAX_BYTES as usize + 1], "more than"),
        ] {
            fs::write(&path, text).unwrap();
            refused(part);
        }
        keep(&path, entry("a", 0, 0.0)).unwrap();
        assert!(load_for(&path, &key("a")).unwrap().is_some());
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        refused("link");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("no regular file");
        if geteuid().is_root() {
            fs::remove_dir(&path).unwrap();
            fs::rename(&elsewhere, &path).unwrap();
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            refused("another user");
        }
    }

    #[test]
    fn it_does_not_grow_without_bounds() {
        let (_dir, path) = place();
        for way in 0..40 {
            keep(&path, entry(&way.to_string(), 0, 0.0)).unwrap();
        }
        assert_eq!(read(&path).unwrap().len(), MAX_ENTRIES);
        assert!(fs::metadata(&path).unwrap().len() < MAX_BYTES);
        assert!(load_for(&path, &key("39")).unwrap().is_some());
    }
}
