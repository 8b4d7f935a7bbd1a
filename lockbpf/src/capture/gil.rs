//! Where CPython's global interpreter lock is in a process's memory. Its place in the interpreter's state differs from release to
//! release, but what surrounds it does not, so it is looked for by that (`struct _gil_runtime_state`, CPython 3.7 to 3.14).

use crate::rights;
use lockbpf_common::gil;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::ops::Range;

/// The variable that has it, the interpreter's whole static state.
pub const STATE: &str = "_PyRuntime";
/// Bytes of it that are read; 3.12's is the largest, with 450 KB.
const MAX_STATE: u64 = 4 << 20;

/// Bytes from the beginning of the structure to the flag, behind the switch interval and the last holder.
const FLAG: usize = 16;
const GUARD: usize = FLAG + gil::MUTEX as usize;
const CONDITION: usize = FLAG + gil::CONDITION as usize;
const SWITCH_CONDITION: usize = FLAG + gil::SWITCH_CONDITION as usize;
const SWITCH_MUTEX: usize = FLAG + gil::SWITCH_MUTEX as usize;
/// Bytes of the structure.
const SIZE: usize = FLAG + gil::END as usize;

/// The longest switch interval that is believed, µs.
const MAX_INTERVAL: u64 = 3_600_000_000;
/// The bit for the monotonic clock in the word of glibc's condition variable that counts who waits.
const COND_MONOTONIC: u32 = 2;
/// More threads than ever wait for one.
const MAX_WAITERS: u32 = 1 << 16;
/// Bytes in glibc's mutex to its kind: the interpreter's are plain.
const MUTEX_KIND: usize = 16;

/// Whether a file has an interpreter in it, by its base name.
#[must_use]
pub fn is_interpreter(file: &str) -> bool {
    file.starts_with("libpython") || file.starts_with("python")
}

/// The address of the mutex that guards the lock of the main interpreter, by where the interpreter's state is in the memory of a
/// process; `None` if it is not there yet, or cannot be read.
#[must_use]
pub fn locate(pid: u32, state: &Range<u64>) -> Option<u64> {
    let len = state.end.checked_sub(state.start).filter(|&len| len <= MAX_STATE)?;
    let mut memory = vec![0; usize::try_from(len).ok()?];
    let remote = RemoteIoVec { base: usize::try_from(state.start).ok()?, len: memory.len() };
    let pid = Pid::from_raw(i32::try_from(crate::leader::face(pid)).ok()?);
    let got = rights::reach(|| process_vm_readv(pid, &mut [IoSliceMut::new(&mut memory)], &[remote])).ok()?;
    let at = find(memory.get(..got)?)?;
    state.start.checked_add((at + GUARD) as u64)
}

/// Where the structure begins.
fn find(memory: &[u8]) -> Option<usize> {
    (0..memory.len().saturating_sub(SIZE - 1)).step_by(8).find(|&at| is_lock(&memory[at..at + SIZE]))
}

fn is_lock(bytes: &[u8]) -> bool {
    let (Some(interval), Some(holder)) = (word::<8>(bytes, 0), word::<8>(bytes, 8)) else { return false };
    let (interval, holder) = (u64::from_ne_bytes(interval), u64::from_ne_bytes(holder));
    let half = |at| word::<4>(bytes, at).map_or(u32::MAX, u32::from_ne_bytes);
    // As one release of glibc has it.
    let are_conditions = |waiters: u64| {
        [CONDITION, SWITCH_CONDITION].into_iter().all(|at| {
            let waiters = half(at + waiters as usize);
            waiters & COND_MONOTONIC != 0 && waiters < MAX_WAITERS
        })
    };
    let is_mutex = |at| half(at) <= 2 && half(at + MUTEX_KIND) == 0;
    (1..=MAX_INTERVAL).contains(&interval)
        && holder % 8 == 0
        && holder >> 48 == 0
        && half(FLAG) <= 1
        && half(FLAG + 4) == 0
        && is_mutex(GUARD)
        && is_mutex(SWITCH_MUTEX)
        && gil::WAITERS.into_iter().any(are_conditions)
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn structure(interval: u64, flag: u32, waiters: u32) -> Vec<u8> {
        of_release(gil::WAITERS[1] as usize, interval, flag, waiters)
    }

    fn of_release(counts: usize, interval: u64, flag: u32, waiters: u32) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(0, interval);
        put(8, 0x55d0_1234_5678);
        put(FLAG, u64::from(flag));
        put(FLAG + 8, 17);
        put(CONDITION + counts, u64::from(COND_MONOTONIC | waiters << 3));
        put(SWITCH_CONDITION + counts, u64::from(COND_MONOTONIC));
        put(GUARD, 2 | 1 << 40);
        bytes
    }

    #[test]
    fn it_is_known_by_what_surrounds_it() {
        let mut state = vec![0; 400];
        state.extend(structure(5_000, 1, 3));
        state.extend([0; 100]);
        assert_eq!(find(&state), Some(400));
        let newer = of_release(gil::WAITERS[0] as usize, 5_000, 1, 3);
        assert_eq!(find(&newer), Some(0));
        let mut of_both = newer;
        of_both[CONDITION + 28..CONDITION + 32].fill(0);
        of_both[CONDITION + 36] = COND_MONOTONIC as u8;
        assert_eq!(find(&of_both), None, "each as another release has it");
        for other in [
            structure(0, 1, 0),
            structure(5_000, 2, 0),
            vec![0; 1_000],
            Vec::new(),
            structure(5_000, 1, 0)[1..].to_vec(),
        ] {
            assert_eq!(find(&other), None);
        }
    }

    #[test]
    fn no_memory_is_no_lock() {
        let pid = std::process::id();
        assert_eq!(locate(pid, &(0..4_096)), None);
        assert_eq!(locate(pid, &(0..0)), None);
        assert_eq!(locate(u32::MAX, &(0..u64::MAX)), None);
    }

    #[test]
    fn files_with_an_interpreter() {
        for (file, is) in
            [("python3.11", true), ("libpython3.12.so.1.0", true), ("ipython", false), ("libc.so.6", false)]
        {
            assert_eq!(is_interpreter(file), is, "{file}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes: Vec<u8>) {
            find(&bytes);
        }
    }
}
