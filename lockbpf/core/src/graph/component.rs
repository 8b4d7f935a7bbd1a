//! Connected components of the graph, while they live: which sites' sections are in them and at what cost, and which
//! section was released last. A component that no live section can extend any more is folded into the sums of the thread
//! of its last section; at the end the thread of the last event decides which of these sums count.

use crate::id::Tid;
use crate::units::Time;
use rustc_hash::FxHashMap;
use slab::Slab;
use std::sync::Arc;

/// No component.
pub(super) const NONE: u32 = u32::MAX;
/// Emptied costs kept for the next component.
const MAX_SPARE: usize = 1_024;
/// Sites in a component that are searched one by one.
const LINEAR: usize = 16;

/// Cost by site.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    few: Vec<(u32, u64)>,
    many: FxHashMap<u32, u64>,
}

impl Costs {
    fn add(&mut self, site: u32, cost: u64) {
        if self.many.is_empty() {
            if let Some(entry) = self.few.iter_mut().find(|e| e.0 == site) {
                entry.1 = entry.1.saturating_add(cost);
                return;
            }
            self.few.push((site, cost));
            if self.few.len() > LINEAR {
                self.many.extend(self.few.drain(..));
            }
            return;
        }
        let sum = self.many.entry(site).or_default();
        *sum = sum.saturating_add(cost);
    }

    fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.few.iter().copied().chain(self.many.iter().map(|(&site, &cost)| (site, cost)))
    }
}

/// When a section was released, acquired and created, which orders the sections of a component; and its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Last {
    /// Not at all.
    pub(super) open: bool,
    pub(super) release: Time,
    pub(super) acquire: Option<Time>,
    pub(super) key: u64,
    pub(super) tid: Tid,
}

#[derive(Clone, Debug, Default)]
struct Component {
    /// The component that this one was merged into; itself if it was not.
    parent: u32,
    /// Live sections, entries of locks' logs, and merged components that name this one.
    refs: u32,
    last: Last,
    costs: Costs,
    members: Vec<u64>,
}

/// The folded components whose last section ran on one thread. There may be as many sums as sites: copies share all but the last few.
#[derive(Clone, Debug, Default)]
pub(super) struct Folded {
    sums: Arc<Costs>,
    /// Still to be added to the sums.
    recent: Costs,
    pub(super) members: Vec<Vec<u64>>,
}

impl Folded {
    fn add(&mut self, site: u32, cost: u64) {
        self.recent.add(site, cost);
        if self.recent.len() == LINEAR {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let sums = Arc::make_mut(&mut self.sums);
        self.recent.few.drain(..).for_each(|(site, cost)| sums.add(site, cost));
    }

    /// Cost by site.
    pub(super) fn costs(&mut self) -> &Costs {
        self.settle();
        &self.sums
    }
}

/// All components.
#[derive(Clone, Debug, Default)]
pub(super) struct Components {
    slots: Slab<Component>,
    folded: FxHashMap<Tid, Folded>,
    /// The lone section folded last: most are of the same site and thread as the one before.
    lone: Option<(Tid, u32)>,
    /// Empty, but with room: each contended section has costs, and need not allocate for them.
    spare: Vec<Costs>,
    detail: bool,
}

impl Components {
    pub(super) fn new(detail: bool) -> Self {
        Self { detail, ..Self::default() }
    }

    /// Live components.
    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.slots.len()
    }

    /// The component of a section, made if it has none.
    pub(super) fn of(&mut self, comp: &mut u32, site: u32, key: u64) -> u32 {
        if *comp == NONE {
            let mut costs = self.spare.pop().unwrap_or_default();
            costs.add(site, 0);
            let members = if self.detail { vec![key] } else { Vec::new() };
            let parent = self.slots.vacant_key() as u32;
            *comp = self.slots.insert(Component { parent, refs: 1, last: Last::default(), costs, members }) as u32;
        }
        self.find(comp)
    }

    /// The root of a component; the reference is moved there.
    pub(super) fn find(&mut self, comp: &mut u32) -> u32 {
        let mut root = *comp;
        while self.slots[root as usize].parent != root {
            root = self.slots[root as usize].parent;
        }
        if root != *comp {
            self.slots[root as usize].refs += 1;
            self.unref(std::mem::replace(comp, root));
        }
        root
    }

    pub(super) fn add_ref(&mut self, root: u32) -> u32 {
        self.slots[root as usize].refs += 1;
        root
    }

    /// Drops a reference; without any, the component is complete.
    pub(super) fn unref(&mut self, mut comp: u32) {
        while comp != NONE {
            let slot = &mut self.slots[comp as usize];
            slot.refs -= 1;
            if slot.refs > 0 {
                return;
            }
            let slot = self.slots.remove(comp as usize);
            if slot.parent == comp {
                self.fold(slot);
                return;
            }
            comp = slot.parent;
        }
    }

    fn fold(&mut self, component: Component) {
        let folded = self.folded.entry(component.last.tid).or_default();
        component.costs.iter().for_each(|(site, cost)| folded.add(site, cost));
        if self.detail {
            folded.members.push(component.members);
        }
        self.spare(component.costs);
    }

    fn spare(&mut self, mut costs: Costs) {
        // To empty a large table would take longer than to make a new one.
        if costs.many.is_empty() && self.spare.len() < MAX_SPARE {
            costs.few.clear();
            self.spare.push(costs);
        }
    }

    /// Joins two roots, the smaller into the larger.
    pub(super) fn union(&mut self, a: u32, b: u32) -> u32 {
        if a == b {
            return a;
        }
        let size = |c: &Component| c.costs.len() + c.members.len();
        let larger = size(&self.slots[a as usize]) >= size(&self.slots[b as usize]);
        let (into, from) = if larger { (a, b) } else { (b, a) };
        let slot = &mut self.slots[from as usize];
        slot.parent = into;
        let (last, costs, mut members) =
            (slot.last, std::mem::take(&mut slot.costs), std::mem::take(&mut slot.members));
        let slot = &mut self.slots[into as usize];
        slot.refs += 1;
        slot.last = slot.last.max(last);
        costs.iter().for_each(|(site, cost)| slot.costs.add(site, cost));
        slot.members.append(&mut members);
        self.spare(costs);
        into
    }

    /// Charges an edge to the site that it comes from.
    pub(super) fn add_cost(&mut self, root: u32, site: u32, cost: u64) {
        self.slots[root as usize].costs.add(site, cost);
    }

    /// Adds a member of which no more is known.
    pub(super) fn add_member(&mut self, root: u32, key: u64) {
        if self.detail {
            self.slots[root as usize].members.push(key);
        }
    }

    /// A section of the component ended.
    pub(super) fn ended(&mut self, root: u32, last: Last) {
        let slot = &mut self.slots[root as usize];
        slot.last = slot.last.max(last);
    }

    /// A section without any edge is complete.
    pub(super) fn alone(&mut self, tid: Tid, site: u32, key: u64) {
        if self.lone.replace((tid, site)) == Some((tid, site)) && !self.detail {
            return;
        }
        let folded = self.folded.entry(tid).or_default();
        folded.add(site, 0);
        if self.detail {
            folded.members.push(vec![key]);
        }
    }

    /// A thread that cannot be the last any more.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.folded.remove(&tid);
        self.lone = None;
    }

    /// Whether there are sums of a thread.
    pub(super) fn has(&self, tid: Tid) -> bool {
        self.folded.contains_key(&tid)
    }

    /// The sums of one thread.
    pub(super) fn of_thread(&mut self, tid: Tid) -> Folded {
        self.lone = None;
        self.folded.remove(&tid).unwrap_or_default()
    }
}
