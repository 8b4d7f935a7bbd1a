//! Mellor-Crummey and Scott's queue lock: each waiting thread watches a word of its own.

use super::{Alone, spin_until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Nobody.
const NONE: usize = usize::MAX;

/// An MCS lock for a fixed number of threads.
#[derive(Debug)]
pub struct Mcs {
    tail: Alone<AtomicUsize>,
    nodes: Vec<Alone<Node>>,
}

#[derive(Debug)]
struct Node {
    next: AtomicUsize,
    waits: AtomicBool,
}

impl Mcs {
    /// For threads numbered from 0 to one less than this.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let node = || Alone(Node { next: AtomicUsize::new(NONE), waits: AtomicBool::new(false) });
        Self { tail: Alone(AtomicUsize::new(NONE)), nodes: (0..threads).map(|_| node()).collect() }
    }

    /// Runs a section alone, as the thread of this number: it must be the only one that uses it. A section of a number
    /// that does not exist is not run.
    pub fn with<T: Default>(&self, thread: usize, section: impl FnOnce() -> T) -> T {
        let Some(Alone(own)) = self.nodes.get(thread) else { return T::default() };
        own.next.store(NONE, Ordering::Relaxed);
        own.waits.store(true, Ordering::Relaxed);
        let before = self.tail.0.swap(thread, Ordering::AcqRel);
        if let Some(Alone(before)) = self.nodes.get(before) {
            before.next.store(thread, Ordering::Release);
            spin_until(|| !own.waits.load(Ordering::Acquire));
        }
        let result = section();
        let last = self.tail.0.compare_exchange(thread, NONE, Ordering::Release, Ordering::Relaxed).is_ok();
        if !last {
            // Whoever took the tail is about to say who it is.
            spin_until(|| own.next.load(Ordering::Acquire) != NONE);
            if let Some(Alone(next)) = self.nodes.get(own.next.load(Ordering::Acquire)) {
                next.waits.store(false, Ordering::Release);
            }
        }
        result
    }
}
