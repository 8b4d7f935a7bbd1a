use super::explode::Item;
use super::*;
use crate::event::{Event, OffCpu, Outcome, Section, ThreadTotals, Via, flag};
use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, OffReason, Op, Released};
use crate::units::{Nanos, Time};
use proptest::prelude::*;
use std::collections::HashMap;

const PROCESS: Process = Process(1);

fn section(tid: u32, addr: u64, [attempt, acquire, release]: [u64; 3]) -> Section {
    Section {
        end: Time(release),
        wait: Nanos(acquire - attempt),
        hold: Nanos(release - acquire),
        lock: Lock { process: PROCESS, addr },
        site: Site { process: PROCESS, addr: 1 },
        tid: Tid(tid),
        process: PROCESS,
        owner: None,
        waker: None,
        stack: None,
        flags: if acquire > attempt { flag::CONTENDED } else { 0 },
        via: Via::Lock,
        outcome: Outcome::Released,
        mutex_kind: 0,
    }
}

fn sorted(events: &[Event]) -> Vec<Op> {
    let mut sorter = Sorter::default();
    events.iter().for_each(|event| sorter.push(event));
    let ops = sorter.finish().collect();
    assert_eq!(sorter.late(), 0);
    ops
}

/// Steps as short words: time, what, thread.
fn words(ops: &[Op]) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Attempt(a) => format!("attempt {}", a.lock.addr),
        Action::Acquire { lock, .. } => format!("acquire {}", lock.addr),
        Action::Release { lock, .. } => format!("release {}", lock.addr),
        Action::Fail { lock, .. } => format!("fail {}", lock.addr),
        Action::Off { reason, .. } => format!("off {reason:?}"),
        other => format!("{other:?}"),
    };
    ops.iter().map(|op| format!("{} T{} {}", op.time.0, op.tid.0, word(&op.action))).collect()
}

#[test]
fn a_long_section_begins_where_it_began() {
    let (outer, inner) = (section(1, 5, [0, 2, 90]), section(1, 6, [10, 10, 20]));
    let ops = sorted(&[Event::Section(inner), Event::Section(outer)]);
    assert_eq!(
        words(&ops),
        [
            "0 T1 attempt 5",
            "2 T1 acquire 5",
            "10 T1 attempt 6",
            "10 T1 acquire 6",
            "20 T1 release 6",
            "90 T1 release 5"
        ]
    );
    let Action::Attempt(a) = ops[0].action else { panic!("an attempt") };
    assert_eq!((a.contended, a.shared), (Some(true), false));
}

#[test]
fn at_equal_times_a_lock_is_released_before_it_is_asked_for_and_that_before_it_is_acquired() {
    let events =
        [section(3, 5, [3, 10, 20]), section(2, 5, [10, 20, 30]), section(1, 5, [0, 0, 10])].map(Event::Section);
    let ops = words(&sorted(&events));
    assert_eq!(ops[3..6], ["10 T1 release 5", "10 T2 attempt 5", "10 T3 acquire 5"]);
}

#[test]
fn sections_without_extent_are_whole_and_hand_over() {
    // T2 gets the lock from T1 and gives it to T3 at the same time; T4 passes meanwhile.
    let events = [
        section(1, 5, [0, 0, 10]),
        section(2, 5, [3, 10, 10]),
        section(3, 5, [4, 10, 20]),
        section(4, 5, [10, 10, 10]),
    ]
    .map(Event::Section);
    let ops = words(&sorted(&events));
    assert_eq!(
        ops[4..],
        [
            "10 T1 release 5",
            "10 T4 attempt 5",
            "10 T2 acquire 5",
            "10 T2 release 5",
            "10 T4 acquire 5",
            "10 T4 release 5",
            "10 T3 acquire 5",
            "20 T3 release 5"
        ]
    );
}

#[test]
fn a_thread_does_one_thing_after_the_other() {
    // At 10, T1 gets lock 5, gives back lock 6, and takes 7; T2 gets 6 from it.
    let events = [
        section(1, 5, [2, 10, 30]),
        section(1, 6, [0, 0, 10]),
        section(1, 7, [10, 10, 20]),
        section(2, 6, [1, 10, 40]),
    ]
    .map(Event::Section);
    let ops = words(&sorted(&events));
    assert_eq!(
        ops[4..],
        [
            "10 T1 acquire 5",
            "10 T1 release 6",
            "10 T1 attempt 7",
            "10 T1 acquire 7",
            "10 T2 acquire 6",
            "20 T1 release 7",
            "30 T1 release 5",
            "40 T2 release 6"
        ]
    );
}

