//! Threads as keys of maps: what programs have stored about one is looked up by a descriptor of it.

use crate::id::Tid;
use aya_obj::generated::bpf_cmd;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `PIDFD_THREAD` (kernel 6.9): any thread, not only the first of a process.
const THREAD: libc::c_int = libc::O_EXCL;

/// The part of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM`.
#[repr(C)]
struct Lookup {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A descriptor of a thread; `None` if it is gone, or the kernel has descriptors of first threads only and it is none.
pub(super) fn open(tid: Tid) -> Option<OwnedFd> {
    let open = |flags: libc::c_int| {
        // SAFETY: the call takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, flags) };
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    open(THREAD).or_else(|| open(0))
}

/// What a map of task storage has of a thread: `size` bytes, the size of the map's values; `None` if it has nothing.
pub(super) fn value(map: RawFd, thread: &OwnedFd, size: usize) -> Option<Vec<u8>> {
    let mut value = vec![0u8; size];
    let key = thread.as_raw_fd();
    let attr = Lookup {
        map_fd: map as u32,
        reserved: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    let command = bpf_cmd::BPF_MAP_LOOKUP_ELEM as libc::c_int;
    // SAFETY: attr is a live prefix of `union bpf_attr` for this command, whose size is given; the key is a descriptor, as maps of task
    // storage want it, and the value has room for what the map's values take. Both outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(&attr), size_of::<Lookup>()) };
    (result == 0).then_some(value)
}
