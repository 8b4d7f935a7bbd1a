//! What the graph knows of each lock and live section.

use super::barrier::Waiters;
use super::component::{Components, Last, NONE};
use super::detail::Keeper;
use super::findings::{Cause, EdgeKind, Who};
use super::path::Hops;
use super::shares::LockShares;
use super::split::Split;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Doing, Hold, LockKind};
use crate::options::Options;
use crate::state::{Instance, Machines, NodeIx};
use crate::tally::Tally;
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;

/// A release is time-stamped when the unlock call begins: its probe runs before the lock word changes. An attempt in
/// between still finds the lock held by the releaser, whom the owner word names.
const RELEASE_SKEW: Nanos = Nanos(20_000);
/// Locks whose waiting is told apart.
const MAX_LOCKS: usize = 32_768;
/// Whom the waiters of a lock wait for, kept from one busy period to the next.
const KEPT_CELLS: usize = 32;
/// Pieces remembered per lock to tell which thread waited for which.
pub(super) const PIECES: usize = 4;

/// Where a waiter is in its wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not wait.
    #[default]
    Idle,
    /// It asked while nobody held the lock, and nobody has taken it since.
    Free,
    /// It waits for somebody.
    Blocked,
}

/// The first part of a wait, charged apart from the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) who: Option<Who>,
    pub(super) site: u32,
    pub(super) lock: Lock,
    pub(super) tid: Tid,
    pub(super) key: u64,
    pub(super) inferred: bool,
    pub(super) wait: Nanos,
}

/// What the graph knows of a live section.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) site: u32,
    pub(super) key: u64,
    pub(super) comp: u32,
    pub(super) phase: Phase,
    /// Where it stands in the lock's list of its phase.
    at: u32,
    /// Since when it is blocked.
    pub(super) start: Time,
    /// Steps up to this one made those who block it directly.
    pub(super) direct: u64,
    pub(super) head: Option<Head>,
    /// The lock's acquisitions, and how many waited for it, when it asked.
    pub(super) acquisitions: u64,
    pub(super) ahead: u64,
    /// The lock's cells when it began to be blocked.
    pub(super) before: Vec<u64>,
}

/// The section that released a lock last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) tid: Tid,
    pub(super) site: u32,
    pub(super) who: Who,
    pub(super) stack: Option<StackId>,
    pub(super) key: u64,
    pub(super) comp: u32,
    pub(super) taken: u64,
    pub(super) last: Last,
    /// What a holder did that was only seen to hold it ([`crate::op::Hold`]), and with which stack.
    pub(super) seen: Option<(Cause, Option<StackId>)>,
    /// Whether it was not seen to give it back: it may have it still.
    pub(super) unseen: bool,
}

/// One to blame, in one way: what the lock's waiters have waited because of it, since the lock is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) key: CellKey,
    pub(super) site: u32,
    /// Index of the shares of the culprit's lock.
    pub(super) store: u32,
    /// Its row in the shares of the lock that is waited for; [`NONE`] if it has none yet.
    pub(super) row: u32,
    pub(super) sum: u64,
}

/// What tells cells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CellKey {
    /// `None`: nobody.
    pub(super) who: Option<Who>,
    pub(super) cause: Cause,
    pub(super) nested: bool,
    pub(super) inferred: bool,
}

/// Those who were to blame up to a time, as a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) to: Time,
    pub(super) comp: u32,
}

/// A piece of time, and the thread to blame for a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) tid: Tid,
    /// Whom that thread itself waited for: it has given the lock back, and nobody has it yet.
    pub(super) outer: Tid,
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) epoch: Time,
    pub(super) split: Split,
}

/// What the graph knows of a lock.
#[derive(Clone, Debug)]
pub(super) struct LockBlame {
    /// Index of its shares; [`NONE`] if it was never waited for, or is beyond the number that is followed.
    pub(super) shares: u32,
    /// Up to when its waiters' time has been charged.
    pub(super) since: Time,
    /// When its holders came together.
    pub(super) epoch: Time,
    pub(super) blocked: Vec<NodeIx>,
    pub(super) free: Vec<NodeIx>,
    pub(super) cells: Vec<Cell>,
    pub(super) index: FxHashMap<CellKey, u32>,
    pub(super) hint: usize,
    pub(super) log: Vec<Entry>,
    pub(super) pieces: Vec<Piece>,
    pub(super) next_piece: usize,
    pub(super) past: Option<Past>,
    /// Acquisitions so far.
    pub(super) acquisitions: u64,
    /// Whether nobody has acquired it since the last release.
    pub(super) gap: bool,
    /// Locks that its holders wait for, if it is waited for itself.
    pub(super) inner: Vec<u32>,
    /// Locks whose holders wait for this one.
    pub(super) outer: Vec<u32>,
    /// The step that settled it last.
    pub(super) settled: u64,
    pub(super) round: Option<Box<Waiters>>,
}

