//! What those to blame for waiting were doing meanwhile.

use super::place::Places;
use super::schema::{CausesEntry, OffStackEntry};
use crate::graph::findings::{Cause, Causes, Holder};
use crate::id::{Lock, Process, StackId};
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Stacks listed.
const MAX_STACKS: usize = 3;

/// Causes and stacks of several holders put together.
#[derive(Debug, Default)]
pub(super) struct Doing {
    causes: Causes,
    off: HashMap<(Cause, Process, StackId), Nanos>,
}

impl Doing {
    /// That of one holder, blamed for waiting for `lock`.
    pub(super) fn of(holder: &Holder, lock: Lock) -> Self {
        let mut doing = Self::default();
        doing.add(holder, lock);
        doing
    }

    /// Adds that of a holder, blamed for waiting for `lock`.
    pub(super) fn add(&mut self, holder: &Holder, lock: Lock) {
        let process = holder.who.lock().unwrap_or(lock).process;
        self.causes.merge(&holder.causes);
        for ((cause, stack), tally) in holder.off_stacks.top() {
            *self.off.entry((cause, process, stack)).or_default() += tally.time;
        }
    }

    /// Waiting by cause; `None` where causes are not known at all.
    pub(super) fn causes(&self, places: &Places<'_>) -> Option<CausesEntry> {
        let of = |cause| places.ns(self.causes.of(cause));
        let known = places.scheduling_known() && self.causes != Causes::default();
        known.then(|| CausesEntry {
            running: of(Cause::Running),
            runnable: of(Cause::Runnable),
            blocked: of(Cause::Blocked),
            sleeping: of(Cause::Sleeping),
            lock: of(Cause::Lock),
            kernel_lock: of(Cause::KernelLock),
            handoff: of(Cause::HandOff),
            unknown: of(Cause::Unknown),
        })
    }

    /// Waiting while the lock was free again.
    pub(super) fn handoff(&self) -> Nanos {
        self.causes.of(Cause::HandOff)
    }

    /// Where the threads were off the CPU, longest first.
    pub(super) fn off_stacks(&self, places: &mut Places<'_>) -> Vec<OffStackEntry> {
        let mut all: Vec<_> = self.off.iter().filter(|(_, wait)| **wait > Nanos(0)).collect();
        all.sort_unstable_by_key(|&(&key, &wait)| (Reverse(wait), key));
        let mut entries = Vec::new();
        for (&(cause, process, stack), &wait) in all.into_iter().take(MAX_STACKS) {
            let stack = places.off_stack(process, stack);
            entries.push(OffStackEntry {
                cause: name(cause).to_owned(),
                function: stack.iter().find_map(|f| f.function.as_deref()).map(plain),
                wait_ns: places.ns(wait),
                stack,
            });
        }
        entries
    }

    /// The function in which the threads were mostly off the CPU, if that is known and they were.
    pub(super) fn off_in(&self, places: &mut Places<'_>) -> Option<String> {
        let (&(_, process, stack), _) = self.off.iter().max_by_key(|&(&key, &wait)| (wait, Reverse(key)))?;
        places.off_stack(process, stack).iter().find_map(|f| f.function.as_deref()).map(plain)
    }
}

fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Running => "running",
        Cause::Runnable => "runnable",
        Cause::Blocked => "blocked",
        Cause::Sleeping => "sleeping",
        Cause::Lock => "lock",
        Cause::KernelLock => "kernel_lock",
        Cause::HandOff => "handoff",
        Cause::Unknown => "unknown",
    }
}

/// A function of the C library without its decorations: `__GI___fdatasync`, `__libc_write`, `clock_nanosleep@@GLIBC_2.17`.
fn plain(function: &str) -> String {
    let name = function.strip_prefix("__GI_").unwrap_or(function);
    let name = name.split('@').next().unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    if name.is_empty() { function.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn functions_of_the_c_library_lose_their_decorations() {
        let names = ["fdatasync", "__GI___fdatasync", "__libc_write", "clock_nanosleep@@GLIBC_2.17", "__"];
        assert_eq!(names.map(plain), ["fdatasync", "fdatasync", "write", "clock_nanosleep", "__"]);
    }
}
