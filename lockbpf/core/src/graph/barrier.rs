//! Barriers: each arrival ends a region, which the earlier arrivals' successors have waited for, and begins a successor.
//! Without detail an arrival costs as much as there are distinct waiting sites.

use super::component::NONE;
use super::engine::{Engine, who};
use super::findings::{Blamed, Cause, EdgeKind};
use super::path::Hop;
use super::shares::{Charge, Ended, Waited};
use crate::state::{Machines, NodeIx};
use crate::units::{Nanos, Time};

/// Waiters of an arrival that are listed thread by thread.
const MAX_PAIRED: usize = 8;

/// The successors that wait at one site.
#[derive(Clone, Copy, Debug)]
struct Row {
    row: usize,
    count: u64,
    /// Σ of their arrivals.
    arrivals: u128,
}

/// Those who wait for a round to be complete.
#[derive(Clone, Debug)]
pub(super) struct Waiters {
    last: Time,
    rows: Vec<Row>,
    /// In order of arrival.
    successors: Vec<NodeIx>,
    /// The first so many of them belong to `cluster`.
    joined: usize,
    cluster: u32,
}

impl Engine {
    /// A thread arrives: its region is to blame for the waits of those who were there before.
    pub(super) fn arrive(&mut self, m: &Machines, region: NodeIx, successor: NodeIx) {
        let lock = m.node(region).lock;
        let store = self.store(m, lock);
        let round = self.locks[lock as usize].round.take();
        let mut round = round.unwrap_or_else(|| {
            let (last, rows, successors) = (m.now, Vec::new(), Vec::new());
            Box::new(Waiters { last, rows, successors, joined: 0, cluster: NONE })
        });
        let step = m.now.since(round.last);
        if step > Nanos(0) {
            for &waiter in &round.successors[round.joined..] {
                let section = &mut self.sections[waiter as usize];
                let own = self.comps.of(&mut section.comp, section.site, section.key);
                round.cluster = self.joined(round.cluster, own);
            }
            round.joined = round.successors.len();
        }
        let overlapping = self.options.overlapping_barriers;
        if round.joined > 0 && (step > Nanos(0) || overlapping) {
            self.charge_arrival(m, region, store, &mut round, step);
        }
        round.last = m.now;
        let site = m.node(successor).instance.site;
        let row = if store == NONE { 0 } else { self.stores[store as usize].waiter(site) };
        let at = round.rows.iter().position(|r| r.row == row).unwrap_or_else(|| {
            round.rows.push(Row { row, count: 0, arrivals: 0 });
            round.rows.len() - 1
        });
        round.rows[at].count += 1;
        round.rows[at].arrivals += u128::from(m.now.0);
        round.successors.push(successor);
        self.locks[lock as usize].round = Some(round);
    }

    /// Adds to a cluster, of which the round keeps one reference.
    fn joined(&mut self, cluster: u32, comp: u32) -> u32 {
        if cluster == NONE {
            return self.comps.add_ref(comp);
        }
        let mut kept = cluster;
        let root = self.comps.find(&mut kept);
        self.comps.union(root, comp);
        self.comps.find(&mut kept)
    }

    fn charge_arrival(&mut self, m: &Machines, region: NodeIx, store: u32, round: &mut Waiters, step: Nanos) {
        let n = m.node(region);
        let i = &n.instance;
        let overlapping = self.options.overlapping_barriers;
        let (mut charge, now) = (
            Charge {
                who: who(i.lock, i.site, i.tid),
                cause: Cause::Unknown,
                nested: false,
                inferred: false,
                wait: Nanos(0),
            },
            u128::from(m.now.0),
        );
        let mut total = Nanos(0);
        for row in &round.rows {
            let cost = if overlapping {
                (u128::from(row.count) * now).saturating_sub(row.arrivals)
            } else {
                u128::from(row.count) * u128::from(step.0)
            };
            charge.wait = Nanos(u64::try_from(cost).unwrap_or(u64::MAX));
            total += charge.wait;
            if store != NONE && charge.wait > Nanos(0) {
                self.stores[store as usize].charge_arrival(row.row, &charge, row.count);
            }
        }
        let section = &mut self.sections[region as usize];
        let key = section.key;
        self.sites.blame(section.site, total);
        let own = self.comps.of(&mut section.comp, section.site, key);
        self.comps.add_cost(own, section.site, total.0);
        round.cluster = self.joined(round.cluster, own);
        let cost = |waiter: NodeIx| match m.node(waiter).instance.attempt {
            Some(arrival) if overlapping => m.now.since(arrival),
            _ => step,
        };
        if store != NONE {
            let shares = &mut self.stores[store as usize];
            shares.aplt += total;
            let mut paired = Nanos(0);
            for &waiter in round.successors.iter().take(MAX_PAIRED) {
                shares.edit().pairs.add((m.node(waiter).instance.tid, i.tid), cost(waiter));
                paired += cost(waiter);
            }
            shares.edit().unpaired += total - paired;
        }
        if let Some(keeper) = &mut self.keeper {
            for &waiter in &round.successors {
                let to = self.sections[waiter as usize].key;
                let by = Blamed { who: charge.who, tid: i.tid, lock: i.lock, wait: cost(waiter), inferred: false };
                keeper.edge(key, to, EdgeKind::Barrier, by);
            }
        }
    }

    /// These successors wait no longer: the round was complete `at` a time, or the recording ends then.
    pub(super) fn complete_round(
        &mut self,
        m: &Machines,
        lock: u32,
        successors: impl Iterator<Item = NodeIx>,
        how: Ended,
        at: Time,
    ) {
        let store = self.locks[lock as usize].shares;
        let (mut last, mut giver) = (at, None);
        if let Some(round) = &self.locks[lock as usize].round {
            last = round.last;
            giver = round.successors.last().map(|&s| m.node(s).instance.tid).filter(|_| how == Ended::Acquired);
        }
        for successor in successors {
            let i = &m.node(successor).instance;
            let attempt = i.attempt.unwrap_or(at);
            let wait = at.since(attempt);
            let key = self.sections[successor as usize].key;
            if let (Some(keeper), Ended::Acquired) = (&mut self.keeper, how) {
                keeper.acquired(key, at);
            }
            if wait == Nanos(0) {
                continue;
            }
            let unattributed = if how == Ended::Open { at.since(last) } else { Nanos(0) };
            if let Some(keeper) = &mut self.keeper {
                keeper.leave(key, unattributed);
                keeper.waited(key, wait, None);
            }
            if store == NONE {
                self.beyond.add(wait);
            } else {
                let shares = &mut self.stores[store as usize];
                let waited = Waited { site: i.site, tid: i.tid, wait, count: 1, stack: i.stack, how, overtaken: None };
                let row = shares.add_wait(&waited);
                shares.leave(row, unattributed);
            }
            if let Some(giver) = giver {
                self.hops.push(Hop { tid: i.tid, giver, lock: Some(i.lock), attempt, acquire: at });
            }
        }
        if how == Ended::Acquired {
            self.drop_round(lock);
        }
    }

    pub(super) fn drop_round(&mut self, lock: u32) {
        if let Some(round) = self.locks[lock as usize].round.take()
            && round.cluster != NONE
        {
            self.comps.unref(round.cluster);
        }
    }
}
