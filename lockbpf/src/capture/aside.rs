//! Removing probes aside: it takes a grace period of the kernel's, of perf events one for each, and nobody has to wait for it but the end of
//! the program. That has to: only then is the target as it was.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Removals that have begun and not ended.
static UNDER_WAY: Mutex<usize> = Mutex::new(0);
/// One of them has ended.
static ENDED: Condvar = Condvar::new();

/// A removal takes long after this time.
const LONG: Duration = Duration::from_secs(1);

/// One removal, or another change for which the end of the program has to wait; counted until it is dropped.
pub(super) struct Removal(());

/// Begins one.
pub(super) fn begin() -> Removal {
    *under_way() += 1;
    Removal(())
}

impl Drop for Removal {
    fn drop(&mut self) {
        *under_way() -= 1;
        ENDED.notify_all();
    }
}

fn under_way() -> MutexGuard<'static, usize> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what keeps probes in place.
pub fn drop_aside(probes: impl Send + 'static) {
    let removal = begin();
    thread::spawn(move || {
        // It is counted until the probes are gone, also if their drop panics.
        let _removal = removal;
        drop(probes);
    });
}

/// Whether something that was dropped is not gone yet, or something is being placed.
pub fn removes() -> bool {
    *under_way() > 0
}

/// Waits until all that was dropped is gone; calls `tell` once if that takes a second. To be called before the program ends.
pub fn wait(tell: impl FnOnce()) {
    let waits = |number: &mut usize| *number > 0;
    let (number, waited) = ENDED.wait_timeout_while(under_way(), LONG, waits).unwrap_or_else(PoisonError::into_inner);
    drop(number);
    if waited.timed_out() {
        tell();
        drop(ENDED.wait_while(under_way(), waits).unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    /// Its drop takes until the test lets it go.
    struct Slow(Receiver<()>, Arc<AtomicBool>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
            self.1.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_goes_on_when_all_is_gone_and_hears_that_it_takes_long() {
        let ((let_go, told), gone) = (channel(), Arc::<AtomicBool>::default());
        drop_aside(Slow(told, gone.clone()));
        assert!(removes());
        let mut heard = false;
        wait(|| {
            heard = true;
            drop(let_go);
        });
        assert!(heard && gone.load(Ordering::Relaxed));
    }
}
