//! Locks that are classes of programs and libraries, by the names of their methods.
#![forbid(unsafe_code)]

/// Methods by which classes of locks are taken, in lower case and without underscores.
const METHODS: &[&str] = &[
    "lock",
    "trylock",
    "lockshared",
    "lockreader",
    "lockwriter",
    "readlock",
    "writelock",
    "rdlock",
    "wrlock",
    "rlock",
    "wlock",
    "acquire",
    "tryacquire",
    "enter",
    "lockwithoutsafepointcheck",
];
/// What is part of the names of such classes, in lower case.
const CLASSES: &[&str] = &["lock", "mutex", "monitor", "latch", "criticalsection", "semaphore"];

/// Whether a function takes a lock by its class's method (`kyotocabinet::RWLock::lock_writer`): programs' own classes around
/// the C library's locks.
#[must_use]
pub fn takes_a_lock(function: &str) -> bool {
    let plain = function.split('(').next().unwrap_or(function).to_ascii_lowercase();
    let Some((class, method)) = plain.rsplit_once("::") else { return false };
    let class = class.rsplit("::").next().unwrap_or(class).replace("block", "").replace("clock", "");
    METHODS.contains(&method.replace('_', "").as_str()) && CLASSES.iter().any(|part| class.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_locks_take_them() {
        let take = ["kyotocabinet::RWLock::lock_writer(bool)", "boost::shared_mutex::lock_shared()", "Monitor::enter"];
        assert!(take.into_iter().all(takes_a_lock));
        for other in ["Clock::lock", "Mutex::unlock()", "lock", "boost::condition_variable::wait", "Queue::enter"] {
            assert!(!takes_a_lock(other), "{other}");
        }
    }
}
