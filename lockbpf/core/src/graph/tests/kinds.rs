//! Kinds of locks, ways of waiting, and recordings that begin or end in the middle.

use super::*;
use EdgeKind::{Direct, Indirect, Nested};

fn inferred(f: &Findings) -> Vec<bool> {
    detail(f).edges.iter().map(|e| e.inferred).collect()
}

#[test]
fn readers_share_the_blame() {
    use LockKind::Rwlock;
    let f = findings(&[
        attempt_of(0, 1, 1, 1, Rwlock, true),
        acquire(0, 1, 1),
        attempt_of(0, 2, 1, 2, Rwlock, true),
        acquire(0, 2, 1),
        attempt_of(10, 3, 1, 3, Rwlock, false),
        release(21, 1, 1),
        release(30, 2, 1),
        acquire(32, 3, 1),
        release(40, 3, 1),
    ]);
    // 11 ns for two: 6 and 5; then the second alone, and the hand-off.
    assert_eq!(edges(&f), [(1, 3, 6, Direct), (2, 3, 5 + 9 + 2, Direct)]);
    assert_eq!(inferred(&f), [true, true]);
    assert_eq!(f.locks[&lock(1)].waits.count, 1);
}

#[test]
fn a_semaphore_blames_who_took_the_last_permit() {
    use LockKind::Semaphore;
    let ask = |t, tid, at| attempt_of(t, tid, 1, at, Semaphore, false);
    let f = findings(&[
        ask(0, 1, 1),
        acquire(0, 1, 1),
        ask(2, 2, 2),
        acquire(2, 2, 1),
        ask(5, 3, 3),
        // The record of the release comes late: the other thread took the lock's only permit after it.
        release(9, 1, 1),
        acquire(10, 3, 1),
        release(20, 3, 1),
        release(21, 2, 1),
    ]);
    assert_eq!(edges(&f), [(2, 3, 5, Direct)]);
    assert_eq!(inferred(&f), [true]);
    assert_eq!(f.impossible, BTreeMap::new());
}

/// Two hold permits at once for certain if the one that took its first did something else before it gave it back.
#[test]
fn who_holds_permits_at_once_shares_the_blame() {
    let ask = |t, tid, at| attempt_of(t, tid, 1, at, LockKind::Semaphore, false);
    let f = findings(&[
        ask(0, 1, 1),
        acquire(0, 1, 1),
        ask(2, 2, 2),
        acquire(2, 2, 1),
        attempt(3, 1, 2, 9),
        acquire(3, 1, 2),
        release(4, 1, 2),
        release(5, 1, 1),
        ask(6, 1, 1),
        acquire(6, 1, 1),
        ask(10, 3, 3),
        // The older one gives its permit back, which is handed over until it is taken.
        release(20, 2, 1),
        acquire(22, 3, 1),
        ask(30, 2, 2),
        release(35, 3, 1),
        acquire(36, 2, 1),
    ]);
    assert_eq!(edges(&f), [(2, 5, 5 + 2, Direct), (4, 5, 5, Direct), (4, 6, 3, Direct), (5, 6, 2 + 1, Direct)]);
    assert!(inferred(&f).iter().all(|&inferred| inferred));
}

/// A source that says that an attempt found no permit knows better than the count of those that were given back: threads that are
/// preempted while they give one back tell of it late.
#[test]
fn a_permit_told_late_is_not_free() {
    let ask = |t, tid, contended| {
        let attempt = Attempt { contended: Some(contended), kind: LockKind::Semaphore, ..asks(1, u64::from(tid)) };
        op(t, tid, Action::Attempt(attempt))
    };
    let f = findings(&[
        ask(0, 1, false),
        acquire(0, 1, 1),
        ask(2, 2, false),
        acquire(2, 2, 1),
        release(3, 2, 1),
        release(9, 1, 1),
        ask(10, 2, false),
        acquire(10, 2, 1),
        ask(12, 3, true),
        release(20, 2, 1),
        acquire(21, 3, 1),
    ]);
    assert_eq!(edges(&f), [(3, 4, 9, Direct)]);
    assert_eq!(f.locks[&lock(1)].unattributed, Nanos(0));
}

