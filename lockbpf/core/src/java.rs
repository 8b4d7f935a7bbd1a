//! Locks of `java.util.concurrent`, by the methods that a thread is in which sleeps for one. The collector moves their objects, and threads
//! sleep on words of their own: nothing else tells of them.
#![forbid(unsafe_code)]

use std::ops::Range;

/// Classes that queue threads for a lock, in methods of their own. Those of a condition are in a class inside.
const QUEUES: &[&str] = &[
    "java.util.concurrent.locks.AbstractQueuedSynchronizer.",
    "java.util.concurrent.locks.AbstractQueuedLongSynchronizer.",
    "java.util.concurrent.locks.StampedLock.",
];
/// Methods of these by which a lock is given back.
const RELEASES: &[&str] = &["release", "signalNext", "unpark", "doRelease", "unlock", "tryUnlock"];
/// Where threads sleep, whatever for.
const PARKS: &[&str] =
    &["java.util.concurrent.locks.LockSupport.park", "jdk.internal.misc.Unsafe.", "sun.misc.Unsafe."];
/// They queue in the same way for what is no lock: an event, or permits, which may stand for work.
const NO_LOCKS: &[&str] = &["java.util.concurrent.CountDownLatch", "java.util.concurrent.Semaphore"];
const PACKAGE: &str = "java.util.concurrent.";
/// Where methods are whose names tell nothing about a program.
const PLATFORM: &str = "java.";

/// Which of the functions on a stack, innermost first, asks for the lock that the thread sleeps for; `None` if it does not sleep for one, as
/// far as they tell: whoever gives one back may sleep for something else meanwhile. Methods that a compiler has put into their callers are
/// missing: of who asks by then, the caller is known.
#[must_use]
pub fn asker<'a>(functions: impl IntoIterator<Item = &'a str>) -> Option<usize> {
    let methods: Vec<&str> = functions.into_iter().map(method).collect();
    let begins = |method: &str, names: &[&str]| names.iter().any(|name| method.starts_with(name));
    let queued = methods.iter().position(|method| begins(method, QUEUES))?;
    let called = methods[queued].rsplit('.').next().unwrap_or_default();
    if RELEASES.iter().any(|start| called.starts_with(start)) {
        return None;
    }
    let waits_otherwise = |method: &&str| method.starts_with(PACKAGE) && !begins(method, PARKS);
    if methods[..queued].iter().any(waits_otherwise) {
        return None;
    }
    let inside = methods[queued..].iter().take_while(|method| method.starts_with(PACKAGE)).count();
    let of_package = &methods[queued..queued + inside];
    if of_package.iter().any(|method| begins(method, NO_LOCKS)) {
        return None;
    }
    let outside = queued + inside;
    let is_program = methods.get(outside).is_some_and(|method| !method.starts_with(PLATFORM));
    Some(if is_program { outside } else { outside - 1 })
}

/// Beginnings of the names of what a thread runs to carry a virtual one.
const CARRIES: &[&str] = &[
    "StubRoutines (continuation",
    "jdk.internal.vm.Continuation.enter",
    "jdk.internal.vm.Continuation.run",
    "java.lang.VirtualThread.runContinuation",
];
/// The same of the methods by which a virtual thread leaves it.
const LEAVES: &[&str] = &["jdk.internal.vm.Continuation.", "java.lang.VirtualThread."];

/// Whether it is what a method is called, not what the machine's own code is: `Interpreter`.
#[must_use]
pub fn is_method(name: &str) -> bool {
    name.contains('.')
}

/// Whether a virtual thread leaves the thread that carries it in this method.
fn leaves(name: &str) -> bool {
    LEAVES.iter().any(|start| method(name).starts_with(start))
}

/// Which of the functions on a stack, innermost first, are those of the virtual thread that runs there, if one does; `None` for code that was not
/// generated. Whatever is beneath belongs to the thread that carries it, and is no caller. Nor is what is above of interest, by which it
/// leaves that thread. What a virtual thread has come back to may lie elsewhere, and is not known then.
#[must_use]
pub fn own(functions: &[Option<&str>]) -> Range<usize> {
    let all = functions.len();
    let first = functions.iter().position(|name| name.is_some_and(is_method)).unwrap_or(all);
    let begins = |name: &str| CARRIES.iter().any(|start| name.starts_with(start));
    let carries = |name: &Option<&str>| name.is_some_and(|name| begins(name) || begins(method(name)));
    let left = functions[first..].iter().take_while(|name| name.is_some_and(leaves) && !carries(name)).count();
    let begin = first + left;
    let end = functions[begin..].iter().position(carries).map_or(all, |own| begin + own);
    // Where nothing is left of it, it is one of the thread's own.
    if begin == end { 0..all } else { (if left == 0 { 0 } else { begin })..end }
}

