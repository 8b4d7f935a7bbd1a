//! Breakpoints of the processor, on single threads. They belong to a descriptor of the thread that traces: if that dies, however it
//! does, the kernel removes them before anything else happens to the traced thread.

use crate::capture::raw_program;
use aya_obj::generated::{PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_SET_BPF, perf_event_attr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `PERF_TYPE_BREAKPOINT`.
const BREAKPOINT: u32 = 5;
/// `HW_BREAKPOINT_X`.
const EXECUTE: u32 = 4;
/// `PERF_EVENT_IOC_MODIFY_ATTRIBUTES`, kernel 4.17.
const MODIFY: u64 = 0x4008_240b;

/// One breakpoint of one thread.
pub(super) struct Breakpoint {
    event: OwnedFd,
    address: u64,
    enabled: bool,
}

fn attributes(address: u64) -> perf_event_attr {
    // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = BREAKPOINT;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.bp_type = EXECUTE;
    attr.__bindgen_anon_3.bp_addr = address;
    attr.__bindgen_anon_4.bp_len = size_of::<libc::c_long>() as u64;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

impl Breakpoint {
    /// Sets one for a thread; `program` runs when the thread comes there, before it executes the instruction.
    ///
    /// # Errors
    /// When the kernel refuses: the processor has four of them, some of which others may have.
    pub(super) fn set(tid: i32, address: u64, program: BorrowedFd<'_>) -> io::Result<Self> {
        let mut attr = attributes(address);
        attr.set_disabled(1);
        let event = raw_program::perf_event(&attr, tid, -1)?;
        let breakpoint = Self { event, address, enabled: true };
        breakpoint.control(u64::from(PERF_EVENT_IOC_SET_BPF), program.as_raw_fd() as u64)?;
        breakpoint.control(u64::from(PERF_EVENT_IOC_ENABLE), 0)?;
        Ok(breakpoint)
    }

    /// Moves it to another address. The thread must be stopped.
    ///
    /// # Errors
    /// When the kernel refuses the address.
    pub(super) fn put(&mut self, address: u64) -> io::Result<()> {
        if self.address != address {
            let attr = attributes(address);
            self.control(MODIFY, std::ptr::from_ref(&attr) as u64)?;
            (self.address, self.enabled) = (address, true);
        } else if !self.enabled {
            self.control(u64::from(PERF_EVENT_IOC_ENABLE), 0)?;
            self.enabled = true;
        }
        Ok(())
    }

    /// Lets it be passed.
    ///
    /// # Errors
    /// Never, as long as the thread lives.
    pub(super) fn lift(&mut self) -> io::Result<()> {
        if self.enabled {
            self.control(u64::from(PERF_EVENT_IOC_DISABLE), 0)?;
            self.enabled = false;
        }
        Ok(())
    }

    fn control(&self, request: u64, argument: u64) -> io::Result<()> {
        // SAFETY: the argument is what this request of a perf event takes: none, a descriptor, or the address of attributes that
        // outlive the call.
        let result = unsafe { libc::ioctl(self.event.as_raw_fd(), request as _, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
