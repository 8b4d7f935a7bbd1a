//! One counter for every way in which an observation can be incomplete. Nothing is lost silently: what the kernel
//! side cannot keep, it counts here, and every report shows what is not zero.

macro_rules! counters {
    ($($(#[$doc:meta])+ $variant:ident => $name:literal, $class:ident;)+) => {
        /// A cause of incompleteness, and its slot in the kernel's per-CPU counter array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Counter { $($(#[$doc])+ $variant),+ }

        impl Counter {
            /// Every counter, in slot order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Number of slots.
            pub const COUNT: u32 = Self::ALL.len() as u32;

            /// The name under which reports show it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// What a non-zero value means for the report.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class),+ }
            }
        }
    };
}

/// What a non-zero counter means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Plain volume; no defect.
    Volume,
    /// Data that should be in the report is missing.
    Lost,
    /// A transition that a well-formed program cannot make.
    Impossible,
    /// Expected at the edges: the recording began or ended in the middle of something.
    Edge,
}

counters! {
    /// Section records written to a ring buffer.
    SectionRecords => "section_records", Volume;
    /// Futex-wait records written to a ring buffer.
    FutexRecords => "futex_records", Volume;
    /// Records of futex calls that woke somebody, written to a ring buffer.
    WakeRecords => "wake_records", Volume;
    /// Process and thread-exit records written to a ring buffer.
    LifeRecords => "life_records", Volume;
    /// Records of absences from the CPU while holding a lock, written to a ring buffer.
    OffCpuRecords => "off_cpu_records", Volume;
    /// Records of arrivals at barriers, written to a ring buffer.
    BarrierRecords => "barrier_records", Volume;
    /// Records of waits for kernel locks, written to a ring buffer.
    KernelRecords => "kernel_records", Volume;
    /// Records of who held a kernel lock that was waited for, written to a ring buffer.
    HolderRecords => "holder_records", Volume;
    /// Holders of kernel locks that had given them back before it was known where they were: of these only the thread is told.
    HolderGone => "kernel_holder_gone", Volume;
    /// Waits for kernel spin locks in interrupts: of nobody's doing, and only counted.
    KernelInterrupts => "kernel_in_interrupts", Volume;
    /// User stacks copied to be unwound.
    StackCopies => "stack_copies", Volume;
    /// User stacks not copied again: recognised by their return addresses.
    StackKnown => "stack_known", Volume;
    /// User stacks not taken: there were more at once that had never been seen than may be copied.
    StackSkipped => "stack_skipped", Volume;
    /// Processes that observed ones started while probes were in place in them.
    Children => "children", Volume;
    /// Of these, time between the start and the end, or the new image, of those that came to it before their memory was known to
    /// be free of breakpoints, ns.
    ChildrenNs => "children_ns", Volume;
    /// Records not made, since they have nothing to do with the locks in the focus: those are only counted.
    Unfocused => "unfocused", Volume;
    /// Waits not recorded, since others that were stand for them: recording all would cost more than the budget.
    Thinned => "thinned", Volume;
    /// Attempts of tasks to get room in channels of tokio's: these are no locks.
    TokioChannels => "tokio_channels", Volume;
    /// A record did not fit: ring buffer full.
    RingFull => "ring_full", Lost;
    /// A lock × site pair did not fit: sums map full.
    SumsFull => "sums_full", Lost;
    /// A thread did not fit: no free thread slot; its per-thread sums are missing, its sections are not.
    ThreadsFull => "threads_full", Lost;
    /// A process did not fit: process map full.
    ProcessesFull => "processes_full", Lost;
    /// A process that an observed one started, and that did not fit: how long it ran on that one's breakpoints is not known.
    ChildrenFull => "children_full", Lost;
    /// A process beyond those that can be observed fully at one time: of it, only waits are seen.
    SlotsFull => "slots_full", Lost;
    /// A wait in progress could not be listed: waits map full.
    WaitsFull => "waits_full", Lost;
    /// A pair of locks did not fit: orders map full; an inversion may be missing.
    OrdersFull => "orders_full", Lost;
    /// Visits of locks that are missing in the sums of transitions: map full; a model made of these is that of the others.
    TransitionsFull => "transitions_full", Lost;
    /// A lock that the user has described did not fit: map full; its kind and name are not told.
    CustomLocksFull => "custom_locks_full", Lost;
    /// A lock did not fit into the focus: who made its waiters wait may be missing.
    FocusFull => "focus_full", Lost;
    /// Task storage could not be allocated for a thread: its operation was not seen.
    StateFull => "state_full", Lost;
    /// Calls on locks that a signal handler interrupted, and of which the end was not seen: the handler was left by a jump, or more
    /// are nested than are followed.
    CallInterrupted => "call_interrupted_without_end", Lost;
    /// More locks held at once than are told when a thread exits, or when observing pauses.
    HeldFull => "held_full", Lost;
    /// Sections of which the end was not seen, since the thread then acquired more locks than are tracked per thread: it held more at
    /// once, or other threads gave some of them back.
    HeldForgotten => "held_forgotten", Lost;
    /// A stack could not be kept: hash collision, or table full.
    StackLost => "stack_lost", Lost;
    /// A stack could not be copied to be unwound: ring buffer full.
    StackRingFull => "stack_ring_full", Lost;
    /// A stack could not be copied to be unwound, since its memory was not there: only where the thread was is told.
    StackUnread => "stack_unread", Lost;
    /// The lock's memory could not be read when it mattered.
    ReadFault => "read_fault", Lost;
    /// An address beyond 48 bits does not fit a record.
    WideAddress => "wide_address", Lost;
    /// Sections of which the events were not counted: on a CPU that has no counters, or in which a counter could not be read.
    CountsUnread => "counts_unread", Lost;
    /// A thread's calls of a function of the C library did not fit: calls map full; they are not counted.
    CallsFull => "calls_full", Lost;
    /// Waits for kernel locks inside of more such waits of the same thread than are followed.
    KernelNested => "kernel_nested_full", Lost;
    /// Waits for kernel locks whose end was not seen.
    KernelUnended => "kernel_wait_without_end", Lost;
    /// Operations of observed threads while lockbpf did not get to run: programs then return at once. Also calls, waits and sections that had
    /// begun before and were still in progress.
    LeaseExpired => "lease_expired", Lost;
    /// Runs of programs that the kernel left out, since one was running on that CPU already (preemptible kernels, mostly): futex calls
    /// and the like, of any process.
    KernelSkipped => "skipped_by_kernel", Lost;
    /// Futures of tokio's that ask for a lock in another way than is known: of another release, or built in another way.
    TokioOdd => "tokio_odd", Lost;
    /// Java's monitors given back to somebody whom the machine keeps in another way than is known: of another release.
    VirtualOdd => "virtual_thread_odd", Lost;
    /// An unlock of a lock that this thread was not seen to acquire, after its first acquisition was seen.
    UnlockNotHeld => "unlock_not_held", Impossible;
    /// A lock call began while another was still open in the same thread.
    AttemptWhileAttempting => "attempt_while_attempting", Impossible;
    /// A non-recursive lock was acquired by the thread that already held it.
    AcquireWhileHolding => "acquire_while_holding", Impossible;
    /// An unlock of a lock taken before the observation began.
    HeldAtStart => "held_at_start", Edge;
    /// Waits in futex calls that began before the observation and ended in it: told from its beginning on.
    WaitingAtStart => "waiting_at_start", Edge;
    /// Waits of tasks that began before the observation, or before a window. The report has the sections that follow, not these waits.
    TokioUnbegun => "task_wait_without_begin", Edge;
    /// Sections in signal handlers that interrupted a wait for a lock: summed, but not recorded.
    InHandler => "in_handler_during_wait", Edge;
    /// Ends of waits for kernel locks whose beginning was not seen: they began before the observation.
    KernelUnbegun => "kernel_wait_without_begin", Edge;
    /// Waits for kernel locks of threads that were not known yet (spin locks), or that were exiting (any).
    KernelBetween => "kernel_wait_of_new_or_exiting_thread", Edge;
    /// Calls of functions of the C library that ended without their end: by a jump, a cancellation or an exception.
    CallUnended => "call_without_end", Edge;
    /// Absences from the CPU whose end the kernel told nobody: told as if they had lasted until the thread was seen next.
    OffCpuUnended => "absence_without_end", Edge;
    /// A thread exited while it held a lock.
    ExitHolding => "exit_holding", Edge;
    /// A process replaced its image while its threads held or waited for locks.
    ExecHolding => "exec_holding", Edge;
}
