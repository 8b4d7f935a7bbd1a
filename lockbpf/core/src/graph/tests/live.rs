//! What live sources tell besides: owner words, wakers, whether a thread waited; stamps that overlap a little.

use super::*;
use crate::event::{Outcome, Section, Wake, flag};
use lockbpf_common::kind::Via;

fn told(time: u64, tid: u32, owner: Option<u32>, contended: bool) -> Op {
    let owner = owner.map(Tid);
    op(time, tid, Action::Attempt(Attempt { owner, contended: Some(contended), ..asks(1, u64::from(tid)) }))
}

#[test]
fn an_unseen_holder_is_named_by_the_owner_word() {
    let waits = |owner, waker| {
        let got = op(130, 2, Action::Acquire { lock: lock(1), waker });
        findings(&[told(50, 2, owner, true), got, release(140, 2, 1)])
    };
    let f = waits(None, None);
    assert_eq!((f.locks[&lock(1)].unattributed, f.locks[&lock(1)].waits.count), (Nanos(80), 1));
    assert_eq!(cause(&waits(None, Some(Tid(8))), 1, Who::Thread(Tid(8))), 80);
    let f = waits(Some(9), Some(Tid(8)));
    assert_eq!(cause(&f, 1, Who::Thread(Tid(9))), 80);
    assert!(detail(&f).edges.iter().all(|e| e.inferred));
    assert_eq!(detail(&f).critical_components, [[1, 2]]);
}

#[test]
fn an_unseen_holder_is_placed_by_its_wakes() {
    let waits = |wakes: &[(u32, u64, u64)]| {
        let mut graph = WaitGraph::new(Options::default());
        graph.op(&told(50, 2, Some(9), true), &mut ());
        for &(tid, word, site) in wakes {
            let at = Site { process: Process(1), addr: site };
            graph.event(&Event::Wake(Wake {
                time: Time(129),
                since: None,
                watched: Nanos(0),
                word: Lock { addr: lock(1).addr + word, ..lock(1) },
                site: Some(at),
                process: Process(1),
                tid: Tid(tid),
                woken: 1,
                stack: None,
            }));
        }
        graph.op(&op(130, 2, Action::Acquire { lock: lock(1), waker: None }), &mut ());
        graph.op(&release(140, 2, 1), &mut ());
        graph.finish(Time(140), &mut ())
    };
    let at = |addr| Who::Released { lock: lock(1), site: Site { process: Process(1), addr }, stack: None };
    let f = waits(&[(9, 8, 0x70), (9, 0, 0x70), (9, 0x40, 0x80), (8, 0, 0x90)]);
    assert_eq!(cause(&f, 1, at(0x70)), 80);
    assert_eq!(f.sites[&Site { process: Process(1), addr: 0x70 }].apwt, Nanos(80));
    // One place of several is not known to be that of this section.
    assert_eq!(cause(&waits(&[(9, 0, 0x70), (9, 0, 0x80)]), 1, Who::Thread(Tid(9))), 80);
    assert_eq!(cause(&waits(&[(8, 0, 0x70)]), 1, Who::Thread(Tid(9))), 80);
}

#[test]
fn what_is_placed_is_charged_once() {
    let site = |addr| Site { process: Process(1), addr };
    let wait = Section {
        process: Process(1),
        tid: Tid(2),
        lock: lock(1),
        site: site(0x60),
        via: Via::RustLock,
        outcome: Outcome::Unseen,
        end: Time(130),
        wait: Nanos(80),
        hold: Nanos(0),
        owner: None,
        waker: Some(Tid(9)),
        stack: None,
        flags: flag::CONTENDED | flag::SLEPT,
        mutex_kind: 0,
    };
    let wake = |word, time| Wake {
        time: Time(time),
        since: None,
        watched: Nanos(0),
        word,
        site: Some(site(0x70)),
        process: Process(1),
        tid: Tid(9),
        woken: 1,
        stack: None,
    };
    let mut graph = WaitGraph::new(Options::default());
    graph.op(&told(50, 2, Some(9), true), &mut ());
    graph.event(&Event::Wake(wake(lock(1), 129)));
    graph.op(&op(130, 2, Action::Acquire { lock: lock(1), waker: Some(Tid(9)) }), &mut ());
    graph.event(&Event::Section(wait));
    graph.op(&op(130, 2, Action::Release { lock: lock(1), how: Released::Unseen }), &mut ());
    let f = graph.finish(Time(140), &mut ());
    let told: Nanos =
        f.locks[&lock(1)].holders.iter().filter(|h| h.who.site() == Some(site(0x70))).map(|h| h.wait).sum();
    assert_eq!((told, f.sites[&site(0x70)].apwt), (Nanos(80), Nanos(80)));
}

