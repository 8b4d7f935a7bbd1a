//! Locks that are known by who sleeps there, since nothing else tells what they are: the C library's own (glibc's low-level ones), and
//! those of libraries whose fast paths are compiled into programs, in which even a slow path may be inlined.

use super::gather::Gathered;
use super::place::Places;
use crate::id::Lock;

/// In this function threads sleep for such locks, and for nothing else.
const SLEEPS: &str = "lll_lock_wait_private";
/// Frames looked at behind it, for the function that was called.
const FRAMES: usize = 4;

/// Beginnings of the names of functions that lock an arena, without leading underscores.
const MALLOC: &[&str] = &[
    "malloc",
    "int_malloc",
    "calloc",
    "realloc",
    "free",
    "int_free",
    "arena_get",
    "tcache_init",
    "memalign",
    "posix_memalign",
];
/// The same of those that lock a FILE.
const STDIO: &[&str] = &[
    "IO_",
    "fwrite",
    "fputs",
    "fputc",
    "puts",
    "putc",
    "printf",
    "fprintf",
    "vfprintf",
    "fflush",
    "fread",
    "fgets",
    "fgetc",
    "getc",
    "getline",
    "getdelim",
    "flockfile",
    "fseek",
    "ftell",
    "ungetc",
    "perror",
    "overflow",
    "new_file",
];

/// What is part of the names of functions in which threads sleep for other libraries' locks, and what these are called.
const LIBRARIES: &[(&str, &str)] = &[
    ("folly::SharedMutexImpl<", "folly::SharedMutex"),
    ("folly::MicroLock", "folly::MicroLock"),
    ("folly::detail::distributed_mutex::", "folly::DistributedMutex"),
];

/// What the lock at a futex word is, if its sleepers tell.
pub(super) fn name(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> Option<&'static str> {
    let waits = gathered.waits.filter(|_| !gathered.is_lock() && !gathered.is_condition())?;
    // Not every stack goes beyond the C library.
    waits.sites.iter().flat_map(|site| site.stacks.top()).find_map(|(stack, _)| {
        let frames = places.off_stack(lock.process, stack);
        let functions: Vec<&str> = frames.iter().filter_map(|frame| frame.function.as_deref()).map(plain).collect();
        of(&functions)
    })
}

fn of(functions: &[&str]) -> Option<&'static str> {
    let known = |function: &str| LIBRARIES.iter().find(|(part, _)| function.contains(part)).map(|&(_, name)| name);
    of_libc(functions).or_else(|| functions.iter().find_map(|function| known(function)))
}

fn of_libc(functions: &[&str]) -> Option<&'static str> {
    let sleeps = functions.iter().position(|&function| function.starts_with(SLEEPS))?;
    let callers = functions.get(sleeps + 1..)?;
    callers.iter().take(FRAMES).find_map(|function| {
        let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        if begins(MALLOC) {
            Some("malloc arena")
        } else if begins(STDIO) {
            Some("stdio lock")
        } else {
            None
        }
    })
}

/// A name without what the C library puts in front of its own.
fn plain(function: &str) -> &str {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    name.strip_prefix("libc_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_by_who_sleeps_there() {
        for (functions, name) in [
            (&["__GI___lll_lock_wait_private", "__GI__IO_fwrite", "main"][..], Some("stdio lock")),
            (&["__lll_lock_wait_private", "_int_free", "__libc_free", "main"], Some("malloc arena")),
            (&["__lll_lock_wait_private", "__GI___libc_malloc", "main"], Some("malloc arena")),
            (&["__lll_lock_wait_private", "__GI_exit"], None),
            (&["__lll_lock_wait", "___pthread_mutex_lock", "malloc"], None),
            (&["malloc"], None),
            (
                &["syscall", "bool folly::SharedMutexImpl<false>::futexWaitForZeroBits<W>", "f"],
                Some("folly::SharedMutex"),
            ),
            (&["syscall", "folly::MicroLockCore::lockSlowPath", "main"], Some("folly::MicroLock")),
            (&[], None),
        ] {
            let functions: Vec<&str> = functions.iter().map(|function| plain(function)).collect();
            assert_eq!(of(&functions), name, "{functions:?}");
        }
    }
}
