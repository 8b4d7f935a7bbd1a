//! What the report makes of what the graph found: nesting, causes, barriers, deadlocks.

use super::*;
use crate::deadlock::{Blocked, Deadlock, LockOrder};
use crate::graph::findings::{Cause, Causes, Chain, CriticalPath, Holder, Link, PathWait, Shares, Waiter, Who};
use crate::id::StackId;
use crate::op::LockKind;
use crate::report::schema::{Parts, Selection};
use crate::tally::Tally;
use std::sync::Arc;

const OUTER: Lock = Lock { process: P, addr: 0x1000 };
const INNER: Lock = Lock { process: P, addr: 0x1008 };

/// Waiting in ms by cause, and the stack on which the thread left the CPU meanwhile.
pub(super) type Doing<'a> = &'a [(Cause, u64, Option<u64>)];

/// A row of a lock's holders; everything is in ms.
pub(super) fn holder(o: &mut Run, lock: Lock, at: u64, nested: bool, doing: Doing<'_>) -> Holder {
    let mut causes = Causes::default();
    let mut row = Holder {
        who: Who::Section { lock, site: site(at) },
        wait: Nanos(0),
        nested: Nanos(0),
        causes,
        victims: 1,
        inferred: Nanos(0),
        sections: Tally::default(),
        stacks: Default::default(),
        off_stacks: Default::default(),
    };
    for &(cause, wait, stack) in doing {
        let wait = Nanos(wait * MS);
        causes.add(cause, wait);
        row.wait += wait;
        if let Some(addr) = stack {
            row.off_stacks.add((cause, StackId(addr as u32)), wait);
            o.stacks.insert(StackId(addr as u32), vec![addr, at]);
        }
    }
    (row.causes, row.nested) = (causes, if nested { row.wait } else { Nanos(0) });
    let known = o.findings.sites.entry(site(at)).or_default();
    known.apwt += row.wait;
    *o.findings.aplt.entry(lock).or_default() += row.wait;
    row
}

/// Threads that waited for a lock at one place, and whom they waited for.
pub(super) fn waits(o: &mut Run, lock: Lock, at: u64, holders: Vec<Holder>) {
    let wait: Nanos = holders.iter().map(|h| h.wait).sum();
    let waits = Tally { count: 10, time: wait };
    let blamed = holders.iter().map(|h| h.wait).collect();
    let waiter = Waiter { site: Some(site(at)), waits, max: wait, blamed, ..Waiter::default() };
    let threads = [21, 22, 23].map(Tid).into_iter().collect();
    let shares = Shares { waits, max: wait, waiters: vec![waiter], holders, threads, ..Shares::default() };
    o.findings.locks.insert(lock, shares.into());
    let row = sums(o, lock, site(at), Via::Lock);
    (row.acquisitions, row.contended, row.first) = (10, 10, Time(1));
    row.wait.add(wait);
}

/// One lock, held at fn3 while 6 s were waited for it at fn4.
pub(super) fn held(doing: Doing<'_>) -> Run {
    let mut o = observation();
    o.findings.scheduling_known = true;
    let row = holder(&mut o, OUTER, 0x300, false, doing);
    waits(&mut o, OUTER, 0x400, vec![row]);
    o
}

/// fn4 waits for the outer lock, whose holder in fn3 waits for the inner one, which fn5 holds while it writes.
fn nested() -> Run {
    let mut o = observation();
    o.findings.scheduling_known = true;
    let writing: Doing<'_> = &[(Cause::Blocked, 3_000, Some(FDATASYNC)), (Cause::Running, 1_000, None)];
    let through = holder(&mut o, INNER, 0x500, true, writing);
    let outer = holder(&mut o, OUTER, 0x300, false, &[(Cause::Running, 1_000, None)]);
    let inner = holder(&mut o, INNER, 0x500, false, writing);
    waits(&mut o, OUTER, 0x400, vec![through, outer]);
    waits(&mut o, INNER, 0x300, vec![inner]);
    let link = |lock, at, tid| Link { lock, site: Some(site(at)), tid: Tid(tid), released: false };
    let links = vec![link(OUTER, 0x300, 11), link(INNER, 0x500, 12)];
    Arc::make_mut(o.findings.locks.get_mut(&OUTER).unwrap()).chains = vec![Chain { links, wait: Nanos(4_000 * MS) }];
    o.findings.sites.get_mut(&site(0x500)).unwrap().cpwt = Some(Nanos(8_000 * MS));
    o.findings.path = CriticalPath {
        start: Time(0),
        end: Time(10_000 * MS),
        waiting: vec![
            PathWait { lock: OUTER, wait: Nanos(500 * MS), hops: 2 },
            PathWait { lock: INNER, wait: Nanos(2_000 * MS), hops: 7 },
        ],
        hops: 9,
        ..CriticalPath::default()
    };
    o.threads = server().threads.clone();
    o
}