/// Nor is it handed over any longer: who was woken for it is seen to wake before another thread gives it back, and has it.
#[test]
fn a_permit_that_an_attempt_does_not_find_has_been_handed_over() {
    let ask = |t, tid: u32, contended| {
        let attempt = Attempt { contended: Some(contended), kind: LockKind::Semaphore, ..asks(1, u64::from(tid)) };
        op(t, tid, Action::Attempt(attempt))
    };
    let f = findings(&[
        ask(0, 1, true),
        acquire(10, 1, 1),
        ask(10, 2, false),
        acquire(10, 2, 1),
        release(11, 2, 1),
        ask(13, 2, true),
        ask(15, 3, true),
        release(30, 1, 1),
        acquire(31, 2, 1),
        release(32, 2, 1),
        acquire(33, 3, 1),
    ]);
    assert_eq!(edges(&f), [(1, 3, 17 + 1, Direct), (1, 4, 15 + 1, Direct), (3, 4, 1 + 1, Indirect)]);
}

/// A permit is not among the locks that a thread is watched for.
#[test]
fn it_is_not_known_what_who_has_a_permit_does() {
    let ask = |t, tid, at| attempt_of(t, tid, 1, at, LockKind::Semaphore, false);
    let f = findings(&[
        ask(0, 1, 1),
        acquire(0, 1, 1),
        ask(5, 2, 2),
        op(6, 3, Action::Off { reason: OffReason::Blocked, stack: None }),
        release(9, 1, 1),
        acquire(10, 2, 1),
        release(20, 2, 1),
    ]);
    let causes = f.locks[&lock(1)].holders.iter().find(|h| h.who == section(1, 1)).unwrap().causes;
    assert_eq!((causes.of(findings::Cause::Unknown), causes.of(findings::Cause::Running)), (Nanos(4), Nanos(0)));
}

/// Nor is its permit being handed over, if it was not seen to give it back.
#[test]
fn whose_permit_was_not_seen_to_be_given_back_may_have_it() {
    let ask = |t, tid, at| attempt_of(t, tid, 1, at, LockKind::Semaphore, false);
    let unseen = |t, tid| op(t, tid, Action::Release { lock: lock(1), how: Released::Unseen });
    let contended = Attempt { contended: Some(true), kind: LockKind::Semaphore, ..asks(1, 2) };
    let f = findings(&[
        op(5, 2, Action::Attempt(contended)),
        ask(7, 1, 1),
        acquire(7, 1, 1),
        unseen(7, 1),
        acquire(10, 2, 1),
        unseen(10, 2),
    ]);
    let causes = f.locks[&lock(1)].holders.iter().find(|h| h.who == section(1, 1)).unwrap().causes;
    assert_eq!((causes.of(findings::Cause::Unknown), causes.of(findings::Cause::HandOff)), (Nanos(3), Nanos(0)));
}

/// Nobody sees a task leave the CPU. The kernel side tells when no thread runs it, where it knows that.
#[test]
fn what_a_task_does_is_known_while_no_thread_runs_it() {
    let task = lockbpf_common::task::of_waker(0x1280);
    let f = findings(&[
        attempt(0, task, 1, 1),
        acquire(0, task, 1),
        attempt(5, 2, 1, 2),
        op(6, task, Action::Off { reason: OffReason::Sleeping, stack: None }),
        op(8, task, Action::On),
        release(9, task, 1),
        acquire(9, 2, 1),
        release(20, 2, 1),
    ]);
    let causes = f.locks[&lock(1)].holders.iter().find(|h| h.who == section(1, 1)).unwrap().causes;
    let told = [findings::Cause::Sleeping, findings::Cause::Unknown, findings::Cause::Running];
    assert_eq!(told.map(|cause| causes.of(cause)), [Nanos(2), Nanos(2), Nanos(0)]);
}

#[test]
fn a_semaphore_that_nobody_held_blames_who_posts() {
    let f = findings(&[attempt_of(5, 1, 1, 1, LockKind::Semaphore, false), release(9, 2, 1), acquire(10, 1, 1)]);
    assert_eq!(cause(&f, 1, Who::Thread(Tid(2))), 5);
    assert_eq!(inferred(&f), [true]);
    assert_eq!((f.impossible.len(), f.cut["held_at_end"]), (0, 1));
}

