//! A spin lock: whoever sees first that it is free takes it.

use super::{Alone, spin_until};
use std::sync::atomic::{AtomicBool, Ordering};

/// A test-and-test-and-set lock.
#[derive(Debug, Default)]
pub struct Spin(Alone<AtomicBool>);

impl Spin {
    /// Runs a section alone.
    pub fn with<T>(&self, section: impl FnOnce() -> T) -> T {
        let taken = &self.0.0;
        while taken.swap(true, Ordering::Acquire) {
            spin_until(|| !taken.load(Ordering::Relaxed));
        }
        let result = section();
        taken.store(false, Ordering::Release);
        result
    }
}
