//! Many entries of a map by one system call, or, before 5.6, each by its own.

use super::CaptureError;
use super::raw_program::data;
use aya::Pod;
use aya::maps::{Array, HashMap, Map};
use aya_obj::generated::bpf_cmd;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};

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

/// Where the kernel goes on reading: an index of an array, the number of a bucket of a hash map.
type Position = u32;

/// Reads up to `count` entries, from the beginning or where the last call has left off. Returns how many there were, and whether the map
/// ends there; `None` if the kernel does not read them at once (before 5.6).
///
/// # Safety
/// There is room for `count` of the map's keys at `keys` and of its values at `values`, these of arrays rounded up to 8 bytes.
unsafe fn lookup(
    map: RawFd,
    mut from: Option<Position>,
    to: &mut Position,
    (keys, values): (*mut u8, *mut u8),
    count: u32,
) -> Option<(usize, bool)> {
    let mut attr = LookupBatch {
        in_batch: from.as_mut().map_or(0, |from| std::ptr::from_mut(from) as u64),
        out_batch: std::ptr::from_mut(to) as u64,
        keys: keys as u64,
        values: values as u64,
        count,
        map_fd: map as u32,
        elem_flags: 0,
        flags: 0,
    };
    let command = bpf_cmd::BPF_MAP_LOOKUP_BATCH as libc::c_int;
    // SAFETY: attr is a live prefix of `union bpf_attr` for this command, whose size is given. It points to positions, which are 4 bytes of both
    // sorts of maps, and to room for keys and values as the caller promises; all outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(&mut attr), size_of::<LookupBatch>()) };
    let ended = result != 0 && nix::errno::Errno::last() == nix::errno::Errno::ENOENT;
    // The kernel writes how many it has read.
    (result == 0 || ended).then_some((attr.count.min(count) as usize, ended))
}

/// The first `count` values of an array map.
///
/// # Errors
/// As for [`range`].
pub(super) fn first<T: Pod>(map: &Map, count: u32) -> Result<Vec<T>, CaptureError> {
    range(map, 0..count)
}

/// These values of an array map.
///
/// # Errors
/// When the map is not an array, its values are not `T`, or one cannot be read.
pub(super) fn range<T: Pod>(map: &Map, range: Range<u32>) -> Result<Vec<T>, CaptureError> {
    if let (Map::Array(_), Some((fd, (_, value_size)))) = (map, layout(map))
        && let Some(values) = range_at_once(fd, value_size, range.clone())
    {
        return Ok(values);
    }
    let values: Array<_, T> = map.try_into()?;
    range.map(|index| Ok(values.get(&index, 0)?)).collect()
}

/// `None` if the kernel does not read them at once, or not all are there.
fn range_at_once<T: Pod>(map: RawFd, value_size: usize, range: Range<u32>) -> Option<Vec<T>> {
    if value_size != size_of::<T>() || !size_of::<T>().is_multiple_of(8) {
        return None;
    }
    let count = range.len();
    let mut values: Vec<T> = Vec::with_capacity(count);
    let mut keys = vec![0u32; count];
    let room = (keys.as_mut_ptr().cast(), values.as_mut_ptr().cast());
    // The kernel goes on behind an index.
    let behind = range.start.checked_sub(1);
    // SAFETY: an array's keys are of 4 bytes, and its values of the size just compared, which is a multiple of 8.
    let (read, _) = unsafe { lookup(map, behind, &mut 0, room, count as u32) }?;
    if read < count {
        return None;
    }
    // SAFETY: the kernel has written that many values, each of which is valid whatever its bytes are (Pod).
    unsafe { values.set_len(read) };
    Some(values)
}

/// Entries of a hash map read at once. The kernel has them in buckets, none of which is as large.
const AT_ONCE: usize = 4_096;

/// All entries of a hash map. Entries that come or go meanwhile may be missing or there.
///
/// # Errors
/// When the map is not one of `K` and `V`.
pub(super) fn entries<K: Pod, V: Pod>(map: &Map) -> Result<Vec<(K, V)>, CaptureError> {
    if let (Map::HashMap(_) | Map::LruHashMap(_), Some((fd, sizes))) = (map, layout(map))
        && let Some(all) = entries_at_once(fd, sizes)
    {
        return Ok(all);
    }
    let map: HashMap<_, K, V> = map.try_into()?;
    Ok(map.iter().filter_map(Result::ok).collect())
}

/// A map's descriptor, and the sizes of its keys and values, bytes.
fn layout(map: &Map) -> Option<(RawFd, (usize, usize))> {
    let data = data(map)?;
    let info = data.info().ok()?;
    Some((data.fd().as_fd().as_raw_fd(), (info.key_size() as usize, info.value_size() as usize)))
}

/// `None` if the kernel does not read them at once.
fn entries_at_once<K: Pod, V: Pod>(map: RawFd, sizes: (usize, usize)) -> Option<Vec<(K, V)>> {
    if sizes != (size_of::<K>(), size_of::<V>()) {
        return None;
    }
    let mut all = Vec::new();
    let mut keys: Vec<K> = Vec::with_capacity(AT_ONCE);
    let mut values: Vec<V> = Vec::with_capacity(AT_ONCE);
    let (mut from, mut to) = (None, 0);
    loop {
        let room = (keys.as_mut_ptr().cast(), values.as_mut_ptr().cast());
        // SAFETY: there is room for as many, of the sizes just compared, which the kernel does not round for hash maps.
        let (read, ended) = unsafe { lookup(map, from, &mut to, room, AT_ONCE as u32) }?;
        // SAFETY: the kernel has written that many of both, each of which is valid whatever its bytes are (Pod).
        unsafe {
            keys.set_len(read);
            values.set_len(read);
        }
        all.extend(keys.drain(..).zip(values.drain(..)));
        match (ended, read) {
            (true, _) => return Some(all),
            (false, 0) => return None,
            (false, _) => from = Some(to),
        }
    }
}