#[test]
fn overtaken_while_free() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        release(5, 1, 1),
        attempt(10, 2, 1, 2),
        attempt(14, 3, 1, 3),
        acquire(16, 3, 1),
        release(20, 3, 1),
        acquire(21, 2, 1),
        release(30, 2, 1),
    ]);
    assert_eq!(edges(&f), [(3, 2, 5, Direct)]);
    assert_eq!(detail(&f).unattributed, BTreeMap::from([(2, Nanos(6)), (3, Nanos(2))]));
    // Only the one that was overtaken has waited for a holder.
    let shares = &f.locks[&lock(1)];
    assert_eq!((shares.waits, shares.unattributed), (Tally { count: 1, time: Nanos(11) }, Nanos(6)));
}

#[test]
fn three_levels() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(0, 2, 2, 2),
        acquire(0, 2, 2),
        attempt(0, 3, 3, 3),
        acquire(0, 3, 3),
        attempt(10, 4, 3, 4),
        attempt(20, 3, 2, 5),
        attempt(30, 2, 1, 6),
        release(40, 1, 1),
        acquire(41, 2, 1),
        release(50, 2, 1),
        release(60, 2, 2),
        acquire(60, 3, 2),
        release(70, 3, 2),
        release(80, 3, 3),
        acquire(80, 4, 3),
    ]);
    // d4 waits for d3: while that waits for d2, and d2 for d1, they are to blame.
    let expected = [
        (1, 4, 11, Nested),
        (1, 5, 11, Nested),
        (1, 6, 11, Direct),
        (2, 4, 29, Nested),
        (2, 5, 29, Direct),
        (3, 4, 30, Direct),
    ];
    assert_eq!(edges(&f), expected);
    assert_eq!(
        f.locks[&lock(3)].chains.iter().map(|c| (c.links.len(), c.wait.0)).collect::<Vec<_>>(),
        // The last piece is a hand-off.
        [(2, 29), (3, 10), (3, 1)]
    );
}

#[test]
fn lock_coupling() {
    // The outer lock goes before the inner one.
    let f = findings(&[
        attempt(0, 1, 2, 1),
        acquire(0, 1, 2),
        attempt(0, 2, 1, 2),
        acquire(0, 2, 1),
        attempt(3, 3, 1, 3),
        attempt(5, 2, 2, 4),
        release(8, 1, 2),
        acquire(8, 2, 2),
        release(9, 2, 1),
        acquire(9, 3, 1),
        attempt(10, 3, 2, 5),
        release(14, 2, 2),
        acquire(14, 3, 2),
        release(15, 3, 1),
        release(16, 3, 2),
    ]);
    let expected = [(1, 3, 3, Nested), (1, 4, 3, Direct), (2, 3, 3, Direct), (4, 5, 4, Direct)];
    assert_eq!(edges(&f), expected);
}

#[test]
fn recursion_belongs_to_the_outermost_instance() {
    let mut graph = WaitGraph::new(DETAIL);
    let ops = [
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(1, 1, 1, 7),
        acquire(1, 1, 1),
        attempt(2, 2, 1, 2),
        release(3, 1, 1),
        release(9, 1, 1),
        acquire(9, 2, 1),
        release(10, 2, 1),
    ];
    ops.iter().for_each(|op| graph.op(op, &mut ()));
    let f = graph.finish(Time(0), &mut ());
    assert_eq!(edges(&f), [(1, 2, 7, Direct)]);
    assert_eq!((detail(&f).nodes.len(), f.impossible.len(), f.cut.len()), (2, 0, 0));
}

#[test]
fn a_time_out_has_waited_and_a_trylock_has_not() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(2, 2, 1, 2),
        attempt(3, 3, 1, 3),
        fails(4, 3, 1, Failure::TryFailed),
        fails(7, 2, 1, Failure::TimedOut),
        release(9, 1, 1),
    ]);
    assert_eq!(edges(&f), [(1, 2, 5, Direct)]);
    let shares = &f.locks[&lock(1)];
    assert_eq!(
        (shares.waits, shares.timed_out),
        (Tally { count: 1, time: Nanos(5) }, Tally { count: 1, time: Nanos(5) })
    );
    assert_eq!(shares.holders[0].victims, 1);
    let failed = &detail(&f).nodes[1];
    assert_eq!((failed.acquire, failed.release), (None, None));
}

