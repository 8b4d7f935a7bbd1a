//! The sums of one series, and the bounded set of series of one workload.

use super::buckets::Buckets;
use std::collections::BTreeMap;

/// How many series are kept for each that is among the top now: of those that once were, none is taken away.
pub(super) const KEPT: usize = 4;

/// What was counted of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockSums {
    /// Completed sections; `None` where none are seen.
    pub(super) acquisitions: Option<u64>,
    pub(super) contentions: u64,
    pub(super) wait: Buckets,
    /// `None` where they are not seen.
    pub(super) hold: Option<Buckets>,
    /// Threads that wait now: no sum.
    pub(super) waiters: u64,
}

impl LockSums {
    /// Adds what has come.
    pub(super) fn add(&mut self, more: &Self) {
        if let Some(more) = more.acquisitions {
            let sum = self.acquisitions.get_or_insert(0);
            *sum = sum.saturating_add(more);
        }
        self.contentions = self.contentions.saturating_add(more.contentions);
        self.wait.add(&more.wait);
        if let Some(more) = &more.hold {
            self.hold.get_or_insert_with(Buckets::default).add(more);
        }
        self.waiters = self.waiters.saturating_add(more.waiters);
    }

    /// Whether nothing has come.
    pub(super) fn is_nothing(&self) -> bool {
        let counted = self.acquisitions.unwrap_or(0).saturating_add(self.contentions).saturating_add(self.waiters);
        let nothing = Buckets::default();
        counted == 0 && self.wait == nothing && self.hold.as_ref().is_none_or(|hold| *hold == nothing)
    }

    /// What ranks it: what was waited, and who waits.
    pub(super) fn harm(&self) -> u64 {
        self.wait.sum_ns.saturating_add(self.waiters)
    }
}

/// Names a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LockLabels {
    pub(super) lock: String,
    pub(super) kind: String,
}

/// Names who made others wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CulpritLabels {
    pub(super) held: LockLabels,
    pub(super) site: String,
}

/// Waiting caused, ns, by what the culprit was doing.
pub(super) type Causes = BTreeMap<&'static str, u64>;

/// Adds waiting by cause.
pub(super) fn add_causes(sum: &mut Causes, more: &Causes) {
    for (&cause, &wait) in more {
        let sum = sum.entry(cause).or_default();
        *sum = sum.saturating_add(wait);
    }
}

/// Series by their names, and one for all that have none of their own.
#[derive(Clone, Debug)]
pub(super) struct Top<K, V> {
    pub(super) own: BTreeMap<K, V>,
    pub(super) other: V,
    /// How many had no series of their own when it was looked last.
    pub(super) omitted: u64,
}

impl<K, V: Default> Default for Top<K, V> {
    fn default() -> Self {
        Self { own: BTreeMap::new(), other: V::default(), omitted: 0 }
    }
}

impl<K: Ord, V: Default> Top<K, V> {
    /// Adds what has come. Whoever is among the first `top` that did harm (`harm` is not 0) gets a series of its own, as long as there is `room`, of
    /// which is taken off; whoever has one keeps it.
    pub(super) fn take(
        &mut self,
        risen: Vec<(K, V)>,
        top: usize,
        room: &mut usize,
        harm: impl Fn(&V) -> u64,
        add: impl Fn(&mut V, &V),
    ) {
        let mut risen: Vec<(u64, K, V)> = risen.into_iter().map(|(key, value)| (harm(&value), key, value)).collect();
        risen.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        self.omitted = 0;
        for (rank, (harm, key, value)) in risen.into_iter().enumerate() {
            if let Some(own) = self.own.get_mut(&key) {
                add(own, &value);
            } else if rank < top && harm > 0 && *room > 0 && self.own.len() < top.saturating_mul(KEPT) {
                *room -= 1;
                add(self.own.entry(key).or_default(), &value);
            } else {
                self.omitted += 1;
                add(&mut self.other, &value);
            }
        }
    }
}
