//! Anything that a trace may hold.

use crate::deadlock::{Blocked, Deadlock, LockOrder};
use crate::estimate::{Coverage, Estimates, Figures, Interval, Subject};
use crate::event::{
    Event, FutexResult, FutexWait, OffCpu, Outcome, ProcessSeen, Section, ThreadTotals, Via, Wake, Weight,
};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::measures::counted::{Counted, CountedSite};
use crate::observation::{Harvest, OpenWait};
use crate::op::{Action, Arrival, Attempt, Doing, Failure, Hold, LockKind, OffReason, Op, Released, Round};
use crate::sums::KernelSums;
use crate::trace::v1::shape::LOCK_KINDS;
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use lockbpf_common::counts::{Counts, SiteCounts, ThreadCounts};
use lockbpf_common::sums::Sums;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

// Boxed where they are large: each takes its place on the stack otherwise.

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..50, 2 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0u32..5, 1 => any::<u32>()]
}

fn tid() -> impl Strategy<Value = Tid> {
    small().prop_map(Tid)
}

fn process() -> impl Strategy<Value = Process> {
    small().prop_map(Process)
}

/// Of a process, or of the kernel.
fn any_lock() -> impl Strategy<Value = Lock> {
    (select(vec![None, Some(Process::KERNEL)]), lock()).prop_map(|(kernel, lock)| match kernel {
        Some(process) => Lock { process, ..lock },
        None => lock,
    })
}

fn lock() -> impl Strategy<Value = Lock> {
    (process(), number()).prop_map(|(process, addr)| Lock { process, addr })
}

fn site() -> impl Strategy<Value = Site> {
    (process(), number()).prop_map(|(process, addr)| Site { process, addr })
}

fn stack() -> impl Strategy<Value = Option<StackId>> {
    option::of(small().prop_map(StackId))
}

fn via() -> impl Strategy<Value = Via> {
    (1u8..=7).prop_map(|raw| Via::from_u8(raw).unwrap())
}

fn off_reason() -> impl Strategy<Value = OffReason> {
    select(vec![OffReason::Runnable, OffReason::Blocked, OffReason::Sleeping, OffReason::Futex])
}

fn section() -> BoxedStrategy<Section> {
    let times = (number(), number(), number());
    let how = (any::<u16>(), via(), 0u8..6, any::<u8>());
    (times, any_lock(), site(), (tid(), process()), option::of(tid()), option::of(tid()), stack(), how)
        .prop_map(
            |(
                (end, wait, hold),
                lock,
                site,
                (tid, process),
                owner,
                waker,
                stack,
                (flags, via, outcome, mutex_kind),
            )| {
                Section {
                    end: Time(end),
                    wait: Nanos(wait),
                    hold: Nanos(hold),
                    lock,
                    site,
                    tid,
                    process: if lock.is_kernel() { process } else { lock.process },
                    owner,
                    waker,
                    stack,
                    flags,
                    via,
                    outcome: Outcome::from_u8(outcome).unwrap(),
                    mutex_kind,
                }
            },
        )
        .boxed()
}

fn futex_wait() -> BoxedStrategy<FutexWait> {
    let who = (tid(), option::of(tid()), option::of(tid()));
    (number(), number(), lock(), option::of(site()), who, any::<u32>(), stack(), (0u8..5, any::<u8>()))
        .prop_map(|(end, wait, word, site, (tid, owner, waker), expected, stack, (result, weight))| FutexWait {
            end: Time(end),
            wait: Nanos(wait),
            word,
            site,
            tid,
            expected,
            owner,
            waker,
            stack,
            result: FutexResult::from_u8(result).unwrap(),
            weight: Weight::unpacked(weight),
        })
        .boxed()
}

fn kind() -> impl Strategy<Value = LockKind> {
    select(LOCK_KINDS.to_vec())
}

fn doing() -> impl Strategy<Value = Doing> {
    select(vec![Doing::Unknown, Doing::Running, Doing::Runnable, Doing::Blocked, Doing::Sleeping])
}

fn action() -> BoxedStrategy<Action> {
    let attempt = (lock(), site(), any::<bool>(), kind(), option::of(tid()), stack(), any::<Option<bool>>());
    prop_oneof![
        attempt.prop_map(|(lock, site, shared, kind, owner, stack, contended)| {
            Action::Attempt(Attempt { lock, site, shared, kind, owner, stack, contended })
        }),
        (lock(), option::of(tid())).prop_map(|(lock, waker)| Action::Acquire { lock, waker }),
        (lock(), select(vec![Released::Unlock, Released::CondWait, Released::ExitedHolding]))
            .prop_map(|(lock, how)| Action::Release { lock, how }),
        (lock(), select(vec![Failure::TryFailed, Failure::TimedOut, Failure::Error]))
            .prop_map(|(lock, how)| Action::Fail { lock, how }),
        (lock(), any::<u32>(), 0u32..20, site(), site()).prop_map(|(barrier, participants, round, site, post)| {
            Action::Barrier(Arrival { barrier, participants, round: Round::of_code(round), site, post })
        }),
        (lock(), site()).prop_map(|(condition, site)| Action::CondWait { condition, site }),
        lock().prop_map(|condition| Action::CondWake { condition }),
        (off_reason(), stack()).prop_map(|(reason, stack)| Action::Off { reason, stack }),
        Just(Action::On),
        (lock(), tid(), option::of(site()), stack(), doing())
            .prop_map(|(lock, holder, site, stack, doing)| Action::Holds(Hold { lock, holder, site, stack, doing })),
        any::<bool>().prop_map(|ends| Action::Exit { ends }),
        (tid(), number()).prop_map(|(thread, wait)| Action::Join { thread, wait: Nanos(wait) }),
    ]
    .boxed()
}