impl Default for LockBlame {
    fn default() -> Self {
        Self {
            shares: NONE,
            since: Time(0),
            epoch: Time(0),
            blocked: Vec::new(),
            free: Vec::new(),
            cells: Vec::new(),
            index: FxHashMap::default(),
            hint: 0,
            log: Vec::new(),
            pieces: Vec::new(),
            next_piece: 0,
            past: None,
            acquisitions: 0,
            gap: false,
            inner: Vec::new(),
            outer: Vec::new(),
            settled: 0,
            round: None,
        }
    }
}

/// The graph while it grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Engine {
    pub(super) options: Options,
    pub(super) locks: Vec<LockBlame>,
    pub(super) sections: Vec<Section>,
    pub(super) keys: u64,
    pub(super) sites: Sites,
    pub(super) comps: Components,
    pub(super) stores: Vec<LockShares>,
    pub(super) store_of: FxHashMap<Lock, u32>,
    pub(super) beyond: Tally,
    pub(super) keeper: Option<Keeper>,
    pub(super) hops: Hops,
    pub(super) work: Vec<u32>,
    pub(super) scratch: super::blame::Scratch,
    /// The step that settled everything at the end.
    pub(super) closed: u64,
}

/// Sites by dense number, and what each is blamed for.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites {
    numbers: FxHashMap<Site, u32>,
    pub(super) list: Vec<(Site, Nanos)>,
    recent: Option<(Site, u32)>,
}

/// The site of a section whose attempt was not seen.
pub(super) const NO_SITE: u32 = u32::MAX;

impl Sites {
    pub(super) fn number(&mut self, site: Option<Site>) -> u32 {
        let Some(site) = site else { return NO_SITE };
        if let Some((recent, number)) = self.recent
            && recent == site
        {
            return number;
        }
        let list = &mut self.list;
        let number = *self.numbers.entry(site).or_insert_with(|| {
            list.push((site, Nanos(0)));
            list.len() as u32 - 1
        });
        self.recent = Some((site, number));
        number
    }

    pub(super) fn blame(&mut self, site: u32, wait: Nanos) {
        if let Some(entry) = self.list.get_mut(site as usize) {
            entry.1 += wait;
        }
    }
}

impl Engine {
    pub(super) fn new(options: Options) -> Self {
        let keeper = (options.detail || options.told).then(|| Keeper::new(!options.detail));
        Self { options, keeper, comps: Components::new(options.detail), ..Self::default() }
    }

    /// The lock's shares, made if it is followed; [`NONE`] if it is not.
    pub(super) fn store(&mut self, m: &Machines, lock: u32) -> u32 {
        let state = &mut self.locks[lock as usize];
        if state.shares == NONE {
            let id = m.lock_at(lock).lock;
            let full = self.stores.len() >= MAX_LOCKS;
            state.shares = match self.store_of.get(&id) {
                Some(&known) => known,
                None if full => NONE,
                None => {
                    self.stores.push(LockShares::new(id));
                    self.store_of.insert(id, self.stores.len() as u32 - 1);
                    self.stores.len() as u32 - 1
                }
            };
        }
        state.shares
    }