#[test]
fn a_trylock_does_not_join_those_it_saw() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(2, 3, 1, 3),
        release(4, 1, 1),
        attempt(4, 2, 1, 2),
        acquire(5, 2, 1),
        fails(6, 3, 1, Failure::TryFailed),
        release(9, 2, 1),
    ]);
    assert_eq!(edges(&f), []);
    assert_eq!(detail(&f).critical_components, [[3]]);
    assert_eq!((apwt(&f, 1), apwt(&f, 2), f.locks.len()), (0, 0, 0));
}

#[test]
fn a_recording_that_begins_in_the_middle() {
    // T1 holds the lock from before the recording: its release tells.
    let f = findings(&[
        attempt(5, 2, 1, 2),
        release(9, 1, 1),
        acquire(10, 2, 1),
        release(12, 2, 1),
        acquire(13, 3, 1),
        release(14, 3, 1),
    ]);
    assert_eq!(edges(&f), [(2, 1, 5, Direct)]);
    assert_eq!(f.cut, BTreeMap::from([("acquire_without_attempt", 1), ("release_without_acquire", 1)]));
    assert_eq!(f.impossible, BTreeMap::new());
    let nodes: Vec<_> = detail(&f).nodes.iter().map(|n| (n.number, n.tid.0, n.site, n.attempt.is_some())).collect();
    assert_eq!(nodes, [(1, 2, Some(site(2)), true), (2, 1, None, false), (3, 3, None, false)]);
}

#[test]
fn a_recording_that_ends_in_the_middle() {
    let f = findings(&[attempt(0, 1, 1, 1), acquire(0, 1, 1), attempt(4, 2, 1, 2), attempt(9, 3, 2, 3)]);
    assert_eq!(edges(&f), [(1, 2, 5, Direct)]);
    assert_eq!(f.cut, BTreeMap::from([("held_at_end", 1), ("waiting_at_end", 2)]));
    assert_eq!(f.locks[&lock(1)].open, Tally { count: 1, time: Nanos(5) });
}

/// Two threads that come at once and one that comes late, observed from the middle of a round on.
#[test]
fn a_round_that_began_before_the_recording_does_not_shift_the_others() {
    let arrival = |time, tid, round| {
        let op = arrives(time, tid, 1, 3, u64::from(tid), 9);
        match op.action {
            Action::Barrier(a) => Op { action: Action::Barrier(Arrival { round, ..a }), ..op },
            _ => op,
        }
    };
    for (first, later) in [(Round::First, Round::Later), (Round::Number(3), Round::Number(3))] {
        // Thread 1 had arrived before.
        let mut ops =
            vec![arrival(5, 2, if later == Round::Later { later } else { Round::Number(2) }), arrival(90, 3, later)];
        if later != Round::Later {
            ops[1] = arrival(90, 3, Round::Number(2));
        }
        for round in 1..=3 {
            let t = round * 100;
            let number = |r: Round| if let Round::Number(_) = r { Round::Number(2 + round as u8) } else { r };
            ops.extend([arrival(t, 1, number(first)), arrival(t, 2, number(later)), arrival(t + 90, 3, number(later))]);
        }
        let f = findings(&ops);
        let blamed = f.sites.iter().map(|(site, blame)| (site.addr, blame.apwt.0)).filter(|&(_, wait)| wait > 0);
        // The waits of those who were seen in the round that was cut.
        assert_eq!(blamed.collect::<BTreeMap<_, _>>(), [(3, 85 + 3 * 180)].into(), "{first:?}");
        assert_eq!((f.cut.get("barrier_round_cut"), f.impossible.len()), (Some(&1), 0));
    }
}

