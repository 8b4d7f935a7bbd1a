//! Which locks were taken while which were held.

use super::NodeIx;
use super::machine::Machines;
use crate::deadlock::LockOrder;
use crate::id::{Lock, Site, Tid};
use rustc_hash::FxHashMap;

/// Pairs of lock and site that are listed.
const MAX_ORDERS: usize = 16_384;

type Pair = (Lock, Site, Lock, Site);

/// Collects nested acquisitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    seen: FxHashMap<Pair, (Tid, bool, u64)>,
    beyond: u64,
}

impl Orders {
    /// A lock was taken by a thread that holds another.
    pub(super) fn nested(&mut self, m: &Machines, outer: NodeIx, inner: NodeIx) {
        let (outer, inner) = (&m.node(outer).instance, &m.node(inner).instance);
        let (Some(outer_site), Some(inner_site)) = (outer.site, inner.site) else { return };
        let pair = (outer.lock, outer_site, inner.lock, inner_site);
        if self.seen.len() >= MAX_ORDERS && !self.seen.contains_key(&pair) {
            self.beyond += 1;
            return;
        }
        let entry = self.seen.entry(pair).or_insert((inner.tid, false, 0));
        entry.1 |= entry.0 != inner.tid;
        entry.2 += 1;
    }

    pub(super) fn list(&self) -> Vec<LockOrder> {
        let mut all: Vec<_> = self.seen.iter().collect();
        all.sort_unstable();
        let order = |(&(outer, outer_site, inner, inner_site), &(tid, others, count)): (&Pair, &(Tid, bool, u64))| {
            LockOrder { outer, outer_site, inner, inner_site, tid, others, count }
        };
        all.into_iter().map(order).collect()
    }

    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }
}