#[test]
fn failed_attempts_condition_waits_absences_and_exits_are_steps() {
    let failed = Section { outcome: Outcome::TimedOut, hold: Nanos(0), wait: Nanos(8), ..section(1, 5, [0, 8, 8]) };
    let idle = Section { via: Via::CondWait, ..section(1, 6, [9, 20, 20]) };
    let off = |end, off, runnable, reason| OffCpu {
        end: Time(end),
        off: Nanos(off),
        runnable: Nanos(runnable),
        process: PROCESS,
        tid: Tid(1),
        reason,
        stack: None,
    };
    let exit = ThreadTotals {
        time: Time(70),
        tid: Tid(1),
        process: PROCESS,
        comm: String::new(),
        acquisitions: 0,
        wait: Nanos(0),
        kernel_wait: Nanos(0),
        held_sum: Nanos(0),
        held_union: Nanos(0),
        ends_process: false,
    };
    let last = Section { outcome: Outcome::ExitedHolding, ..section(1, 7, [65, 65, 70]) };
    let ops = sorted(&[
        Event::ThreadExit(exit),
        Event::Section(failed),
        Event::Section(idle),
        Event::OffCpu(off(40, 15, 5, OffReason::Blocked)),
        Event::OffCpu(off(50, 10, 10, OffReason::Runnable)),
        Event::OffCpu(off(60, 5, 0, OffReason::Sleeping)),
        Event::Section(last),
    ]);
    let words = words(&ops);
    assert_eq!(words[..2], ["0 T1 attempt 5", "8 T1 fail 5"]);
    assert!(matches!((ops[2].action, ops[3].action), (Action::CondWait { .. }, Action::CondWake { .. })));
    assert_eq!(
        words[4..11],
        [
            "25 T1 off Blocked",
            "35 T1 off Runnable",
            "40 T1 On",
            "40 T1 off Runnable",
            "50 T1 On",
            "55 T1 off Sleeping",
            "60 T1 On"
        ]
    );
    assert!(matches!(ops[13].action, Action::Release { how: Released::ExitedHolding, .. }));
    assert_eq!(words[14..], ["70 T1 Exit { ends: false }"]);
}

#[test]
fn what_comes_too_late_is_counted_and_moved() {
    let mut sorter = Sorter::new(8);
    let mut ops = Vec::new();
    for n in 1..=20 {
        sorter.push(&Event::Section(section(1, 5, [n * 10, n * 10 + 1, n * 10 + 5])));
        ops.extend(sorter.pop_ready());
    }
    assert_eq!(sorter.late(), 0);
    sorter.push(&Event::Section(section(2, 6, [1, 2, 250])));
    ops.extend(sorter.finish());
    assert_eq!((sorter.late(), ops.len()), (1, 63));
    assert!(ops.is_sorted_by_key(|op| op.time));
    let of_late: Vec<String> = words(&ops).into_iter().filter(|word| word.contains("T2")).collect();
    let [attempt, acquire, release] = &of_late[..] else { panic!("three steps") };
    assert!(attempt.ends_with("attempt 6") && acquire.ends_with("acquire 6") && release == "250 T2 release 6");
}

#[test]
fn absences_that_come_too_late_are_counted_apart() {
    let mut sorter = Sorter::default();
    sorter.push(&Event::Section(section(1, 5, [90, 91, 95])));
    sorter.advance(Time(100));
    assert_eq!(sorter.pop_ready().count(), 3);
    let off = |end, off| OffCpu {
        end: Time(end),
        off: Nanos(off),
        runnable: Nanos(0),
        process: PROCESS,
        tid: Tid(2),
        reason: OffReason::Sleeping,
        stack: None,
    };
    sorter.push(&Event::OffCpu(off(40, 20)));
    sorter.push(&Event::OffCpu(off(120, 10)));
    assert_eq!((sorter.late(), sorter.late_absences()), (0, 1));
    assert!(sorter.finish().map(|op| op.time.0).eq([95, 95, 110, 120]));
}

#[test]
fn steps_pass_as_they_come() {
    let step = |time, tid| Event::Op(Op { time: Time(time), tid: Tid(tid), process: PROCESS, action: Action::On });
    let ops = sorted(&[step(5, 2), step(5, 1), Event::Section(section(3, 5, [6, 7, 9])), step(7, 4), step(8, 1)]);
    assert_eq!(
        words(&ops),
        ["5 T2 On", "5 T1 On", "6 T3 attempt 5", "7 T3 acquire 5", "7 T4 On", "8 T1 On", "9 T3 release 5"]
    );
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    // Few different times, so that there are many ties.
    let times = (0u64..40, 0u64..3, 0u64..3);
    let section = (1u32..5, 1u64..4, times, 0u8..4).prop_map(|(tid, addr, (attempt, wait, hold), outcome)| {
        let acquired = outcome < 2;
        let hold = if acquired { hold } else { 0 };
        let outcome =
            [Outcome::Released, Outcome::CondReleased, Outcome::TryFailed, Outcome::TimedOut][usize::from(outcome)];
        Event::Section(Section { outcome, ..section(tid, addr, [attempt, attempt + wait, attempt + wait + hold]) })
    });
    let off = (1u32..5, 0u64..40, 0u64..4, 0u64..4).prop_map(|(tid, begin, off, runnable)| {
        Event::OffCpu(OffCpu {
            end: Time(begin + off),
            off: Nanos(off),
            runnable: Nanos(runnable),
            process: PROCESS,
            tid: Tid(tid),
            reason: OffReason::Blocked,
            stack: None,
        })
    });
    prop::collection::vec(prop_oneof![4 => section, 1 => off], 0..60)
}

