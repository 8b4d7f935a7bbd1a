//! Tasks of Rust's asynchronous runtimes, and Java's virtual threads: a task waits, whatever threads it goes on in. Where records tell threads, what
//! stands for it has the top three bits, which no thread's id and no [goroutine](crate::goroutine)'s has.

/// A future by which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FutureKey {
    /// The process's number.
    pub process: u64,
    /// Its address: it is pinned.
    pub future: u64,
}

/// A wait of a task for a lock, in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TaskWait {
    /// The lock.
    pub lock: u64,
    /// Return address of the poll that found it taken.
    pub site: u64,
    /// When that was, ns.
    pub attempt_ns: u64,
    /// The opening of the gate in which that was.
    pub epoch: u64,
    /// What stands for the task.
    pub tid: u32,
    /// [`crate::via::Via`] as a number.
    pub via: u32,
}

const _: () = assert!(size_of::<FutureKey>() == 16);
const _: () = assert!(size_of::<TaskWait>() == 40);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for FutureKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for TaskWait {}

/// Bytes from tokio's `batch_semaphore::Semaphore` to twice its free permits, which is odd if it is closed. The address there stands for the
/// lock, since a semaphore begins with a mutex of its own.
pub const TOKIO_PERMITS: u64 = 32;
/// Bytes from tokio's `batch_semaphore::Acquire` to the byte that tells whether it waits (1.36 and later).
pub const TOKIO_QUEUED: u64 = 56;
/// Bytes to that byte before 1.36, where the number of permits took four bytes. Such futures are not read.
pub const TOKIO_OLD_QUEUED: u64 = 52;

/// What tokio's semaphore is to one of its functions, as the detail of that one's probe.
pub mod tokio_lock {
    /// A lock with one holder.
    pub const MUTEX: u32 = 1;
    /// A read-write lock.
    pub const RWLOCK: u32 = 2;
    /// Permits of a semaphore.
    pub const SEMAPHORE: u32 = 3;
    /// Room in a channel: no lock.
    pub const CHANNEL: u32 = 4;
}

/// Tells a task from a thread and from a goroutine.
const TASK: u32 = 0b111 << 29;
/// Tells a lock's readers from a task.
const READERS: u32 = 1 << 28;
/// Tells a virtual thread from a task.
const VIRTUAL: u32 = 1 << KNOWN;
/// Bits for the address, or the number.
const KNOWN: u32 = 27;
/// What a waker tells of its task, and locks, are so aligned, as a power of two.
const ALIGN: u32 = 4;

/// A task, or what acts as one. Of addresses the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The one whose waker has this address as its data.
    Of(u64),
    /// All readers of the lock there.
    Readers(u64),
    /// The virtual thread of Java's that has this number, in its low 27 bits.
    Virtual(u32),
}

/// What stands for the task whose waker has this address as its data.
#[must_use]
#[inline(always)]
pub const fn of_waker(address: u64) -> u32 {
    TASK | (address >> ALIGN) as u32 & (VIRTUAL - 1)
}

/// What stands for the virtual thread of Java's that has this number.
#[must_use]
#[inline(always)]
pub const fn of_virtual(id: u64) -> u32 {
    TASK | VIRTUAL | id as u32 & (VIRTUAL - 1)
}

/// What stands for all readers of the lock there.
#[must_use]
#[inline(always)]
pub const fn of_readers(lock: u64) -> u32 {
    of_waker(lock) | READERS
}

/// Whether a thread's id stands for a task.
#[must_use]
#[inline(always)]
pub const fn is_task(tid: u32) -> bool {
    tid & TASK == TASK
}

/// The task that a thread's id stands for; `None` if it is a thread's or a goroutine's.
#[must_use]
pub const fn task(tid: u32) -> Option<Task> {
    let known = tid & (VIRTUAL - 1);
    let address = (known as u64) << ALIGN;
    if !is_task(tid) {
        None
    } else if tid & VIRTUAL != 0 {
        Some(Task::Virtual(known))
    } else if tid & READERS != 0 {
        Some(Task::Readers(address))
    } else {
        Some(Task::Of(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goroutine;

    #[test]
    fn tasks_are_no_threads_and_no_goroutines() {
        let task_of = of_waker(0x7fff_1234_5680);
        assert_eq!((task(task_of), goroutine::goroutine(task_of)), (Some(Task::Of(0x1234_5680)), None));
        assert_eq!(task(of_readers(0x7fff_1234_5680)), Some(Task::Readers(0x1234_5680)));
        assert_eq!(task(of_virtual(1_234_567)), Some(Task::Virtual(1_234_567)));
        assert_eq!(
            (task(of_virtual(u64::MAX)), goroutine::goroutine(of_virtual(7))),
            (Some(Task::Virtual(VIRTUAL - 1)), None)
        );
        for other in [4_194_304, goroutine::of_number(u64::MAX), goroutine::of_address(u64::MAX)] {
            assert_eq!(task(other), None, "{other:x}");
        }
    }
}
