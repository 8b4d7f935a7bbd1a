//! Descriptors of a thread's own, so that what they hold ends with the thread.
//!
//! The kernel closes a process's descriptors when its last thread ends. A thread that traces may end long before that one, and its
//! tracees would run on with its breakpoints. A thread with a table of its own closes that first, and then ends its tracing (`do_exit`:
//! `exit_files`, `exit_task_work`, `exit_notify`).

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Gives the calling thread a table of its own, in which only these and the three standard descriptors are open. The thread must own no
/// other descriptor, and use none that others opened.
///
/// # Errors
/// When the kernel has no memory for a table.
pub(super) fn keep_only(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    unshare(CloneFlags::CLONE_FILES)?;
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd().cast_unsigned()).collect();
    kept.sort_unstable();
    let mut first = libc::STDERR_FILENO.cast_unsigned() + 1;
    for end in kept.into_iter().chain([u32::MAX]) {
        if first < end {
            // SAFETY: the table is this thread's alone, and the thread uses none of these.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0_u32) };
            Errno::result(closed)?;
        }
        first = first.max(end.saturating_add(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn others_keep_what_one_thread_closes() {
        let files: Vec<File> = (0..5).map(|_| File::open("/dev/null").expect("it is there")).collect();
        let is_open = |file: &File| nix::fcntl::fcntl(file.as_fd(), nix::fcntl::FcntlArg::F_GETFD).is_ok();
        let there: Vec<bool> = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                keep_only(&[files[3].as_fd(), files[1].as_fd()]).expect("it has a table of its own");
                files.iter().map(is_open).collect()
            });
            thread.join().expect("it does not panic")
        });
        assert_eq!(there, [false, true, false, true, false]);
        assert!(files.iter().all(is_open));
    }
}
