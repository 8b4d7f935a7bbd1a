//! Batches that wait for a destination: a file each in a directory, the oldest first, so that they outlive lockbpf and the other side's absence.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What names of batches end with. They begin with their number, in so many digits that names are in the order of numbers.
const BATCH: &str = ".batch";
/// What a batch is called that is not complete.
const PARTIAL: &str = "partial";
/// Held by whoever uses the directory.
const LOCK: &str = "lock";

/// A queue on disk.
#[derive(Debug)]
pub(super) struct Queue {
    dir: PathBuf,
    /// Bytes that all batches together may have.
    limit: u64,
    /// How large batches are, by their numbers.
    batches: BTreeMap<u64, u64>,
    bytes: u64,
    next: u64,
    /// The batch that is under way: it is not dropped, since it may have arrived.
    under_way: Option<u64>,
    _lock: File,
}

impl Queue {
    /// What is in this directory, which is made if it is not there. Returns how many batches it had to drop, too.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process uses it.
    pub(super) fn open(dir: &Path, limit: u64) -> Result<(Self, u64)> {
        let failed = || format!("failed to use {} for what is to be pushed", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(failed)?;
        let lock =
            OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join(LOCK)).with_context(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another lockbpf agent pushes what is there: name another queue_dir", dir.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        let mut batches = BTreeMap::new();
        for entry in fs::read_dir(dir).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let number: Option<u64> =
                entry.file_name().to_str().and_then(|name| name.strip_suffix(BATCH)?.parse().ok());
            // No queue counts further than that: what is named so is not ours.
            if let Some(number) = number.filter(|&number| number <= u64::MAX / 2) {
                batches.insert(number, entry.metadata().with_context(failed)?.len());
            }
        }
        let bytes = batches.values().sum();
        let next = batches.last_key_value().map_or(0, |(number, _)| number + 1);
        let mut queue = Self { dir: dir.to_owned(), limit, batches, bytes, next, under_way: None, _lock: lock };
        let dropped = queue.make_room(0);
        Ok((queue, dropped))
    }

    /// How many batches wait, and their bytes.
    pub(super) fn len(&self) -> (u64, u64) {
        (self.batches.len() as u64, self.bytes)
    }

    /// Adds a batch. Returns how many had to make room for it; it may be the one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn push(&mut self, batch: &[u8]) -> io::Result<u64> {
        let bytes = batch.len() as u64;
        if bytes > self.limit {
            return Ok(1);
        }
        let dropped = self.make_room(bytes);
        let partial = self.dir.join(PARTIAL);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(batch).and_then(|()| file.sync_data()).inspect_err(|_| drop(fs::remove_file(&partial)))?;
        fs::rename(&partial, self.path(self.next))?;
        self.batches.insert(self.next, bytes);
        self.bytes += bytes;
        self.next += 1;
        Ok(dropped)
    }

    /// The oldest batch, which is under way from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn first(&mut self) -> Option<(u64, io::Result<Vec<u8>>)> {
        let (&number, _) = self.batches.first_key_value()?;
        self.under_way = Some(number);
        Some((number, fs::read(self.path(number))))
    }

    /// The batch under way stays.
    pub(super) fn keep(&mut self) {
        self.under_way = None;
    }

    /// Removes a batch.
    pub(super) fn remove(&mut self, number: u64) {
        self.under_way = None;
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        if let Some(bytes) = self.batches.remove(&number) {
            self.bytes -= bytes;
            // What cannot be removed now is sent once more after the next start.
            let _ = fs::remove_file(self.path(number));
        }
    }

    /// Drops the oldest until there is room.
    fn make_room(&mut self, bytes: u64) -> u64 {
        let mut dropped = 0;
        while self.bytes + bytes > self.limit {
            let oldest = self.batches.keys().copied().find(|&number| Some(number) != self.under_way);
            let Some(oldest) = oldest else { break };
            self.forget(oldest);
            dropped += 1;
        }
        dropped
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:020}{BATCH}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that wait, oldest first.
    fn drain(queue: &mut Queue) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((number, batch)) = queue.first() {
            all.push(batch.unwrap());
            queue.remove(number);
        }
        all
    }

    #[test]
    fn batches_outlive_whoever_wrote_them() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Queue::open(&dir.path().join("a/b"), 1 << 20).unwrap();
        let (mut queue, _) = open();
        assert!(queue.first().is_none());
        for batch in [b"one", b"two"] {
            assert_eq!(queue.push(batch).unwrap(), 0);
        }
        let (number, batch) = queue.first().unwrap();
        assert_eq!(batch.unwrap(), b"one");
        // It was under way, and nobody knows whether it arrived.
        drop(queue);
        // One that was not complete, and what is not ours.
        fs::write(dir.path().join("a/b/partial"), "thr").unwrap();
        fs::write(dir.path().join("a/b/x.batch"), "x").unwrap();
        fs::write(dir.path().join(format!("a/b/{}.batch", u64::MAX)), "x").unwrap();
        let (mut queue, dropped) = open();
        assert_eq!((dropped, queue.len(), number), (0, (2, 6), 0));
        queue.push(b"three").unwrap();
        assert_eq!(drain(&mut queue), [&b"one"[..], b"two", b"three"]);
        assert_eq!(queue.len(), (0, 0));
        drop(queue);
        assert_eq!(open().0.len(), (0, 0));
    }

    #[test]
    fn the_oldest_make_room_but_not_the_one_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), 10).unwrap();
        assert_eq!(queue.push(&[0; 11]).unwrap(), 1, "it never fits");
        for at in 0..3 {
            assert_eq!(queue.push(&[at; 3]).unwrap(), 0);
        }
        let (number, _) = queue.first().unwrap();
        assert_eq!(queue.push(&[3; 3]).unwrap(), 1);
        assert_eq!(queue.len(), (3, 9));
        queue.remove(number);
        assert_eq!(drain(&mut queue), [vec![2; 3], vec![3; 3]]);
        for at in 0..3 {
            queue.push(&[at; 3]).unwrap();
        }
        drop(queue);
        // There is less room than there was.
        let (mut queue, dropped) = Queue::open(dir.path(), 5).unwrap();
        assert_eq!((dropped, drain(&mut queue)), (2, vec![vec![2; 3]]));
    }

    #[test]
    fn one_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::open(dir.path(), 10).unwrap();
        let error = Queue::open(dir.path(), 10).unwrap_err().to_string();
        assert!(error.contains("another lockbpf agent"), "{error}");
        drop(queue);
        assert!(Queue::open(dir.path(), 10).is_ok());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Queue::open(&file, 10).is_err());
    }
}
