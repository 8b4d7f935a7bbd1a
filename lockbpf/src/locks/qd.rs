//! A queue delegation lock, from its published description (Klaftenegger, Sagonas, Winblad): a lock that is only tried,
//! and a queue of operations that is open while it is held. Who gets the lock executes its own operation, then those in the
//! queue, until it finds nothing more and closes it.

use super::{Alone, spin_until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Operations of one helper at most.
const CAPACITY: usize = 128;
/// An empty place in the queue.
const EMPTY: usize = 0;

/// A QD lock for a fixed number of threads, all of which delegate the same kind of operation: whoever helps runs its own
/// once for each.
#[derive(Debug)]
pub struct Qd {
    held: Alone<AtomicBool>,
    /// Places given away; `CAPACITY` or more: closed.
    given: Alone<AtomicUsize>,
    /// The delegating thread's number + 1.
    queue: Vec<AtomicUsize>,
    done: Vec<Alone<AtomicBool>>,
}

impl Qd {
    /// For threads numbered from 0 to one less than this.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            held: Alone(AtomicBool::new(false)),
            given: Alone(AtomicUsize::new(CAPACITY)),
            queue: (0..CAPACITY).map(|_| AtomicUsize::new(EMPTY)).collect(),
            done: (0..threads).map(|_| Alone(AtomicBool::new(false))).collect(),
        }
    }

    /// Has an operation executed alone, by this thread or by the helper, and returns when it has been. As the thread of this
    /// number: it must be the only one that uses it.
    pub fn delegate(&self, thread: usize, operation: impl Fn()) {
        let Some(Alone(done)) = self.done.get(thread) else { return };
        done.store(false, Ordering::Relaxed);
        if !self.detach(thread, operation) {
            spin_until(|| done.load(Ordering::Acquire));
        }
    }

    /// Has an operation executed alone, at once by this thread, or later by the helper without being waited for; whether it has been
    /// executed. It is not if there is no such thread.
    pub fn detach(&self, thread: usize, operation: impl Fn()) -> bool {
        if thread >= self.done.len() {
            return false;
        }
        loop {
            if !self.held.0.load(Ordering::Relaxed) && !self.held.0.swap(true, Ordering::Acquire) {
                self.given.0.store(0, Ordering::Release);
                operation();
                self.help(&operation);
                self.held.0.store(false, Ordering::Release);
                return true;
            }
            if self.insert(thread) {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn insert(&self, thread: usize) -> bool {
        if self.given.0.load(Ordering::Relaxed) >= CAPACITY {
            return false;
        }
        let place = self.given.0.fetch_add(1, Ordering::AcqRel);
        match self.queue.get(place) {
            Some(place) => {
                place.store(thread + 1, Ordering::Release);
                true
            }
            None => false,
        }
    }

    /// Executes what is in the queue, and closes it.
    fn help(&self, operation: &impl Fn()) {
        let mut next = 0;
        loop {
            let mut given = self.given.0.load(Ordering::Acquire);
            let closing = given == next || given >= CAPACITY;
            if closing {
                given = self.given.0.swap(CAPACITY, Ordering::AcqRel);
            }
            let given = given.min(CAPACITY);
            for place in self.queue.get(next..given).unwrap_or_default() {
                let mut thread = EMPTY;
                spin_until(|| {
                    thread = place.load(Ordering::Acquire);
                    thread != EMPTY
                });
                place.store(EMPTY, Ordering::Relaxed);
                operation();
                if let Some(Alone(done)) = self.done.get(thread - 1) {
                    done.store(true, Ordering::Release);
                }
            }
            next = given;
            if closing {
                return;
            }
        }
    }
}
