//! Who maps which file as code, told by the kernel as it happens: an exec, a library that is loaded. Rings of perf's, one per
//! CPU, which are read when it suits; each mapping costs its process about a microsecond.

use super::raw_program::perf_event;
use aya_obj::generated::{perf_event_attr, perf_event_mmap_page, perf_event_type, perf_sw_ids, perf_type_id};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Room for records, per CPU: some hundred. More than that between two readings are counted as lost.
const DATA_BYTES: usize = 64 << 10;
/// Bytes of `struct perf_event_header`, and of what precedes the file's name in a record of a mapping.
const HEADER: usize = 8;
const FIXED: usize = HEADER + 4 * 2 + 8 * 3 + 4 * 2 + 8 * 2 + 4 * 2;

/// A file that was mapped as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CodeFile {
    /// Device number, as the kernel's mappings have it.
    pub(super) device: (u32, u32),
    /// Inode number.
    pub(super) inode: u64,
    /// Tells apart files that had the same number one after the other.
    pub(super) generation: u64,
}

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Mapped(u32, CodeFile),
    Lost,
}

/// The rings.
pub(super) struct MmapEvents(Vec<Ring>);

struct Ring {
    /// Beyond the page that describes it.
    base: NonNull<u8>,
    page: usize,
    _event: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, whatever thread it is in.
unsafe impl Send for Ring {}

impl MmapEvents {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the kernel refuses, for want of rights, descriptors or memory.
    pub(super) fn listen() -> io::Result<Self> {
        let cpus = aya::util::online_cpus().map_err(|(_, error)| error)?;
        Ok(Self(cpus.into_iter().map(Ring::open).collect::<io::Result<_>>()?))
    }

    /// Hands over what was mapped since the last call. Returns whether anything was lost.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(u32, CodeFile)) -> bool {
        let mut lost = false;
        for ring in &mut self.0 {
            ring.drain(|record| match parse(record) {
                Some(Told::Mapped(pid, file)) => sink(pid, file),
                Some(Told::Lost) => lost = true,
                None => {}
            });
        }
        lost
    }
}

/// What a record tells, if it is of a kind that matters.
fn parse(record: &[u8]) -> Option<Told> {
    let kind = u32::from_ne_bytes(record.get(..4)?.try_into().ok()?);
    if kind == perf_event_type::PERF_RECORD_LOST as u32 {
        return Some(Told::Lost);
    }
    if kind != perf_event_type::PERF_RECORD_MMAP2 as u32 || record.len() < FIXED {
        return None;
    }
    let u32_at = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let file = CodeFile { device: (u32_at(40)?, u32_at(44)?), inode: u64_at(48)?, generation: u64_at(56)? };
    // Without a file: generated code, or the kernel's.
    (file.inode != 0).then_some(Told::Mapped(u32_at(8)?, file))
}

impl Ring {
    fn open(cpu: u32) -> io::Result<Self> {
        // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.type_ = perf_type_id::PERF_TYPE_SOFTWARE as u32;
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.config = perf_sw_ids::PERF_COUNT_SW_DUMMY as u64;
        attr.set_mmap(1);
        attr.set_mmap2(1);
        // Nobody is woken: the rings are read from time to time.
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
        let event = perf_event(&attr, -1, cpu as libc::c_int)?;
        // SAFETY: no memory is passed.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, event.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice, of a descriptor that is open.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), page + DATA_BYTES, prot, libc::MAP_SHARED, fd, 0) };
        match NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) {
            Some(base) => Ok(Self { base, page, _event: event }),
            None => Err(io::Error::last_os_error()),
        }
    }

    fn drain(&mut self, mut sink: impl FnMut(&[u8])) {
        let page = self.base.as_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: the kernel lays this structure out at the beginning of the mapping, which lives as long as self; it and
        // this only ever write whole words of the two positions.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut record = Vec::new();
        while at < end {
            let mut header = [0; HEADER];
            self.copy(at, &mut header);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < HEADER || size as u64 > end - at {
                // Not what the kernel writes: begin anew.
                at = end;
                break;
            }
            record.resize(size, 0);
            self.copy(at, &mut record);
            sink(&record);
            at += size as u64;
        }
        fence(Ordering::SeqCst);
        tail.store(at, Ordering::Release);
    }

    /// Copies from a position of the stream that the ring holds.
    fn copy(&self, at: u64, to: &mut [u8]) {
        let begin = (at % DATA_BYTES as u64) as usize;
        let first = to.len().min(DATA_BYTES - begin);
        // SAFETY: both parts lie in the DATA_BYTES after the first page of the mapping, and the kernel writes nothing between
        // the tail and the head; no more than a record, which is shorter than the ring, is copied.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(data.add(begin), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, to[first..].as_mut_ptr(), to.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and is not used after this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + DATA_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, inode: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([2, 0]);
        bytes.extend((FIXED as u16 + 8).to_ne_bytes());
        for word in [77u32, 78] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([0; 24]);
        for word in [8u32, 1] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [inode, 9] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([0; 8]);
        bytes.extend(b"/bin/x\0\0");
        bytes
    }

    #[test]
    fn records_of_all_sorts() {
        let mapped = Told::Mapped(77, CodeFile { device: (8, 1), inode: 42, generation: 9 });
        assert_eq!(parse(&record(10, 42)), Some(mapped));
        assert_eq!(parse(&record(10, 0)), None, "no file");
        assert_eq!(parse(&record(2, 42)), Some(Told::Lost));
        assert_eq!(parse(&record(3, 42)), None);
        assert_eq!(parse(&record(10, 42)[..40]), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
