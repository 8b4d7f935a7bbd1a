//! Random traces: well-formed ones against the reference and against changed names, and any steps at all.

use super::reference::{actual, reference};
use super::*;
use crate::graph::findings::CriticalPath;
use proptest::prelude::*;

/// A multiple of all products of up to five numbers of readers among five threads.
const UNIT: u64 = 12 * 12 * 12 * 12 * 12;

/// A program of a few threads, from random choices.
#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    /// (thread, lock, shared), with recursion as often as acquired.
    held: Vec<(u32, u64, bool)>,
    waiting: BTreeMap<u32, (u64, bool)>,
    now: u64,
}

fn kind_of(lock: u64) -> LockKind {
    match lock {
        0..=2 => LockKind::Mutex,
        3 => LockKind::Rwlock,
        _ => LockKind::Semaphore,
    }
}

impl Program {
    fn free(&self, tid: u32, lock: u64, shared: bool) -> bool {
        let mut others = self.held.iter().filter(|h| h.1 == lock && h.0 != tid);
        match kind_of(lock) {
            LockKind::Semaphore => self.held.iter().filter(|h| h.1 == lock).count() < 2,
            LockKind::Rwlock if shared => others.all(|h| h.2),
            _ => others.next().is_none(),
        }
    }

    fn take(&mut self, tid: u32, lock: u64, shared: bool) {
        self.ops.push(acquire(self.now, tid, lock));
        self.held.push((tid, lock, shared));
        self.waiting.remove(&tid);
    }

    fn step(&mut self, (tid, choice, lock, at, pause): (u32, u32, u64, u64, u64)) {
        self.now += pause.saturating_sub(3) * UNIT;
        let now = self.now;
        if let Some(&(lock, shared)) = self.waiting.get(&tid) {
            if choice == 0 {
                self.ops.push(fails(now, tid, lock, Failure::TimedOut));
                self.waiting.remove(&tid);
            } else if self.free(tid, lock, shared) {
                self.take(tid, lock, shared);
            }
            return;
        }
        let mine: Vec<usize> = (0..self.held.len()).filter(|&i| self.held[i].0 == tid).collect();
        if choice < 5 && !mine.is_empty() {
            // Any of them, not only the one taken last.
            let (_, lock, _) = self.held.remove(mine[at as usize % mine.len()]);
            self.ops.push(release(now, tid, lock));
            return;
        }
        let again = self.held.iter().find(|h| h.0 == tid && h.1 == lock).map(|h| h.2);
        let shared = again.unwrap_or(kind_of(lock) == LockKind::Rwlock && at % 3 > 0);
        self.ops.push(attempt_of(now, tid, lock, at, kind_of(lock), shared));
        let free = self.free(tid, lock, shared);
        if again.is_some() && kind_of(lock) != LockKind::Semaphore || choice == 6 && free {
            self.take(tid, lock, shared);
        } else if choice == 7 && !free {
            self.ops.push(fails(now, tid, lock, Failure::TryFailed));
        } else {
            self.waiting.insert(tid, (lock, shared));
        }
    }
}

fn program() -> impl Strategy<Value = Vec<Op>> {
    let step = (0u32..5, 0u32..12, 0u64..5, 0u64..6, 0u64..9);
    prop::collection::vec(step, 1..120).prop_map(|steps| {
        let mut program = Program::default();
        steps.into_iter().for_each(|step| program.step(step));
        program.ops
    })
}

/// Any step at any time, well-formed or not.
fn nonsense() -> impl Strategy<Value = Vec<Op>> {
    let who = prop::option::weighted(0.3, (0u32..5).prop_map(Tid));
    let step = (0u64..40, 0u32..5, 0u32..14, 0u64..4, 0u64..4, who, prop::option::of(any::<bool>()), any::<bool>());
    let op = step.prop_map(|(pause, tid, what, addr, at, other, contended, shared)| {
        let kind = [LockKind::Mutex, LockKind::Rwlock, LockKind::Semaphore, LockKind::Futex][addr as usize];
        let l = lock(addr);
        let action = match what {
            0..=2 => Action::Attempt(Attempt { kind, shared, owner: other, contended, ..asks(addr, at) }),
            3..=5 => Action::Acquire { lock: l, waker: other },
            6..=7 => Action::Release { lock: l, how: Released::Unlock },
            8 => Action::Fail { lock: l, how: Failure::TimedOut },
            9 => Action::Fail { lock: l, how: if shared { Failure::TryFailed } else { Failure::Error } },
            10 => return arrives(pause, tid, 7, at as u32, at, at + 10),
            11 if shared => Action::Off { reason: OffReason::Blocked, stack: None },
            11 => Action::On,
            12 if shared => Action::CondWait { condition: lock(9), site: site(9) },
            12 => Action::CondWake { condition: lock(9) },
            _ => Action::Exit { ends: false },
        };
        op(pause, tid, action)
    });
    prop::collection::vec(op, 1..200).prop_map(|mut ops| {
        let mut now = 0;
        for op in &mut ops {
            now += op.time.0;
            op.time = Time(if op.time.0 == 39 { now - 39 } else { now });
        }
        ops
    })
}