fn told(o: &Run) -> Report {
    build(o, &mut FakeNames, &Options::default()).unwrap()
}

fn says(o: &Run) -> String {
    told(o).verdict.join(" ")
}

#[test]
fn the_inner_culprit_is_named_and_how_it_reaches_the_outer_waiters() {
    let o = nested();
    let expected = "\
89 % of all waiting is caused by `fn5` holding `global_1008` at work.c:5; 75 % of that while blocked in fdatasync, 25 %
while running.
50 % of that reaches waiters of other locks: fn4 (work.c:4) waits for `global_1000`, held by thread 11 (worker11) in fn3
(work.c:3), which waits for `global_1008`, held by thread 12 (worker12) in fn5 (work.c:5).
Most waited for is `global_1000` (mutex): 3 threads waited 5.00 s for it in 10.0 s.

Lock         Kind   Acquired  Contended      %    Wait    Wait    Wait    Wait  Hold  Hold  Hold
                                                 total    mean     p99     max  mean   p99   max
─────────────────────────────────────────────────────────────────────────────────────────────────
global_1000  mutex        10         10  100 %  5.00 s  500 ms  5.00 s  5.00 s  0 ns  0 ns  0 ns
global_1008  mutex        10         10  100 %  4.00 s  400 ms  4.00 s  4.00 s  0 ns  0 ns  0 ns

Critical sections by the waiting that they caused (APWT; CPWT: on the critical paths)
Critical section  Lock                     Sections  Waited  Held    APWT    CPWT  Meanwhile
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
fn5 (work.c:5)    global_1008                     –    0 ns     –  8.00 s  8.00 s  75 % blocked in fdatasync
fn3 (work.c:3)    global_1000 and 1 other        10  4.00 s  0 ns  1.00 s       –  100 % running

Chains: locks waited for by the holder of another one
  4.00 s (80 % of the waiting for `global_1000`): fn4 (work.c:4) waits for `global_1000`, held by thread 11 (worker11)
  in fn3 (work.c:3), which waits for `global_1008`, held by thread 12 (worker12) in fn5 (work.c:5)

Critical path: 10.0 s, 9 hops from thread to thread; 25 % of it spent waiting: `global_1008` 20 % (2.00 s),
`global_1000` 5.0 % (500 ms).

global_1000: who waited, and who held it meanwhile
Waited at       Waits  Waited  Share  Held meanwhile by                                                Share
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
fn4 (work.c:4)     10  5.00 s  100 %  fn5 (work.c:5) holding `global_1008`, 75 % blocked in fdatasync   80 %
                                      fn3 (work.c:3)                                                    20 %

global_1008: who waited, and who held it meanwhile
Waited at       Waits  Waited  Share  Held meanwhile by                          Share
───────────────────────────────────────────────────────────────────────────────────────
fn3 (work.c:3)     10  4.00 s  100 %  fn5 (work.c:5), 75 % blocked in fdatasync  100 %
";
    let report = told(&o);
    let text = text(&report);
    assert!(text.starts_with(expected), "{text}");
    assert_conserved(&report);
    let holder = &report.locks[0].holders[0];
    assert_eq!((holder.lock.as_deref(), holder.nested_ns), (Some("1234:0x1008"), ms(4_000)));
    assert_eq!(report.locks[1].aplt_ns, ms(8_000));
    assert_eq!(report.locks[0].chains[0].links[1].symbol.as_deref(), Some("fn5 (work.c:5)"));
    let path = report.critical_path.unwrap();
    assert_eq!((path.waiting_share, path.locks[0].share, path.hops), (0.25, 0.2, 9));
    assert_eq!((report.sites[0].cpwt_ns, report.sites[1].cpwt_ns), (Some(ms(8_000)), None));
}

