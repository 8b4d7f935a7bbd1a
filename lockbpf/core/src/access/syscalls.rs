//! System calls inside a section: what they are called, and which of the thread's memory they are known to read or write.

use super::Kind;
use super::state::Registers;
use super::state::number::{RAX, RDI, RDX, RSI};

/// A system call in a section. What the kernel does in it is not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Its name, or number.
    pub name: String,
    /// The first argument, where that is a descriptor.
    pub descriptor: Option<i32>,
    /// The buffer that it fills or takes: address, bytes, and which of these.
    pub buffer: Option<(u64, u64, Kind)>,
}

/// Name, whether the first argument is a descriptor, and what is done to the buffer in the second, of the size in the third.
const KNOWN: [(u64, &str, bool, Option<Kind>); 46] = [
    (0, "read", true, Some(Kind::Write)),
    (1, "write", true, Some(Kind::Read)),
    (2, "open", false, None),
    (3, "close", true, None),
    (4, "stat", false, None),
    (5, "fstat", true, None),
    (7, "poll", false, None),
    (8, "lseek", true, None),
    (9, "mmap", false, None),
    (10, "mprotect", false, None),
    (11, "munmap", false, None),
    (12, "brk", false, None),
    (16, "ioctl", true, None),
    (17, "pread64", true, Some(Kind::Write)),
    (18, "pwrite64", true, Some(Kind::Read)),
    (19, "readv", true, None),
    (20, "writev", true, None),
    (23, "select", false, None),
    (24, "sched_yield", false, None),
    (25, "mremap", false, None),
    (28, "madvise", false, None),
    (35, "nanosleep", false, None),
    (39, "getpid", false, None),
    (44, "sendto", true, Some(Kind::Read)),
    (45, "recvfrom", true, Some(Kind::Write)),
    (46, "sendmsg", true, None),
    (47, "recvmsg", true, None),
    (72, "fcntl", true, None),
    (74, "fsync", true, None),
    (75, "fdatasync", true, None),
    (77, "ftruncate", true, None),
    (82, "rename", false, None),
    (87, "unlink", false, None),
    (96, "gettimeofday", false, None),
    (186, "gettid", false, None),
    (202, "futex", false, None),
    (228, "clock_gettime", false, None),
    (230, "clock_nanosleep", false, None),
    (232, "epoll_wait", true, None),
    (233, "epoll_ctl", true, None),
    (257, "openat", false, None),
    (262, "newfstatat", false, None),
    (270, "pselect6", false, None),
    (271, "ppoll", false, None),
    (281, "epoll_pwait", true, None),
    (318, "getrandom", false, None),
];

/// Calls after which a thread is not where it was, or is no more: `rt_sigreturn`, `clone`, `fork`, `vfork`, `execve`, `exit`,
/// `exit_group`, `execveat`, `clone3`.
const LEAVE: [u64; 9] = [15, 56, 57, 58, 59, 60, 231, 322, 435];

impl SystemCall {
    /// The one that a thread is about to make.
    #[must_use]
    pub fn of(registers: &Registers) -> Self {
        let number = registers.general[RAX];
        let Some(&(_, name, described, buffer)) = KNOWN.iter().find(|&&(known, ..)| known == number) else {
            return Self { name: format!("syscall {number}"), descriptor: None, buffer: None };
        };
        let general = &registers.general;
        Self {
            name: name.to_owned(),
            descriptor: described.then_some(general[RDI] as i32),
            buffer: buffer.map(|kind| (general[RSI], general[RDX], kind)),
        }
    }

    /// Whether the thread will not come back from it to the next instruction, or not alone.
    #[must_use]
    pub fn leaves(registers: &Registers) -> bool {
        LEAVE.contains(&registers.general[RAX])
    }

    /// As records tell it: `write fd=3`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.descriptor {
            Some(fd) => format!("{} fd={fd}", self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_known_calls() {
        let mut registers = Registers::default();
        registers.general[RAX] = 1;
        registers.general[RDI] = 5;
        registers.general[RSI] = 0x7000;
        registers.general[RDX] = 12;
        let write = SystemCall::of(&registers);
        assert_eq!((write.label().as_str(), write.buffer), ("write fd=5", Some((0x7000, 12, Kind::Read))));
        registers.general[RAX] = 999;
        assert_eq!(SystemCall::of(&registers).label(), "syscall 999");
        assert!(!SystemCall::leaves(&registers));
        registers.general[RAX] = 60;
        assert!(SystemCall::leaves(&registers));
        assert!(KNOWN.is_sorted_by_key(|&(number, ..)| number));
    }
}