#[test]
fn the_owner_word_bridges_late_and_early_stamps() {
    // It had the lock already: its acquire is stamped late.
    let f = findings(&[
        told(50, 2, Some(3), true),
        told(55, 3, None, false),
        acquire(60, 3, 1),
        release(90, 3, 1),
        acquire(100, 2, 1),
        release(110, 2, 1),
    ]);
    assert_eq!(cause(&f, 1, section(1, 3)), 50);
    // It had it still: its release is stamped early.
    let f = findings(&[
        told(10, 1, None, false),
        acquire(10, 1, 1),
        release(49, 1, 1),
        told(50, 2, Some(1), true),
        acquire(100, 2, 1),
        release(110, 2, 1),
    ]);
    assert_eq!(cause(&f, 1, section(1, 1)), 50);
    assert_eq!(f.locks[&lock(1)].holders[0].victims, 1);
}

#[test]
fn stamps_that_overlap_are_counted_apart() {
    // Contended, but without a sleep: the acquire is stamped at the attempt, before the holder's release.
    let f = findings(&[
        told(10, 1, None, false),
        acquire(10, 1, 1),
        told(20, 3, Some(1), true),
        told(30, 2, Some(1), true),
        acquire(30, 2, 1),
        release(31, 1, 1),
        release(40, 2, 1),
        acquire(41, 3, 1),
        release(50, 3, 1),
    ]);
    assert_eq!((f.impossible.len(), f.cut.get("overlap")), (0, Some(&1)));
    assert_eq!((cause(&f, 1, section(1, 1)), cause(&f, 1, section(1, 2))), (10, 11));
}

#[test]
fn what_the_source_calls_uncontended_has_not_waited() {
    let f = findings(&[
        told(10, 1, None, false),
        acquire(10, 1, 1),
        told(20, 2, None, false),
        fails(25, 2, 1, Failure::TryFailed),
        release(31, 1, 1),
    ]);
    assert!(f.locks.is_empty() && edges(&f).is_empty());
}

#[test]
fn sites_and_threads_beyond_the_limit_share_a_row() {
    let mut ops = Vec::new();
    for i in 0..1_000u64 {
        let t = i * 100;
        ops.extend([attempt(t, 1, 1, i), acquire(t, 1, 1), attempt(t + 10, 2, 1, i), release(t + 50, 1, 1)]);
        ops.extend([acquire(t + 60, 2, 1), release(t + 70, 2, 1)]);
        let asked = Attempt { owner: Some(Tid(10_000 + i as u32)), contended: Some(true), ..asks(1, i) };
        ops.extend([op(t + 80, 3, Action::Attempt(asked)), acquire(t + 90, 3, 1), release(t + 95, 3, 1)]);
    }
    let f = findings(&ops);
    let shares = &f.locks[&lock(1)];
    assert_eq!((shares.waiters.len(), shares.holders.len()), (129, 193));
    assert_eq!(shares.waits.count, 2_000);
    assert_eq!((0..1_000).map(|i| apwt(&f, i)).sum::<u64>(), 50_000);
}

#[test]
fn memory_is_bounded_by_what_lives() {
    let mut graph = WaitGraph::new(Options::default());
    for i in 0..200_000u64 {
        let (tid, addr, t) = (i as u32 + 10, i, i * 100);
        let ops =
            [attempt(t, tid, addr, 1), acquire(t, tid, addr), attempt(t + 10, 1, addr, 2), release(t + 50, tid, addr)];
        let ends = [acquire(t + 60, 1, addr), release(t + 70, 1, addr), exits(t + 80, tid)];
        ops.iter().chain(&ends).for_each(|op| graph.op(op, &mut ()));
    }
    assert!(graph.engine.locks.len() <= 65_537 && graph.engine.sections.len() <= 4, "{}", graph.engine.locks.len());
    assert!(graph.engine.comps.live() <= 65_537, "{}", graph.engine.comps.live());
    let f = graph.finish(Time(0), &mut ());
    assert_eq!((f.locks.len(), f.beyond.count), (32_768, 200_000 - 32_768));
    assert_eq!(apwt(&f, 1), 50 * 200_000);
}