#[test]
fn impossible_steps_are_counted_by_kind() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(1, 2, 1, 2),
        acquire(2, 2, 1),
        release(3, 2, 1),
        release(4, 2, 1),
        acquire(5, 2, 2),
        attempt(6, 2, 3, 2),
        attempt(7, 2, 4, 2),
        exits(8, 2),
        release(8, 2, 1),
        fails(9, 2, 3, Failure::TimedOut),
        arrives(10, 1, 5, 0, 1, 2),
        op(11, 1, Action::CondWake { condition: lock(9) }),
    ]);
    let expected = [
        ("acquire_of_held", 1),
        ("acquire_without_attempt", 1),
        ("attempt_while_waiting", 1),
        ("barrier_without_participants", 1),
        ("exit_while_waiting", 1),
        ("fail_without_attempt", 1),
        ("release_not_held", 2),
        ("step_after_exit", 1),
        ("wake_without_wait", 1),
    ];
    assert_eq!(f.impossible, BTreeMap::from(expected));
}

#[test]
fn a_thread_that_exits_holding() {
    let f = findings(&[attempt(0, 1, 1, 1), acquire(0, 1, 1), attempt(4, 2, 1, 2), exits(5, 1), exits(9, 2)]);
    // Nobody has taken the lock since: its last holder is to blame.
    assert_eq!(f.impossible, BTreeMap::from([("exit_while_waiting", 1)]));
    let f2 = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(4, 2, 1, 2),
        exits(5, 1),
        fails(9, 2, 1, Failure::TimedOut),
    ]);
    assert_eq!((edges(&f).len(), edges(&f2)), (0, vec![(1, 2, 5, Direct)]));
}

#[test]
fn a_deadlock_is_a_circle() {
    let mut graph = WaitGraph::new(Options::default());
    let ops = [
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(0, 2, 2, 2),
        acquire(0, 2, 2),
        attempt(5, 1, 2, 3),
        attempt(7, 2, 1, 4),
        fails(8, 2, 1, Failure::TryFailed),
    ];
    ops.iter().for_each(|op| graph.op(op, &mut ()));
    assert!(graph.deadlocks().is_empty());
    graph.op(&attempt(9, 2, 1, 5), &mut ());
    graph.op(&attempt(12, 3, 1, 6), &mut ());
    let [deadlock] = graph.deadlocks() else { panic!("{:?}", graph.deadlocks()) };
    let members: Vec<_> = deadlock.members.iter().map(|b| (b.tid, b.lock, b.site, b.since)).collect();
    let expected = [(Tid(2), lock(1), Some(site(5)), Time(9)), (Tid(1), lock(2), Some(site(3)), Time(5))];
    assert_eq!((members, deadlock.found), (expected.to_vec(), Time(9)));
    let f = graph.finish(Time(20), &mut ());
    assert_conserved(&f, Options::default());
}

#[test]
fn orders_of_locking() {
    let mut graph = WaitGraph::default();
    for tid in [1, 2] {
        for (t, outer, inner) in [(0, 1, 2), (5, 1, 2), (10, 2, 1)] {
            let t = t + u64::from(tid) * 100;
            let ops =
                [attempt(t, tid, outer, 7), acquire(t, tid, outer), attempt(t, tid, inner, 8), acquire(t, tid, inner)];
            let ends = [release(t + 1, tid, inner), release(t + 1, tid, outer)];
            ops.iter().chain(&ends).for_each(|op| graph.op(op, &mut ()));
        }
    }
    let orders: Vec<_> =
        graph.orders().iter().map(|o| (o.outer.addr, o.inner.addr, o.tid.0, o.others, o.count)).collect();
    assert_eq!(orders, [(1, 2, 1, true, 4), (2, 1, 1, true, 2)]);
}

