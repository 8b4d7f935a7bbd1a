//! Removing probes aside: it takes a grace period of the kernel's, of perf events one for each, and nobody has to wait for it but the end of
//! the program. That has to: only then is the target as it was.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

static UNDER_WAY: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// After so many looks, so far apart, a removal takes long.
const LOOKS: u32 = 20;
const APART: Duration = Duration::from_millis(50);

/// Drops what keeps probes in place.
pub fn drop_aside(probes: impl Send + 'static) {
    let thread = thread::spawn(move || drop(probes));
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    under_way.retain(|thread| !thread.is_finished());
    under_way.push(thread);
}

/// Whether something that was dropped is not gone yet.
pub fn removes() -> bool {
    let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    !under_way.iter().all(JoinHandle::is_finished)
}

/// Waits until all that was dropped is gone; calls `tell` once if that takes a second. To be called before the program ends.
pub fn wait(tell: impl FnOnce()) {
    let threads = std::mem::take(&mut *UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner));
    let mut looks = 0;
    while looks < LOOKS && !threads.iter().all(JoinHandle::is_finished) {
        thread::sleep(APART);
        looks += 1;
    }
    if looks == LOOKS {
        tell();
    }
    for thread in threads {
        // A panic has been told already.
        let _ = thread.join();
    }
}
