//! The memory of a process, from outside.

use crate::access::Memory;
use crate::rights;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// Of a process, by the id of any of its threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessMemory(pub(super) i32);

impl Memory for ProcessMemory {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let len = bytes.len();
        let remote = RemoteIoVec { base: address as usize, len };
        rights::reach(|| process_vm_readv(Pid::from_raw(self.0), &mut [IoSliceMut::new(bytes)], &[remote])) == Ok(len)
    }
}