#[test]
fn what_the_holder_did() {
    use crate::op::OffReason::{Blocked, Runnable};
    let off = |t, reason| op(t, 1, Action::Off { reason, stack: Some(crate::id::StackId(4)) });
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(10, 2, 1, 2),
        off(20, Blocked),
        off(50, Runnable),
        op(60, 1, Action::On),
        release(65, 1, 1),
        acquire(67, 2, 1),
    ]);
    let holder = &f.locks[&lock(1)].holders[0];
    assert_eq!(holder.causes.0.map(|n| n.0), [15, 10, 30, 0, 0, 0, 2, 0]);
    assert_eq!(holder.victims, 1);
    let off: Vec<_> = holder.off_stacks.top().iter().map(|(k, t)| (k.0, t.time.0)).collect();
    assert_eq!(off, [(findings::Cause::Blocked, 30), (findings::Cause::Runnable, 10)]);
    let unknown =
        findings(&[attempt(0, 1, 1, 1), acquire(0, 1, 1), attempt(1, 2, 1, 2), release(5, 1, 1), acquire(6, 2, 1)]);
    assert_eq!(unknown.locks[&lock(1)].holders[0].causes.0.map(|n| n.0), [0, 0, 0, 0, 0, 0, 1, 4]);
}

#[test]
fn kernel_locks() {
    let kernel = Lock { process: Process::KERNEL, addr: 9 };
    let asks_kernel = |t, tid, owner: Option<u32>| {
        let attempt = Attempt { lock: kernel, owner: owner.map(Tid), contended: Some(true), ..asks(9, 7) };
        op(t, tid, Action::Attempt(attempt))
    };
    let got = |t, tid| {
        [Action::Acquire { lock: kernel, waker: None }, Action::Release { lock: kernel, how: Released::Unlock }]
            .map(|action| op(t, tid, action))
    };
    // T1 holds L1 and waits from 10 to 40 in the kernel, where T3, which waits from 5 on, got the lock at 20.
    let mut ops = vec![attempt(0, 1, 1, 1), acquire(0, 1, 1), asks_kernel(5, 3, Some(4)), asks_kernel(10, 1, Some(4))];
    ops.push(attempt(12, 2, 1, 2));
    ops.extend(got(20, 3));
    ops.extend(got(40, 1));
    ops.extend([release(50, 1, 1), acquire(50, 2, 1)]);
    let f = findings(&ops);
    let blamed: Vec<_> = f.locks[&kernel].holders.iter().map(|h| (h.who, h.wait.0, h.inferred == h.wait)).collect();
    let third = Who::Section { lock: kernel, site: site(7) };
    assert_eq!(blamed, [(Who::Thread(Tid(4)), 15 + 10, true), (third, 20, true)], "the owner, then who got it last");
    let shares = &f.locks[&lock(1)];
    let of = |who| shares.holders.iter().find(|h| h.who == who).unwrap();
    assert_eq!(
        of(section(1, 1)).causes.of(findings::Cause::KernelLock),
        Nanos(8),
        "from 12 to 20 nobody else is known"
    );
    assert_eq!(of(section(1, 1)).causes.of(findings::Cause::Running), Nanos(10), "from 40 to 50");
    assert_eq!((of(third).wait, of(third).nested), (Nanos(20), Nanos(20)));
    assert!(f.scheduling_known);
}

/// A kernel lock; its attempts, as the kernel tells them; its acquisitions; and looks at who holds it.
mod kernel_lock {
    use super::*;

    pub(super) const LOCK: Lock = Lock { process: Process::KERNEL, addr: 9 };

    pub(super) fn asks(t: u64, tid: u32, owner: u32) -> Op {
        let attempt = Attempt { lock: LOCK, owner: Some(Tid(owner)), contended: Some(true), ..super::asks(9, 7) };
        op(t, tid, Action::Attempt(attempt))
    }

    pub(super) fn got(t: u64, tid: u32) -> [Op; 2] {
        [Action::Acquire { lock: LOCK, waker: None }, Action::Release { lock: LOCK, how: Released::Unlock }]
            .map(|action| op(t, tid, action))
    }

    pub(super) fn sees(t: u64, tid: u32, holder: u32, at: u64, doing: Doing) -> Op {
        let stack = Some(StackId(at as u32));
        let hold = Hold { lock: LOCK, holder: Tid(holder), site: Some(site(at)), stack, doing };
        op(t, tid, Action::Holds(hold))
    }

    pub(super) fn at(place: u64) -> Who {
        Who::Section { lock: LOCK, site: site(place) }
    }
}

