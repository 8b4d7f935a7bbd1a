//! A thread's own stack while its code is followed ahead: what is in memory now, and what it will have written by then.

use super::Memory;
use std::collections::BTreeMap;
use std::ops::Range;

/// What will be on the stack.
#[derive(Clone, Debug)]
pub struct Stack {
    range: Range<u64>,
    /// By the first byte: how many, and their value where it is known.
    written: BTreeMap<u64, (u64, Option<u64>)>,
    /// The most bytes of any of these.
    longest: u64,
}

impl Stack {
    /// Nothing has been written yet. Nobody but its thread is taken to write in `range`.
    #[must_use]
    pub fn new(range: Range<u64>) -> Self {
        Self { range, written: BTreeMap::new(), longest: 0 }
    }

    /// Takes note of a write; `value` where it is known, and of at most eight bytes.
    pub fn write(&mut self, address: u64, size: u64, value: Option<u64>) {
        let end = address.saturating_add(size);
        if end <= self.range.start || address >= self.range.end {
            return;
        }
        // What is left of others is not known any more.
        let hit: Vec<u64> = self.overlapping(address, size).map(|(start, _)| start).collect();
        for start in hit {
            let Some((length, _)) = self.written.remove(&start) else { continue };
            if start < address {
                self.written.insert(start, (address - start, None));
            }
            if start + length > end {
                self.written.insert(end, (start + length - end, None));
            }
        }
        self.longest = self.longest.max(size);
        self.written.insert(address, (size, value.filter(|_| size <= 8)));
    }

    /// What will be read there; `None` if that is not known, or not on the stack.
    pub fn read(&self, address: u64, size: u64, memory: &mut dyn Memory) -> Option<u64> {
        if !(1..=8).contains(&size) || address < self.range.start || address.checked_add(size)? > self.range.end {
            return None;
        }
        let mut hits = self.overlapping(address, size);
        if let Some((start, (length, value))) = hits.next() {
            return if start == address && length == size { value } else { None };
        }
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes[..size as usize]).then(|| u64::from_le_bytes(bytes))
    }

    fn overlapping(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, (u64, Option<u64>))> + '_ {
        let first = address.saturating_sub(self.longest);
        self.written
            .range(first..address.saturating_add(size))
            .filter(move |&(&start, &(length, _))| start + length > address)
            .map(|(&start, &entry)| (start, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros;
    impl Memory for Zeros {
        fn read(&mut self, _address: u64, bytes: &mut [u8]) -> bool {
            bytes.fill(0x11);
            true
        }
    }

    #[test]
    fn what_was_written_last_counts() {
        let mut stack = Stack::new(0x1000..0x2000);
        assert_eq!(stack.read(0x1ff8, 8, &mut Zeros), Some(0x1111_1111_1111_1111));
        assert_eq!(stack.read(0x1ffc, 8, &mut Zeros), None, "it ends outside");
        stack.write(0x1800, 8, Some(7));
        assert_eq!(stack.read(0x1800, 8, &mut Zeros), Some(7));
        assert_eq!(stack.read(0x1804, 4, &mut Zeros), None, "a part of it");
        stack.write(0x1700, 0x102, None);
        assert_eq!(stack.read(0x1800, 8, &mut Zeros), None);
        assert_eq!(stack.read(0x1802, 4, &mut Zeros), None);
        assert_eq!(stack.read(0x1808, 4, &mut Zeros), Some(0x1111_1111));
        stack.write(0x1780, 8, Some(1));
        assert_eq!(stack.read(0x1780, 8, &mut Zeros), Some(1));
        assert_eq!(stack.read(0x1790, 8, &mut Zeros), None, "the rest of the long write");
        stack.write(0x3000, 8, Some(1));
        assert_eq!(stack.read(0x3000, 8, &mut Zeros), None, "not on the stack");
    }
}
