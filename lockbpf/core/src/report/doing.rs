//! What those to blame for waiting were doing meanwhile.

use super::place::Places;
use super::schema::{CausesEntry, OffStackEntry, StackFrame};
use crate::graph::findings::{Cause, Causes, Holder};
use crate::id::{Lock, Process, StackId};
use crate::java;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Stacks listed.
pub(super) const MAX_STACKS: usize = 3;

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
        let process = holder.who.process(lock);
        self.causes.merge(&holder.causes);
        // Stacks are charged with attempts that fail in the end, too, which are no part of the waiting.
        let (all, known) = (holder.wait.0, holder.off_stacks.total().time.0);
        let scale = if known > all { all as f64 / known as f64 } else { 1.0 };
        for ((cause, stack), tally) in holder.off_stacks.top() {
            let time = if scale < 1.0 { (tally.time.0 as f64 * scale) as u64 } else { tally.time.0 };
            *self.off.entry((cause, process, stack)).or_default() += Nanos(time);
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
                function: function(&stack),
                wait_ns: places.ns(wait),
                stack,
            });
        }
        entries
    }

    /// The function in which the threads were mostly off the CPU, if that is known and they were.
    pub(super) fn off_in(&self, places: &mut Places<'_>) -> Option<String> {
        let (&(_, process, stack), _) = self.off.iter().max_by_key(|&(&key, &wait)| (wait, Reverse(key)))?;
        function(&places.off_stack(process, stack))
    }
}

/// What a cause is called in the report.
pub(super) fn name(cause: Cause) -> &'static str {
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

/// The function that a thread was off the CPU in. Of a futex call it is the method of generated code that led there, or the C library's
/// function that the program called: the call itself says nothing. Neither do the functions by which Go makes all of its system calls.
fn function(stack: &[StackFrame]) -> Option<String> {
    let first = stack.iter().find(|f| f.function.as_ref().is_some_and(|function| !is_go_system_call(function)))?;
    let name = |f: &StackFrame| f.function.clone();
    if !name(first)?.contains("futex") {
        return name(first).map(|name| plain(&name));
    }
    match stack.iter().find(|f| f.module.is_none() && f.function.is_some()) {
        Some(generated) => name(generated).map(|name| java::method(&name).to_owned()),
        None => {
            let library = stack.iter().skip_while(|f| f.function.is_none()).take_while(|f| f.module == first.module);
            library.filter_map(name).last().map(|name| plain(&name))
        }
    }
}

/// Whether it is one of the functions by which Go makes system calls of all sorts: `syscall.RawSyscall6`, `internal/runtime/syscall.Syscall6`.
fn is_go_system_call(function: &str) -> bool {
    let name = function.rsplit('/').next().unwrap_or(function).strip_prefix("syscall.").map(str::to_ascii_lowercase);
    name.is_some_and(|name| name.trim_start_matches("raw").starts_with("syscall"))
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
    use super::{StackFrame, function, plain};

    #[test]
    fn functions_of_the_c_library_lose_their_decorations() {
        let names = ["fdatasync", "__GI___fdatasync", "__libc_write", "clock_nanosleep@@GLIBC_2.17", "__"];
        assert_eq!(names.map(plain), ["fdatasync", "fdatasync", "write", "clock_nanosleep", "__"]);
    }

    #[test]
    fn a_futex_call_stands_for_what_led_to_it() {
        let frame = |(function, module): (&str, &str)| StackFrame {
            function: (!function.is_empty()).then(|| function.to_owned()),
            module: (!module.is_empty()).then(|| module.to_owned()),
            ..StackFrame::default()
        };
        let of = |frames: &[(&str, &str)]| function(&frames.iter().map(|&f| frame(f)).collect::<Vec<_>>());
        let wait = [("__futex_abstimed_wait", "libc"), ("___pthread_cond_timedwait64", "libc")];
        let told = |rest: &[(&str, &str)]| of(&[&wait[..], rest].concat());
        assert_eq!(told(&[("os::park", "jvm"), ("main", "a")]).as_deref(), Some("pthread_cond_timedwait64"));
        let java = [("os::park", "jvm"), ("void java.lang.Thread.sleep(long)", ""), ("Ledger.audit", "")];
        assert_eq!(told(&java).as_deref(), Some("java.lang.Thread.sleep"));
        assert_eq!(of(&[("", "libc"), ("__libc_recv", "libc"), ("Ledger.audit", "")]).as_deref(), Some("recv"));
        assert_eq!(of(&[("", "libc")]), None);
        let go = [
            "runtime/internal/syscall.Syscall6",
            "syscall.RawSyscall6",
            "syscall.Syscall",
            "syscall.Fsync",
            "os.(*File).Sync",
        ];
        assert_eq!(of(&go.map(|function| (function, "store"))).as_deref(), Some("syscall.Fsync"));
    }
}
