//! Why no lock function can be probed in a file or a process, in the words of whoever asked for it.

use super::elf::{ElfError, GlibcVersion};
use serde::{Deserialize, Serialize};

/// The name of a program that translates the code of others.
pub type Translator = &'static str;

/// Why no lock function can be probed in a file or a process that is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Unusable {
    /// A static executable without a symbol table.
    #[error("it is statically linked and stripped of symbols, so its lock functions cannot be found")]
    StaticWithoutSymbols,
    /// A static executable that takes no pthread lock.
    #[error("it is statically linked and has no pthread lock functions in it")]
    StaticWithoutLocks,
    /// Made by a release of Go that passes arguments on the stack.
    #[error("it was made by a Go before 1.18 ({0}), whose calls lockbpf cannot read")]
    OldGo(String),
    /// A Go program without a table of functions, or with one of another layout.
    #[error("it was made by {0}, and its table of functions (.gopclntab) is not of a kind that lockbpf knows")]
    GoTable(String),
    /// A Go program whose code is not as expected, so that a probe in it might hit the middle of an instruction.
    #[error("it was made by {release}, and the code of {function} is not as Go makes it, so no probe is placed there")]
    GoCode {
        /// As the program names it.
        release: String,
        /// The function.
        function: String,
    },
    /// No C library among its mappings.
    #[error("no C library that lockbpf knows is mapped into it")]
    NoLibc,
    /// Functions of the right names, of an unknown library.
    #[error("its C library is neither glibc nor musl, so the layout of its mutexes is not known")]
    UnknownLibc,
    /// libc before 2.34, which has only stubs.
    #[error("glibc {0} keeps its lock functions in libpthread.so.0; what libc.so.6 has of these names are stubs")]
    Stubs(GlibcVersion),
    /// A process with such a libc and without libpthread.
    #[error("it uses glibc {0} without libpthread.so.0, so it has no threads and never waits for a lock of its own")]
    NoThreads(GlibcVersion),
    /// Functions without which the lock tables would be wrong.
    #[error("it lacks usable definitions of {0}")]
    Lacks(String),
    /// A program that translates the code of another one, and would translate breakpoints as well.
    #[error("it runs under {0}, which translates its code and would make a crash of the probes in it")]
    #[serde(skip)]
    Translated(Translator),
    /// For another processor than this machine's.
    #[error("it is for another processor than this machine's")]
    ForeignProcessor,
    /// Not a file that can be observed.
    #[error("{0}")]
    Elf(#[from] ElfError),
    /// The mapped file is gone from its path, and the kernel's own link to it may not be followed.
    #[error(
        "its file was deleted or replaced after it was loaded, and reading the mapped one needs CAP_SYS_ADMIN or \
         CAP_CHECKPOINT_RESTORE; restart the program, or run lockbpf as root"
    )]
    Replaced,
    /// The file could not be read.
    #[error("its file could not be read: {0}")]
    Unreadable(String),
    /// Files that were there before took all the time there is for them.
    #[error("its file was not looked into: other files had taken all the time that lockbpf spends on that")]
    OutOfTime,
    /// There are more files than are remembered.
    #[error("its file was not looked into: lockbpf knows as many others as it remembers")]
    TooManyFiles,
}