/// A method of generated code without its result and parameters: `void java.lang.Thread.sleep(long)`.
#[must_use]
pub fn method(name: &str) -> &str {
    match name.strip_suffix(')').and_then(|name| name.split_once('(')) {
        Some((name, _)) => name.rsplit(' ').next().unwrap_or(name),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A stack of these methods in the package of locks, in `java.util.concurrent` and elsewhere, below those that sleep.
    fn told(locks: &[&str], concurrent: &[&str], others: &[&str]) -> Option<String> {
        let mut stack: Vec<String> = [
            "Unsafe_Park",
            "jdk.internal.misc.Unsafe.park",
            "void java.util.concurrent.locks.LockSupport.park(Object)",
        ]
        .map(str::to_owned)
        .into();
        stack.extend(locks.iter().map(|name| format!("java.util.concurrent.locks.{name}")));
        stack.extend(concurrent.iter().map(|name| format!("java.util.concurrent.{name}")));
        stack.extend(others.iter().map(|&name| name.to_owned()));
        asker(stack.iter().map(String::as_str)).map(|at| method(&stack[at]).to_owned())
    }

    #[test]
    fn frames_of_carriers_are_none_of_a_virtual_thread() {
        const CARRIER: &[Option<&str>] = &[
            Some("StubRoutines (continuationstubs)"),
            Some("jdk.internal.vm.Continuation.run"),
            Some("java.lang.VirtualThread.runContinuation"),
            None,
        ];
        let on_carrier = |own: &[Option<&'static str>]| [own, CARRIER].concat();
        // It leaves for a lock, asks for a monitor, or gives one back.
        let leaves = [
            None,
            Some("jdk.internal.vm.Continuation.yield0"),
            Some("java.lang.VirtualThread.park"),
            Some("java.util.concurrent.locks.LockSupport.park"),
            Some("Shop.sell"),
        ];
        assert_eq!(own(&on_carrier(&leaves)), 3..5);
        // As a perf map has them.
        let listed = [Some("boolean java.lang.VirtualThread.park()"), Some("void Shop.sell(int)")];
        assert_eq!(own(&[&listed[..], &[Some("void jdk.internal.vm.Continuation.run()")]].concat()), 1..2);
        assert_eq!(own(&on_carrier(&[None, Some("StubRoutines (continuationstubs)"), Some("Shop.sell")])), 0..3);
        assert_eq!(own(&on_carrier(&[None, Some("Interpreter"), Some("Shop.sell"), Some("Shop.main")])), 0..4);
        // What carries virtual threads waits itself.
        assert_eq!(own(CARRIER), 0..4);
        assert_eq!(own(&[None, Some("Shop.sell"), Some("java.lang.Thread.run"), None]), 0..4);
        assert_eq!(own(&[None, None]), 0..2);
    }

    #[test]
    fn who_asks_is_outside_of_the_locks() {
        let run = ["Shop.sell", "java.lang.Thread.run"];
        let acquire = "AbstractQueuedSynchronizer.acquire";
        for locks in [
            &[acquire, acquire, "ReentrantLock$Sync.lock", "ReentrantLock.lock"][..],
            &[acquire],
            &["AbstractQueuedSynchronizer.parkAndCheckInterrupt", "AbstractQueuedSynchronizer.acquireQueued"],
            &["StampedLock.acquireWrite", "StampedLock.writeLock"],
            // Woken from a condition, a thread needs the lock again.
            &[acquire, "AbstractQueuedSynchronizer$ConditionObject.await"],
        ] {
            assert_eq!(told(locks, &[], &run).as_deref(), Some("Shop.sell"), "{locks:?}");
        }
        assert_eq!(told(&[acquire], &["LinkedBlockingQueue.put"], &run).as_deref(), Some("Shop.sell"));
    }

    #[test]
    fn a_lock_of_the_platforms_is_asked_for_there() {
        let (acquire, run) = ("AbstractQueuedSynchronizer.acquire", ["java.lang.Thread.run"]);
        let of_pool = told(&[acquire], &["LinkedBlockingQueue.take", "ThreadPoolExecutor.getTask"], &run);
        assert_eq!(of_pool.as_deref(), Some("java.util.concurrent.ThreadPoolExecutor.getTask"));
        let last = told(&[acquire], &[], &[]);
        assert_eq!(last.as_deref(), Some("java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire"));
    }

    #[test]
    fn who_waits_for_something_else_asks_for_no_lock() {
        let acquire = "AbstractQueuedSynchronizer.acquire";
        let wait = "AbstractQueuedSynchronizer$ConditionNode.block";
        for (locks, concurrent) in [
            (&["AbstractQueuedSynchronizer$ConditionObject.await"][..], &["ArrayBlockingQueue.take"][..]),
            (&[wait, "AbstractQueuedSynchronizer$ConditionObject.await"], &[]),
            (&[wait, acquire], &[]),
            (
                &[
                    "AbstractQueuedSynchronizer.signalNext",
                    "AbstractQueuedSynchronizer.release",
                    "ReentrantLock.unlock",
                ],
                &[],
            ),
            (&["StampedLock.unlockWrite"], &[]),
            (&[acquire, "AbstractQueuedSynchronizer.acquireSharedInterruptibly"], &["CountDownLatch.await"]),
            (&[acquire], &["Semaphore$FairSync.tryAcquireShared", "Semaphore.acquire"]),
            (&[], &["FutureTask.awaitDone", "FutureTask.get"]),
            (&[], &[]),
        ] {
            assert_eq!(told(locks, concurrent, &["Shop.sell"]), None, "{locks:?} {concurrent:?}");
        }
    }

    proptest! {
        #[test]
        fn any_stack_has_the_place_that_is_told(names in proptest::collection::vec(
            prop_oneof![
                Just("java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire".to_owned()),
                Just("java.util.concurrent.locks.LockSupport.park".to_owned()),
                Just("java.lang.Thread.run".to_owned()),
                ".{0,20}",
            ],
            0..12,
        )) {
            let at = asker(names.iter().map(String::as_str));
            prop_assert!(at.is_none_or(|at| at < names.len()));
        }
    }
}