#[test]
fn what_the_holder_was_doing_is_told_as_far_as_it_is_known() {
    let by = |doing: Doing<'_>| {
        let says = says(&held(doing));
        let (first, _) = says.split_once(". ").unwrap();
        first
            .strip_prefix("100 % of all waiting is caused by `fn3` holding `global_1000` at work.c:3")
            .unwrap()
            .to_owned()
    };
    assert_eq!(by(&[(Cause::Sleeping, 6_000, Some(NANOSLEEP))]), "; 100 % of that while asleep in clock_nanosleep");
    assert_eq!(
        by(&[(Cause::Sleeping, 600, Some(NANOSLEEP)), (Cause::Sleeping, 5_400, None)]),
        "; 100 % of that while asleep in clock_nanosleep (known of 10 % of it)"
    );
    assert_eq!(
        by(&[(Cause::Runnable, 3_480, None), (Cause::Running, 2_520, None)]),
        "; its holder was preempted (runnable, not running) for 58 % of it: not a long section but a missing CPU"
    );
    assert_eq!(
        by(&[(Cause::Blocked, 4_000, None), (Cause::Unknown, 2_000, None)]),
        "; 67 % of that while blocked in I/O"
    );
    assert_eq!(by(&[(Cause::Unknown, 6_000, None)]), "; what it did meanwhile is not known");
    let mut unknown = held(&[(Cause::Running, 6_000, None)]);
    unknown.findings.scheduling_known = false;
    assert!(says(&unknown).contains("work.c:3; what it did meanwhile is not known. "), "{}", says(&unknown));
    let report = told(&unknown);
    assert!(report.sites[0].causes.is_none() && report.locks[0].causes.is_none());
    assert!(!text(&report).contains("running"));
}

#[test]
fn the_last_to_arrive_at_a_barrier_is_named() {
    let mut o = held(&[(Cause::Running, 6_000, None)]);
    // Each arrival has two sections, of which one waits.
    for s in &mut o.sums {
        (s.kind, s.acquisitions) = (LockKind::Barrier, 20);
    }
    assert_eq!(
        says(&o),
        "100 % of all waiting: 3 threads wait at barrier `global_1000` for fn3 (work.c:3), the last to arrive; 100 % of \
         that while running. `global_1000` (barrier) holds server back: 3 threads waited 6.00 s for it in 10.0 s."
    );
    assert_eq!(told(&o).locks[0].kind, "barrier");
}

#[test]
fn a_deadlock_comes_first() {
    let mut o = nested();
    let blocked = |tid, lock, at| Blocked {
        tid: Tid(tid),
        lock,
        site: Some(site(at)),
        since: Time(5 * MS),
        stack: Some(StackId(at as u32)),
    };
    o.stacks.insert(StackId(0x300), vec![0x300, 0x2100]);
    let members = vec![blocked(11, INNER, 0x300), blocked(12, OUTER, 0x500)];
    let (found, seen) = (Time(9 * MS), Time(10 * MS));
    o.deadlocks.push(Deadlock { found, seen, members, before_start: true, owned: true, ..Deadlock::default() });
    let report = told(&o);
    assert_eq!(
        report.verdict[0],
        "DEADLOCK: 2 threads wait for one another and will never go on: thread 11 (worker11) holds `global_1000` and \
         waits for `global_1008` in fn3 (work.c:3); thread 12 (worker12) holds `global_1008` and waits for `global_1000` \
         in fn5 (work.c:5). It was there before the observation began."
    );
    let thread = &report.deadlocks[0].threads[0];
    assert_eq!((thread.lock.as_str(), thread.holds.as_str()), ("1234:0x1008", "1234:0x1000"));
    assert_eq!((thread.since_ns, thread.stack.len()), (ms(5), 2));
    let text = text(&report);
    assert!(text.starts_with("DEADLOCK"), "{text}");
    assert!(
        text.contains("thread 11 (worker11) waits for `global_1008`:\n  fn3 (work.c:3)\n  fn33 (work.c:33)\n"),
        "{text}"
    );
    let mut alone = observation();
    alone.deadlocks = o.deadlocks.clone();
    assert_eq!(told(&alone).verdict.len(), 1, "that no lock was seen would mislead");
    let first = |o: &Run| told(o).verdict[0].clone();
    o.deadlocks[0].owned = false;
    assert!(first(&o).starts_with("DEADLOCK: 2 threads wait for one another in a circle, for 5.00 ms to the end: "));
    assert!(first(&o).ends_with(" They go on only if another thread gives back one of their locks."), "{}", first(&o));
    o.deadlocks[0].ended = Some(Time(11 * MS));
    assert_eq!(
        first(&o),
        "No deadlock: thread 11 (worker11), thread 12 (worker12) waited for one another in a circle, which ended after \
         6.00 ms."
    );
    assert!(told(&o).deadlocks.is_empty() && told(&o).ended_circles[0].ended_ns == Some(ms(11)));
}

