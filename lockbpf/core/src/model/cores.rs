//! Fewer CPUs than threads that want one: they share them evenly.
//!
//! A closed network whose times all grow by one factor is slower by that factor, and changes in nothing else. So a network with as many CPUs as threads
//! is solved first; then each of its times takes longer by the threads that want a CPU over the CPUs that there are, if that is more
//! than one. Who sleeps for a lock wants none, who spins for it does.

use super::error::ModelError;
use super::play;
use super::predict::{algorithm, points};
use super::schema::{Algorithm, Input, LockInput, Point};

/// So many times as long as on a CPU of its own everything takes, for threads with these waits.
fn crowding(input: &Input, point: &Point, cores: u32) -> f64 {
    let asleep = |(of, lock): (&LockInput, &super::schema::LockPoint)| {
        let holding = lock.utilisation * f64::from(of.shards.unwrap_or(1));
        if spins(input, of) { 0.0 } else { (lock.queue - holding).max(0.0) }
    };
    let asleep: f64 = input.locks.iter().zip(&point.locks).map(asleep).sum();
    ((f64::from(point.threads) - asleep) / f64::from(cores.max(1))).max(1.0)
}

/// Whether threads that wait for this lock use a CPU.
fn spins(input: &Input, lock: &LockInput) -> bool {
    lock.spins || matches!(algorithm(input, lock), Algorithm::Qd | Algorithm::QdWait)
}

/// Whether so many threads may wait on CPUs that others need to let them go on: whoever has its turn may be off its CPU for a time slice,
/// and it is not known how long that is.
pub(super) fn may_collapse(input: &Input, threads: u32) -> bool {
    play::shared(input, threads).is_none()
        && input.cores.is_some_and(|cores| threads > cores)
        && input.locks.iter().any(|lock| spins(input, lock))
}

/// Lets the threads of a solution share the CPUs of its input, if it says how many there are.
pub(super) fn share(input: &Input, point: &mut Point) {
    let Some(cores) = input.cores else { return };
    let times = crowding(input, point, cores);
    // At worst nobody sleeps when it would help.
    let most = (f64::from(point.threads) / f64::from(cores.max(1))).max(1.0);
    point.throughput_per_ns /= times;
    let [low, high] = point.throughput_interval_per_ns;
    let low = if may_collapse(input, point.threads) { 0.0 } else { low / most };
    point.throughput_interval_per_ns = [low, high / times];
    for lock in &mut point.locks {
        lock.wait_ns *= times;
        lock.lock_ns *= times;
        lock.wait_interval_ns = [lock.wait_interval_ns[0], lock.wait_interval_ns[1] * most];
        if let Some(qd) = &mut lock.qd {
            qd.stretch(times);
        }
    }
}

/// Takes waits for CPUs out of the times of a recording that had so many CPUs, fewer than threads: its own prediction is then what it did.
///
/// # Errors
/// When the model means nothing or has no solution.
pub fn unstretch(input: &mut Input, cores: u32) -> Result<(), ModelError> {
    let Some(recorded) = input.recorded.filter(|recorded| recorded.threads > cores) else { return Ok(()) };
    let alone = Input { threads: vec![recorded.threads], cores: None, ..input.clone() };
    let Some(times) = points(&alone)?.first().map(|point| crowding(&alone, point, cores)) else { return Ok(()) };
    input.divide(times);
    Ok(())
}

impl Input {
    /// Makes all times shorter.
    fn divide(&mut self, by: f64) {
        let shorten = |ns: &mut f64| *ns /= by;
        self.local_ns.iter_mut().flatten().for_each(shorten);
        self.locks.iter_mut().filter_map(|lock| lock.hold_ns.as_mut()).for_each(shorten);
        for class in &mut self.classes {
            class.local_ns.iter_mut().flatten().chain(&mut class.hold_ns).for_each(shorten);
        }
        self.bounds.iter_mut().for_each(|bound| bound.divide(by));
    }
}