    /// Somebody is seen to hold a lock whose releases are not seen: from now on it is the one that had it last.
    pub(super) fn see(&mut self, m: &Machines, lock: u32, (process, site): (Process, Site), hold: &Hold) {
        let waiting = m.known(hold.holder).and_then(|thread| thread.waiting);
        if waiting.is_some_and(|wait| m.node(wait).lock == lock) {
            // The lock names its last reader even when that one has given it back, and asks for it anew.
            return;
        }
        if self.locks.len() <= lock as usize {
            self.locks.resize_with(lock as usize + 1, LockBlame::default);
        }
        self.touch(m, lock);
        let who = Who::Section { lock: hold.lock, site };
        let cause = match hold.doing {
            Doing::Unknown => Cause::Unknown,
            Doing::Running => Cause::Running,
            Doing::Runnable => Cause::Runnable,
            Doing::Blocked => Cause::Blocked,
            Doing::Sleeping => Cause::Sleeping,
        };
        let seen = Some((cause, hold.stack.filter(|_| cause != Cause::Unknown)));
        let known = &mut self.locks[lock as usize].past;
        if let Some(past) = known
            && (past.tid, past.who, past.stack) == (hold.holder, who, hold.stack)
            && past.seen.is_some()
        {
            // It goes on, or began anew: where it did so is the same.
            past.seen = seen;
            past.last.release = m.now;
            return;
        }
        self.drop_past(lock);
        let kind = m.lock_at(lock).kind;
        let instance = Instance {
            number: 0,
            tid: hold.holder,
            process,
            lock: hold.lock,
            kind,
            site: Some(site),
            shared: false,
            contended: false,
            attempt: None,
            acquire: None,
            stack: hold.stack,
        };
        let key = match &mut self.keeper {
            Some(keeper) => keeper.add(&instance),
            None => self.keys,
        };
        self.keys = key + 1;
        let last = Last { open: false, release: m.now, acquire: None, key, tid: hold.holder };
        let site = self.sites.number(Some(site));
        let state = &mut self.locks[lock as usize];
        state.past = Some(Past {
            tid: hold.holder,
            site,
            who,
            stack: hold.stack,
            key,
            comp: NONE,
            taken: m.step,
            last,
            seen,
            unseen: true,
        });
        state.gap = true;
        state.epoch = m.now;
    }

    pub(super) fn begin(&mut self, m: &Machines, node: NodeIx) {
        if self.sections.len() <= node as usize {
            self.sections.resize_with(node as usize + 1, Section::default);
        }
        let lock = m.node(node).lock as usize;
        if self.locks.len() <= lock {
            self.locks.resize_with(lock + 1, LockBlame::default);
        }
        let instance = &m.node(node).instance;
        let site = self.sites.number(instance.site);
        let key = match &mut self.keeper {
            Some(keeper) => keeper.add(instance),
            None => self.keys,
        };
        self.keys = key + 1;
        let section = &mut self.sections[node as usize];
        section.site = site;
        section.key = key;
        section.comp = NONE;
        section.phase = Phase::Idle;
        section.head = None;
    }

    /// Puts a waiter into the list of its phase.
    pub(super) fn enlist(&mut self, m: &Machines, node: NodeIx, phase: Phase, direct: u64) {
        let lock = m.node(node).lock;
        if phase == Phase::Blocked && self.locks[lock as usize].blocked.is_empty() {
            self.store(m, lock);
        }
        let state = &mut self.locks[lock as usize];
        let section = &mut self.sections[node as usize];
        if phase == Phase::Blocked {
            if state.blocked.is_empty() {
                state.since = m.now;
                if state.cells.len() > KEPT_CELLS {
                    state.cells.clear();
                    state.index.clear();
                }
            }
            section.before.clear();
            section.before.extend(state.cells.iter().map(|cell| cell.sum));
            section.start = m.now;
            section.direct = direct;
        }
        let list = if phase == Phase::Blocked { &mut state.blocked } else { &mut state.free };
        section.phase = phase;
        section.at = list.len() as u32;
        list.push(node);
    }

    /// Takes a waiter out of its list; its phase was.
    pub(super) fn delist(&mut self, lock: u32, node: NodeIx) -> Phase {
        let (phase, at) = {
            let section = &mut self.sections[node as usize];
            (std::mem::take(&mut section.phase), section.at)
        };
        let state = &mut self.locks[lock as usize];
        let list = match phase {
            Phase::Idle => return phase,
            Phase::Free => &mut state.free,
            Phase::Blocked => &mut state.blocked,
        };
        list.swap_remove(at as usize);
        if let Some(&moved) = list.get(at as usize) {
            self.sections[moved as usize].at = at;
        }
        if phase == Phase::Blocked && state.blocked.is_empty() {
            for entry in state.log.drain(..) {
                self.comps.unref(entry.comp);
            }
            state.pieces.clear();
            state.next_piece = 0;
        }
        phase
    }

    /// A section is complete, and nobody can be charged to it any more.
    pub(super) fn complete(&mut self, site: u32, mut comp: u32, last: Last) {
        if let Some(keeper) = &mut self.keeper {
            keeper.complete(last.key);
        }
        if comp == NONE {
            self.comps.alone(last.tid, site, last.key);
        } else {
            let root = self.comps.find(&mut comp);
            self.comps.ended(root, last);
            self.comps.unref(comp);
        }
    }