/// All that does not depend on detail: a text that tells everything.
fn totals(f: &Findings) -> String {
    let mut locks: Vec<_> = f.locks.iter().collect();
    locks.sort_unstable_by_key(|l| l.0);
    // Its stretches are detail.
    let path = CriticalPath { on: Vec::new(), ..f.path.clone() };
    let mut text = format!("{:?} {path:?} {:?} {:?} {:?}", f.sites, f.impossible, f.cut, f.last_thread);
    let aplt: BTreeMap<_, _> = f.aplt.iter().collect();
    text += &format!("{aplt:?}");
    for (lock, s) in locks {
        let waiters: Vec<_> = s.waiters.iter().map(|w| (w.site, w.waits, w.max, w.unattributed, &w.blamed)).collect();
        let holders: Vec<_> =
            s.holders.iter().map(|h| (h.who, h.wait, h.nested, h.causes, h.victims, h.inferred)).collect();
        text += &format!("\n{lock:?} {:?} {:?} {:?} {:?}", s.waits, s.timed_out, s.open, s.unattributed);
        text += &format!("{waiters:?} {holders:?} {:?} {:?} {:?}", s.chains, s.pairs.top(), s.unpaired);
    }
    text
}

fn renamed(ops: &[Op]) -> Vec<Op> {
    let name = |l: Lock| Lock { process: Process(3), addr: 1_000 - l.addr };
    let place = |s: Site| Site { process: Process(3), addr: s.addr * 7 + 5 };
    let who = |t: Tid| Tid(900_000 - t.0 * 13);
    let change = |op: &Op| {
        let action = match op.action {
            Action::Attempt(a) => {
                Action::Attempt(Attempt { lock: name(a.lock), site: place(a.site), owner: a.owner.map(who), ..a })
            }
            Action::Acquire { lock, waker } => Action::Acquire { lock: name(lock), waker: waker.map(who) },
            Action::Release { lock, how } => Action::Release { lock: name(lock), how },
            Action::Fail { lock, how } => Action::Fail { lock: name(lock), how },
            Action::Barrier(a) => {
                Action::Barrier(Arrival { barrier: name(a.barrier), site: place(a.site), post: place(a.post), ..a })
            }
            Action::CondWait { condition, site } => Action::CondWait { condition: name(condition), site: place(site) },
            Action::CondWake { condition } => Action::CondWake { condition: name(condition) },
            other => other,
        };
        Op { tid: who(op.tid), action, ..*op }
    };
    ops.iter().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_reference(ops in program()) {
        let f = findings(&ops);
        prop_assert!(f.impossible.is_empty(), "{:?}", f.impossible);
        prop_assert_eq!(actual(&f), reference(&ops));
    }

    #[test]
    fn detail_changes_nothing(ops in prop_oneof![program(), nonsense()]) {
        prop_assert_eq!(totals(&findings(&ops)), totals(&findings_of(&ops, Options::default())));
    }

    #[test]
    fn a_copy_ends_as_of_its_moment_and_leaves_the_rest_alone(
        ops in prop_oneof![program(), nonsense()],
        moments in prop::collection::btree_set(0usize..200, 1..5),
        detail: bool,
    ) {
        let options = Options { detail, ..DETAIL };
        let mut graph = WaitGraph::new(options);
        // Kept, as by one who compares them: what they share must not change.
        let mut copies = Vec::new();
        for (n, op) in ops.iter().enumerate() {
            if moments.contains(&n) {
                copies.push((n, graph.clone()));
                copies.push((n, graph.clone()));
            }
            graph.op(op, &mut ());
            if moments.contains(&n) {
                let (n, copy) = copies.pop().unwrap();
                prop_assert_eq!(totals(&copy.finish(Time(0), &mut ())), totals(&findings_of(&ops[..n], options)));
            }
        }
        prop_assert_eq!(totals(&graph.finish(Time(0), &mut ())), totals(&findings_of(&ops, options)));
        for (n, copy) in copies {
            prop_assert_eq!(totals(&copy.finish(Time(0), &mut ())), totals(&findings_of(&ops[..n], options)));
        }
    }

    #[test]
    fn names_change_nothing(ops in prop_oneof![program(), nonsense()]) {
        let (a, b) = (findings(&ops), findings(&renamed(&ops)));
        prop_assert_eq!(edges(&a), edges(&b));
        prop_assert_eq!(&detail(&a).critical_components, &detail(&b).critical_components);
        prop_assert_eq!(&detail(&a).unattributed, &detail(&b).unattributed);
        prop_assert_eq!((a.impossible, a.cut), (b.impossible, b.cut));
        let costs = |f: &Findings| {
            let mut all: Vec<_> = f.sites.values().map(|s| (s.apwt, s.cpwt)).collect();
            all.sort_unstable();
            all
        };
        prop_assert_eq!(costs(&findings(&ops)), costs(&findings(&renamed(&ops))));
    }

    #[test]
    fn nonsense_is_conserved_and_counted(ops in nonsense(), overlapping_barriers in any::<bool>()) {
        findings_of(&ops, Options { detail: true, overlapping_barriers, ..Options::default() });
    }
}

#[test]
fn extreme_times() {
    let f = findings(&[
        attempt(0, 1, 1, 1),
        acquire(0, 1, 1),
        attempt(0, 2, 1, 2),
        release(u64::MAX, 1, 1),
        acquire(u64::MAX, 2, 1),
        release(5, 2, 1),
    ]);
    assert_eq!(apwt(&f, 1), u64::MAX);
    assert_eq!(f.impossible["time_went_back"], 1);
}
