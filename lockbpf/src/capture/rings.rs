//! One ring buffer per CPU: made, handed to the kernel side, drained.

use super::CaptureError;
use aya::Ebpf;
use aya::maps::{ArrayOfMaps, Map, MapData, RingBuf};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// Memory for all ring buffers together, bytes.
const TOTAL_BYTES: usize = 32 << 20;
/// Bounds for one of them, bytes.
const MIN_BYTES: usize = 256 << 10;
const MAX_BYTES: usize = 8 << 20;

/// What the kernel puts in front of a record, bytes.
const RECORD_HEADER: usize = 8;

/// Rings when a ring buffer's reader is woken: by a new process, or by several stacks that were never seen.
pub struct Bell(AsyncFd<Instance>);

/// An epoll instance that can be waited for itself.
struct Instance(Epoll);

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

impl Bell {
    /// Waits until it rings.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn rung(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        // Taken, so that the next one is an edge again.
        let mut events = [EpollEvent::empty(); 64];
        while self.0.get_ref().0.wait(&mut events, EpollTimeout::ZERO)? == events.len() {}
        ready.clear_ready();
        Ok(())
    }
}

/// The ring buffers of all CPUs.
pub(super) struct Rings {
    rings: Vec<RingBuf<MapData>>,
    /// Memory of each, bytes.
    bytes_each: usize,
}

impl Rings {
    /// Makes one ring buffer per possible CPU and puts them into the kernel side's array.
    pub(super) fn create(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        let cpus = aya::util::nr_cpus().map_err(|(path, source)| CaptureError::Cpus { path: path.into(), source })?;
        let bytes_each = (TOTAL_BYTES / cpus.max(1)).next_power_of_two().clamp(MIN_BYTES, MAX_BYTES);
        let map = ebpf.map_mut("RINGS").ok_or(CaptureError::NoMap("RINGS"))?;
        let mut array: ArrayOfMaps<_, RingBuf<MapData>> = ArrayOfMaps::try_from(map)?;
        let mut rings = Vec::with_capacity(cpus);
        for cpu in 0..cpus.min(lockbpf_common::config::MAX_CPUS as usize) {
            let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, bytes_each as u32, 0);
            let ring: RingBuf<MapData> = Map::RingBuf(MapData::create(definition, "lockbpf_ring", None)?).try_into()?;
            array.set(cpu as u32, &ring, 0)?;
            rings.push(ring);
        }
        Ok(Self { rings, bytes_each })
    }

    /// Hands every record that is there to `sink`, CPU by CPU: at most as many as a ring holds, since one that is written faster than
    /// read would never become empty.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(&[u8])) {
        for ring in &mut self.rings {
            let mut left = self.bytes_each;
            while left > 0
                && let Some(record) = ring.next()
            {
                left = left.saturating_sub((record.len() + RECORD_HEADER).next_multiple_of(8));
                sink(&record);
            }
        }
    }

    /// Rings when the kernel side wakes the reader of one of these, or of `another`.
    pub(super) fn bell(&self, another: Option<&RingBuf<MapData>>) -> io::Result<Bell> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for ring in self.rings.iter().chain(another) {
            // SAFETY: the ring buffer owns this descriptor and outlives the borrow, which ends with the statement.
            let ring = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
            epoll.add(ring, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        }
        // SAFETY: the `AsyncFd` owns the epoll instance, whose descriptor stays open as long.
        Ok(Bell(unsafe { AsyncFd::register(Instance(epoll)) }?))
    }
}
