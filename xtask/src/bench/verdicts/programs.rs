//! The programs, and what a report must say of each: lock, place and reason are known by how it is written.

use super::{
    compiler::Compiler,
    oracle::{Expected, Lock, Reason},
};

/// A program whose culprit is known by construction.
pub(super) struct Program {
    /// Its name, that of its source file without its ending, and of its row.
    pub(super) name: &'static str,
    /// What its culprit is.
    pub(super) about: &'static str,
    /// What builds it.
    pub(super) compiler: Compiler,
    /// Options that each observation of it takes.
    pub(super) options: &'static [&'static str],
    /// When its culprit begins.
    pub(super) onset: Onset,
    /// What a report must say.
    pub(super) expected: Expected,
}

/// When the culprit of a program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onset {
    /// It is there from the start.
    Start,
    /// While the program is observed: it is told to.
    Told,
    /// Likewise, and nothing is done from then on, observed or not.
    End,
}

const fn c(
    name: &'static str,
    about: &'static str,
    lock: &'static str,
    place: &'static str,
    reason: Reason,
) -> Program {
    Program {
        name,
        about,
        compiler: Compiler::C,
        options: &[],
        onset: Onset::Start,
        expected: Expected::Culprit { lock: Lock::Named(lock), place, reason },
    }
}

const RECEIVES: Reason = Reason::Asleep(&["recv"]);
const SLEEPS: Reason = Reason::Asleep(&["nanosleep"]);
const SYNCS: Reason = Reason::Blocked(&["fsync", "fdatasync", "syscall.Fsync"]);

/// All of them.
pub(super) const PROGRAMS: &[Program] = &[
    c("fsync", "slow I/O under a lock", "journal_lock", "append_record", SYNCS),
    c("nested", "the lock inside of the one waited for", "audit_lock", "rotate_audit", RECEIVES),
    c("convoy", "a short section of all operations", "slots_lock", "take_slot", Reason::Busy),
    c("starved_writer", "long readers that overlap", "table_lock", "scan_table", Reason::Running),
    c("slow_reader", "a reader that sends meanwhile", "config_lock", "export_snapshot", RECEIVES),
    c("preempted", "a holder of low priority", "metrics_lock", "collect_metrics", Reason::Preempted),
    Program {
        expected: Expected::Culprit { lock: Lock::Told, place: "add_to_bucket", reason: Reason::Busy },
        ..c("buckets", "one hot lock of 256", "", "", Reason::Busy)
    },
    c("wrapper", "one function locks for all others", "db_mutex", "vacuum", Reason::Running),
    Program {
        compiler: Compiler::Cpp,
        ..c("guard", "std::lock_guard in a class template", "registry", "rebuild", Reason::Running)
    },
    Program {
        compiler: Compiler::Cpp,
        ..c("synchronized", "the program's own template locks", "catalog", "reindex", RECEIVES)
    },
    c("short_threads", "a thread for each request", "log_lock", "send_log", RECEIVES),
    c("phases", "four fifths of each second", "pages_lock", "checkpoint", SYNCS),
    Program {
        expected: Expected::Culprit { lock: Lock::Told, place: "refresh_board", reason: SLEEPS },
        ..c("shared", "a mutex of several processes", "", "", SLEEPS)
    },
    Program {
        compiler: Compiler::StaticC,
        expected: Expected::Culprit { lock: Lock::Told, place: "", reason: SLEEPS },
        ..c("stripped", "static, no symbols: by address", "", "", SLEEPS)
    },
    Program {
        compiler: Compiler::Plugin,
        onset: Onset::Told,
        ..c("plugin_host", "a lock of a library loaded later", "plugin_lock", "flush_plugin", SLEEPS)
    },
    Program { expected: Expected::NoLock, ..c("queue", "a slow producer: no lock to blame", "", "", Reason::Busy) },
    Program {
        onset: Onset::End,
        expected: Expected::Deadlock { locks: ["orders_lock", "stock_lock"], places: ["place_order", "cancel_order"] },
        ..c("deadlock", "a deadlock after a while", "", "", Reason::Busy)
    },
    c("semaphore", "a semaphore as a lock", "connection", "run_report", RECEIVES),
    Program {
        options: &["--kernel-locks"],
        ..c("mappings", "the kernel's mmap_lock", "mmap_lock", "renew_arena", Reason::Known)
    },
    c("inheritance", "a mutex with priority inheritance", "device_lock", "calibrate_device", SLEEPS),
    Program {
        compiler: Compiler::Rust,
        expected: Expected::Culprit { lock: Lock::Told, place: "compact", reason: SYNCS },
        ..c("rust_std", "Rust's Mutex", "", "", SYNCS)
    },
    Program {
        compiler: Compiler::RustWith("parking_lot = \"0.12\""),
        expected: Expected::Culprit { lock: Lock::Told, place: "rebuild", reason: Reason::Running },
        ..c("parking_lot", "parking_lot's Mutex", "", "", Reason::Running)
    },
    Program {
        compiler: Compiler::RustWith("tokio = { version = \"1\", features = [\"full\"] }"),
        expected: Expected::Culprit { lock: Lock::Told, place: "persist", reason: Reason::Suspended },
        ..c("tokio", "tokio's Mutex, held across an .await", "", "", Reason::Suspended)
    },
    Program {
        compiler: Compiler::Go,
        expected: Expected::Culprit { lock: Lock::Told, place: "compact", reason: SYNCS },
        ..c("go_mutex", "Go's Mutex", "", "", SYNCS)
    },
    Program {
        compiler: Compiler::Go,
        expected: Expected::Culprit { lock: Lock::Told, place: "export", reason: Reason::Asleep(&["Sleep"]) },
        ..c("go_rwmutex", "Go's RWMutex, a slow reader", "", "", SLEEPS)
    },
    Program {
        compiler: Compiler::Java,
        ..c("Synchronized", "Java's synchronized", "Ledger", "audit", Reason::Asleep(&["sleep", "Sleep"]))
    },
    Program {
        compiler: Compiler::Python,
        expected: Expected::Culprit {
            lock: Lock::Told,
            place: "refresh_cache",
            reason: Reason::Asleep(&["sleep", "clock_nanosleep", "select"]),
        },
        ..c("python_lock", "Python's threading.Lock", "", "", SLEEPS)
    },
    Program {
        compiler: Compiler::Python,
        ..c("python_gil", "a hog of Python's interpreter lock", "GIL", "sort_report", Reason::Running)
    },
];
