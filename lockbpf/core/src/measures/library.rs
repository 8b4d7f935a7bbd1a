//! Functions of the C library by category, and what their calls took: a call is charged to the outermost function.

use super::counted::add;
use crate::id::{Process, Tid};
use lockbpf_common::library::CallSums;
use std::fmt;

/// What functions are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Files and sockets.
    Io,
    /// Allocating, copying and setting memory.
    Memory,
    /// Threads, and what they wait for.
    Pthread,
}

impl Category {
    /// Every one, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Io, Self::Memory, Self::Pthread];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Pthread => "pthread",
        }
    }

    /// The categories in a list with commas between them, each once; all of them in an empty one.
    ///
    /// # Errors
    /// When one of them is unknown.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, CategoryError> {
        let mut all = Vec::new();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let found = Self::ALL.into_iter().find(|category| category.name() == name);
            all.push(found.ok_or_else(|| CategoryError(name.to_owned()))?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(if all.is_empty() { Self::ALL.to_vec() } else { all })
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A category that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown category {0:?}: io, memory or pthread is expected")]
pub struct CategoryError(String);

/// A function of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryFunction {
    /// Symbol name.
    pub symbol: &'static str,
    /// What it is for.
    pub category: Category,
    /// Whether a thread may leave it other than by returning: it is a point of cancellation, or calls what may throw. A return
    /// probe would break the unwinding.
    pub unwound: bool,
}

/// Every function, by number. Of several names of one function the first one counts. The checking forms of `memcpy` and its like go on
/// in these, and are counted as such.
pub static FUNCTIONS: &[LibraryFunction] = &[
    io("read"),
    io("__read_chk"),
    io("write"),
    io("pread"),
    io("pread64"),
    io("__pread_chk"),
    io("__pread64_chk"),
    io("pwrite"),
    io("pwrite64"),
    io("readv"),
    io("writev"),
    io("preadv"),
    io("preadv64"),
    io("pwritev"),
    io("pwritev64"),
    io("open"),
    io("open64"),
    io("openat"),
    io("openat64"),
    io("close"),
    io("fsync"),
    io("fdatasync"),
    io("sendfile"),
    io("recv"),
    io("recvfrom"),
    io("recvmsg"),
    io("send"),
    io("sendto"),
    io("sendmsg"),
    io("accept"),
    io("accept4"),
    io("connect"),
    io("poll"),
    io("ppoll"),
    io("select"),
    io("epoll_wait"),
    io("epoll_pwait"),
    io("fopen"),
    io("freopen"),
    io("fclose"),
    io("fflush"),
    io("fread"),
    io("__fread_chk"),
    io("fread_unlocked"),
    io("fwrite"),
    io("fwrite_unlocked"),
    io("fgets"),
    io("__fgets_chk"),
    io("fputs"),
    io("puts"),
    io("fgetc"),
    io("getc"),
    io("fputc"),
    io("putc"),
    io("putchar"),
    io("printf"),
    io("__printf_chk"),
    io("fprintf"),
    io("__fprintf_chk"),
    io("vfprintf"),
    io("__vfprintf_chk"),
    io("vprintf"),
    io("dprintf"),
    io("__dprintf_chk"),
    io("fscanf"),
    io("__isoc99_fscanf"),
    io("scanf"),
    io("__isoc99_scanf"),
    io("getline"),
    io("getdelim"),
    io("fseek"),
    io("fseeko"),
    memory("malloc"),
    memory("free"),
    memory("calloc"),
    memory("realloc"),
    memory("reallocarray"),
    memory("aligned_alloc"),
    memory("memalign"),
    memory("posix_memalign"),
    memory("mmap"),
    memory("mmap64"),
    memory("munmap"),
    memory("mremap"),
    memory("memcpy"),
    memory("memmove"),
    memory("mempcpy"),
    memory("memset"),
    memory("memcmp"),
    pthread("pthread_mutex_lock"),
    pthread("pthread_mutex_trylock"),
    pthread("pthread_mutex_timedlock"),
    pthread("pthread_mutex_clocklock"),
    pthread("pthread_mutex_unlock"),
    unwound(pthread("pthread_cond_wait")),
    unwound(pthread("pthread_cond_timedwait")),
    unwound(pthread("pthread_cond_clockwait")),
    pthread("pthread_cond_signal"),
    pthread("pthread_cond_broadcast"),
    pthread("pthread_rwlock_rdlock"),
    pthread("pthread_rwlock_tryrdlock"),
    pthread("pthread_rwlock_timedrdlock"),
    pthread("pthread_rwlock_wrlock"),
    pthread("pthread_rwlock_trywrlock"),
    pthread("pthread_rwlock_timedwrlock"),
    pthread("pthread_rwlock_unlock"),
    pthread("pthread_spin_lock"),
    pthread("pthread_spin_trylock"),
    pthread("pthread_spin_unlock"),
    pthread("pthread_barrier_wait"),
    unwound(pthread("sem_wait")),
    unwound(pthread("sem_timedwait")),
    pthread("sem_trywait"),
    pthread("sem_post"),
    unwound(pthread("pthread_once")),
    pthread("pthread_create"),
    unwound(pthread("pthread_join")),
    unwound(pthread("pthread_timedjoin_np")),
];

