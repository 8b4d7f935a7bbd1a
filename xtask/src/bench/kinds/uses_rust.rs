// Uses locks of Rust's standard library while a second thread sleeps. Speaks as pairs.c does.
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

const BATCH: u64 = 100;
static MUTEX: Mutex<u64> = Mutex::new(0);
static RWLOCK: RwLock<u64> = RwLock::new(0);

const THREAD_CPU: i32 = 3;

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// CPU time of this thread, ns.
fn cpu_ns() -> i64 {
    let mut time = [0; 2];
    // SAFETY: the clock exists, and the time is as large as a `struct timespec` of 64-bit Linux.
    unsafe { clock_gettime(THREAD_CPU, &mut time) };
    time[0] * 1_000_000_000 + time[1]
}

fn main() {
    std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1 << 30)));
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (what, milliseconds) = line.split_once(' ').unwrap();
        let use_it: fn() = match what {
            "rust_mutex" => || *black_box(&MUTEX).lock().unwrap() += 1,
            "rust_read" => || drop(black_box(black_box(&RWLOCK).read().unwrap())),
            _ => panic!("no such use: {what}"),
        };
        let time = Duration::from_millis(milliseconds.parse().unwrap());
        let (mut made, cpu, begin) = (0, cpu_ns(), Instant::now());
        while begin.elapsed() < time {
            for _ in 0..BATCH {
                use_it();
            }
            made += BATCH;
        }
        let wall = begin.elapsed().as_nanos();
        println!("{made} {wall} {}", cpu_ns() - cpu);
        std::io::stdout().flush().unwrap();
    }
}