#[test]
fn who_is_seen_to_hold_a_kernel_lock_is_to_blame_until_another_one_is() {
    use kernel_lock::{LOCK, asks, at, got, sees};
    // T2 waits from 10 on for T1, which is at 21 in the program, and from 30 on for T4, at 24: T3 saw that when it asked. T2 gets it at 40, T3 at 60.
    let mut ops = vec![sees(9, 2, 1, 21, Doing::Running), asks(10, 2, 1)];
    ops.extend([sees(30, 3, 4, 24, Doing::Sleeping), asks(31, 3, 4)]);
    ops.extend(got(40, 2));
    ops.push(sees(40, 2, 2, 22, Doing::Unknown));
    ops.extend(got(60, 3));
    let f = findings(&ops);
    let holders = &f.locks[&LOCK].holders;
    let blamed: Vec<_> = holders.iter().filter(|h| h.wait > Nanos(0)).map(|h| (h.who, h.wait.0)).collect();
    assert_eq!(blamed, [(at(21), 20), (at(24), 10 + 9), (at(22), 20)]);
    assert_eq!(f.locks[&LOCK].unattributed, Nanos(0));
    assert!(holders.iter().all(|h| h.inferred == h.wait), "a look tells of a moment: {holders:?}");
    let of = |who| holders.iter().find(|h| h.who == who).unwrap();
    assert_eq!(of(at(21)).causes.of(findings::Cause::Running), Nanos(20));
    assert_eq!(of(at(24)).causes.of(findings::Cause::Sleeping), Nanos(19));
    assert_eq!(of(at(22)).causes.of(findings::Cause::Unknown), Nanos(20), "what it did since is not known");
    let off: Vec<_> = of(at(24)).off_stacks.top().iter().map(|(k, t)| (*k, t.time.0)).collect();
    assert_eq!(off, [((findings::Cause::Sleeping, StackId(24)), 19)]);
    assert_eq!(of(at(22)).stacks.top()[0].0, StackId(22));
    assert_eq!(apwt(&f, 21) + apwt(&f, 24) + apwt(&f, 22), 59);
}

#[test]
fn a_look_at_a_holder_that_waits_itself_or_has_no_place_says_nothing() {
    use kernel_lock::{LOCK, asks, got, sees};
    let Action::Holds(nowhere) = sees(11, 3, 4, 24, Doing::Running).action else { panic!("a look") };
    // The lock names T2, its last reader, which waits for it anew.
    let mut ops = vec![asks(10, 2, 9), sees(11, 3, 2, 22, Doing::Running), asks(12, 3, 2)];
    ops.push(op(13, 3, Action::Holds(Hold { site: None, ..nowhere })));
    ops.extend(got(20, 3));
    let f = findings(&ops);
    let blamed: Vec<_> = f.locks[&LOCK].holders.iter().map(|h| (h.who, h.wait.0)).collect();
    assert_eq!(blamed[0], (Who::Thread(Tid(2)), 8), "only what the lock says");
    assert!(!f.sites.contains_key(&site(22)));
}

#[test]
fn who_is_seen_to_hold_a_kernel_lock_is_to_blame_for_those_behind_its_waiter() {
    use kernel_lock::{LOCK, asks, at, got, sees};
    // T2 holds L1, for which T3 waits, while it waits for T1 in the kernel.
    let mut ops = vec![attempt(0, 2, 1, 2), acquire(0, 2, 1), sees(9, 2, 1, 21, Doing::Blocked), asks(10, 2, 1)];
    ops.push(attempt(15, 3, 1, 3));
    ops.extend(got(40, 2));
    ops.extend([release(45, 2, 1), acquire(45, 3, 1)]);
    let f = findings(&ops);
    let shares = &f.locks[&lock(1)];
    let of = |who| shares.holders.iter().find(|h| h.who == who).unwrap();
    assert_eq!((of(at(21)).wait, of(at(21)).nested), (Nanos(25), Nanos(25)));
    assert_eq!(of(section(1, 2)).wait, Nanos(5));
    assert_eq!(f.locks[&LOCK].holders[0].wait, Nanos(30));
}

