//! meeting_rust: three threads wait at a barrier in each of 20 rounds for a fourth one, which sleeps before it comes. Facts: waited_ns, by the
//! threads' own clocks.
use std::io::{Read, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20;
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn come_late(meeting: &Barrier) {
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(50));
        meeting.wait();
    }
}

#[inline(never)]
fn come_early(meeting: &Barrier) {
    for _ in 0..ROUNDS {
        let from = Instant::now();
        meeting.wait();
        WAITED_NS.fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

fn main() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let meeting = Barrier::new(4);
    std::thread::scope(|scope| {
        scope.spawn(|| come_late(&meeting));
        for _ in 0..3 {
            scope.spawn(|| come_early(&meeting));
        }
    });
    println!(
        "{{\"workload\":\"meeting_rust\",\"pid\":{},\"locks\":[],\"threads\":[],\"facts\":{{\"waited_ns\":{}}}}}",
        std::process::id(),
        WAITED_NS.load(Ordering::Relaxed)
    );
}
