//! Many entries of a map by one system call.

use aya::Pod;
use aya_obj::generated::bpf_cmd;
use std::os::fd::RawFd;

/// The part of `union bpf_attr` for `BPF_MAP_LOOKUP_BATCH`.
#[repr(C)]
struct LookupBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// The first `count` values of an array map whose values are `T`; `None` if the kernel does not read them at once (before 5.6), or not all
/// are there.
pub(super) fn first<T: Pod>(map: RawFd, value_size: u32, count: u32) -> Option<Vec<T>> {
    if value_size as usize != size_of::<T>() || !size_of::<T>().is_multiple_of(8) {
        return None;
    }
    let mut values: Vec<T> = Vec::with_capacity(count as usize);
    let mut keys = vec![0u32; count as usize];
    let mut next = 0u32;
    let mut attr = LookupBatch {
        in_batch: 0,
        out_batch: std::ptr::from_mut(&mut next) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count,
        map_fd: map as u32,
        elem_flags: 0,
        flags: 0,
    };
    let command = bpf_cmd::BPF_MAP_LOOKUP_BATCH as libc::c_int;
    // SAFETY: attr is a live prefix of `union bpf_attr` for this command, whose size is given. Keys and values have room for `count` entries of
    // the map's sizes, the values' being as just compared and a multiple of 8 as the kernel rounds it; all outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(&mut attr), size_of::<LookupBatch>()) };
    // The kernel writes how many it has read. Where the map ends there, it says so.
    let all = attr.count == count;
    let ended = result != 0 && nix::errno::Errno::last() == nix::errno::Errno::ENOENT;
    if !all || result != 0 && !ended {
        return None;
    }
    // SAFETY: the kernel has written that many values, each of which is valid whatever its bytes are (Pod).
    unsafe { values.set_len(count as usize) };
    Some(values)
}

/// Entries of a hash map read at once. The kernel has them in buckets, none of which is as large.
const AT_ONCE: usize = 4_096;

/// All entries of a hash map of `K` and `V`; `None` if the kernel does not read them at once (before 5.6). Entries that come or go meanwhile may
/// be missing or there.
pub(super) fn entries<K: Pod, V: Pod>(map: RawFd, (key_size, value_size): (u32, u32)) -> Option<Vec<(K, V)>> {
    if (key_size as usize, value_size as usize) != (size_of::<K>(), size_of::<V>()) {
        return None;
    }
    let mut all = Vec::new();
    let mut keys: Vec<K> = Vec::with_capacity(AT_ONCE);
    let mut values: Vec<V> = Vec::with_capacity(AT_ONCE);
    // Where to go on: the number of a bucket.
    let (mut from, mut to) = (0u32, 0u32);
    loop {
        let begins = all.is_empty();
        let mut attr = LookupBatch {
            in_batch: if begins { 0 } else { std::ptr::from_mut(&mut from) as u64 },
            out_batch: std::ptr::from_mut(&mut to) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: AT_ONCE as u32,
            map_fd: map as u32,
            elem_flags: 0,
            flags: 0,
        };
        let command = bpf_cmd::BPF_MAP_LOOKUP_BATCH as libc::c_int;
        // SAFETY: as above. Of a hash map, the kernel writes entries of just the map's sizes, and a bucket's number of 4 bytes.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(&mut attr), size_of::<LookupBatch>()) };
        let ended = result != 0 && nix::errno::Errno::last() == nix::errno::Errno::ENOENT;
        let read = (attr.count as usize).min(AT_ONCE);
        if !ended && (result != 0 || read == 0) {
            return None;
        }
        // SAFETY: the kernel has written that many of both, each of which is valid whatever its bytes are (Pod).
        unsafe {
            keys.set_len(read);
            values.set_len(read);
        }
        all.extend(keys.drain(..).zip(values.drain(..)));
        if ended {
            return Some(all);
        }
        from = to;
    }
}