/// Text as it is once it was read.
fn text() -> BoxedStrategy<String> {
    ".{0,15}".prop_map(crate::untrusted::cleaned).boxed()
}

fn totals() -> BoxedStrategy<ThreadTotals> {
    let who = (tid(), process(), any::<bool>());
    (number(), who, text(), number(), number(), number(), number(), number())
        .prop_map(
            |(time, (tid, process, ends_process), comm, acquisitions, wait, kernel_wait, held_sum, held_union)| {
                ThreadTotals {
                    time: Time(time),
                    tid,
                    process,
                    comm,
                    acquisitions,
                    wait: Nanos(wait),
                    kernel_wait: Nanos(kernel_wait),
                    held_sum: Nanos(held_sum),
                    held_union: Nanos(held_union),
                    ends_process,
                }
            },
        )
        .boxed()
}

fn wake() -> BoxedStrategy<Wake> {
    // The largest number stands for an unknown one.
    let since = option::of(number().prop_map(|since| Nanos(since.min(u64::MAX - 1))));
    (number(), since, lock(), option::of(site()), process(), tid(), any::<u32>(), stack())
        .prop_map(|(time, since, word, site, process, tid, woken, stack)| Wake {
            watched: Nanos(time / 3),
            time: Time(time),
            since,
            word,
            site,
            process,
            tid,
            woken,
            stack,
        })
        .boxed()
}

pub(super) fn event() -> BoxedStrategy<Event> {
    prop_oneof![
        6 => section().prop_map(Event::Section),
        2 => futex_wait().prop_map(Event::FutexWait),
        2 => wake().prop_map(Event::Wake),
        1 => (number(), process(), any::<u32>(), number(), text()).prop_map(|(time, process, pid, start, comm)| {
            Event::Process(ProcessSeen { time: Time(time), process, pid, start: Time(start), comm })
        }),
        2 => (number(), number(), number(), process(), tid(), off_reason(), stack()).prop_map(
            |(end, off, runnable, process, tid, reason, stack)| Event::OffCpu(OffCpu {
                end: Time(end), off: Nanos(off), runnable: Nanos(runnable), process, tid, reason, stack,
            })
        ),
        1 => totals().prop_map(Event::ThreadExit),
        6 => (number(), tid(), process(), action(), any::<bool>()).prop_map(|(time, tid, process, action, ordered)| {
            let op = Op { time: Time(time), tid, process, action };
            if ordered { Event::Op(op) } else { Event::Step(op) }
        }),
    ]
    .boxed()
}

fn sums() -> BoxedStrategy<KernelSums> {
    (lock(), site(), via(), vec(number(), 13), any::<u32>(), option::of(0i32..9), vec(number(), 36), vec(number(), 36))
        .prop_map(|(lock, site, via, numbers, kind, stack, waits, holds)| {
            let mut n = numbers.into_iter();
            let mut next = || n.next().unwrap();
            let sums = Sums {
                first_ns: next(),
                acquisitions: next(),
                contended: next(),
                try_failures: next(),
                timeouts: next(),
                timeout_ns: next(),
                errors: next(),
                wakes: next(),
                wakes_of_none: next(),
                wait_ns: next(),
                wait_max_ns: next(),
                hold_ns: next(),
                hold_max_ns: next(),
                kind,
                stack: stack.unwrap_or(-1),
                wait_hist: waits.try_into().unwrap(),
                hold_hist: holds.try_into().unwrap(),
                ..Sums::EMPTY
            };
            KernelSums { lock, site, via, sums }
        })
        .boxed()
}

fn counts() -> impl Strategy<Value = Counts> {
    vec(number(), 12).prop_map(|numbers| {
        let (times, counts) = numbers.split_at(7);
        Counts {
            on_cpu_ns: times[0],
            preempted_ns: times[1],
            counted_ns: times[2..].try_into().unwrap(),
            counts: counts.try_into().unwrap(),
        }
    })
}

fn counted_site() -> BoxedStrategy<CountedSite> {
    let histograms = (vec(number(), 36), vec(number(), 36), vec(number(), 36));
    (lock(), site(), via(), vec(number(), 3), (counts(), counts(), counts()), histograms)
        .prop_map(|(lock, site, via, numbers, (hold, wait, release), (holds, waits, releases))| CountedSite {
            lock,
            site,
            via,
            counts: SiteCounts {
                sections: numbers[0],
                waits: numbers[1],
                releases: numbers[2],
                hold,
                wait,
                release,
                hold_hist: holds.try_into().unwrap(),
                wait_hist: waits.try_into().unwrap(),
                release_hist: releases.try_into().unwrap(),
            },
        })
        .boxed()
}