/// What is given out is forgotten; what stays is the section that each lock was released by last.
#[test]
fn what_is_told_is_not_kept() {
    let mut graph = WaitGraph::new(Options { told: true, ..Options::default() });
    let (mut told, mut most) = (0, 0);
    for i in 0..20_000u64 {
        let (t, tid, addr) = (i * 100, i as u32 % 7 + 10, i % 5);
        let ops = [attempt(t, tid, addr, 1), acquire(t, tid, addr), attempt(t + 10, 1, addr, 2)];
        let ends = [release(t + 50, tid, addr), acquire(t + 60, 1, addr), release(t + 70, 1, addr)];
        ops.iter().chain(&ends).for_each(|op| graph.op(op, &mut ()));
        told += graph.told().len();
        most = most.max(graph.engine.keeper.as_ref().map_or(0, crate::graph::detail::Keeper::kept));
    }
    assert!(most <= 5 + 2, "{most}");
    assert_eq!(told + graph.finish(Time(0), &mut ()).told.len(), 40_000);
}

#[test]
fn a_queue_of_five_hundred() {
    let threads = 500u64;
    let mut ops: Vec<Op> = (0..threads).map(|t| attempt(t, t as u32, 1, t % 4)).collect();
    ops.insert(1, acquire(0, 0, 1));
    for turn in 0..20_000u64 {
        let (t, tid) = (1_000 + 10 * turn, (turn % threads) as u32);
        ops.extend([release(t, tid, 1), attempt(t, tid, 1, turn % 4), acquire(t, ((turn + 1) % threads) as u32, 1)]);
    }
    let f = findings_of(&ops, Options::default());
    let shares = &f.locks[&lock(1)];
    assert_eq!(shares.waits.count - shares.open.count, 20_000);
    assert_eq!((shares.open.count, shares.unattributed), (threads - 1, Nanos(0)));
    let causes = [0, 1, 2, 3].map(|s| cause(&f, 1, section(1, s)) as f64 / shares.waits.time.0 as f64);
    assert!(causes.iter().all(|share| (share - 0.25).abs() < 0.01), "{causes:?}");
}

#[test]
fn futex_words_of_mutexes_are_told_from_others() {
    use crate::event::{Event, FutexResult, Weight};
    use crate::id::StackId;
    let wait = |expected, owner, result| FutexWait {
        end: Time(1_000),
        wait: Nanos(100),
        word: lock(1),
        site: Some(site(7)),
        tid: Tid(2),
        expected,
        owner: Some(Tid(owner)),
        waker: Some(Tid(3)),
        stack: None,
        result,
        weight: Weight::default(),
    };
    let of = |waits: &[FutexWait]| {
        let mut graph = WaitGraph::default();
        waits.iter().for_each(|&w| graph.event(&Event::FutexWait(w)));
        graph.finish(Time(0), &mut ()).words.remove(&lock(1)).unwrap()
    };
    let word = of(&[wait(2, 3, FutexResult::Slept), wait(2, 3, FutexResult::Again)]);
    assert!(word.looks_like_mutex());
    assert_eq!((word.slept, word.again, word.waits), (1, 1, Tally { count: 1, time: Nanos(100) }));
    for (expected, owner) in [(0, 3), (2, 0x5555_0000), (2, 2)] {
        assert!(!of(&[wait(expected, owner, FutexResult::Slept)]).looks_like_mutex(), "{expected} {owner}");
    }
    // Locks of Rust's library name no owner.
    let unowned = FutexWait { owner: None, ..wait(2, 0, FutexResult::Slept) };
    assert!(of(&[unowned; 2]).looks_like_mutex() && !of(&[FutexWait { waker: None, ..unowned }; 2]).looks_like_mutex());
    // One that stands for eight, its stack for 32, beside one that stands for itself.
    let heavy = FutexWait {
        stack: Some(StackId(5)),
        tid: Tid(4),
        weight: Weight { waits: 3, stacks: 2 },
        ..wait(2, 3, FutexResult::Slept)
    };
    let mut word = of(&[heavy, wait(2, 9, FutexResult::Slept)]);
    let tally = |count, ns| Tally { count, time: Nanos(ns) };
    assert!(word.is_thinned() && word.looks_like_mutex());
    assert_eq!((word.slept, word.waits, word.owners.total()), (9, tally(9, 900), tally(9, 900)));
    assert_eq!(word.threads.top(), [(Tid(4), tally(8, 800)), (Tid(2), tally(1, 100))]);
    assert_eq!(word.sites[0].stacks.top(), [(StackId(5), tally(32, 3_200))]);
    // There cannot have been more than were counted; fewer are an estimate.
    word.settle(tally(20, 5_000));
    assert_eq!((word.slept, word.waits), (9, tally(9, 900)));
    word.settle(tally(6, 450));
    assert_eq!((word.slept, word.waits, word.sites[0].waits), (6, tally(6, 450), tally(6, 450)));
    assert_eq!(word.threads.top(), [(Tid(4), tally(5, 400)), (Tid(2), tally(0, 50))]);
}
