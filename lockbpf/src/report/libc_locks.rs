//! The C library's own locks (glibc's low-level ones): known by who sleeps there, since nothing else tells their addresses.

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

/// What the lock at a futex word is, if it is one of the C library's own.
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
            (&[], None),
        ] {
            let functions: Vec<&str> = functions.iter().map(|function| plain(function)).collect();
            assert_eq!(of(&functions), name, "{functions:?}");
        }
    }
}