#[test]
fn a_report_can_be_restricted() {
    let o = nested();
    let parts = |part: Option<&str>| Parts(part.into_iter().flat_map(|p| p.split('|')).map(str::to_owned).collect());
    let only = |lock: Option<&str>, site: Option<&str>| {
        let selection = Selection { lock: parts(lock), site: parts(site) };
        build(&o, &mut FakeNames, &Options { selection, ..Options::default() })
    };
    let inner = only(Some("1008"), None).unwrap();
    assert_eq!(inner.locks.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["global_1008"]);
    assert_eq!((inner.totals.locks, inner.totals.harm_ns), (1, ms(4_000)));
    assert!(
        inner.verdict[0].starts_with("100 % of the selected locks' waiting is caused by `fn5`"),
        "{:?}",
        inner.verdict
    );
    assert_eq!(only(Some("1008|1000"), None).unwrap().locks.len(), 2);
    let by_id = only(Some("1234:0x1000"), None).unwrap();
    assert_eq!(by_id.locks[0].name, "global_1000");
    let fn4 = only(None, Some("fn4")).unwrap();
    assert_eq!((fn4.locks.len(), fn4.sites.len(), fn4.sites[0].symbol.as_str()), (1, 1, "fn4 (work.c:4)"));
    let unmatched = only(None, Some("fn9")).unwrap_err();
    assert_eq!(unmatched.to_string(), "no site matches `fn9`; there is fn3 (work.c:3), fn4 (work.c:4), fn5 (work.c:5)");
    assert!(only(Some("1008"), Some("fn4")).is_err());
    assert_eq!(only(Some("nix"), None).unwrap_err().candidates, ["global_1000", "global_1008"]);
}

#[test]
fn lock_orders_that_could_deadlock_are_told() {
    let mut o = nested();
    let order = |outer, inner, tid, count| LockOrder {
        outer,
        outer_site: site(0x300),
        inner,
        inner_site: site(0x500),
        tid: Tid(tid),
        others: false,
        count,
    };
    o.orders = vec![order(OUTER, INNER, 11, 1), order(INNER, OUTER, 12, 1_000)];
    let report = told(&o);
    let orders = &report.inversions[0].orders;
    assert_eq!((report.inversions.len(), orders.len(), orders[1].count), (1, 2, 1_000));
    assert_eq!((orders[0].outer.as_str(), orders[0].inner_symbol.as_str()), ("1234:0x1000", "fn5 (work.c:5)"));
    let expected = "
Lock orders that could deadlock: each lock was held while the next one was taken
  `global_1000` → `global_1008` → `global_1000`
    `global_1000` (in fn3 (work.c:3)), then `global_1008` (in fn5 (work.c:5)): once, by thread 11 (worker11)
    `global_1008` (in fn3 (work.c:3)), then `global_1000` (in fn5 (work.c:5)): 1,000 times, by thread 12 (worker12)
";
    assert!(text(&report).contains(expected), "{}", text(&report));
}