#[test]
fn the_critical_path() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(5, 2, 2, 2),
        acquire(5, 2, 2),
        attempt(10, 2, 1, 3),
        attempt(12, 3, 2, 4),
        release(20, 1, 1),
        acquire(20, 2, 1),
        release(25, 2, 1),
        release(30, 2, 2),
        acquire(30, 3, 2),
        release(40, 3, 2),
    ]);
    // T3 from 30 to 40, T2 from 20 to 30 while T3 waited, T1 before: while T2 waited, from 10 on.
    assert_eq!((f.path.start, f.path.end, f.path.hops, f.path.truncated), (Time(0), Time(40), 2, false));
    let waiting: Vec<_> = f.path.waiting.iter().map(|w| (w.lock.addr, w.wait.0, w.hops)).collect();
    assert_eq!(waiting, [(1, 10, 1), (2, 10, 1)]);
}

#[test]
fn indirect_after_the_hand_off() {
    let mut ops = vec![attempt(0, 1, 1, 1), acquire(0, 1, 1)];
    ops.extend((2..5).map(|tid| attempt(u64::from(tid), tid, 1, 2)));
    for tid in 1..4 {
        ops.extend([release(u64::from(tid) * 10, tid, 1), acquire(u64::from(tid) * 10 + 1, tid + 1, 1)]);
    }
    ops.push(release(50, 4, 1));
    let f = findings(&ops);
    let into_last: Vec<_> = edges(&f).into_iter().filter(|e| e.1 == 4).collect();
    assert_eq!(into_last, [(1, 4, 7, Direct), (2, 4, 10, Indirect), (3, 4, 10, Indirect)]);
}

/// The end of the program is that of the thread that ends it, through the exits that it has waited for.
#[test]
fn the_path_to_the_end_of_the_program() {
    let mut steps = vec![
        attempt(0, 1, 7, 70),
        acquire(0, 1, 7),
        attempt(10, 2, 7, 71),
        release(100, 1, 7),
        acquire(100, 2, 7),
        release(110, 2, 7),
        exits(115, 2),
        // Thread 9 has waited for that.
        op(116, 9, Action::Join { thread: Tid(2), wait: Nanos(116) }),
        attempt(117, 1, 8, 80),
        acquire(117, 1, 8),
    ];
    let f = findings(&steps);
    assert_eq!((f.path.last, f.path.ended, f.path.ends, f.path.agreeing), (Some(Tid(1)), false, 3, 1));
    assert!(f.path.waiting.is_empty());
    steps.extend([op(120, 9, Action::Exit { ends: true }), exits(121, 1)]);
    let f = findings(&steps);
    assert_eq!((f.path.last, f.path.ended, f.path.end, f.last_thread), (Some(Tid(9)), true, Time(120), Some(Tid(9))));
    let waiting: Vec<_> = f.path.waiting.iter().map(|w| (w.lock.addr, w.wait.0, w.hops)).collect();
    assert_eq!((waiting, f.path.hops), (vec![(7, 90, 1)], 2));
    // What ended on the thread that it waited for is critical.
    assert_eq!((cpwt(&f, 70), cpwt(&f, 80)), (Some(90), None));
}

/// A thread gives back the inner lock and asks for the outer one, whose holder has been woken for the inner one but does not run
/// yet: that is a hand-off, and nobody waits for itself.
#[test]
fn who_has_given_a_lock_back_does_not_wait_for_itself() {
    let f = findings(&[
        attempt(0, 1, 1, 10),
        acquire(0, 1, 1),
        attempt(5, 2, 2, 20),
        acquire(5, 2, 2),
        attempt(6, 2, 1, 21),
        release(100, 1, 1),
        attempt(101, 1, 2, 11),
        acquire(150, 2, 1),
        release(160, 2, 1),
        release(161, 2, 2),
        acquire(165, 1, 2),
        release(170, 1, 2),
    ]);
    let shares = &f.locks[&lock(2)];
    let pairs: Vec<_> =
        shares.pairs.top().into_iter().map(|((waiter, holder), sum)| (waiter.0, holder.0, sum.time.0)).collect();
    assert_eq!(pairs, [(1, 2, 64)]);
    let [chain] = &shares.chains[..] else { panic!("{:?}", shares.chains) };
    let links: Vec<_> = chain.links.iter().map(|link| (link.lock.addr, link.tid.0, link.released)).collect();
    assert_eq!(links, [(2, 2, false), (1, 1, true)]);
}
