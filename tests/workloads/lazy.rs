//! lazy: 20 cells, each initialised by one thread while another one wants it, too, and sleeps until that is done. Facts: waits, waited_ns (at
//! least).
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// How what it tells begins of a futex call.
const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202 " } else { "98 " };

static CELLS: [OnceLock<Duration>; 20] = [const { OnceLock::new() }; 20];
static WAITER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
/// Where the kernel tells in which system call it is.
static CALL: Mutex<Option<PathBuf>> = Mutex::new(None);

fn waiter_sleeps() -> bool {
    let path = CALL.lock().unwrap().clone();
    path.and_then(|path| std::fs::read_to_string(path).ok()).is_some_and(|call| call.starts_with(FUTEX))
}

#[inline(never)]
fn read_settings(n: usize) -> Duration {
    CALL.lock().unwrap().take();
    *WAITER.lock().unwrap() = Some(spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        *CALL.lock().unwrap() = Some(Path::new("/proc").join(own).join("syscall"));
        settings(n);
    }));
    while !waiter_sleeps() {
        sleep(Duration::from_micros(100));
    }
    let from = Instant::now();
    sleep(Duration::from_millis(3));
    from.elapsed()
}

#[inline(never)]
fn settings(n: usize) -> Duration {
    *CELLS[n].get_or_init(|| read_settings(n))
}

fn main() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let mut waited = Duration::ZERO;
    for n in 0..CELLS.len() {
        waited += settings(n);
        WAITER.lock().unwrap().take().unwrap().join().unwrap();
    }
    println!(
        "{{\"workload\":\"lazy\",\"pid\":{},\"locks\":[],\"threads\":[],\"facts\":{{\"waits\":{},\"waited_ns\":{}}}}}",
        std::process::id(),
        CELLS.len(),
        waited.as_nanos()
    );
}