// Numbers are in attach cookies, beside the one that stands for an end.
const _: () = assert!(FUNCTIONS.len() as u64 <= lockbpf_common::library::END);

/// All of these may be points of cancellation.
const fn io(symbol: &'static str) -> LibraryFunction {
    LibraryFunction { symbol, category: Category::Io, unwound: true }
}

const fn memory(symbol: &'static str) -> LibraryFunction {
    LibraryFunction { symbol, category: Category::Memory, unwound: false }
}

const fn pthread(symbol: &'static str) -> LibraryFunction {
    LibraryFunction { symbol, category: Category::Pthread, unwound: false }
}

const fn unwound(function: LibraryFunction) -> LibraryFunction {
    LibraryFunction { unwound: true, ..function }
}

/// One thread's calls of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallsOf {
    /// The thread's process.
    pub process: Process,
    /// The thread.
    pub tid: Tid,
    /// The function.
    pub function: LibraryFunction,
    /// Sums over the calls.
    pub sums: CallSums,
}

/// What was seen of the C library's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryCalls {
    /// The categories that were asked for; none if this was not.
    pub categories: Vec<Category>,
    /// By thread and function.
    pub calls: Vec<CallsOf>,
    /// Functions of which calls are only counted, by name: their ends are not to be seen.
    pub endless: Vec<&'static str>,
    /// Functions left out, by name, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
    /// Functions that are others' as well: name, and the name by which their calls are told.
    pub shared: Vec<(&'static str, &'static str)>,
}

/// Adds the sums of others.
pub fn add_calls(to: &mut CallSums, other: &CallSums) {
    to.calls += other.calls;
    to.nested += other.nested;
    to.ended += other.ended;
    to.uncounted += other.uncounted;
    to.wall_ns = to.wall_ns.saturating_add(other.wall_ns);
    add(&mut to.counts, &other.counts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn lists_of_categories() {
        use Category::{Io, Memory, Pthread};
        assert_eq!(Category::parse_list("pthread, io,io"), Ok(vec![Io, Pthread]));
        assert_eq!(Category::parse_list(""), Ok(vec![Io, Memory, Pthread]));
        assert_eq!(Category::parse_list("io,cats"), Err(CategoryError("cats".to_owned())));
    }

    #[test]
    fn each_function_is_there_once() {
        let names: HashSet<_> = FUNCTIONS.iter().map(|function| function.symbol).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
    }

    #[test]
    fn sums_add_up() {
        let one = CallSums { calls: 3, nested: 1, ended: 2, uncounted: 1, wall_ns: 70, ..CallSums::default() };
        let mut sum = one;
        add_calls(&mut sum, &one);
        assert_eq!((sum.calls, sum.nested, sum.ended, sum.uncounted, sum.wall_ns), (6, 2, 4, 2, 140));
    }
}
