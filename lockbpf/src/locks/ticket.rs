//! A ticket lock: first come, first served, and all who wait watch one number.

use super::{Alone, spin_until};
use std::sync::atomic::{AtomicU32, Ordering};

/// A ticket lock.
#[derive(Debug, Default)]
pub struct Ticket {
    next: Alone<AtomicU32>,
    serving: Alone<AtomicU32>,
}

impl Ticket {
    /// Runs a section alone.
    pub fn with<T>(&self, section: impl FnOnce() -> T) -> T {
        let ticket = self.next.0.fetch_add(1, Ordering::Relaxed);
        spin_until(|| self.serving.0.load(Ordering::Acquire) == ticket);
        let result = section();
        self.serving.0.store(ticket.wrapping_add(1), Ordering::Release);
        result
    }
}
