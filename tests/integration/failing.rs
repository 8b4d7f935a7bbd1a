//! Locks that are refused, and locks that another thread gives back.

use crate::harness::exact::{assert_exact, assert_lock};
use crate::harness::may_observe;
use crate::harness::observer::observe;
use crate::harness::privilege::is_root;

#[test]
fn what_is_refused_is_not_held() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("failing 20");
    assert!(truth.fact("ceilings") == 1 || !is_root(), "nobody tried a lock below whose ceiling it runs");
    assert_exact(&truth, &report);
    // What nobody can hold is in no order with what is held.
    assert!(report.inversions.is_empty(), "{:?}", report.inversions);
    assert!(report.locks.iter().all(|lock| lock.release_unseen == 0), "{:?}", report.locks);
}

#[test]
fn locks_that_another_thread_gives_back() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("strangers 40 100");
    // Those beyond what is followed were forgotten one by one, the others when their thread ended: all but a few are told.
    let lost = &report.quality.lost;
    assert_eq!(lost.get("held_forgotten"), Some(&25), "{lost:?}");
    assert_lock(truth.lock("own_lock"), report.named("own_lock"));
    let handed = report.named("handed_lock");
    assert_eq!(handed.acquisitions, truth.lock("handed_lock").acquisitions, "{handed:?}");
    assert_eq!(handed.release_unseen + 1, handed.acquisitions, "the last one was held at the end: {handed:?}");
    let taken: u64 = report.locks.iter().filter(|lock| lock.name.contains("take")).map(|lock| lock.acquisitions).sum();
    assert!((25..=truth.fact("given_back")).contains(&taken), "{taken} of {}", truth.fact("given_back"));
}
