//! A program to observe, for `lockbpf demo`: four threads, a hot lock that one slow function holds, a cold one, and a
//! nested pair whose outer lock is waited for only because its holder waits for the inner one.

use super::pthread::Mutex;
use std::thread;
use std::time::Duration;

/// Held for two milliseconds at a time by `flush_log`, wanted by everyone.
#[unsafe(no_mangle)]
pub static log_lock: Mutex = Mutex::new();
/// Taken often, by one thread.
#[unsafe(no_mangle)]
pub static stats_lock: Mutex = Mutex::new();
/// Outer of a nested pair.
#[unsafe(no_mangle)]
pub static index_lock: Mutex = Mutex::new();
/// Inner of a nested pair.
#[unsafe(no_mangle)]
pub static page_lock: Mutex = Mutex::new();

/// Runs the workload until the process is killed.
pub fn run() -> ! {
    for (name, work) in [
        ("writer-1", append_to_log as fn()),
        ("writer-2", append_to_log),
        ("flusher", flush_log),
        ("indexer", insert_key),
    ] {
        let thread = thread::Builder::new().name(name.to_owned());
        // Without one of its threads the demo still shows the others.
        let _ = thread.spawn(move || {
            loop {
                work();
            }
        });
    }
    loop {
        split_page();
    }
}

/// A short section that waits for [`flush_log`].
#[inline(never)]
fn append_to_log() {
    log_lock.with(|| spin(2_000));
    stats_lock.with(|| spin(10));
    thread::sleep(Duration::from_micros(200));
}

/// The culprit: sleeps as if for a disk, holding the lock.
#[inline(never)]
fn flush_log() {
    log_lock.with(|| thread::sleep(Duration::from_millis(2)));
    thread::sleep(Duration::from_millis(1));
}

/// Holds the outer lock while it waits for the inner one.
#[inline(never)]
fn insert_key() {
    index_lock.with(|| page_lock.with(|| spin(500)));
    thread::sleep(Duration::from_micros(300));
}

/// Holds the inner lock long, then wants the outer one.
#[inline(never)]
fn split_page() {
    page_lock.with(|| thread::sleep(Duration::from_millis(1)));
    index_lock.with(|| spin(500));
    thread::sleep(Duration::from_micros(500));
}

fn spin(rounds: u32) {
    for i in 0..rounds {
        std::hint::black_box(i);
    }
}
