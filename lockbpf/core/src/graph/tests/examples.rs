//! The worked examples of SyncProf's figures 1, 2 and 4, number by number.

use super::*;
use EdgeKind::{Barrier, Direct, Indirect, Nested};

/// Figure 4a.
fn figure_4a() -> Vec<Op> {
    let (l1, l2) = (1, 2);
    vec![
        attempt(4, 1, l1, 1),
        acquire(4, 1, l1),
        attempt(6, 2, l2, 2),
        acquire(6, 2, l2),
        attempt(10, 3, l1, 3),
        attempt(10, 5, l2, 4),
        attempt(10, 6, l1, 1),
        attempt(10, 7, l2, 6),
        attempt(10, 4, l2, 5),
        release(12, 2, l2),
        acquire(12, 5, l2),
        release(14, 1, l1),
        acquire(14, 3, l1),
        release(14, 5, l2),
        acquire(14, 7, l2),
        release(16, 7, l2),
        acquire(16, 4, l2),
        release(18, 3, l1),
        acquire(18, 6, l1),
        release(19, 6, l1),
        release(30, 4, l2),
    ]
}

#[test]
fn figure_4a_hand_offs() {
    let f = findings(&figure_4a());
    let expected = [
        (1, 3, 4, Direct),
        (1, 5, 4, Direct),
        (2, 4, 2, Direct),
        (2, 6, 2, Direct),
        (2, 7, 2, Direct),
        (3, 5, 4, Indirect),
        (4, 6, 2, Indirect),
        (4, 7, 2, Indirect),
        (6, 7, 2, Indirect),
    ];
    assert_eq!(edges(&f), expected);
    assert_eq!([1, 2, 3, 4, 6, 5].map(|s| apwt(&f, s)), [8, 6, 4, 4, 2, 0]);
    assert_eq!((f.aplt[&lock(1)], f.aplt[&lock(2)]), (Nanos(12), Nanos(12)));
    assert_eq!(detail(&f).critical_components, [[2, 4, 6, 7]]);
    assert_eq!(f.last_thread, Some(Tid(4)));
    assert_eq!([2, 4, 6, 5, 1, 3].map(|s| cpwt(&f, s)), [Some(6), Some(4), Some(2), Some(0), None, None]);
    assert!(detail(&f).unattributed.is_empty());
    assert!(f.impossible.is_empty() && f.cut.is_empty(), "{:?} {:?}", f.impossible, f.cut);
    assert!(detail(&f).edges.iter().all(|e| !e.inferred));
    let nodes: Vec<_> = detail(&f).nodes.iter().map(|n| (n.number, n.tid.0, n.release.unwrap().0)).collect();
    assert_eq!(nodes, [(1, 1, 14), (2, 2, 12), (3, 3, 18), (4, 5, 14), (5, 6, 19), (6, 7, 16), (7, 4, 30)]);
}

#[test]
fn figure_1_nesting() {
    let (l1, l2) = (1, 2);
    let f = findings(&[
        attempt(0, 1, l1, 1),
        acquire(0, 1, l1),
        attempt(0, 2, l2, 2),
        acquire(0, 2, l2),
        attempt(6, 4, l2, 5),
        attempt(7, 2, l1, 3),
        release(9, 1, l1),
        acquire(9, 2, l1),
        release(9, 2, l1),
        release(10, 2, l2),
        acquire(10, 4, l2),
        release(12, 4, l2),
    ]);
    // d1: T1's CS1; d2: T2's CS2; d3: T4's CS5; d4: T2's CS3 inside CS2.
    assert_eq!(edges(&f), [(1, 3, 2, Nested), (1, 4, 2, Direct), (2, 3, 2, Direct)]);
    assert_eq!([1, 2, 5, 3].map(|s| apwt(&f, s)), [4, 2, 0, 0]);
    assert_eq!((f.aplt[&lock(l1)], f.aplt[&lock(l2)]), (Nanos(4), Nanos(2)));
    let shares = &f.locks[&lock(l2)];
    assert_eq!(shares.holders.iter().find(|h| h.who == section(l1, 1)).unwrap().nested, Nanos(2));
    let [chain] = &shares.chains[..] else { panic!("{:?}", shares.chains) };
    let links: Vec<_> = chain.links.iter().map(|l| (l.lock, l.site, l.tid)).collect();
    assert_eq!(links, [(lock(l2), Some(site(2)), Tid(2)), (lock(l1), Some(site(1)), Tid(1))]);
    assert_eq!(chain.wait, Nanos(2));
}

fn figure_2() -> Vec<Op> {
    let b = 9;
    vec![arrives(6, 1, b, 4, 1, 5), arrives(6, 4, b, 4, 4, 8), arrives(10, 2, b, 4, 2, 6), arrives(12, 3, b, 4, 3, 7)]
}

#[test]
fn figure_2_barrier() {
    // d1, d3, d5, d7: the regions of T1, T4, T2, T3; d2, d4, d6, d8: their successors.
    let exclusive = findings(&figure_2());
    let expected = [(5, 2, 4, Barrier), (5, 4, 4, Barrier), (7, 2, 2, Barrier), (7, 4, 2, Barrier), (7, 6, 2, Barrier)];
    assert_eq!(edges(&exclusive), expected);
    assert_eq!([1, 4, 2, 3].map(|s| apwt(&exclusive, s)), [0, 0, 8, 6]);
    let overlapping = findings_of(&figure_2(), Options { overlapping_barriers: true, ..DETAIL });
    let expected = [(5, 2, 4, Barrier), (5, 4, 4, Barrier), (7, 2, 6, Barrier), (7, 4, 6, Barrier), (7, 6, 2, Barrier)];
    assert_eq!(edges(&overlapping), expected);
    assert_eq!([1, 4, 2, 3].map(|s| apwt(&overlapping, s)), [0, 0, 8, 14]);
    for f in [exclusive, overlapping] {
        // T1 and T4 arrived first and delayed nobody; T3 was last and waited for nobody.
        assert_eq!(detail(&f).critical_components, [vec![2, 4, 5, 6, 7], vec![8]]);
        assert_eq!((f.last_thread, cpwt(&f, 1), cpwt(&f, 7)), (Some(Tid(3)), None, Some(0)));
        let times: Vec<_> = detail(&f).nodes.iter().map(|n| (n.attempt, n.acquire, n.release)).collect();
        assert_eq!(times[2], (Some(Time(6)), Some(Time(6)), Some(Time(6))));
        assert_eq!(times[3], (Some(Time(6)), Some(Time(12)), None));
    }
}