fn counted_thread() -> BoxedStrategy<ThreadCounts> {
    (tid(), process(), counts(), vec(number(), 6))
        .prop_map(|(tid, process, execution, numbers)| ThreadCounts {
            tid: tid.0,
            process: process.0,
            threads: numbers[0],
            execution,
            wait: numbers[1],
            release: numbers[2],
            outside: numbers[3],
            held_union: numbers[4],
            held_sum: numbers[5],
        })
        .boxed()
}

fn open_wait() -> BoxedStrategy<OpenWait> {
    let flags = (any::<Option<u32>>(), any::<bool>());
    (tid(), lock(), option::of(site()), number(), option::of(tid()), stack(), via(), flags)
        .prop_map(|(tid, lock, site, since, owner, stack, via, (expected, before_start))| OpenWait {
            tid,
            lock,
            site,
            since: Time(since),
            owner,
            stack,
            via,
            expected,
            before_start,
        })
        .boxed()
}

fn deadlock() -> BoxedStrategy<Deadlock> {
    let blocked = (tid(), lock(), option::of(site()), number(), stack())
        .prop_map(|(tid, lock, site, since, stack)| Blocked { tid, lock, site, since: Time(since), stack });
    let marks = (any::<bool>(), any::<bool>(), any::<bool>());
    (number(), number(), option::of(number()), vec(blocked, 0..4), marks)
        .prop_map(|(found, seen, ended, members, (before_start, exited, owned))| Deadlock {
            found: Time(found),
            seen: Time(seen),
            ended: ended.map(Time),
            exited,
            members,
            before_start,
            owned,
        })
        .boxed()
}

pub(super) fn estimates() -> BoxedStrategy<Estimates> {
    let interval = || (0.0..1e12).prop_map(|value| Interval { value, low: value / 2.0, high: value * 3.0 });
    let figures = || {
        let five = (interval(), interval(), interval(), interval(), interval());
        five.prop_map(|(acquisitions, hold_mean_ns, hold_p99_ns, contended_share, wait_ns)| Figures {
            acquisitions,
            hold_mean_ns,
            hold_p99_ns,
            contended_share,
            wait_ns,
        })
    };
    let subject = prop_oneof![
        (lock(), site(), via()).prop_map(|(lock, site, via)| Subject::Row(lock, site, via)),
        lock().prop_map(Subject::Lock),
        site().prop_map(Subject::Site),
    ];
    let coverage =
        (process(), number(), number(), any::<bool>(), 1.0..1e4).prop_map(|(process, time, windows, whole, factor)| {
            Coverage {
                process,
                time: Nanos(time),
                own_cpu: Nanos(time / 2),
                windows,
                whole,
                factor,
                hold_factor: factor / 2.0,
                ..Coverage::default()
            }
        });
    (option::of(0.0..1.0), vec(coverage, 0..4), vec((subject, figures()), 0..9), number())
        .prop_map(|(budget, processes, figures, beyond)| Estimates {
            budget,
            hold_bias_ns: Interval { value: 900.0, low: 540.0, high: 1_350.0 },
            processes,
            figures,
            beyond,
            complete: true,
        })
        .boxed()
}

pub(super) fn harvest() -> BoxedStrategy<Harvest> {
    let order = (lock(), site(), lock(), site(), tid(), any::<bool>(), number()).prop_map(
        |(outer, outer_site, inner, inner_site, tid, others, count)| LockOrder {
            outer,
            outer_site,
            inner,
            inner_site,
            tid,
            others,
            count,
        },
    );
    let ways = (tid(), process(), option::of(lock()), option::of(lock()), vec(number(), 6), any::<u128>());
    let transition = ways.prop_map(|(tid, process, from, to, numbers, squares)| Transition {
        process,
        tid,
        from,
        to,
        first: Time(numbers[0]),
        count: numbers[1],
        local: Nanos(numbers[2]),
        visits: numbers[3],
        hold: Nanos(numbers[4]),
        cut: Nanos(numbers[5]),
        squares,
    });
    let orders = (vec(order, 0..4), vec(transition, 0..4), btree_set((process(), tid()), 0..4));
    let rows = (vec(sums(), 0..6), vec(totals(), 0..6), vec(open_wait(), 0..4), orders);
    let counted = (vec(counted_site(), 0..4), vec(counted_thread(), 0..4));
    (rows, counted, vec(deadlock(), 0..3), vec((small().prop_map(StackId), vec(number(), 0..9)), 0..4))
        .prop_map(
            |((sums, threads, open_waits, (orders, transitions, bystanders)), (sites, counting), deadlocks, stacks)| {
                Harvest {
                    sums,
                    counted: Counted { events: Vec::new(), sites, threads: counting },
                    threads,
                    open_waits,
                    orders,
                    transitions,
                    deadlocks,
                    stacks: stacks.into_iter().collect(),
                    bystanders: bystanders.into_iter().collect(),
                    ..Harvest::default()
                }
            },
        )
        .boxed()
}