/// How many steps of which sort.
fn census(ops: &[Op]) -> HashMap<String, usize> {
    let mut census = HashMap::new();
    for mut word in words(ops) {
        word.drain(..word.find(' ').unwrap_or(0));
        *census.entry(word).or_default() += 1;
    }
    census
}

proptest! {
    #[test]
    fn the_order_of_delivery_does_not_matter(events in any_events(), seed: u64) {
        let ops = sorted(&events);
        prop_assert!(ops.is_sorted_by_key(|op| op.time));
        let mut shuffled = events.clone();
        let mut state = seed | 1;
        for i in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(i, (state >> 33) as usize % (i + 1));
        }
        prop_assert_eq!(sorted(&shuffled), ops);
    }

    #[test]
    fn what_no_earlier_step_can_precede_goes_on_at_once(events in any_events(), ops in prop::collection::vec(0u64..50, 0..30)) {
        let first = |event: &Event| match event {
            Event::Section(s) => s.attempt(),
            Event::OffCpu(o) => o.end - o.off,
            event => event.time(),
        };
        let mut events = events;
        let op = |time| Event::Op(Op { time: Time(time), tid: Tid(9), process: PROCESS, action: Action::On });
        events.extend(ops.into_iter().map(op));
        events.sort_by_key(Event::time);
        let mut sorter = Sorter::default();
        let mut ops = Vec::new();
        for (n, event) in events.iter().enumerate() {
            sorter.push(event);
            let Some(watermark) = events[n + 1..].iter().map(first).min() else { break };
            sorter.advance(watermark);
            ops.extend(sorter.pop_ready());
            let steps = |event: &Event| Item::of(event).map_or([Some(event.time()), None, None], |item| item.times());
            let after = events[..=n].iter().flat_map(steps).flatten().filter(|&time| time >= watermark).count();
            prop_assert_eq!(sorter.held_back(), after);
        }
        ops.extend(sorter.finish());
        prop_assert_eq!((sorter.late(), sorter.held_back()), (0, 0));
        prop_assert_eq!(ops, sorted(&events));
    }

    #[test]
    fn nothing_is_lost_and_each_section_stays_in_order_however_small_the_buffer(
        events in any_events(),
        capacity in 4usize..64,
    ) {
        let mut sorter = Sorter::new(capacity);
        let mut ops = Vec::new();
        for event in &events {
            sorter.push(event);
            ops.extend(sorter.pop_ready());
        }
        ops.extend(sorter.finish());
        prop_assert!(ops.is_sorted_by_key(|op| op.time));
        prop_assert_eq!(census(&ops), census(&sorted(&events)));
    }

    #[test]
    fn a_section_alone_among_its_threads_keeps_its_order(times in prop::collection::vec((0u64..6, 0u64..2, 0u64..2), 1..20)) {
        // Each of its own thread and lock, so that its steps can be told from the others'.
        let events: Vec<Event> = (1..)
            .zip(&times)
            .map(|(n, &(t, wait, hold))| Event::Section(section(n, n.into(), [t, t + wait, t + wait + hold])))
            .collect();
        let words = words(&sorted(&events));
        for n in 1..=times.len() {
            let own: Vec<&str> =
                words.iter().filter(|w| w.contains(&format!(" T{n} "))).filter_map(|w| w.split(' ').nth(2)).collect();
            prop_assert_eq!(own, ["attempt", "acquire", "release"]);
        }
    }
}

#[test]
fn steps_out_of_order_find_their_places_within_the_window() {
    let exit = |time: u64, tid| Op {
        time: Time(time),
        tid: Tid(tid),
        process: Process(1),
        action: Action::Exit { ends: false },
    };
    let mut sorter = Sorter::default();
    for op in [exit(10, 1), exit(30, 2), exit(20, 3), exit(30, 4), exit(20, 5)] {
        sorter.push(&Event::Op(op));
    }
    assert_eq!(sorter.pop_ready().count(), 0);
    let order: Vec<(u64, u32)> = sorter.finish().map(|op| (op.time.0, op.tid.0)).collect();
    assert_eq!((order, sorter.late()), (vec![(10, 1), (20, 3), (20, 5), (30, 2), (30, 4)], 0));
    let mut sorter = Sorter::default();
    let mut ops = Vec::new();
    for time in (100..).take(sorter::WINDOW + 10) {
        sorter.push(&Event::Op(exit(time, 1)));
        ops.extend(sorter.pop_ready());
    }
    sorter.push(&Event::Op(exit(5, 2)));
    ops.extend(sorter.finish());
    assert_eq!(sorter.late(), 1);
    assert_eq!(ops.len(), sorter::WINDOW + 11);
    assert!(ops.is_sorted_by_key(|op| op.time));
}
