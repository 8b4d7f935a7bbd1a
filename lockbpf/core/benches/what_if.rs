//! Replaying a recording: steps per second. `cargo bench --bench what_if` prints a table.

use lockbpf_core::id::{Lock, Process, Site, Tid};
use lockbpf_core::model::replay::{Change, Fate, HandOff, How, play};
use lockbpf_core::model::script::{Builder, Script};
use lockbpf_core::op::{Action, Attempt, LockKind, Op, Released};
use lockbpf_core::units::Time;
use std::time::Instant;

/// Sections of so many threads at random locks, first come, first served: three steps each.
fn recording(threads: u32, locks: u64, sections: u64) -> (Script, f64) {
    let process = Process(1);
    let mut seed = 42_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut free = vec![0; locks as usize];
    let mut ready = vec![0; threads as usize];
    let mut ops = Vec::with_capacity(3 * sections as usize);
    for _ in 0..sections {
        let Some((tid, _)) = (0_u32..).zip(&ready).min_by_key(|&(_, time)| *time) else { break };
        let at = ready[tid as usize] + 100 + random(1_000);
        let addr = random(locks);
        let acquire = at.max(free[addr as usize]);
        let release = acquire + 50 + random(200);
        (free[addr as usize], ready[tid as usize]) = (release, release);
        let lock = Lock { process, addr };
        let (site, kind, shared) = (Site { process, addr: 1 + addr % 7 }, LockKind::Mutex, false);
        let attempt = Attempt { lock, site, shared, kind, owner: None, stack: None, contended: Some(acquire > at) };
        let mut push = |time, action| ops.push(Op { time: Time(time), tid: Tid(tid), process, action });
        push(at, Action::Attempt(attempt));
        push(acquire, Action::Acquire { lock, waker: None });
        push(release, Action::Release { lock, how: Released::Unlock });
    }
    ops.sort_by_key(|op| op.time);
    let begin = Instant::now();
    let mut builder = Builder::default();
    for op in &ops {
        builder.op(op).expect("few steps");
    }
    (builder.finish(1), ops.len() as f64 / begin.elapsed().as_secs_f64())
}

fn main() {
    println!("{:<28} {:>14} {:>14} {:>14}", "million steps/s", "reading", "as it was", "split");
    for (threads, locks) in [(2, 2), (8, 4), (8, 100), (64, 8), (512, 100)] {
        let (script, read) = recording(threads, locks, 1_000_000);
        let steps = 3.0 * script.acquisitions() as f64;
        let rate = |change: &Change, hand_off| {
            let begin = Instant::now();
            std::hint::black_box(play(&script, change, How { hand_off, seed: 1, light: None }));
            steps / begin.elapsed().as_secs_f64() / 1e6
        };
        let split = Change { locks: vec![Fate::Split(4); script.locks.len()], ..Change::default() };
        let name = format!("{threads} threads, {locks} locks");
        let [as_it_was, split] = [rate(&Change::default(), HandOff::Barging), rate(&split, HandOff::Fair)];
        println!("{name:<28} {:>14.1} {as_it_was:>14.1} {split:>14.1}", read / 1e6);
    }
}
