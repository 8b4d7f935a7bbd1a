//! Memory of the target's, at addresses that it told.

use crate::maps::count;
use aya_ebpf::helpers::bpf_probe_read_user;
use lockbpf_common::counter::Counter;

/// What is at an address; counted if nothing is.
#[inline(always)]
pub fn read<T: Copy>(addr: u64) -> Option<T> {
    let there = peek(addr);
    if there.is_none() {
        count(Counter::ReadFault);
    }
    there
}

/// The same of an address that may mean nothing.
#[inline(always)]
pub fn peek<T: Copy>(addr: u64) -> Option<T> {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_user(addr as *const T) }.ok()
}
