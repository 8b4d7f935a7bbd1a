//! Changes of the targets' code: breakpoints that are being placed or removed. In a thread that is killed meanwhile, as by the end of its
//! program, the kernel gives up half way, and breakpoints stay in the target. So the program must not end in the middle of one;
//! what is left if it is killed in one is taken away by [`super::remover`].

use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// A signal that comes sooner after the first one is no second signal, which ends the program at once: `timeout` sends the first one to the process
/// and to its group, and terminals send several.
pub const SECOND_SIGNAL: Duration = Duration::from_millis(250);

static UNDER_WAY: RwLock<()> = RwLock::new(());

/// A change under way while this exists.
pub(super) struct Edit(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>);

/// Begins a change. A thread must not have two at one time.
pub(super) fn begin() -> Edit {
    Edit(UNDER_WAY.read().unwrap_or_else(PoisonError::into_inner))
}

/// Ends the program, as soon as no change is under way: the kernel then removes the probes that are in place. Nothing else is waited for.
pub fn exit(status: i32) -> ! {
    let _none = UNDER_WAY.write().unwrap_or_else(PoisonError::into_inner);
    std::process::exit(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_made_side_by_side() {
        let _one = begin();
        std::thread::scope(|scope| scope.spawn(|| drop(begin())).join().unwrap());
        assert!(UNDER_WAY.try_write().is_err(), "nobody ends the program now");
    }
}