    pub(super) fn drop_past(&mut self, lock: u32) {
        let Some(past) = self.locks[lock as usize].past.take() else { return };
        if past.seen.is_none() || past.comp != NONE {
            self.complete(past.site, past.comp, past.last);
        } else if let Some(keeper) = &mut self.keeper {
            // Nobody waited for it: it is none of the sections that count.
            keeper.forget(past.key);
        }
    }

    /// Whom a new waiter waits for, if anybody.
    pub(super) fn phase(&self, m: &Machines, node: NodeIx) -> Phase {
        let n = m.node(node);
        let (lock, state) = (m.lock_at(n.lock), &self.locks[n.lock as usize]);
        let blocked = match lock.holders.last() {
            _ if lock.kind == LockKind::Semaphore && lock.free > 0 => false,
            // Who took the last permit itself waits for another to be given.
            Some(&last) if lock.kind == LockKind::Semaphore => m.node(last).thread != n.thread,
            Some(_) => true,
            None => {
                let still = |p: &Past| {
                    Some(p.tid) == n.owner && p.tid != n.instance.tid && m.now.since(p.last.release) <= RELEASE_SKEW
                };
                n.told == Some(true) && state.past.as_ref().is_some_and(still)
            }
        };
        if blocked { Phase::Blocked } else { Phase::Free }
    }

    /// Those who asked while the lock was free are overtaken.
    pub(super) fn overtake(&mut self, m: &Machines, lock: u32, by: NodeIx) {
        while let Some(&waiter) = self.locks[lock as usize].free.last() {
            self.delist(lock, waiter);
            let n = m.node(waiter);
            let wait = m.now.since(n.instance.attempt.unwrap_or(m.now));
            let holder = m.node(by);
            let before_start = holder.instance.acquire.is_none();
            let owner = n.owner.filter(|&o| o != n.instance.tid);
            if wait > Nanos(0) {
                let head = if before_start || owner == Some(holder.instance.tid) {
                    self.head_of(m, by, waiter, wait, !before_start)
                } else {
                    self.head_of_thread(m, owner, waiter, wait)
                };
                self.sections[waiter as usize].head = Some(head);
            }
            self.enlist(m, waiter, Phase::Blocked, m.step);
        }
    }

    /// The first part of a wait, charged to a section.
    fn head_of(&mut self, m: &Machines, by: NodeIx, waiter: NodeIx, wait: Nanos, inferred: bool) -> Head {
        let (site, key) = (self.sections[by as usize].site, self.sections[by as usize].key);
        let i = &m.node(by).instance;
        let holder = self.comps.of(&mut self.sections[by as usize].comp, site, key);
        let section = &mut self.sections[waiter as usize];
        let own = self.comps.of(&mut section.comp, section.site, section.key);
        self.comps.union(holder, own);
        Head { who: Some(who(i.lock, i.site, i.tid)), site, lock: i.lock, tid: i.tid, key, inferred, wait }
    }

    /// The first part of a wait, charged to a thread, or to nobody.
    pub(super) fn head_of_thread(&mut self, m: &Machines, tid: Option<Tid>, waiter: NodeIx, wait: Nanos) -> Head {
        let lock = m.node(waiter).instance.lock;
        let key = match (&mut self.keeper, tid) {
            (Some(keeper), Some(tid)) => keeper.of_thread(tid, lock),
            _ => 0,
        };
        Head { who: tid.map(Who::Thread), site: NO_SITE, lock, tid: tid.unwrap_or_default(), key, inferred: true, wait }
    }

    pub(super) fn last(&self, m: &Machines, node: NodeIx, open: bool) -> Last {
        let i = &m.node(node).instance;
        Last { open, release: m.now, acquire: i.acquire, key: self.sections[node as usize].key, tid: i.tid }
    }

    /// A waiting or holding section is gone, without leaving a trace at the lock.
    pub(super) fn vanish(&mut self, m: &Machines, node: NodeIx, open: bool) {
        let last = self.last(m, node, open);
        let section = &mut self.sections[node as usize];
        let (site, comp) = (section.site, std::mem::replace(&mut section.comp, NONE));
        self.complete(site, comp, last);
    }
}

/// How a section is named where it is blamed.
pub(super) fn who(lock: Lock, site: Option<Site>, tid: Tid) -> Who {
    site.map_or(Who::Thread(tid), |site| Who::Section { lock, site })
}

/// Whether an edge from a section that took the lock at a step is direct.
pub(super) fn kind(nested: bool, taken: u64, direct: u64) -> EdgeKind {
    match nested {
        true => EdgeKind::Nested,
        false if taken <= direct => EdgeKind::Direct,
        false => EdgeKind::Indirect,
    }
}
