//! Locks of other kinds than the C library's, to measure what they cost on a machine. They guard nothing but the order of
//! the sections that they run.
#![forbid(unsafe_code)]

mod mcs;
mod qd;
mod spin;
mod ticket;

pub use mcs::Mcs;
pub use qd::Qd;
pub use spin::Spin;
pub use ticket::Ticket;

/// Turns after which a spinning thread lets others run: whom it waits for may need its CPU.
const PATIENCE: u32 = 1_000;

/// A place of its own for what one thread writes and others read: no two share a cache line, nor a pair of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// Spins until a condition holds.
fn spin_until(mut holds: impl FnMut() -> bool) {
    let mut turns = 0_u32;
    while !holds() {
        turns += 1;
        if turns.is_multiple_of(PATIENCE) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const THREADS: usize = 4;
    const SECTIONS: u64 = 5_000;

    /// Runs sections that would lose counts if two ran at once; how many were counted.
    fn counted(section: impl Fn(usize, &AtomicU64) + Sync) -> u64 {
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (section, count) = (&section, &count);
                scope.spawn(move || (0..SECTIONS).for_each(|_| section(thread, count)));
            }
        });
        count.into_inner()
    }

    /// Not atomic as a whole.
    fn increment(count: &AtomicU64) {
        let old = count.load(Ordering::Relaxed);
        std::hint::spin_loop();
        count.store(old + 1, Ordering::Relaxed);
    }

    #[test]
    fn one_at_a_time() {
        let all = THREADS as u64 * SECTIONS;
        let ticket = Ticket::default();
        assert_eq!(counted(|_, count| ticket.with(|| increment(count))), all);
        let spin = Spin::default();
        assert_eq!(counted(|_, count| spin.with(|| increment(count))), all);
        let mcs = Mcs::new(THREADS);
        assert_eq!(counted(|thread, count| mcs.with(thread, || increment(count))), all);
        let qd = Qd::new(THREADS);
        assert_eq!(counted(|thread, count| qd.delegate(thread, || increment(count))), all);
        let detached = Qd::new(THREADS);
        assert_eq!(counted(|thread, count| _ = detached.detach(thread, || increment(count))), all);
    }

    #[test]
    fn what_is_delegated_is_done_when_the_call_returns() {
        let qd = Qd::new(2);
        let done = AtomicU64::new(0);
        for n in 1..=100 {
            qd.delegate(0, || increment(&done));
            assert_eq!(done.load(Ordering::Relaxed), n);
        }
    }
}
